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
    OffsetKey,
    read_group_value,
    read_key,
    read_offset_value,
)
from klamm.coordinator.versioned_records import UnknownRecord
from klamm.runtime.disk import Buffer
from klamm.wire.records import BatchHeader, ControlType
from klamm.wire.records.build import end_marker_of
from klamm.wire.records.record import Record, records

log = structlog.get_logger("groups")

Committed = dict[OffsetKey, CommittedOffset]


class LoadedGroups:
    """Give it the batches in the order of the log, then take the groups."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._offsets: Committed = {}
        self._transactional: dict[int, Committed] = {}
        """By producer id, until the marker of the transaction."""
        self.skipped = 0
        """Records that could not be read."""

    def add_batch(self, buffer: Buffer, header: BatchHeader) -> None:
        """Apply the records of one batch, or a transaction marker, to the groups loaded so far.

        Raises CorruptRecords.
        """
        if header.is_control:
            self._end_transaction(buffer, header)
            return
        target = self._offsets
        if header.is_transactional:
            target = self._transactional.setdefault(header.producer_id, {})
        base_offset: int | None = None
        for record in records(buffer, header):
            base_offset = record.offset if base_offset is None else base_offset
            try:
                self._add_record(target, record, base_offset)
            except UnknownRecord as error:
                self.skipped += 1
                log.error(
                    "unreadable record of __consumer_offsets skipped while loading groups; the others are loaded",
                    offset=record.offset,
                    reason=str(error),
                )

    def _end_transaction(self, buffer: Buffer, header: BatchHeader) -> None:
        """Apply a transaction marker: the producer's offsets are committed or dropped.

        An offset that a later record has replaced is not committed.
        """
        marker = end_marker_of(buffer, header)
        if marker is None:
            return  # the cleaner keeps such batches for their sequence numbers
        offsets = self._transactional.pop(header.producer_id, {})
        if marker.type is not ControlType.COMMIT:
            return
        for key, offset in offsets.items():
            known = self._offsets.get(key)
            if known is None or known.record_offset < offset.record_offset:
                self._offsets[key] = offset

    def _add_record(self, target: Committed, record: Record, base_offset: int) -> None:
        """Apply one record to the loaded groups, or to the offsets of its transaction. Raises UnknownRecord."""
        if record.key is None:
            raise UnknownRecord(f"the record at offset {record.offset} of __consumer_offsets has no key")
        key = read_key(record.key)
        if isinstance(key, OffsetKey):
            if record.value is None:
                target.pop(key, None)
            else:
                target[key] = CommittedOffset(read_offset_value(record.value), base_offset)
        elif isinstance(key, GroupKey):
            if record.value is None:
                self._groups.pop(key.group_id, None)
            else:
                self._groups[key.group_id] = read_group_value(key.group_id, record.value)
        else:
            log.warning(
                "record of a newer group protocol (KIP-848) ignored while loading groups; the others are loaded",
                offset=record.offset,
            )

    def take_groups(self, now_ms: int) -> Iterator[Group]:
        """Yield every loaded group with its offsets.

        A group that only stored offsets has no record of its own, and is created here.
        """
        offsets = _by_group(self._offsets.items())
        transactional = {producer: _by_group(found.items()) for producer, found in self._transactional.items()}
        names = dict.fromkeys([*self._groups, *offsets])
        for found in transactional.values():
            names.update(dict.fromkeys(found))
        for name in names:
            group = self._groups.get(name) or Group(name, now_ms)
            for key, offset in offsets.get(name, ()):
                group.offsets.committed[key.partition] = offset
            for producer, found in transactional.items():
                if name in found:
                    group.offsets.transactional[producer] = {key.partition: offset for key, offset in found[name]}
            yield group


def _by_group(
    offsets: Iterable[tuple[OffsetKey, CommittedOffset]],
) -> dict[str, list[tuple[OffsetKey, CommittedOffset]]]:
    """Return the offsets as lists by group id."""
    grouped: dict[str, list[tuple[OffsetKey, CommittedOffset]]] = {}
    for key, offset in offsets:
        grouped.setdefault(key.group_id, []).append((key, offset))
    return grouped
