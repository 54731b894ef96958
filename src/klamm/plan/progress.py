"""The progress of a reassignment: wanted and current replicas in, a state per partition out."""

from collections.abc import Container, Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Partition, broker_names
from klamm.model.ids import BrokerId, TopicPartition


class MoveState(StrEnum):
    COMPLETE = "complete"
    MOVING = "in progress"
    ELSEWHERE = "not moving"  # no reassignment is running, and the replicas are not the wanted ones
    UNKNOWN = "no such partition"


class PartitionProgress(NamedTuple):
    at: TopicPartition
    state: MoveState
    wanted: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    waits_for: tuple[BrokerId, ...]
    """New replicas that are not in sync yet."""
    dead: tuple[BrokerId, ...] = ()
    """Those of `waits_for` that are not alive."""


def progress_of(
    wanted: Mapping[TopicPartition, tuple[BrokerId, ...]],
    found: Mapping[TopicPartition, Partition],
    moves: Mapping[TopicPartition, ReplicaAssignment],
    live: Container[BrokerId],
) -> list[PartitionProgress]:
    """Return the progress of each partition, from wanted replicas, current metadata and running reassignments."""
    return [
        _running_progress(at, replicas, found[at], moves[at], live)
        if at in found and at in moves
        else _not_running_progress(at, replicas, found.get(at))
        for at, replicas in sorted(wanted.items())
    ]


def _running_progress(
    at: TopicPartition,
    wanted: tuple[BrokerId, ...],
    found: Partition,
    move: ReplicaAssignment,
    live: Container[BrokerId],
) -> PartitionProgress:
    """The progress of a partition that is being reassigned."""
    awaited = tuple(b for b in move.adding if b not in found.isr)
    return PartitionProgress(
        at, MoveState.MOVING, wanted, move.replicas, awaited, tuple(b for b in awaited if b not in live)
    )


def _not_running_progress(
    at: TopicPartition, wanted: tuple[BrokerId, ...], found: Partition | None
) -> PartitionProgress:
    """The state of a partition that is not being reassigned: complete, elsewhere or unknown."""
    if found is None:
        return PartitionProgress(at, MoveState.UNKNOWN, wanted, (), ())
    return PartitionProgress(
        at, MoveState.COMPLETE if found.replicas == wanted else MoveState.ELSEWHERE, wanted, found.replicas, ()
    )


def progress_text(progress: PartitionProgress) -> str:
    """The state of a partition as text, with the remedy if it is stuck."""
    match progress.state:
        case MoveState.MOVING if progress.dead:
            return f"stuck: {broker_names(progress.dead)} not alive. Start it, or run klamm reassign cancel."
        case MoveState.MOVING if progress.waits_for:
            return f"in progress: {broker_names(progress.waits_for)} not in sync yet"
        case MoveState.ELSEWHERE:
            return "not moving: its replicas differ from the plan"
        case state:
            return state.value


def is_over(partitions: list[PartitionProgress]) -> bool:
    """Whether none of the partitions is being reassigned any more."""
    return all(s.state is not MoveState.MOVING for s in partitions)


def is_complete(partitions: list[PartitionProgress]) -> bool:
    """Whether all partitions have the wanted replicas."""
    return all(s.state is MoveState.COMPLETE for s in partitions)
