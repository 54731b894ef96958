"""Select topics and partitions. Source: TopicFilter.java, TopicCommand.java."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Cluster, Partition
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition

_LITERAL: Final = re.compile(r"[A-Za-z0-9_-]+")


def topic_pattern(text: str) -> "re.Pattern[str]":
    """Compile a topic pattern of Kafka's tools: regular expressions separated by commas. Raises UsageError."""
    try:
        return re.compile("|".join(f"(?:{part.strip()})" for part in text.strip("\"' ").split(",")))
    except re.error as error:
        raise UsageError(f"--topic {text!r} is not a regular expression: {error}.") from error


def literal_names(text: str) -> list[str] | None:
    """The names in a list without patterns; None if there is a pattern."""
    parts = [part.strip() for part in text.split(",")]
    return parts if all(map(_LITERAL.fullmatch, parts)) else None


def select_topics(cluster: Cluster, pattern: str | None, *, exclude_internal: bool = False) -> list[str]:
    """The names of the topics that match, sorted. Raises UsageError for a malformed pattern."""
    fits: Callable[[str], object] = topic_pattern(pattern).fullmatch if pattern else lambda _name: True
    return [t.name for t in cluster.topics.values() if fits(t.name) and not (exclude_internal and t.is_internal)]


class Filters(NamedTuple):
    """Which partitions to show; all if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    non_preferred: bool = False


class Row(NamedTuple):
    """One partition with the min ISR of its topic and its reassignment."""

    at: TopicPartition
    partition: Partition
    min_isr: int
    move: ReplicaAssignment | None

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment adds."""
        if self.move is None or not {*self.move.adding, *self.move.removing}.intersection(self.partition.replicas):
            return len(self.partition.replicas)
        return len(self.move.replicas) - len(self.move.adding)

    @property
    def is_under_replicated(self) -> bool:
        """Whether the ISR is smaller than the replication factor."""
        return len(self.partition.isr) < self.replication_factor

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is smaller than `min.insync.replicas`, or there is no leader."""
        return self.partition.leader < 0 or len(self.partition.isr) < self.min_isr

    def is_unavailable(self, live: Collection[BrokerId]) -> bool:
        """Whether there is no leader or it is not among the live brokers."""
        return self.partition.leader < 0 or self.partition.leader not in live

    @property
    def is_non_preferred(self) -> bool:
        """Whether the leader is not the first replica of the assignment."""
        return self.partition.leader != self.partition.preferred


def filter_rows(rows: Sequence[Row], filters: Filters, live: Collection[BrokerId]) -> list[Row]:
    """The rows that match any of the filters."""
    if not any(filters):
        return list(rows)
    return [
        r
        for r in rows
        if (filters.under_replicated and r.is_under_replicated)
        or (filters.unavailable and r.is_unavailable(live))
        or (filters.under_min_isr and r.is_under_min_isr)
        or (filters.at_min_isr and len(r.partition.isr) == r.min_isr)
        or (filters.non_preferred and r.is_non_preferred)
    ]


def parse_assignment(text: str) -> list[tuple[BrokerId, ...]]:
    """Parse `1:2,2:3`: the replicas of partition 0, of partition 1. Raises UsageError."""
    found: list[tuple[BrokerId, ...]] = []
    for part in text.split(","):
        pieces = [piece.strip() for piece in part.split(":")]
        if not all(piece.isascii() and piece.isdigit() for piece in pieces):
            raise UsageError(
                f"--replica-assignment: {part!r} is not BROKER:BROKER, for example 1:2,2:3 for two partitions"
            )
        replicas = tuple(BrokerId(int(piece)) for piece in pieces)
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"--replica-assignment: partition {len(found)} names a broker twice: {part}")
        if found and len(replicas) != len(found[0]):
            raise UsageError(
                f"--replica-assignment: partition {len(found)} has {len(replicas)} replicas, partition 0 has "
                f"{len(found[0])}; use the same number for all."
            )
        found.append(replicas)
    return found


def group_by_topic(partitions: Mapping[TopicPartition, object] | Sequence[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers as lists by topic, in the given order."""
    grouped: dict[str, list[int]] = {}
    for p in partitions:
        grouped.setdefault(p.topic, []).append(p.partition)
    return grouped
