"""What may befall whoever takes a step, at the very moment of that step."""

from collections.abc import Callable
from typing import Final

from klamm.sim.actions import ClusterUnderTest, later, restart
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.zookeeper.ensemble import Loss
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

StepFault = Callable[[ClusterUnderTest, Step], Loss | None]

_BOUNCE_S: Final = 0.05


def crash_before(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return Loss.BEFORE


def crash_after(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    cluster.loop.kill(cluster.nodes[step.actor].host)
    return Loss.AFTER


def bounce_after(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """It is back before its session is over."""
    cluster.loop.kill(cluster.nodes[step.actor].host)
    later(cluster, _BOUNCE_S, restart, cluster, step.actor)
    return Loss.AFTER


def answer_lost_applied(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    return Loss.AFTER


def answer_lost_not_applied(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    return Loss.BEFORE


def expiry_before(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """The session of whoever takes the step ends; what it writes comes too late, what it orders is on the way."""
    cluster.ensemble.end_session(cluster.nodes[step.actor].session)
    return None if step.target else Loss.BEFORE


def expiry_after(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """It ends as soon as the step is taken, before the answer is read."""
    later(cluster, 0.0, cluster.ensemble.end_session, cluster.nodes[step.actor].session)
    return None


def long_pause(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """Frozen for twice its session's time; it does not know, and goes on where it was."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    later(cluster, 2 * node.broker.config.zookeeper_session_timeout_ms / 1000, cluster.loop.resume, node.host)
    return None


def move(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """An operator deletes `/controller`."""
    cluster.ensemble.write(0, [Delete(CONTROLLER)], ())
    return None


def deposed(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """Frozen for half its session time while an operator deletes `/controller`: the session lives, the term is over."""
    node = cluster.nodes[step.actor]
    cluster.loop.pause(node.host)
    later(cluster, node.broker.config.zookeeper_session_timeout_ms / 2000, cluster.loop.resume, node.host)
    return move(cluster, step)


def receiver_crash(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """Whoever gets the request carries it out and dies; for a write, nothing."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    return Loss.AFTER


def receiver_bounce(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """Whoever gets the request dies of it, and is back before its session is over; for a write, nothing."""
    if not step.target:
        return None
    cluster.loop.kill(cluster.nodes[step.target].host)
    later(cluster, _BOUNCE_S, restart, cluster, step.target)
    return Loss.BEFORE


def refused(cluster: ClusterUnderTest, step: Step) -> Loss | None:
    """ZooKeeper refuses the last operation of the write, once, as if an ACL forbade it; for a request, nothing."""
    return None if step.target else Loss.REFUSED


def wholly_refused(cluster: ClusterUnderTest, step: Step) -> Loss | None:
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
    """Those that mean something for it."""
    idle = _ONLY_FOR_REQUESTS if kind is StepKind.WRITE else ONLY_FOR_WRITES
    return [name for name in STEP_FAULTS if name not in idle]
