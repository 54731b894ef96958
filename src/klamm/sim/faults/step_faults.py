"""Faults that hit a node exactly at a step: a ZooKeeper write or a request. Each returns what happens to the step."""

from collections.abc import Callable
from typing import Final

from klamm.sim.actions import ScheduledCluster, call_after, restart
from klamm.sim.faults.foreign_writes import write_to_what_is_read
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

StepFault = Callable[[ScheduledCluster, Step], InjectedFailure | None]

_BOUNCE_S: Final = 0.05


def crash_before(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The node that takes the step is killed before it."""
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return InjectedFailure.BEFORE


def crash_after(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The node that takes the step is killed after it, before the response."""
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return InjectedFailure.AFTER


def bounce_after(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The process that took the step is killed, and restarts before its session has expired."""
    cluster.loop.kill(cluster.nodes[step.actor].host)
    call_after(cluster, _BOUNCE_S, restart, cluster, step.actor)
    return InjectedFailure.AFTER


def response_lost_after_step(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The step happens, and its connection breaks before the response."""
    return InjectedFailure.AFTER


def connection_lost_before_step(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The connection breaks before the step, which does not happen."""
    return InjectedFailure.BEFORE


def expiry_before(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The session of the node that takes the step ends before it; a ZooKeeper write does not happen."""
    cluster.ensemble.end_session(cluster.nodes[step.actor].session)
    return None if step.target else InjectedFailure.BEFORE


def expiry_after(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The session of the node that takes the step ends right after it."""
    call_after(cluster, 0.0, cluster.ensemble.end_session, cluster.nodes[step.actor].session)
    return None


def long_pause(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The node is paused for twice its session timeout, and then continues."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    call_after(cluster, 2 * node.session_timeout_ms / 1000, cluster.loop.resume, node.host)
    return None


def delete_controller_znode(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """An operator deletes `/controller`."""
    cluster.ensemble.write(0, [Delete(CONTROLLER)], ())
    return None


def paused_while_controller_znode_is_deleted(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The node is paused for half its session timeout, and an operator deletes `/controller`."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    call_after(cluster, node.session_timeout_ms / 2000, cluster.loop.resume, node.host)
    return delete_controller_znode(cluster, step)


def receiver_crash(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The broker that received the request is killed after it handled it; no effect on a ZooKeeper write."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    return InjectedFailure.AFTER


def receiver_bounce(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """The broker that received the request is killed before it handles it, and restarts before its session ends."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    call_after(cluster, _BOUNCE_S, restart, cluster, step.target)
    return InjectedFailure.BEFORE


def last_operation_refused(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """ZooKeeper answers NoAuth for the last operation of the write; no effect on a request."""
    return None if step.target else InjectedFailure.REFUSED


def first_operation_refused(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """ZooKeeper answers NoAuth for the write's first operation (usually the epoch check); no effect on a request."""
    return None if step.target else InjectedFailure.FAILED


def foreign_write_before_read(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """Another client changes what the node is about to read; no effect on a write or a request."""
    if step.kind is StepKind.READ:
        write_to_what_is_read(cluster, step.what.split()[0])
    return None


def notice_lost_after_read(cluster: ScheduledCluster, step: Step) -> InjectedFailure | None:
    """A read happens and its connection breaks; another client changes what was read. Other steps do not fail."""
    if step.kind is not StepKind.READ:
        return None
    call_after(cluster, 0.0, write_to_what_is_read, cluster, step.what.split()[0])
    return InjectedFailure.AFTER


STEP_FAULTS: Final[dict[str, StepFault]] = {
    "crash before": crash_before,
    "crash after": crash_after,
    "bounce after": bounce_after,
    "response lost, applied": response_lost_after_step,
    "response lost, not applied": connection_lost_before_step,
    "expiry before": expiry_before,
    "expiry after": expiry_after,
    "long pause": long_pause,
    "/controller deleted": delete_controller_znode,
    "paused while /controller is deleted": paused_while_controller_znode_is_deleted,
    "receiver crash": receiver_crash,
    "receiver bounce": receiver_bounce,
    "last operation refused": last_operation_refused,
    "first operation refused": first_operation_refused,
    "foreign write": foreign_write_before_read,
    "watch event lost": notice_lost_after_read,
}

ONLY_FOR_WRITES: Final = frozenset({"last operation refused", "first operation refused"})
_ONLY_FOR_REQUESTS: Final = frozenset({"receiver crash", "receiver bounce"})


_ONLY_FOR_READS: Final = frozenset({"foreign write", "watch event lost"})
_WITHOUT_EFFECT: Final = {
    StepKind.WRITE: _ONLY_FOR_REQUESTS | _ONLY_FOR_READS,
    StepKind.READ: _ONLY_FOR_REQUESTS | ONLY_FOR_WRITES,
    StepKind.CONTROL_REQUEST: ONLY_FOR_WRITES | _ONLY_FOR_READS,
    StepKind.BROKER_REQUEST: ONLY_FOR_WRITES | _ONLY_FOR_READS,
}


def faults_of(kind: StepKind) -> list[str]:
    """Names of the step faults that have an effect on a step of this kind."""
    return [name for name in STEP_FAULTS if name not in _WITHOUT_EFFECT[kind]]
