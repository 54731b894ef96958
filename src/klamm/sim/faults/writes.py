"""Faults at single steps: a ZooKeeper write, a control request, a request to the controller."""

import itertools
from collections.abc import Callable
from typing import Final

from klamm.controller.events import AlterPartitionReceived
from klamm.sim.actions import ClusterUnderTest, Draw, ScheduledCluster, call_after
from klamm.sim.faults.aim import draw_node
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.faults.step_faults import STEP_FAULTS
from klamm.sim.zookeeper.ensemble import DISCONNECTS, InjectedFailure
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.znodes import DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, PENDING_DELETIONS, TOPICS

FAILOVER_READS: Final = (ISR_CHANGES, TOPICS, DELETE_TOPICS)
"""What a new controller must read."""
_STATE: Final = "/state"
_PATHS_OF_KINDS: Final[dict[str, Callable[[str], bool]]] = {
    "assignments": lambda path: path.startswith(f"{TOPICS}/") and "/" not in path.removeprefix(f"{TOPICS}/"),
    "partition states": lambda path: path.endswith(_STATE),
    "tools' requests": lambda path: path.startswith("/admin/"),
    "configs": lambda path: path.startswith("/config/"),
    "pending deletions": lambda path: path.startswith(PENDING_DELETIONS),
    "notifications": lambda path: path.startswith((ISR_CHANGES, LOG_DIR_EVENTS)),
}
"""Kinds of znodes that controllers write, without those of elections."""
_USUAL_KIND: Final = "partition states"
_ACL_WITHOUT_READ: Final = (Acl(Permission.ALL & ~Permission.READ, "world", "anyone"),)


def lose_write_response(cluster: ScheduledCluster, draw: Draw) -> None:
    """The connection to ZooKeeper breaks before or after the next write of a node, without a response."""
    number, _ = draw_node(cluster, draw)
    loss = InjectedFailure(draw("loss", lambda rng: rng.choice([loss.value for loss in DISCONNECTS])))

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if step.kind is not StepKind.WRITE or step.actor != number:
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"node {number} loses its connection {loss.value} writing {step.what}")
        return loss

    cluster.injection_points.set(injection)


def fault_at_step(cluster: ScheduledCluster, draw: Draw) -> None:
    """A step fault hits the node that takes the n-th step from now on: a ZooKeeper write or a request."""
    kind = StepKind(draw("kind", lambda rng: rng.choice([kind.value for kind in StepKind])))
    number = draw("number", lambda rng: rng.randint(1, 20))
    what = draw("what", lambda rng: rng.choice(tuple(STEP_FAULTS)))
    count = itertools.count(1)

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if step.kind is not kind or not step.actor or next(count) != number:
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"{what} as {kind.value} {number} is due: {step.what} by node {step.actor}")
        return STEP_FAULTS[what](cluster, step)

    cluster.injection_points.set(injection)


def lose_first_state_responses(cluster: ScheduledCluster, draw: Draw) -> None:
    """The connection breaks after a controller wrote the first states of new partitions, so the response is lost."""
    left = draw("left", lambda rng: rng.randint(1, 3))
    _lose_write_responses(
        cluster, left, "its first states were written", lambda step: _creates_partition_states(cluster, step)
    )


def lose_isr_change_responses(cluster: ClusterUnderTest, draw: Draw) -> None:
    """The connection breaks after a controller wrote an ISR change that a leader requested, so the response is lost."""
    left = draw("left", lambda rng: rng.randint(1, 6))
    _lose_write_responses(cluster, left, "its ISR change was written", lambda step: _writes_isr_change(cluster, step))


def _lose_write_responses(cluster: ScheduledCluster, left: int, what: str, is_target: Callable[[Step], bool]) -> None:
    """Lose the responses to the next `left` writes that match the condition."""
    _fail_writes(cluster, left, InjectedFailure.AFTER, f"gets no response although {what}:", is_target)


def _fail_writes(
    cluster: ScheduledCluster, left: int, failure: InjectedFailure, what: str, is_target: Callable[[Step], bool]
) -> None:
    """Let the next `left` writes of nodes that match the condition fail so; `what` happens to the node, for the log."""

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        nonlocal left
        if step.kind is not StepKind.WRITE or not step.actor or not is_target(step):
            return None
        left -= 1
        if not left:
            cluster.injection_points.remove(injection)
        cluster.log(f"node {step.actor} {what} {step.what}")
        return failure

    cluster.injection_points.set(injection)


def _creates_partition_states(cluster: ScheduledCluster, step: Step) -> bool:
    """Whether the write creates the first state of a partition."""
    return any(path.endswith("/state") and cluster.tree.get(path) is None for path in step.what.split())


def _writes_isr_change(cluster: ClusterUnderTest, step: Step) -> bool:
    """Whether the write comes from a controller that handles AlterPartition, and changes a partition state."""
    broker = cluster.nodes[step.actor].broker
    doing = cluster.history.controllers.handling.get((broker.number, broker.incarnation))
    return doing is not None and isinstance(doing.event, AlterPartitionReceived) and "/state" in step.what


def refuse_writes(cluster: ScheduledCluster, draw: Draw) -> None:
    """ZooKeeper refuses the next writes of controllers to znodes of one kind; nothing of them happens."""
    kind = draw("kind", lambda rng: _USUAL_KIND if rng.random() < 0.5 else rng.choice(tuple(_PATHS_OF_KINDS)))
    left = draw("left", lambda rng: rng.randint(1, 5))

    def is_target(step: Step) -> bool:
        """Whether the write comes from a controller, and changes a znode of that kind."""
        return cluster.nodes[step.actor].is_controller and any(map(_PATHS_OF_KINDS[kind], step.what.split()))

    _fail_writes(cluster, left, InjectedFailure.REFUSED, "is refused to write", is_target)


def forbid_failover_reads(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next controller may not read a znode that failover needs, for a while: failover fails, the session lives."""
    path = draw("path", lambda rng: rng.choice(FAILOVER_READS))
    for_s = draw("for_s", lambda rng: 0.5 * rng.random())

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if step.becomes_controller:
            cluster.injection_points.remove(injection)
            cluster.log(f"node {step.actor} becomes controller, and no client may read {path} for {for_s} s")
            cluster.ensemble.write_acl(0, path, _ACL_WITHOUT_READ, -1, ())
            call_after(cluster, for_s, cluster.ensemble.write_acl, 0, path, OPEN_ACL, -1, ())
        return None

    cluster.injection_points.set(injection)
