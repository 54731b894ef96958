"""Which records of a run of batches stay, and the batches that are left. Source: MemoryRecords.java (filterTo)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.log.cleaner.job import ProducerEnd
from klamm.log.cleaner.offset_map import OffsetMap, hash_keys
from klamm.log.cleaner.transactions import TransactionCleaning
from klamm.wire.compression import Codec, compress
from klamm.wire.records import BatchHeader, end_marker_of, header_at
from klamm.wire.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    TimestampType,
    sealed_batch,
)
from klamm.wire.records.record import append_varint, payload_of, read_varint
from klamm.wire.vectors.batches import Run
from klamm.wire.vectors.groups import Group, GroupRecords, decode_group, group_batches

Flags = npt.NDArray[np.bool_]


class WrittenBatch(NamedTuple):
    """A batch for the new segment."""

    content: bytes | memoryview
    first_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class FilterCounts:
    read_records: int = 0
    written_records: int = 0
    keyless_records: int = 0


class _Fate(Enum):
    """What happens to a whole batch before its records are looked at."""

    FILTER = "keep the remaining records; drop a batch that has none left"
    FILTER_KEEP_EMPTY = "keep the remaining records; keep the header of a batch that has none left"
    DROP = "drop the batch"
    EMPTY = "keep the header only"
    MARK = "set the delete horizon of a marker whose transaction has no data left"


@dataclass(slots=True)
class BatchFilter:
    """Applies the rules of compaction to batches in the order of the log."""

    offset_map: OffsetMap
    transactions: TransactionCleaning
    producers: Mapping[int, ProducerEnd]
    now_ms: int
    delete_retention_ms: int
    counts: FilterCounts = field(default_factory=FilterCounts)

    def filter(self, run: Run) -> Iterator[WrittenBatch]:
        """The batches of the run that are left, in order. Raises CorruptBatch, CorruptRecords."""
        self.counts.read_records += int(run.headers["record_count"].clip(0).sum())
        fates = self._fates(run)
        results: dict[int, WrittenBatch | None] = {}
        for group in group_batches(run, self._numbers_to_filter(run, fates)):
            self._filter_group(run, group, fates, results)
        for number in range(len(run.positions)):
            batch = results[number] if number in results else self._without_filter(run, number, fates.get(number))
            if batch is not None:
                yield batch

    # -- whole batches -------------------------------------------------------------------------------------------------

    def _fates(self, run: Run) -> dict[int, _Fate]:
        """Decide, for each batch with a producer id, whether it is kept, filtered, emptied or dropped.

        Batches without one are filtered. The key is the batch's number in the run.
        """
        fates = {}
        for number in np.flatnonzero(run.headers["producer_id"] >= 0).tolist():
            header = header_at(run.buffer, run.positions[number])
            fates[number] = self._control_fate(run, header) if header.is_control else self._data_fate(header)
        return fates

    def _data_fate(self, header: BatchHeader) -> _Fate:
        """Decide about a whole data batch: dropped if its transaction was aborted, else its records are filtered.

        The header of a batch with its producer's last sequence stays in either case.
        """
        may_go, is_last = self.transactions.on_data(header), self._is_last_of_producer(header)
        if may_go:
            return _Fate.EMPTY if is_last else _Fate.DROP
        return _Fate.FILTER_KEEP_EMPTY if is_last else _Fate.FILTER

    def _control_fate(self, run: Run, header: BatchHeader) -> _Fate:
        """Decide about a whole batch with a transaction marker.

        It is dropped once its transaction has no data left and its delete horizon has passed; before, it gets a delete
        horizon. The header of a batch that is its producer's last stays.
        """
        is_empty = header.record_count <= 0
        marker = None if is_empty else end_marker_of(run.buffer, header)
        may_go = self.transactions.on_control(header, marker.type if marker else None, is_empty)
        is_last = self._is_last_of_producer(header)
        horizon = delete_horizon(header)
        if is_empty or (may_go and horizon is not None and horizon <= self.now_ms):
            return _Fate.EMPTY if is_last else _Fate.DROP
        return _Fate.MARK if may_go and horizon is None else _Fate.FILTER

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch has the last sequence of an active producer, or the last epoch of one without data."""
        end = self.producers.get(header.producer_id)
        if end is None:
            return False
        if end.last_data_offset is None:
            return header.is_control and header.producer_epoch == end.epoch
        return header.last_offset == end.last_data_offset

    def _without_filter(self, run: Run, number: int, fate: _Fate | None) -> WrittenBatch | None:
        """Return what the new segment gets of a batch whose records need no filter; None where the batch is dropped."""
        header = header_at(run.buffer, run.positions[number])
        if fate in (_Fate.EMPTY, _Fate.FILTER_KEEP_EMPTY) and (fate is _Fate.EMPTY or header.record_count <= 0):
            return _emptied(header)
        if fate is _Fate.DROP or header.record_count <= 0:
            return None
        self.counts.written_records += header.record_count
        if fate is _Fate.MARK:
            return self._with_horizon(header, payload_of(run.buffer, header))
        return _copied(run, number, header)

    def _with_horizon(self, header: BatchHeader, payload: bytes) -> WrittenBatch:
        """Return the batch with a delete horizon.

        That is the time from which its tombstones or marker may be removed: now plus `delete.retention.ms`.
        """
        horizon = self.now_ms + self.delete_retention_ms
        records = _rebased(payload, header.base_timestamp - horizon)
        attributes = header.attributes | DELETE_HORIZON_BIT
        return _rebuilt(header._replace(base_timestamp=horizon, attributes=attributes), records)

    # -- records -------------------------------------------------------------------------------------------------------

    def _numbers_to_filter(self, run: Run, fates: Mapping[int, _Fate]) -> list[int]:
        """The numbers of the data batches whose records must be compared with the offset map."""
        headers = run.headers
        known = (headers["record_count"] > 0) & (headers["base_offset"] <= self.offset_map.latest_offset)
        known &= (headers["attributes"] & CONTROL_BIT) == 0
        filtered = (None, _Fate.FILTER, _Fate.FILTER_KEEP_EMPTY)
        return [number for number in np.flatnonzero(known).tolist() if fates.get(number) in filtered]

    def _filter_group(
        self, run: Run, group: Group, fates: Mapping[int, _Fate], results: dict[int, WrittenBatch | None]
    ) -> None:
        """Choose the records of the group's batches that stay, and put what is left of each batch into `results`.

        The key of `results` is the batch's number in the run; the value is None where nothing is left of it.
        """
        records = decode_group(group)
        has_horizon = (group.headers["attributes"] & DELETE_HORIZON_BIT) != 0
        may_drop_tombstones = has_horizon & (group.headers["base_timestamp"] <= self.now_ms)
        kept = self._kept_records(group, records, may_drop_tombstones)
        tombstones = kept & records.fields.values.null
        count = len(group.numbers)
        kept_counts = np.bincount(records.batch_of[kept], minlength=count).tolist()
        with_tombstones = np.bincount(records.batch_of[tombstones], minlength=count).tolist()
        firsts = (np.cumsum(group.areas.counts) - group.areas.counts).tolist()
        for i, number in enumerate(group.numbers):
            header = header_at(run.buffer, run.positions[number])
            self.counts.written_records += kept_counts[i]
            needs_horizon = bool(with_tombstones[i]) and not has_horizon[i]
            if not kept_counts[i]:
                results[number] = _emptied(header) if fates.get(number) is _Fate.FILTER_KEEP_EMPTY else None
            elif kept_counts[i] == header.record_count and not needs_horizon:
                results[number] = _copied(run, number, header)
            else:
                part = range(firsts[i], firsts[i] + header.record_count)
                results[number] = self._filtered(header, group, records, kept, part, needs_horizon)

    def _kept_records(self, group: Group, records: GroupRecords, may_drop_tombstones: Flags) -> Flags:
        """Decide which records stay: those after the map's last offset, and the last record of each key.

        Records without a key are removed.
        """
        keys = records.fields.keys
        content = bytes(group.buffer)
        latest = self.offset_map.get(hash_keys(content, keys.starts.tolist(), keys.ends.tolist()))
        is_behind: Flags = records.offsets > self.offset_map.latest_offset
        is_value: Flags = ~records.fields.values.null | ~may_drop_tombstones[records.batch_of]
        self.counts.keyless_records += int((keys.null & ~is_behind).sum())
        return is_behind | (~keys.null & (records.offsets >= latest) & is_value)

    def _filtered(
        self, header: BatchHeader, group: Group, records: GroupRecords, kept: Flags, part: range, needs_horizon: bool
    ) -> WrittenBatch:
        """The batch with the records that stay; offsets and timestamps do not change."""
        inside = slice(part.start, part.stop)
        numbers = np.flatnonzero(kept[inside]) + part.start
        ends = records.bodies.ends
        area_start = int(group.areas.starts[records.batch_of[part.start]])
        starts = np.where(numbers == part.start, area_start, ends[numbers - 1])
        payload = b"".join(
            group.buffer[start:end] for start, end in zip(starts.tolist(), ends[numbers].tolist(), strict=True)
        )
        max_timestamp = header.max_timestamp
        if header.timestamp_type is TimestampType.CREATE_TIME:
            max_timestamp = int(records.timestamps[numbers].max())
        left = header._replace(record_count=len(numbers), max_timestamp=max_timestamp)
        return self._with_horizon(left, payload) if needs_horizon else _rebuilt(left, payload)


