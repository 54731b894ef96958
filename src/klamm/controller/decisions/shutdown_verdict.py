"""What would become of the partitions of a broker that stops in order: asked before it does.

Kafka tells nobody: the controller moves what it can, and what it cannot is offline.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.model.ids import BrokerId, TopicPartition


class PartitionFacts(NamedTuple):
    partition: TopicPartition
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    min_isr: int
    """`min.insync.replicas` of its topic."""


@dataclass(slots=True)
class Verdict:
    """Partitions at risk with the reason; together with `moves` all that the broker leads."""

    leaderless: dict[TopicPartition, str] = field(default_factory=dict)
    """Nobody could read or write them."""
    below_min_isr: dict[TopicPartition, str] = field(default_factory=dict)
    """They could be read; a write with acks=all would be refused."""
    moves: list[TopicPartition] = field(default_factory=list)
    """Another replica takes over."""

    @property
    def is_safe(self) -> bool:
        return not self.leaderless and not self.below_min_isr


def assess_shutdown(broker: BrokerId, live: frozenset[BrokerId], partitions: Iterable[PartitionFacts]) -> Verdict:
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
    if len(facts.replicas) == 1:
        return "it is the only replica"
    others = ", ".join(str(b) for b in facts.replicas if b != facts.leader)
    return f"no other replica is in sync: {others}"


def _why_below_min_isr(facts: PartitionFacts, staying: list[BrokerId]) -> str:
    already = " (it is below already)" if len(facts.isr) < facts.min_isr else ""
    return f"{len(staying)} of {facts.min_isr} in-sync replicas would be left{already}"
