"""Which records of a run of batches stay, and the batches that are left. Source: MemoryRecords.java (filterTo)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from klamm.log.cleaner.batches import FilterCounts, WrittenBatch
from klamm.log.cleaner.job import ProducerEnd
from klamm.log.cleaner.kept_records import KeptRecords
from klamm.log.cleaner.key_hashes import hash_keys
from klamm.log.cleaner.latest_records import Flags
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.cleaner.rewritten import copied, delete_horizon, emptied, rebuilt, with_horizon
from klamm.log.cleaner.transactions import TransactionCleaning
from klamm.wire.records import BatchHeader, end_marker_of, header_at
from klamm.wire.records.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, TimestampType
from klamm.wire.records.record import payload_of
from klamm.wire.vectors.batches import Headers, Run
from klamm.wire.vectors.groups import (
    Group,
    LocatedRecords,
    decode_group,
    group_batches,
    locate_records,
)
from klamm.wire.vectors.varints import Longs


class _Outcome(Enum):
    """What happens to a whole batch before its records are checked."""

    FILTER = "keep the remaining records; drop a batch that has none left"
    FILTER_KEEP_EMPTY = "keep the remaining records; keep the header of a batch that has none left"
    DROP = "drop the batch"
    EMPTY = "keep the header only"
    MARK = "set the delete horizon of a marker whose transaction has no data left"


class _Selection(NamedTuple):
    """The records of a group of batches that stay."""

    records: LocatedRecords
    kept: Flags
    tombstones: Flags
    """Those of `kept` that are tombstones."""


@dataclass(slots=True)
class BatchFilter:
    """Applies the rules of compaction to batches in the order of the log."""

    offset_map: OffsetMap
    transactions: TransactionCleaning
    producers: Mapping[int, ProducerEnd]
    now_ms: int
    delete_retention_ms: int
    counts: FilterCounts = field(default_factory=FilterCounts)
    _producer_ends: Longs = field(init=False)
    """The last data offset of each active producer that has one."""

    def __post_init__(self) -> None:
        ends = [end.last_data_offset for end in self.producers.values() if end.last_data_offset is not None]
        self._producer_ends = np.array(ends, np.int64)

    def filter(self, run: Run) -> Iterator[WrittenBatch]:
        """The batches of the run that are left, in order. Raises CorruptBatch, CorruptRecords."""
        self.counts.read_records += int(run.headers["record_count"].clip(0).sum())
        outcomes = self._outcomes(run)
        numbers = self._numbers_to_filter(run, outcomes)
        is_in_map = (run.headers["base_offset"][numbers] >= self.offset_map.start) & (
            run.last_offsets[numbers] <= self.offset_map.latest_offset
        )
        results: dict[int, WrittenBatch | None] = {}
        parts = self._decide_whole_batches(run, numbers[is_in_map], outcomes, results)
        for group in group_batches(run, parts.tolist()):
            self._filter_group(run, group, outcomes, results, self._select_by_offset(group))
        for group in group_batches(run, numbers[~is_in_map].tolist()):
            self._filter_group(run, group, outcomes, results, self._select_by_key(group))
        for number in range(len(run.positions)):
            batch = results[number] if number in results else self._without_filter(run, number, outcomes.get(number))
            if batch is not None:
                yield batch

    # -- whole batches -------------------------------------------------------------------------------------------------

    def _outcomes(self, run: Run) -> dict[int, _Outcome]:
        """Decide, for each batch of a transaction and for the last one of each producer, what happens to it as a whole.

        All other batches are filtered. The key is the batch's number in the run.
        """
        needs_header = of_transactions(run) | np.isin(run.last_offsets, self._producer_ends)
        outcomes = {}
        for number in np.flatnonzero(needs_header & (run.headers["producer_id"] >= 0)).tolist():
            header = header_at(run.buffer, run.positions[number])
            outcomes[number] = self._control_outcome(run, header) if header.is_control else self._data_outcome(header)
        return outcomes

    def _data_outcome(self, header: BatchHeader) -> _Outcome:
        """Decide about a whole data batch: dropped if its transaction was aborted, else its records are filtered.

        The header of a batch with its producer's last sequence stays in either case.
        """
        may_go, is_last = self.transactions.on_data(header), self._is_last_of_producer(header)
        if may_go:
            return _Outcome.EMPTY if is_last else _Outcome.DROP
        return _Outcome.FILTER_KEEP_EMPTY if is_last else _Outcome.FILTER

    def _control_outcome(self, run: Run, header: BatchHeader) -> _Outcome:
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
            return _Outcome.EMPTY if is_last else _Outcome.DROP
        return _Outcome.MARK if may_go and horizon is None else _Outcome.FILTER

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch has the last sequence of an active producer, or the last epoch of one without data."""
        end = self.producers.get(header.producer_id)
        if end is None:
            return False
        if end.last_data_offset is None:
            return header.is_control and header.producer_epoch == end.epoch
        return header.last_offset == end.last_data_offset

    def _without_filter(self, run: Run, number: int, outcome: _Outcome | None) -> WrittenBatch | None:
        """Return what the new segment gets of a batch whose records need no filter; None where the batch is dropped."""
        header = header_at(run.buffer, run.positions[number])
        is_empty = header.record_count <= 0
        if outcome is _Outcome.EMPTY or (outcome is _Outcome.FILTER_KEEP_EMPTY and is_empty):
            return emptied(header)
        if outcome is _Outcome.DROP or is_empty:
            return None
        self.counts.written_records += header.record_count
        if outcome is _Outcome.MARK:
            return with_horizon(header, payload_of(run.buffer, header), self._horizon_ms)
        return copied(run, number, header)

    @property
    def _horizon_ms(self) -> int:
        """The delete horizon of what this cleaning finds to be removable: now plus `delete.retention.ms`."""
        return self.now_ms + self.delete_retention_ms

    # -- records -------------------------------------------------------------------------------------------------------

    def _numbers_to_filter(self, run: Run, outcomes: Mapping[int, _Outcome]) -> Longs:
        """The numbers of the data batches whose records must be compared with the offset map."""
        headers = run.headers
        known = (headers["record_count"] > 0) & (headers["base_offset"] <= self.offset_map.latest_offset)
        known &= (headers["attributes"] & CONTROL_BIT) == 0
        filtered = (_Outcome.FILTER, _Outcome.FILTER_KEEP_EMPTY)
        known[[number for number, outcome in outcomes.items() if outcome not in filtered]] = False
        return np.flatnonzero(known)

    def _may_drop_tombstones(self, headers: Headers) -> Flags:
        """Whether the delete horizon of each batch has passed."""
        may_drop: Flags = _has_horizon(headers) & (headers["base_timestamp"] <= self.now_ms)
        return may_drop

    def _decide_whole_batches(
        self, run: Run, numbers: Longs, outcomes: Mapping[int, _Outcome], results: dict[int, WrittenBatch | None]
    ) -> Longs:
        """Put the batches that stay or go as a whole into `results`; returns the numbers of the others.

        All records of these batches are in the offset map: their offsets tell which of them stay.
        """
        headers, latest = run.headers[numbers], self.offset_map.latest
        ranges = headers["base_offset"].astype(np.int64), run.last_offsets[numbers]
        tombstones = latest.count_tombstones(*ranges)
        kept = latest.count(*ranges) - np.where(self._may_drop_tombstones(headers), tombstones, 0)
        needs_horizon = (tombstones > 0) & ~_has_horizon(headers)
        is_whole = (kept == headers["record_count"]) & ~needs_horizon
        for number in numbers[kept == 0].tolist():
            results[number] = _nothing_left(run, number, outcomes)
        self.counts.written_records += int(kept[is_whole].sum())
        columns = [column[is_whole].tolist() for column in (numbers, *ranges, headers["max_timestamp"])]
        for number, first, last, max_timestamp in zip(*columns, strict=True):
            results[number] = WrittenBatch(run.content(number), first, last, max_timestamp)
        parts: Longs = numbers[(kept > 0) & ~is_whole]
        return parts

    def _select_by_offset(self, group: Group) -> _Selection:
        """Choose the records that stay among those in the offset map; the first pass has checked their keys."""
        records = locate_records(group)
        kept, tombstones = self.offset_map.latest.find(records.offsets)
        dropped = tombstones & self._may_drop_tombstones(group.headers)[records.batch_of]
        return _Selection(records, kept & ~dropped, tombstones & ~dropped)

    def _select_by_key(self, group: Group) -> _Selection:
        """Choose the records that stay: those after the map's last offset, and the last record of each key.

        Records without a key are removed.
        """
        records = decode_group(group)
        keys, values = records.fields.keys, records.fields.values
        latest = self.offset_map.get(hash_keys(records.raw, keys.starts, keys.ends))
        is_behind: Flags = records.offsets > self.offset_map.latest_offset
        is_dropped = values.null & self._may_drop_tombstones(group.headers)[records.batch_of]
        self.counts.keyless_records += int((keys.null & ~is_behind).sum())
        kept = is_behind | (~keys.null & (records.offsets >= latest) & ~is_dropped)
        located = LocatedRecords(records.bodies, records.batch_of, records.offsets, records.timestamps)
        return _Selection(located, kept, kept & values.null)

    def _filter_group(
        self,
        run: Run,
        group: Group,
        outcomes: Mapping[int, _Outcome],
        results: dict[int, WrittenBatch | None],
        selection: _Selection,
    ) -> None:
        """Put what is left of each batch of the group into `results`, None where nothing is left.

        The key of `results` is the batch's number in the run.
        """
        batch_of_tombstones = selection.records.batch_of[selection.tombstones]
        has_tombstones = np.bincount(batch_of_tombstones, minlength=len(group.numbers)) > 0
        needs_horizon = (has_tombstones & ~_has_horizon(group.headers)).tolist()
        kept = KeptRecords(group, selection.records, selection.kept)
        for i, number in enumerate(group.numbers):
            self.counts.written_records += kept.counts[i]
            if not kept.counts[i]:
                results[number] = _nothing_left(run, number, outcomes)
                continue
            header = header_at(run.buffer, run.positions[number])
            if kept.counts[i] == header.record_count and not needs_horizon[i]:
                results[number] = copied(run, number, header)
                continue
            max_timestamp = header.max_timestamp
            if header.timestamp_type is TimestampType.CREATE_TIME:
                max_timestamp = kept.max_timestamps[i]
            left = header._replace(record_count=kept.counts[i], max_timestamp=max_timestamp)
            payload = kept.payload(i)
            results[number] = (
                with_horizon(left, payload, self._horizon_ms) if needs_horizon[i] else rebuilt(left, payload)
            )


def of_transactions(run: Run) -> Flags:
    """Whether each batch has data or the marker of a transaction."""
    is_of_one: Flags = (run.headers["attributes"] & (TRANSACTIONAL_BIT | CONTROL_BIT)) != 0
    return is_of_one & (run.headers["producer_id"] >= 0)


def _has_horizon(headers: Headers) -> Flags:
    """Whether each batch has a delete horizon."""
    has_horizon: Flags = (headers["attributes"] & DELETE_HORIZON_BIT) != 0
    return has_horizon


def _nothing_left(run: Run, number: int, outcomes: Mapping[int, _Outcome]) -> WrittenBatch | None:
    """What is left of a batch none of whose records stays: its header, if its producer needs it, or None."""
    if outcomes.get(number) is not _Outcome.FILTER_KEEP_EMPTY:
        return None
    return emptied(header_at(run.buffer, run.positions[number]))
