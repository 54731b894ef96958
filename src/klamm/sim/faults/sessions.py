"""ZooKeeper sessions that end at a bad moment, are not learned of, or leave their znodes behind."""

from collections.abc import Callable
from typing import Final

from klamm.controller.states import ControllerState
from klamm.sim.actions import ClusterUnderTest, Draw, NodeUnderTest, ScheduledCluster, later
from klamm.sim.faults.aim import victim
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.zookeeper.ensemble import BREAKS, Loss
from klamm.zk.znodes import BROKER_IDS

_LOOK_S: Final = 0.05
_LOOKS: Final = 200
_OUTLIVED_S: Final = 8.0
_FOR_GOOD_S: Final = 100_000.0
_LOOK_AGAIN_S: Final = 0.5


def expire(cluster: ScheduledCluster, draw: Draw) -> None:
    """ZooKeeper expires a session whose client is alive."""
    number, node = victim(cluster, draw)
    if node.session and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(node.session)


def expire_twice(cluster: ScheduledCluster, draw: Draw) -> None:
    """ZooKeeper expires a session, and its successor right after it is established."""
    number, node = victim(cluster, draw)
    first = node.session
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.05, 0.5)) * rng.random())

    def again(looks: int) -> None:
        session = cluster.nodes[number].session
        if cluster.is_healed or not looks:
            return
        if session and session != first and cluster.ensemble.has_quorum:
            cluster.log(f"the new session of node {number} is ended, too")
            cluster.ensemble.end_session(session)
        else:
            later(cluster, _LOOK_S, again, looks - 1)

    if first and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(first)
        later(cluster, after_s, again, _LOOKS)


def expire_registering(cluster: ScheduledCluster, draw: Draw) -> None:
    """The session of the next broker registration ends before the write, or after it without the answer."""
    _expire_writing(cluster, draw, lambda step: step.registers, "registering")


def expire_becoming_controller(cluster: ScheduledCluster, draw: Draw) -> None:
    """The session of the next elected controller ends before the write, or after it without the answer."""
    _expire_writing(cluster, draw, lambda step: step.becomes_controller, "taking office")


def expire_while_asked(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A controller's session ends while a request waits in its busy event queue."""
    left = draw("left", lambda rng: rng.randint(1, 3))

    def injection(step: Step) -> Loss | None:
        nonlocal left
        if step.kind is not StepKind.ASK or not step.actor or not cluster.ensemble.has_quorum:
            return None
        node = cluster.nodes[step.target]
        if not node.broker.controller.is_active or node.broker.controller.state is ControllerState.IDLE:
            return None
        left -= 1
        if not left:
            cluster.injection_points.remove(injection)
        cluster.log(f"the session of node {step.target} is ended, which is busy and asked for {step.what}")
        cluster.ensemble.end_session(node.session)
        return None

    cluster.injection_points.set(injection)


def _expire_writing(cluster: ScheduledCluster, draw: Draw, is_meant: Callable[[Step], bool], what: str) -> None:
    loss = Loss(draw("loss", lambda rng: rng.choice([loss.value for loss in BREAKS])))

    def injection(step: Step) -> Loss | None:
        if not is_meant(step):
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"the session of node {step.actor} is ended {loss.value} {what}")
        session = cluster.nodes[step.actor].session
        if loss is Loss.BEFORE:
            cluster.ensemble.end_session(session)
        else:
            later(cluster, 0.0, cluster.ensemble.end_session, session)
        return loss

    cluster.injection_points.set(injection)


def unlearned_session(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next connect responses are lost: ZooKeeper has sessions that no client knows of."""
    left = draw("left", lambda rng: rng.randint(1, 4))

    def greets(session: int) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            cluster.ensemble.on_greeting = lambda session: True
            return True
        cluster.log(f"nobody learns of session {session:#x}")
        return False

    cluster.ensemble.on_greeting = greets
    number, node = victim(cluster, draw)
    if node.session and cluster.ensemble.has_quorum and draw("expires", lambda rng: rng.random() < 0.5):
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(node.session)
    else:
        for server in cluster.servers:
            server.drop_all()


def outlived_session(cluster: ScheduledCluster, draw: Draw) -> None:
    """A session ends, and its ephemeral znodes stay for a while."""
    number, node = victim(cluster, draw)
    for_s = draw("for_s", lambda rng: _OUTLIVED_S * rng.random())
    if node.session and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended, its znodes stay for {for_s} s")
        cluster.ensemble.outlived_s = lambda: for_s
        cluster.ensemble.end_session(node.session)
        cluster.ensemble.outlived_s = lambda: 0.0


def outlived_registration(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's next session ends right after it registered, without the answer, and its znode stays."""
    number, node = victim(cluster, draw)
    if not node.session or not cluster.ensemble.has_quorum:
        return

    def injection(step: Step) -> Loss | None:
        if step.kind is not StepKind.WRITE or step.actor != number or not step.what.split()[-1].startswith(BROKER_IDS):
            return None
        cluster.injection_points.remove(injection)
        later(cluster, 0.0, _expire_keeping_znode, cluster, cluster.nodes[number])
        return Loss.AFTER

    cluster.injection_points.set(injection)
    cluster.log(f"the session of node {number} is ended")
    cluster.ensemble.end_session(node.session)


def _expire_keeping_znode(cluster: ScheduledCluster, node: NodeUnderTest) -> None:
    """End the session in which a node registered, and keep its ephemeral znodes."""
    session = node.session
    if not session or not cluster.ensemble.has_quorum:
        return
    cluster.log(f"the session in which {node.host!r} registered is ended, its znode stays for good")
    cluster.ensemble.outlived_s = lambda: _FOR_GOOD_S
    cluster.ensemble.end_session(session)
    cluster.ensemble.outlived_s = lambda: 0.0
    later(cluster, _LOOK_AGAIN_S, _remove_znode_after_process, cluster, node, session)


def _remove_znode_after_process(cluster: ScheduledCluster, node: NodeUnderTest, session: int) -> None:
    """Remove the session's ephemeral znodes once the process that registered them is dead, as an operator would."""
    if not cluster.ensemble.tree.ephemerals.get(session):
        return
    if node.host.is_alive or not cluster.ensemble.has_quorum:
        later(cluster, _LOOK_AGAIN_S, _remove_znode_after_process, cluster, node, session)
    else:
        cluster.ensemble.remove_ephemerals(session)
