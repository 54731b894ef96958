"""What may befall a cluster. Each fault is a function; to add one, write it here and put it into `FAULTS`.

Half of them are aimed at whoever is controller, since that is where it hurts. What a fault decides, it draws under a
name, so that a run can be recorded and repeated.
"""

import itertools
from collections.abc import Callable
from typing import Final

from klamm.runtime.randomness import Dice
from klamm.sim.brokers import Node
from klamm.sim.stage import Draw, Stage, later, restart
from klamm.sim.step_faults import STEP_FAULTS
from klamm.sim.traps import Step, StepKind
from klamm.sim.zookeeper.ensemble import Loss
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

_LONGEST_S: Final = 20.0
_LAGS: Final = (0.01, 0.1, 1.0)
_STEPS: Final = (0.0005, 0.003)

Fault = Callable[[Stage, Draw], None]


def kill(stage: Stage, draw: Draw) -> None:
    """As SIGKILL; it starts again at once, soon, or after its session has ended."""
    number, node = _victim(stage, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda dice: dice.choice((0.0, 0.1, 2.0, _LONGEST_S)) * dice.random())
    stage.tell(f"node {number} is killed, back after {back_s} s")
    stage.loop.kill(node.host)
    later(stage, back_s, restart, stage, number)


def power_loss(stage: Stage, draw: Draw) -> None:
    """The machine falls silent; back later, with another process."""
    number, node = _victim(stage, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda dice: _LONGEST_S * dice.random())
    stage.tell(f"node {number} loses power, back after {back_s} s")
    stage.network.power_off(node.host)
    later(stage, back_s, restart, stage, number)


def pause(stage: Stage, draw: Draw) -> None:
    """As SIGSTOP, often for longer than the session; everything arrives at once afterwards."""
    number, node = _victim(stage, draw)
    if not node.host.is_alive or node.host.is_paused:
        return
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random() ** 2)
    stage.tell(f"node {number} is paused for {for_s} s")
    stage.loop.pause(node.host)
    later(stage, for_s, stage.loop.resume, node.host)


def slow(stage: Stage, draw: Draw) -> None:
    """Every callback takes long for a while."""
    number, node = _victim(stage, draw)
    step_s = draw("step_s", lambda dice: dice.choice(_STEPS))
    stage.tell(f"node {number} takes {step_s} s for each step")
    stage.loop.slow(node.host, step_s)
    later(stage, 5, stage.loop.slow, node.host, 0.0)


def expire(stage: Stage, draw: Draw) -> None:
    """ZooKeeper ends a session that is alive."""
    number, node = _victim(stage, draw)
    session = node.session
    if session:
        stage.tell(f"the session of node {number} is ended")
        stage.ensemble.end_session(session)


def reset(stage: Stage, draw: Draw) -> None:
    """Connections of a node break: to ZooKeeper, or to another node."""
    number, _ = _victim(stage, draw)
    other = _other(stage, draw, number)
    stage.tell(f"connections between node {number} and {other} are reset")
    stage.network.reset(f"node-{number}", other)


def cut(stage: Stage, draw: Draw) -> None:
    """A link swallows what is sent, in one direction or both, for a while."""
    number, _ = _victim(stage, draw)
    name, other = f"node-{number}", _other(stage, draw, number)
    ways = {"to": [(name, other)], "from": [(other, name)], "both": [(name, other), (other, name)]}
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random())
    for source, target in ways[draw("way", lambda dice: dice.choice(tuple(ways)))]:
        stage.tell(f"{source} > {target} is cut for {for_s} s")
        stage.network.cut(source, target)
        later(stage, for_s, stage.network.mend, source, target)