def delete_horizon(header: BatchHeader) -> int | None:
    """The time in ms from which the tombstones or marker in the batch may be removed; None if it is not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def _copied(run: Run, number: int, header: BatchHeader) -> WrittenBatch:
    """Return batch number `number` of the run unchanged, for the new segment."""
    position = run.positions[number]
    content = run.buffer[position : position + run.sizes[number]]
    return WrittenBatch(content, header.base_offset, header.last_offset, header.max_timestamp)


def _emptied(header: BatchHeader) -> WrittenBatch:
    """The batch without its records; its header still tells the producer's last sequence and epoch."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_BIT
    empty = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return WrittenBatch(sealed_batch(empty, b""), header.base_offset, header.last_offset, header.max_timestamp)


def _rebuilt(header: BatchHeader, payload: bytes) -> WrittenBatch:
    """Return a batch of this header and these encoded records.

    The records are compressed by the header's codec, and the checksum is calculated.
    """
    content = payload if header.codec is Codec.NONE else compress(header.codec, payload)
    return WrittenBatch(sealed_batch(header, content), header.base_offset, header.last_offset, header.max_timestamp)


def _rebased(payload: bytes, shift: int) -> bytes:
    """The encoded records with `shift` added to each timestamp delta."""
    rebased = bytearray()
    position = 0
    while position < len(payload):
        length, start = read_varint(payload, position)
        position = start + length
        delta, behind = read_varint(payload, start + 1)
        body = bytearray(payload[start : start + 1])
        append_varint(body, delta + shift)
        body += payload[behind:position]
        append_varint(rebased, len(body))
        rebased += body
    return bytes(rebased)
