"""What a controlled shutdown of a broker would do to its partitions, computed before it stops.

Kafka does not tell in advance: its controller moves the leaders it can, and the other partitions go offline.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.model.ids import BrokerId, TopicPartition


class PartitionFacts(NamedTuple):
    """What the prediction needs of one partition."""

    partition: TopicPartition
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    min_isr: int
    """`min.insync.replicas` of its topic."""


@dataclass(slots=True)
class Verdict:
    """Partitions at risk, each with the reason; `leaderless` and `moves` together are all that the broker leads."""

    leaderless: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that nobody could read or write."""
    below_min_isr: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that could be read, but refuse writes with acks=all."""
    moves: list[TopicPartition] = field(default_factory=list)
    """Partitions that get another leader."""

    @property
    def is_safe(self) -> bool:
        """Whether no partition is at risk."""
        return not self.leaderless and not self.below_min_isr


def assess_shutdown(broker: BrokerId, live: frozenset[BrokerId], partitions: Iterable[PartitionFacts]) -> Verdict:
    """What would happen to these partitions if the broker shut down now."""
    verdict = Verdict()
    for facts in partitions:
        if broker not in facts.replicas:
            continue
        staying = [b for b in facts.isr if b != broker and b in live]
        if facts.leader == broker and not staying:
            verdict.leaderless[facts.partition] = _why_leaderless(facts)
            continue
        if facts.leader == broker:
            verdict.moves.append(facts.partition)
        if broker in facts.isr and len(staying) < facts.min_isr:
            verdict.below_min_isr[facts.partition] = _why_below_min_isr(facts, staying)
    return verdict


def _why_leaderless(facts: PartitionFacts) -> str:
    """The reason why no other replica can lead."""
    if len(facts.replicas) == 1:
        return "it is the only replica"
    others = ", ".join(str(b) for b in facts.replicas if b != facts.leader)
    return f"no other replica is in sync: {others}"


def _why_below_min_isr(facts: PartitionFacts, staying: list[BrokerId]) -> str:
    """The reason why writes with acks=all would be refused."""
    already = " (it is below already)" if len(facts.isr) < facts.min_isr else ""
    return f"{len(staying)} of {facts.min_isr} in-sync replicas would be left{already}"