def lose_answer(stage: Stage, draw: Draw) -> None:
    """The connection to ZooKeeper breaks around the next write of a node; the write happened, or did not."""
    number, _ = _victim(stage, draw)
    loss = Loss(draw("loss", lambda dice: dice.choice([loss.value for loss in Loss])))
    stage.tell(f"the next write of node {number} loses its connection {loss.value}")

    def trap(step: Step) -> Loss | None:
        if step.kind is not StepKind.WRITE or step.actor != number:
            return None
        stage.traps.remove(trap)
        stage.tell(f"node {number} loses its connection {loss.value} writing {step.what}")
        return loss

    stage.traps.set(trap)


def at_step(stage: Stage, draw: Draw) -> None:
    """Something befalls whoever takes the n-th step from now on: a write to ZooKeeper, or an order to a broker."""
    kind = StepKind(draw("kind", lambda dice: dice.choice([kind.value for kind in StepKind])))
    number = draw("number", lambda dice: dice.randint(1, 20))
    what = draw("what", lambda dice: dice.choice(tuple(STEP_FAULTS)))
    count = itertools.count(1)

    def trap(step: Step) -> Loss | None:
        if step.kind is not kind or not step.actor or next(count) != number:
            return None
        stage.traps.remove(trap)
        stage.tell(f"{what} as {kind.value} {number} is due: {step.what} by node {step.actor}")
        return STEP_FAULTS[what](stage, step)

    stage.traps.set(trap)


def lag(stage: Stage, draw: Draw) -> None:
    """A ZooKeeper server falls behind."""
    index = draw("server", lambda dice: dice.randrange(len(stage.servers)))
    lag_s = draw("lag_s", lambda dice: dice.choice(_LAGS))
    dice = Dice(draw("jitter", lambda dice: dice.randrange(1 << 16)))
    stage.tell(f"zk-{index + 1} lags by up to {lag_s} s")
    stage.servers[index].lag_s = lambda: lag_s * dice.random()


def move(stage: Stage, draw: Draw) -> None:
    """An operator deletes `/controller`, often while its holder is frozen: the session lives, the office is over."""
    acting = next((n for n, node in stage.nodes.items() if _acts(node)), None)
    number = draw("node", lambda dice: acting)
    for_s = draw("frozen_s", lambda dice: 2 * dice.random() if dice.random() < 0.7 else 0.0)
    if number is not None and for_s and not (host := stage.nodes[number].host).is_paused:
        stage.tell(f"{host!r} is paused for {for_s} s")
        stage.loop.pause(host)
        later(stage, for_s, stage.loop.resume, host)
    stage.tell("/controller is deleted")
    stage.ensemble.write(0, [Delete(CONTROLLER)], ())


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill,
    "power loss": power_loss,
    "pause": pause,
    "slow": slow,
    "expire": expire,
    "reset": reset,
    "cut": cut,
    "lose answer": lose_answer,
    "at step": at_step,
    "lag": lag,
    "move": move,
}


def heal(stage: Stage) -> None:
    """Everything runs, reaches everything, and is quick."""
    stage.network.mend_all()
    stage.traps.clear()
    for server in stage.servers:
        server.lag_s = lambda: 0.0
    for number, node in list(stage.nodes.items()):
        stage.loop.slow(node.host, 0.0)
        node.broker.lagging.clear()
        if node.broker.replicas.failed:
            stage.loop.kill(node.host)
        if node.host.is_alive:
            stage.loop.resume(node.host)
        else:
            restart(stage, number)


def _acts(node: Node) -> bool:
    return node.host.is_alive and node.broker.controller.is_active


def _victim(stage: Stage, draw: Draw) -> tuple[int, Node]:
    acting = [n for n, node in stage.nodes.items() if _acts(node)]
    number = draw("node", lambda dice: dice.choice(acting if acting and dice.random() < 0.5 else list(stage.nodes)))
    return number, stage.nodes[number]


def _other(stage: Stage, draw: Draw, number: int) -> str:
    others = [f"node-{n}" for n in stage.nodes if n != number]
    servers = [f"zk-{i + 1}" for i in range(len(stage.servers))]
    return draw("other", lambda dice: dice.choice([*others, *servers]))
