"""How far a reassignment is: wanted and found in, a state per partition out."""

from collections.abc import Container, Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Partition, listed
from klamm.model.ids import BrokerId, TopicPartition


class State(StrEnum):
    COMPLETE = "complete"
    MOVING = "in progress"
    ELSEWHERE = "not moving"  # nothing is under way, and the replicas are others
    UNKNOWN = "no such partition"


class Standing(NamedTuple):
    at: TopicPartition
    state: State
    wanted: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    waits_for: tuple[BrokerId, ...]
    """Of the new ones, those that are not in sync yet."""
    dead: tuple[BrokerId, ...] = ()
    """Of these, those that are not alive."""


def judge(
    wanted: Mapping[TopicPartition, tuple[BrokerId, ...]],
    found: Mapping[TopicPartition, Partition],
    moves: Mapping[TopicPartition, ReplicaAssignment],
    live: Container[BrokerId],
) -> list[Standing]:
    return [
        _moving(at, replicas, found[at], moves[at], live)
        if at in found and at in moves
        else _still(at, replicas, found.get(at))
        for at, replicas in sorted(wanted.items())
    ]


def _moving(
    at: TopicPartition,
    wanted: tuple[BrokerId, ...],
    found: Partition,
    move: ReplicaAssignment,
    live: Container[BrokerId],
) -> Standing:
    awaited = tuple(b for b in move.adding if b not in found.isr)
    return Standing(at, State.MOVING, wanted, move.replicas, awaited, tuple(b for b in awaited if b not in live))


def _still(at: TopicPartition, wanted: tuple[BrokerId, ...], found: Partition | None) -> Standing:
    if found is None:
        return Standing(at, State.UNKNOWN, wanted, (), ())
    return Standing(at, State.COMPLETE if found.replicas == wanted else State.ELSEWHERE, wanted, found.replicas, ())


def in_words(standing: Standing) -> str:
    match standing.state:
        case State.MOVING if standing.dead:
            return f"stuck: {listed(standing.dead)} not alive; start it, or klamm reassign cancel"
        case State.MOVING if standing.waits_for:
            return f"in progress: {listed(standing.waits_for)} not in sync yet"
        case State.ELSEWHERE:
            return "not moving: its replicas are others"
        case state:
            return state.value


def is_over(standings: list[Standing]) -> bool:
    return all(s.state is not State.MOVING for s in standings)


def is_complete(standings: list[Standing]) -> bool:
    return all(s.state is State.COMPLETE for s in standings)
