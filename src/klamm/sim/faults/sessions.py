"""ZooKeeper sessions that end at a bad moment, are not learned of, or leave their znodes behind."""

from collections.abc import Callable
from typing import Final

from klamm.controller.states import ControllerState
from klamm.sim.brokers import Node
from klamm.sim.faults.aim import victim
from klamm.sim.stage import Draw, Stage, later
from klamm.sim.traps import Step, StepKind
from klamm.sim.zookeeper.ensemble import BREAKS, Loss
from klamm.zk.znodes import BROKER_IDS

_LOOK_S: Final = 0.05
_LOOKS: Final = 200
_OUTLIVED_S: Final = 8.0
_FOR_GOOD_S: Final = 100_000.0
_LOOK_AGAIN_S: Final = 0.5


def expire(stage: Stage, draw: Draw) -> None:
    """ZooKeeper ends a session that is alive."""
    number, node = victim(stage, draw)
    if node.session and stage.ensemble.has_quorum:
        stage.tell(f"the session of node {number} is ended")
        stage.ensemble.end_session(node.session)


def expire_twice(stage: Stage, draw: Draw) -> None:
    """As soon as there is a new session, that is ended too."""
    number, node = victim(stage, draw)
    first = node.session
    after_s = draw("after_s", lambda dice: dice.choice((0.0, 0.05, 0.5)) * dice.random())

    def again(looks: int) -> None:
        session = stage.nodes[number].session
        if stage.is_healed or not looks:
            return
        if session and session != first and stage.ensemble.has_quorum:
            stage.tell(f"the new session of node {number} is ended, too")
            stage.ensemble.end_session(session)
        else:
            later(stage, _LOOK_S, again, looks - 1)

    if first and stage.ensemble.has_quorum:
        stage.tell(f"the session of node {number} is ended")
        stage.ensemble.end_session(first)
        later(stage, after_s, again, _LOOKS)


def expire_registering(stage: Stage, draw: Draw) -> None:
    """The next session that registers a broker ends before that, or after it without the answer."""
    _expire_writing(stage, draw, lambda step: step.registers, "registering")


def expire_becoming_controller(stage: Stage, draw: Draw) -> None:
    """The next session that wins an election ends before that, or after it without the answer."""
    _expire_writing(stage, draw, lambda step: step.becomes_controller, "taking office")


def expire_while_asked(stage: Stage, draw: Draw) -> None:
    """The session of a controller ends as it is asked for something that has to wait, since it is busy."""
    left = draw("left", lambda dice: dice.randint(1, 3))

    def trap(step: Step) -> Loss | None:
        nonlocal left
        if step.kind is not StepKind.ASK or not step.actor or not stage.ensemble.has_quorum:
            return None
        node = stage.nodes[step.target]
        if not node.broker.controller.is_active or node.broker.controller.state is ControllerState.IDLE:
            return None
        left -= 1
        if not left:
            stage.traps.remove(trap)
        stage.tell(f"the session of node {step.target} is ended, which is busy and asked for {step.what}")
        stage.ensemble.end_session(node.session)
        return None

    stage.traps.set(trap)


def _expire_writing(stage: Stage, draw: Draw, is_meant: Callable[[Step], bool], what: str) -> None:
    loss = Loss(draw("loss", lambda dice: dice.choice([loss.value for loss in BREAKS])))

    def trap(step: Step) -> Loss | None:
        if not is_meant(step):
            return None
        stage.traps.remove(trap)
        stage.tell(f"the session of node {step.actor} is ended {loss.value} {what}")
        session = stage.nodes[step.actor].session
        if loss is Loss.BEFORE:
            stage.ensemble.end_session(session)
        else:
            later(stage, 0.0, stage.ensemble.end_session, session)
        return loss

    stage.traps.set(trap)


def unlearned_session(stage: Stage, draw: Draw) -> None:
    """The next answers to connect requests are lost: sessions are granted, or resumed, of which nobody learns."""
    left = draw("left", lambda dice: dice.randint(1, 4))

    def greets(session: int) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            stage.ensemble.on_greeting = lambda session: True
            return True
        stage.tell(f"nobody learns of session {session:#x}")
        return False

    stage.ensemble.on_greeting = greets
    number, node = victim(stage, draw)
    if node.session and stage.ensemble.has_quorum and draw("expires", lambda dice: dice.random() < 0.5):
        stage.tell(f"the session of node {number} is ended")
        stage.ensemble.end_session(node.session)
    else:
        for server in stage.servers:
            server.drop_all()


def outlived_session(stage: Stage, draw: Draw) -> None:
    """A session ends, and its ephemeral znodes stay for a while."""
    number, node = victim(stage, draw)
    for_s = draw("for_s", lambda dice: _OUTLIVED_S * dice.random())
    if node.session and stage.ensemble.has_quorum:
        stage.tell(f"the session of node {number} is ended, its znodes stay for {for_s} s")
        stage.ensemble.outlived_s = lambda: for_s
        stage.ensemble.end_session(node.session)
        stage.ensemble.outlived_s = lambda: 0.0


def outlived_registration(stage: Stage, draw: Draw) -> None:
    """A node's session ends, and the next right after it registered, without the answer: its znode stays for good."""
    number, node = victim(stage, draw)
    if not node.session or not stage.ensemble.has_quorum:
        return

    def trap(step: Step) -> Loss | None:
        if step.kind is not StepKind.WRITE or step.actor != number or not step.what.split()[-1].startswith(BROKER_IDS):
            return None
        stage.traps.remove(trap)
        later(stage, 0.0, _end_for_good, stage, stage.nodes[number])
        return Loss.AFTER

    stage.traps.set(trap)
    stage.tell(f"the session of node {number} is ended")
    stage.ensemble.end_session(node.session)


def _end_for_good(stage: Stage, node: Node) -> None:
    session = node.session
    if not session or not stage.ensemble.has_quorum:
        return
    stage.tell(f"the session in which node {node.broker.number} registered is ended, its znode stays for good")
    stage.ensemble.outlived_s = lambda: _FOR_GOOD_S
    stage.ensemble.end_session(session)
    stage.ensemble.outlived_s = lambda: 0.0
    later(stage, _LOOK_AGAIN_S, _bury_with_process, stage, node, session)


def _bury_with_process(stage: Stage, node: Node, session: int) -> None:
    """Only the process that registered may know that it was its own: without it, an operator has to help."""
    if not stage.ensemble.tree.ephemerals.get(session):
        return
    if node.host.is_alive or not stage.ensemble.has_quorum:
        later(stage, _LOOK_AGAIN_S, _bury_with_process, stage, node, session)
    else:
        stage.ensemble.remove_ephemerals(session)
