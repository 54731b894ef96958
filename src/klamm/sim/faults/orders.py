"""What lies between a controller and its brokers: held back, answered late, delivered again, carried out slowly."""

from typing import Final

from klamm.sim.brokers import Received, StubBroker
from klamm.sim.faults.aim import anyone, controllers, node_names, victim
from klamm.sim.faults.links import cut_for
from klamm.sim.stage import Draw, Stage, later
from klamm.sim.traps import Step, StepKind
from klamm.sim.zookeeper.ensemble import Loss
from klamm.wire.api import ApiKey
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

_LONGEST_S: Final = 20.0
_ECHOED: Final = (ApiKey.LEADER_AND_ISR.name, ApiKey.ALTER_PARTITION.name)


def move(stage: Stage, draw: Draw) -> None:
    """An operator deletes `/controller`, often while its holder is frozen: the session lives, the term is over."""
    acting = next(iter(controllers(stage)), None)
    number = draw("node", lambda dice: acting)
    for_s = draw("frozen_s", lambda dice: 2 * dice.random() if dice.random() < 0.7 else 0.0)
    if number is not None and for_s and not (host := stage.nodes[number].host).is_paused:
        stage.tell(f"{host!r} is paused for {for_s} s")
        stage.loop.pause(host)
        later(stage, for_s, stage.loop.resume, host)
    _depose(stage)


def _depose(stage: Stage) -> None:
    if stage.ensemble.has_quorum and not stage.is_healed:
        stage.tell("/controller is deleted")
        stage.ensemble.write(0, [Delete(CONTROLLER)], ())


def hold_orders(stage: Stage, draw: Draw) -> None:
    """A controller's orders are on the way, and arrive after one to three others became controller."""
    acting = next(iter(controllers(stage)), None)
    number = draw("node", lambda dice: acting)
    if number is None:
        return
    terms = draw("terms", lambda dice: dice.randint(1, 3))
    name = f"node-{number}"
    others = [n for n in stage.nodes if n != number]
    if not others:
        return
    cause = draw("cause", lambda dice: dice.choice(others))
    stage.tell(f"orders of {name} are held; it has some, since node {cause} has to register again")
    cut_for(stage, [(name, f"node-{n}") for n in others], 1.0 + 1.5 * terms)
    if stage.ensemble.has_quorum and (session := stage.nodes[cause].session):
        stage.ensemble.end_session(session)
    for term in range(terms):
        later(stage, 0.5 + 1.5 * term, _depose, stage)


def late_answers(stage: Stage, draw: Draw) -> None:
    """What brokers answer the controller, and ask it, is held back for longer than it waits."""
    acting = next(iter(controllers(stage)), None)
    number = draw("node", lambda dice: acting)
    if number is not None:
        name = f"node-{number}"
        for_s = draw("for_s", lambda dice: 2 * _LONGEST_S * dice.random())
        cut_for(stage, [(other, name) for other in node_names(stage) if other != name], for_s)


def backlog(stage: Stage, draw: Draw) -> None:
    """A broker takes seconds for each order; more come meanwhile."""
    number, node = victim(stage, draw)
    takes_s = draw("takes_s", lambda dice: dice.choice((0.5, 2.0, 6.0)))
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random())
    broker = node.broker
    stage.tell(f"node {number} takes {takes_s} s for each order, for {for_s} s")
    broker.order_takes_s = takes_s
    later(stage, for_s, _quick_again, broker)


def _quick_again(broker: StubBroker) -> None:
    broker.order_takes_s = 0.0


def replay_orders(stage: Stage, draw: Draw) -> None:
    """Orders that a broker, or an earlier run of it, has had already, arrive once more."""
    number = draw("node", lambda dice: dice.choice(list(anyone(stage))))
    node = stage.nodes[number]
    after_s = draw("after_s", lambda dice: dice.choice((0.0, 1.0, 5.0)) * dice.random())
    which = draw("which", lambda dice: sorted(dice.sample(range(8), 3)))
    orders = [node.broker.received[n] for n in which if n < len(node.broker.received)]
    if orders:
        stage.tell(f"{len(orders)} orders reach node {number} once more, after {after_s} s")
        later(stage, after_s, _deliver_again, stage, number, orders)


def echo_orders(stage: Stage, draw: Draw) -> None:
    """Orders come twice, or one that came earlier comes again: right after another one, or while a leader asks."""
    kind = StepKind(draw("kind", lambda dice: dice.choice((StepKind.ORDER.value, StepKind.ASK.value))))
    left = draw("left", lambda dice: dice.randint(1, 8))
    back = draw("back", lambda dice: dice.choice((1, 1, 2, 3)))
    after_s = draw("after_s", lambda dice: dice.choice((0.0, 0.02)) * dice.random())

    def trap(step: Step) -> Loss | None:
        nonlocal left
        if step.kind is not kind or not step.actor or step.what not in _ECHOED:
            return None
        left -= 1
        if not left:
            stage.traps.remove(trap)
        number = step.target if kind is StepKind.ORDER else step.actor
        had = [r for r in stage.nodes[number].broker.received if r.request.api_key is ApiKey.LEADER_AND_ISR]
        if len(had) >= back:
            stage.tell(f"LeaderAndIsr {back} of the last comes twice to node {number}")
            later(stage, after_s, _deliver_again, stage, number, [had[-back]])
        return None

    stage.traps.set(trap)


def overtake_asker(stage: Stage, draw: Draw) -> None:
    """A follower's session ends as its leader asks for an ISR; the leader has to ask again, and hears of it late."""
    takes_s = draw("takes_s", lambda dice: 0.3 + dice.random())

    def trap(step: Step) -> Loss | None:
        if step.what != ApiKey.ALTER_PARTITION.name or not stage.ensemble.has_quorum:
            return None
        led = [v[-1].isr for v in stage.history.states.values() if v[-1].leader == step.actor]
        others = sorted({b for isr in led for b in isr} - {step.actor, step.target})
        session = next((stage.nodes[b].session for b in others if b in stage.nodes and stage.nodes[b].session), 0)
        if not session:
            return None
        stage.traps.remove(trap)
        stage.tell(f"session {session:x} of a follower ends as node {step.actor} asks, which has to ask again")
        stage.ensemble.end_session(session)
        broker = stage.nodes[step.actor].broker
        broker.order_takes_s = takes_s
        later(stage, 3 * takes_s, _quick_again, broker)
        return Loss.BEFORE

    stage.traps.set(trap)


def _deliver_again(stage: Stage, number: int, orders: list[Received]) -> None:
    node = stage.nodes[number]
    if node.host.is_alive and not stage.is_healed:
        for order in orders:
            stage.loop.call_on(node.host, stage.loop.time(), node.broker.take_again, order)
