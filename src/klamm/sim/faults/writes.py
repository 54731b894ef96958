"""Single steps that go wrong: a write to ZooKeeper, an order, a request to the controller."""

import itertools
from collections.abc import Callable
from typing import Final

from klamm.controller.events import AlterPartitionReceived
from klamm.sim.actions import ClusterUnderTest, Draw, ScheduledCluster, later
from klamm.sim.faults.aim import victim
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.faults.step_faults import STEP_FAULTS
from klamm.sim.zookeeper.ensemble import BREAKS, Loss
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.znodes import DELETE_TOPICS, ISR_CHANGES, TOPICS

FORBIDDEN: Final = (ISR_CHANGES, TOPICS, DELETE_TOPICS)
"""What a new controller must read."""
_UNREADABLE: Final = (Acl(Permission.ALL & ~Permission.READ, "world", "anyone"),)


def lose_answer(cluster: ScheduledCluster, draw: Draw) -> None:
    """The connection to ZooKeeper breaks around the next write of a node; the write happened, or did not."""
    number, _ = victim(cluster, draw)
    loss = Loss(draw("loss", lambda rng: rng.choice([loss.value for loss in BREAKS])))

    def injection(step: Step) -> Loss | None:
        if step.kind is not StepKind.WRITE or step.actor != number:
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"node {number} loses its connection {loss.value} writing {step.what}")
        return loss

    cluster.injection_points.set(injection)


def at_step(cluster: ScheduledCluster, draw: Draw) -> None:
    """A fault hits the node that takes the n-th step from now on: a ZooKeeper write or a control request."""
    kind = StepKind(draw("kind", lambda rng: rng.choice([kind.value for kind in StepKind])))
    number = draw("number", lambda rng: rng.randint(1, 20))
    what = draw("what", lambda rng: rng.choice(tuple(STEP_FAULTS)))
    count = itertools.count(1)

    def injection(step: Step) -> Loss | None:
        if step.kind is not kind or not step.actor or next(count) != number:
            return None
        cluster.injection_points.remove(injection)
        cluster.log(f"{what} as {kind.value} {number} is due: {step.what} by node {step.actor}")
        return STEP_FAULTS[what](cluster, step)

    cluster.injection_points.set(injection)


def lose_first_states(cluster: ScheduledCluster, draw: Draw) -> None:
    """The connection breaks after the first leaders of new partitions are written: the answer is lost."""
    left = draw("left", lambda rng: rng.randint(1, 3))
    _lose_answers(cluster, left, "its first states were written", lambda step: _creates_states(cluster, step))


def lose_isr_changes(cluster: ClusterUnderTest, draw: Draw) -> None:
    """The connection breaks after ISR changes that leaders asked for are written: the answer is lost."""
    left = draw("left", lambda rng: rng.randint(1, 6))
    _lose_answers(cluster, left, "its ISR change was written", lambda step: _changes_isrs(cluster, step))


def _lose_answers(cluster: ScheduledCluster, left: int, what: str, is_meant: Callable[[Step], bool]) -> None:
    """Lose the answers to this many writes of nodes that meet the condition."""

    def injection(step: Step) -> Loss | None:
        nonlocal left
        if step.kind is not StepKind.WRITE or not step.actor or not is_meant(step):
            return None
        left -= 1
        if not left:
            cluster.injection_points.remove(injection)
        cluster.log(f"node {step.actor} is not told that {what}: {step.what}")
        return Loss.AFTER

    cluster.injection_points.set(injection)


def _creates_states(cluster: ScheduledCluster, step: Step) -> bool:
    """Whether the write creates the first state of a partition."""
    return any(path.endswith("/state") and cluster.tree.get(path) is None for path in step.what.split())


def _changes_isrs(cluster: ClusterUnderTest, step: Step) -> bool:
    """It is written by a controller that is busy with an AlterPartition."""
    broker = cluster.nodes[step.actor].broker
    doing = cluster.history.controllers.handling.get((broker.number, broker.incarnation))
    return doing is not None and isinstance(doing.event, AlterPartitionReceived) and "/state" in step.what


def forbid_reading(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next controller may not read what it needs for a while: its session lives, its failover fails."""
    path = draw("path", lambda rng: rng.choice(FORBIDDEN))
    for_s = draw("for_s", lambda rng: 0.5 * rng.random())

    def injection(step: Step) -> Loss | None:
        if step.becomes_controller:
            cluster.injection_points.remove(injection)
            cluster.log(f"node {step.actor} takes office, and nobody may read {path} for {for_s} s")
            cluster.ensemble.write_acl(0, path, _UNREADABLE, -1, ())
            later(cluster, for_s, cluster.ensemble.write_acl, 0, path, OPEN_ACL, -1, ())
        return None

    cluster.injection_points.set(injection)
