"""Histories in which a partition's assignment changes."""

from collections.abc import Iterable

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import TopicPartition
from klamm.sim.history.history import History
from klamm.sim.history.trace import TopicWritten, TopicZnode, TransactionCommitted


def write_assignments(history: History, p: TopicPartition, written: Iterable[tuple[int, ReplicaAssignment]]) -> None:
    """Add topic writes with these assignments of the partition to a history, each with its zxid."""
    before = None
    for zxid, assignment in written:
        history.absorb(TransactionCommitted(zxid, 0, None, []))
        seen = TopicZnode(None, {p.partition: assignment}, 3)
        history.absorb(TopicWritten(p.topic, before, seen, 0))
        before = seen
