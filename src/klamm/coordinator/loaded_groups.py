"""What the records of one partition of `__consumer_offsets` say, batch by batch.

Source: GroupMetadataManager.doLoadGroupsAndOffsets (3.9). Later records replace earlier ones; offsets of a transaction
count once its marker says that it committed.
"""

from collections.abc import Iterable, Iterator

import structlog

from klamm.coordinator.committed_offsets import CommittedOffset
from klamm.coordinator.group import Group
from klamm.coordinator.records import (
    GroupKey,
    KeyReader,
    OffsetKey,
    read_group_value_in_steps,
    read_offset_value,
)
from klamm.coordinator.versioned_records import UnknownRecord
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import PIECE
from klamm.wire.records import BatchHeader, ControlType
from klamm.wire.records.build import end_marker_of
from klamm.wire.records.record import Record, records

log = structlog.get_logger("groups")

Committed = dict[TopicPartition, CommittedOffset]


class LoadedGroups:
    """Give it the batches in the order of the log, then take the groups."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._offsets: dict[str, Committed] = {}
        """By group id."""
        self._transactional: dict[int, dict[str, Committed]] = {}
        """By producer id, until the marker of the transaction, and group id."""
        self._keys = KeyReader()
        self.skipped = 0
        """Records that could not be read."""

    def add_batch(self, buffer: Buffer, header: BatchHeader) -> Iterator[int]:
        """Apply the records of one batch, or a transaction marker, to the groups loaded so far.

        Yields before each further piece of a large batch the number of its items. Raises CorruptRecords.
        """
        if header.is_control:
            yield from self._end_transaction(buffer, header)
            return
        target = self._offsets
        if header.is_transactional:
            target = self._transactional.setdefault(header.producer_id, {})
        base_offset: int | None = None
        for number, record in enumerate(records(buffer, header), start=1):
            base_offset = record.offset if base_offset is None else base_offset
            try:
                for _ in self._add_record(target, record, base_offset):
                    yield PIECE
            except UnknownRecord as error:
                self.skipped += 1
                log.error(
                    "unreadable record of __consumer_offsets skipped while loading groups; the others are loaded",
                    offset=record.offset,
                    reason=str(error),
                )
            if number % PIECE == 0:
                yield PIECE

    def _end_transaction(self, buffer: Buffer, header: BatchHeader) -> Iterator[int]:
        """Apply a transaction marker: the producer's offsets are committed or dropped.

        An offset that a later record has replaced is not committed.
        """
        marker = end_marker_of(buffer, header)
        if marker is None:
            return  # the cleaner keeps such batches for their sequence numbers
        ended = self._transactional.pop(header.producer_id, {})
        if marker.type is not ControlType.COMMIT:
            return
        for group_id, offsets in ended.items():
            committed = self._offsets.setdefault(group_id, {})
            for number, (partition, offset) in enumerate(offsets.items(), start=1):
                known = committed.get(partition)
                if known is None or known.record_offset < offset.record_offset:
                    committed[partition] = offset
                if number % PIECE == 0:
                    yield PIECE

    def _add_record(self, target: dict[str, Committed], record: Record, base_offset: int) -> Iterable[None]:
        """Apply one record to the loaded groups, or to the offsets of its transaction. Raises UnknownRecord.

        The record of a group is applied by iterating over the result, which pauses between the pieces of a large one.
        """
        if record.key is None:
            raise UnknownRecord(f"the record at offset {record.offset} of __consumer_offsets has no key")
        key = self._keys.read(record.key)
        if isinstance(key, OffsetKey):
            committed = target.get(key.group_id)
            if committed is None:
                committed = target[key.group_id] = {}
            if record.value is None:
                committed.pop(key.partition, None)
            else:
                committed[key.partition] = CommittedOffset(read_offset_value(record.value), base_offset)
        elif isinstance(key, GroupKey):
            return self._add_group(key.group_id, record.value)
        else:
            log.warning(
                "record of a newer group protocol (KIP-848) ignored while loading groups; the others are loaded",
                offset=record.offset,
            )
        return ()

    def _add_group(self, group_id: str, value: bytes | None) -> Iterator[None]:
        """Apply the record of a group, and pause between the pieces of a large one. Raises UnknownRecord."""
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = yield from read_group_value_in_steps(group_id, value)

    def take_groups(self, now_ms: int) -> Iterator[Group]:
        """Yield every loaded group with its offsets, which are then the group's alone.

        A group that only stored offsets has no record of its own, and is created here.
        """
        open_transactions = self._open_transactions()
        for name, group in self._groups.items():
            yield self._with_offsets(group, open_transactions.pop(name, {}))
        for name in list(self._offsets):
            if self._offsets[name] or name in open_transactions:
                yield self._with_offsets(Group(name, now_ms), open_transactions.pop(name, {}))
        for name, transactional in open_transactions.items():
            yield self._with_offsets(Group(name, now_ms), transactional)

    def _open_transactions(self) -> dict[str, dict[int, Committed]]:
        """Return the offsets of transactions without a marker, by group id and producer id."""
        by_group: dict[str, dict[int, Committed]] = {}
        for producer, groups in self._transactional.items():
            for name, offsets in groups.items():
                if offsets:
                    by_group.setdefault(name, {})[producer] = offsets
        return by_group

    def _with_offsets(self, group: Group, transactional: dict[int, Committed]) -> Group:
        """Give the group its loaded offsets, and return it."""
        group.offsets.committed = self._offsets.pop(group.group_id, {})
        group.offsets.transactional = transactional
        return group
