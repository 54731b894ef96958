"""Faults of ZooKeeper sessions: expiry at a bad moment, lost connect responses, ephemeral znodes that stay."""

from collections.abc import Callable
from typing import Final

from klamm.controller.states import ControllerState
from klamm.sim.actions import ClusterUnderTest, Draw, NodeUnderTest, ScheduledCluster, call_after
from klamm.sim.faults.aim import draw_node
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.zookeeper.ensemble import DISCONNECTS, InjectedFailure
from klamm.zk.znodes import BROKER_IDS

_POLL_INTERVAL_S: Final = 0.05
_MAX_POLLS: Final = 200
_MAX_EPHEMERALS_OUTLIVE_SESSION_S: Final = 8.0
_FOREVER_S: Final = 100_000.0
_RETRY_INTERVAL_S: Final = 0.5


def expire(cluster: ScheduledCluster, draw: Draw) -> None:
    """ZooKeeper expires the session of a live node."""
    number, node = draw_node(cluster, draw)
    if node.session and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(node.session)


def expire_twice(cluster: ScheduledCluster, draw: Draw) -> None:
    """ZooKeeper expires a node's session, and then its next session as soon as it is established."""
    number, node = draw_node(cluster, draw)
    first = node.session
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.05, 0.5)) * rng.random())

    def again(looks: int) -> None:
        """Poll until the node has a new session, and end that session."""
        session = cluster.nodes[number].session
        if cluster.is_healed or not looks:
            return
        if session and session != first and cluster.ensemble.has_quorum:
            cluster.log(f"the new session of node {number} is ended, too")
            cluster.ensemble.end_session(session)
        else:
            call_after(cluster, _POLL_INTERVAL_S, again, looks - 1)

    if first and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(first)
        call_after(cluster, after_s, again, _MAX_POLLS)


def expire_registering(cluster: ScheduledCluster, draw: Draw) -> None:
    """The session of the next broker registration ends before the write, or after it without the answer."""
    _expire_during_write(cluster, draw, lambda step: step.registers, "registering")


def expire_becoming_controller(cluster: ScheduledCluster, draw: Draw) -> None:
    """The ZooKeeper session of the next controller ends before its election is written, or before it has the answer."""
    _expire_during_write(cluster, draw, lambda step: step.becomes_controller, "its election")


def expire_busy_controller(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A controller's session ends while a request waits in its busy event queue."""
    left = draw("left", lambda rng: rng.randint(1, 3))

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        nonlocal left
        if step.kind is not StepKind.BROKER_REQUEST or not step.actor or not cluster.ensemble.has_quorum:
            return None
        node = cluster.nodes[step.target]
        if not node.broker.controller.is_active or node.broker.controller.state is ControllerState.IDLE:
            return None
        left -= 1
        if not left:
            cluster.injection_points.remove(injection)
        cluster.log(
            f"the session of node {step.target} is ended while the node is busy and has a request for {step.what}"
        )
        cluster.ensemble.end_session(node.session)
        return None

    cluster.injection_points.set(injection)


def _expire_during_write(cluster: ScheduledCluster, draw: Draw, is_target: Callable[[Step], bool], what: str) -> None:
    """End the session of the node that makes the next matching write.

    That happens before or after the write, and its response is lost.
    """
    loss = InjectedFailure(draw("loss", lambda rng: rng.choice([loss.value for loss in DISCONNECTS])))

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if not is_target(step):
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"the session of node {step.actor} is ended {loss.value} {what}")
        session = cluster.nodes[step.actor].session
        if loss is InjectedFailure.BEFORE:
            cluster.ensemble.end_session(session)
        else:
            call_after(cluster, 0.0, cluster.ensemble.end_session, session)
        return loss

    cluster.injection_points.set(injection)


def lose_connect_responses(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next connect responses are lost: ZooKeeper has sessions that no client knows of."""
    left = draw("left", lambda rng: rng.randint(1, 4))

    def may_answer_connect(session: int) -> bool:
        """Whether the server may answer a session's connect request; false while connect responses are lost."""
        nonlocal left
        left -= 1
        if left < 0:
            cluster.ensemble.may_answer_connect = lambda session: True
            return True
        cluster.log(f"the connect response of session {session:#x} is lost")
        return False

    cluster.ensemble.may_answer_connect = may_answer_connect
    number, node = draw_node(cluster, draw)
    if node.session and cluster.ensemble.has_quorum and draw("expires", lambda rng: rng.random() < 0.5):
        cluster.log(f"the session of node {number} is ended")
        cluster.ensemble.end_session(node.session)
    else:
        for server in cluster.servers:
            server.disconnect_clients()


def keep_ephemerals_after_expiry(cluster: ScheduledCluster, draw: Draw) -> None:
    """A session ends, but its ephemeral znodes stay for some seconds."""
    number, node = draw_node(cluster, draw)
    for_s = draw("for_s", lambda rng: _MAX_EPHEMERALS_OUTLIVE_SESSION_S * rng.random())
    if node.session and cluster.ensemble.has_quorum:
        cluster.log(f"the session of node {number} is ended, its znodes stay for {for_s} s")
        cluster.ensemble.ephemerals_outlive_session_s = lambda: for_s
        cluster.ensemble.end_session(node.session)
        cluster.ensemble.ephemerals_outlive_session_s = lambda: 0.0


def keep_registration_after_expiry(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's next session ends right after it registered, without a response, and its registration znode stays."""
    number, node = draw_node(cluster, draw)
    if not node.session or not cluster.ensemble.has_quorum:
        return

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if step.kind is not StepKind.WRITE or step.actor != number or not step.what.split()[-1].startswith(BROKER_IDS):
            return None
        cluster.injection_points.remove(injection)
        call_after(cluster, 0.0, _expire_keeping_znode, cluster, cluster.nodes[number])
        return InjectedFailure.AFTER

    cluster.injection_points.set(injection)
    cluster.log(f"the session of node {number} is ended")
    cluster.ensemble.end_session(node.session)


def _expire_keeping_znode(cluster: ScheduledCluster, node: NodeUnderTest) -> None:
    """End the session in which a node registered, and keep its ephemeral znodes."""
    session = node.session
    if not session or not cluster.ensemble.has_quorum:
        return
    cluster.log(f"the session in which {node.host!r} registered is ended, its znode is never removed")
    cluster.ensemble.ephemerals_outlive_session_s = lambda: _FOREVER_S
    cluster.ensemble.end_session(session)
    cluster.ensemble.ephemerals_outlive_session_s = lambda: 0.0
    call_after(cluster, _RETRY_INTERVAL_S, _remove_znode_after_process, cluster, node, session)


def _remove_znode_after_process(cluster: ScheduledCluster, node: NodeUnderTest, session: int) -> None:
    """Remove the session's ephemeral znodes once the process that registered them is dead, as an operator would."""
    if not cluster.ensemble.tree.ephemerals.get(session):
        return
    if node.host.is_alive or not cluster.ensemble.has_quorum:
        call_after(cluster, _RETRY_INTERVAL_S, _remove_znode_after_process, cluster, node, session)
    else:
        cluster.ensemble.remove_ephemerals(session)
