"""The offsets of one group: committed, on their way into the log, and of open transactions.

Source: GroupMetadata.scala (3.9). What was appended later wins, in whatever order the appends are replicated.

A broker may keep a million offsets, so the garbage collector does not track them: scanning them would hold the event
loop for 0.4 s.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from klamm.model.ids import TopicPartition

NO_LEADER_EPOCH = -1


class Offset(msgspec.Struct, frozen=True, gc=False):
    """What a consumer committed for one partition."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int | None = None
    """Set only where the commit asked for a retention of its own (OffsetCommit 2 to 4)."""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """An offset, and where its record is in the log."""

    offset: Offset
    record_offset: int


Offsets = Mapping[TopicPartition, Offset]


class _PreparedCommit(NamedTuple):
    """A commit of a transaction on its way into the log; `left` are its offsets that were not removed meanwhile."""

    offsets: Offsets
    left: dict[TopicPartition, Offset]


class GroupOffsets:
    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, list[Offset]] = {}
        """Appended or about to be, and not yet replicated, in the order of the commits."""
        self.transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """By producer id: in the log, and visible once the transaction commits."""
        self._pending_transactional: dict[int, list[_PreparedCommit]] = {}
        """By producer id: appended or about to be, and not yet replicated."""

    def __len__(self) -> int:
        return len(self.committed)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no committed offset and no commit under way."""
        return not (self.committed or self._pending or self.transactional or self._pending_transactional)

    def get(self, partition: TopicPartition) -> Offset | None:
        """Return the committed offset of the partition; None where the group has none."""
        committed = self.committed.get(partition)
        return None if committed is None else committed.offset

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit for the partition is under way."""
        return partition in self._pending

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit for the partition is under way, or waits for the end of its transaction."""
        return (
            partition in self._pending
            or any(partition in offsets for offsets in self.transactional.values())
            or any(partition in prepared.left for prepared in self._prepared_commits())
        )

    # ---- commits

    def prepare(self, offsets: Offsets) -> None:
        """Record that these commits are being written to the log."""
        for partition, offset in offsets.items():
            self._pending.setdefault(partition, []).append(offset)

    def complete(self, offsets: Offsets, record_offset: int) -> None:
        """Make the prepared commits the committed offsets, because they are replicated.

        A commit that was removed meanwhile stays removed.
        """
        for partition, offset in offsets.items():
            if self._take_pending(partition, offset):
                self.keep_newest(partition, CommittedOffset(offset, record_offset))

    def fail(self, offsets: Offsets) -> None:
        """Drop the prepared commits, because they could not be written to the log."""
        for partition, offset in offsets.items():
            self._take_pending(partition, offset)

    def _take_pending(self, partition: TopicPartition, offset: Offset) -> bool:
        """Remove one prepared commit; False where it is not there."""
        prepared = self._pending.get(partition, [])
        for number, other in enumerate(prepared):
            if other is offset:
                del prepared[number]
                if not prepared:
                    del self._pending[partition]
                return True
        return False

    def keep_newest(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Make this offset the committed one, unless the committed one is from a later record."""
        known = self.committed.get(partition)
        if known is None or known.record_offset < offset.record_offset:
            self.committed[partition] = offset

    # ---- transactions

    @property
    def open_producers(self) -> list[int]:
        """The producer ids of open transactions that hold offsets of the group."""
        return list(dict.fromkeys((*self.transactional, *self._pending_transactional)))

    def prepare_transactional(self, producer_id: int, offsets: Offsets) -> None:
        """Record that these commits of a transaction are being written to the log."""
        prepared = _PreparedCommit(offsets, dict(offsets))
        self._pending_transactional.setdefault(producer_id, []).append(prepared)

    def complete_transactional(self, producer_id: int, offsets: Offsets, record_offset: int) -> None:
        """Keep replicated offsets of a transaction until it ends: committed, they count; aborted, they are dropped.

        An offset that was removed meanwhile stays removed.
        """
        left = self.fail_transactional(producer_id, offsets)
        if not left:
            return
        waiting = self.transactional.setdefault(producer_id, {})
        for partition, offset in left.items():
            known = waiting.get(partition)
            if known is None or known.record_offset < record_offset:
                waiting[partition] = CommittedOffset(offset, record_offset)

    def fail_transactional(self, producer_id: int, offsets: Offsets) -> Offsets:
        """Drop the prepared commits of a transaction, which could not be written.

        Returns those that were still under way and not removed.
        """
        pending = self._pending_transactional.pop(producer_id, [])
        if others := [prepared for prepared in pending if prepared.offsets is not offsets]:
            self._pending_transactional[producer_id] = others
        return next((prepared.left for prepared in pending if prepared.offsets is offsets), {})

    def _prepared_commits(self) -> Iterator[_PreparedCommit]:
        """The commits of all transactions that are being written to the log."""
        return chain.from_iterable(self._pending_transactional.values())

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """End the producer's transaction: its offsets become the committed ones, or are dropped if it was aborted."""
        offsets = self.transactional.pop(producer_id, {})
        self._pending_transactional.pop(producer_id, None)
        if is_commit:
            for partition, offset in offsets.items():
                self.keep_newest(partition, offset)

    # ---- removal

    def among(self, partitions: Container[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions for which the group has an offset, committed or under way."""
        return [partition for partition in self.all_partitions() if partition in partitions]

    def all_partitions(self) -> list[TopicPartition]:
        """The partitions for which the group has an offset, committed or under way."""
        known = dict.fromkeys((*self.committed, *self._pending))
        for offsets in self.transactional.values():
            known.update(dict.fromkeys(offsets))
        for prepared in self._prepared_commits():
            known.update(dict.fromkeys(prepared.left))
        return list(known)

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove committed offsets and unfinished commits of the partitions.

        Returns the partitions that have a record in the log, which a tombstone has to follow.
        """
        removed: list[TopicPartition] = []
        for partition in partitions:
            is_pending = self._pending.pop(partition, None) is not None
            is_committed = self.committed.pop(partition, None) is not None
            if is_pending or is_committed:
                removed.append(partition)
            for offsets in self.transactional.values():
                offsets.pop(partition, None)
            for prepared in self._prepared_commits():
                prepared.left.pop(partition, None)
        return removed

    def expire(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove the committed offsets of the partitions. Returns the partitions that had a committed offset."""
        return [partition for partition in partitions if self.committed.pop(partition, None) is not None]
