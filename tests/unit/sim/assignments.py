"""Histories in which a partition's assignment changes."""

from collections.abc import Iterable

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import TopicPartition
from klamm.sim.history import History
from klamm.sim.trace import Mutation, TopicSeen, TopicWritten


def write_assignments(history: History, p: TopicPartition, written: Iterable[tuple[int, ReplicaAssignment]]) -> None:
    """One after the other, each with its zxid; the topic has no other partition."""
    before = None
    for zxid, assignment in written:
        history.absorb(Mutation(zxid, 0, None, []))
        seen = TopicSeen(None, {p.partition: assignment}, 3)
        history.absorb(TopicWritten(p.topic, before, seen, 0))
        before = seen
