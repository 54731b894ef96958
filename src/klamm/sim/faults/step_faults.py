"""What may befall whoever takes a step, at the very moment of that step."""

from collections.abc import Callable
from typing import Final

from klamm.sim.actions import ScheduledCluster, later, restart
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.zookeeper.ensemble import Loss
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

StepFault = Callable[[ScheduledCluster, Step], Loss | None]

_BOUNCE_S: Final = 0.05


def crash_before(cluster: ScheduledCluster, step: Step) -> Loss | None:
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return Loss.BEFORE


def crash_after(cluster: ScheduledCluster, step: Step) -> Loss | None:
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return Loss.AFTER


def bounce_after(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The process that took the step is killed, and restarts before its session has expired."""
    cluster.loop.kill(cluster.nodes[step.actor].host)
    later(cluster, _BOUNCE_S, restart, cluster, step.actor)
    return Loss.AFTER


def answer_lost_applied(cluster: ScheduledCluster, step: Step) -> Loss | None:
    return Loss.AFTER


def answer_lost_not_applied(cluster: ScheduledCluster, step: Step) -> Loss | None:
    return Loss.BEFORE


def expiry_before(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The session of the process that takes the step ends before it; its write comes too late."""
    cluster.ensemble.end_session(cluster.nodes[step.actor].session)
    return None if step.target else Loss.BEFORE


def expiry_after(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The session ends as soon as the step is taken, before the answer is read."""
    later(cluster, 0.0, cluster.ensemble.end_session, cluster.nodes[step.actor].session)
    return None


def long_pause(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The process is paused for twice its session timeout, and then continues where it was."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    later(cluster, 2 * node.session_timeout_ms / 1000, cluster.loop.resume, node.host)
    return None


def move(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """An operator deletes `/controller`."""
    cluster.ensemble.write(0, [Delete(CONTROLLER)], ())
    return None


def deposed(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The process is paused for half its session timeout while an operator deletes `/controller`."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    later(cluster, node.session_timeout_ms / 2000, cluster.loop.resume, node.host)
    return move(cluster, step)


def receiver_crash(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """Kill the broker that got the request, after it carried it out. Writes to ZooKeeper have no such fault."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    return Loss.AFTER


def receiver_bounce(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The receiver is killed by the request and restarts before its session ends; no effect on a ZooKeeper write."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    later(cluster, _BOUNCE_S, restart, cluster, step.target)
    return Loss.BEFORE


def refused(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """ZooKeeper refuses the last operation of the write, once, as if an ACL forbade it; for a request, nothing."""
    return None if step.target else Loss.REFUSED


def wholly_refused(cluster: ScheduledCluster, step: Step) -> Loss | None:
    """The same for its first, which checks the controller's epoch where there is one: the whole event fails."""
    return None if step.target else Loss.FAILED


STEP_FAULTS: Final[dict[str, StepFault]] = {
    "crash before": crash_before,
    "crash after": crash_after,
    "bounce after": bounce_after,
    "answer lost, applied": answer_lost_applied,
    "answer lost, not applied": answer_lost_not_applied,
    "expiry before": expiry_before,
    "expiry after": expiry_after,
    "long pause": long_pause,
    "move": move,
    "deposed": deposed,
    "receiver crash": receiver_crash,
    "receiver bounce": receiver_bounce,
    "refused": refused,
    "wholly refused": wholly_refused,
}

ONLY_FOR_WRITES: Final = frozenset({"refused", "wholly refused"})
_ONLY_FOR_REQUESTS: Final = frozenset({"receiver crash", "receiver bounce"})


def faults_of(kind: StepKind) -> list[str]:
    """The faults that can hit a step of this kind."""
    idle = _ONLY_FOR_REQUESTS if kind is StepKind.WRITE else ONLY_FOR_WRITES
    return [name for name in STEP_FAULTS if name not in idle]
