"""One cleaning of one log, step by step, in a process of its own. Source: LogCleaner.scala (Cleaner).

The first pass collects the last offset of each key in the dirty range; the second writes the records that stay, group
by group, to files with the suffix `.cleaned`. Nothing of the log is changed here.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from klamm.log.cleaner.batches import WrittenBatch
from klamm.log.cleaner.filtering import BatchFilter, of_transactions
from klamm.log.cleaner.job import CleanedFiles, CleaningFinished, CleaningJob, Progress, SourceSegment
from klamm.log.cleaner.key_hashes import hash_keys
from klamm.log.cleaner.latest_records import Flags
from klamm.log.cleaner.legacy import add_legacy_run, filter_legacy
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.cleaner.reading import log_path, read_runs
from klamm.log.cleaner.transactions import TransactionCleaning
from klamm.log.errors import CorruptFile
from klamm.log.flushing import sync_files
from klamm.log.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, segment_file
from klamm.log.open_files import OpenFiles
from klamm.log.runs import LegacyRun
from klamm.log.segment import Segment
from klamm.log.transactions import AbortedTransaction, TransactionIndex
from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk
from klamm.wire.records import end_marker_of, header_at
from klamm.wire.records.batch import CONTROL_BIT
from klamm.wire.vectors.batches import Run
from klamm.wire.vectors.groups import Group, decode_group, group_batches, per_record

WRITE_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 4
_KINDS: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)


class MapTooSmall(KlammError):
    """Not even one batch fits into the offset map."""


def clean(disk: Disk, job: CleaningJob) -> Iterator[Progress]:
    """Clean the log; the last progress has CleaningFinished.

    Raises OSError, CorruptBatch, CorruptRecords, CorruptFile, MapTooSmall.
    """
    aborted = _aborted_transactions(disk, job)
    offset_map = OffsetMap(job.map_capacity, job.start)
    yield from _build_map(disk, job, offset_map, aborted)
    offset_map.seal()
    end_offset = offset_map.latest_offset + 1
    batch_filter = BatchFilter(
        offset_map, TransactionCleaning(aborted), job.producers, job.now_ms, job.delete_retention_ms
    )
    horizon_ms = _legacy_delete_horizon_ms(disk, job)
    read = written = 0
    for group in job.groups:
        if group[0].base_offset >= end_offset:
            break
        read += sum(source.size for source in group)
        for progress in _rewrite(disk, job, group, batch_filter, horizon_ms):
            if isinstance(progress.event, CleanedFiles):
                written += progress.event.size
            yield progress
    counts = batch_filter.counts
    yield Progress(
        0,
        CleaningFinished(
            end_offset,
            read,
            written,
            counts.read_records,
            counts.written_records,
            counts.keyless_records + offset_map.keyless_records,
            offset_map.utilization,
        ),
    )


def _aborted_transactions(disk: Disk, job: CleaningJob) -> list[AbortedTransaction]:
    """Read every aborted transaction of the log. Raises OSError, CorruptFile."""
    aborted: list[AbortedTransaction] = []
    for base_offset in job.transaction_indexes:
        path = f"{job.directory}/{segment_file(base_offset, TRANSACTION_INDEX)}"
        if disk.exists(path):
            TransactionIndex(disk, path, base_offset).collect(0, job.end, aborted)
    return aborted


def _legacy_delete_horizon_ms(disk: Disk, job: CleaningJob) -> int:
    """The time until which a segment was last modified whose tombstones of formats 0 and 1 are removed. Raises OSError.

    It is `delete.retention.ms` before the last segment of the clean part was modified; 0 without such a segment.
    """
    clean = [source.base_offset for group in job.groups for source in group if source.base_offset < job.start]
    if not clean:
        return 0
    return disk.modified_ms(log_path(job.directory, clean[-1])) - job.delete_retention_ms


# -- the first pass ----------------------------------------------------------------------------------------------------


def _build_map(
    disk: Disk, job: CleaningJob, offset_map: OffsetMap, aborted: Sequence[AbortedTransaction]
) -> Iterator[Progress]:
    """Put the keys from `job.start` on into the map, up to `job.end` or until it is full. Raises MapTooSmall."""
    segments = [segment for group in job.groups for segment in group]
    transactions = TransactionCleaning(each for each in aborted if each.last_offset >= job.start)
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else job.end
        if following <= job.start:
            continue
        for run in read_runs(disk, log_path(job.directory, segment.base_offset), segment.size, job.read_bytes):
            is_complete = _add_run(offset_map, transactions, run, job.start)
            yield Progress(len(run.buffer))
            if not is_complete:
                if offset_map.latest_offset < job.start:
                    raise MapTooSmall(
                        f"the offset map of {job.map_capacity} keys does not hold the keys of one batch. "
                        "Increase log.cleaner.dedupe.buffer.size."
                    )
                return
        offset_map.latest_offset = following - 1


def _add_run(offset_map: OffsetMap, transactions: TransactionCleaning, run: Run | LegacyRun, start: int) -> bool:
    """Add the keys of the run's committed batches to the map; returns whether all of them fit."""
    if isinstance(run, LegacyRun):
        return add_legacy_run(offset_map, run, start)
    for group in group_batches(run, _committed_data(transactions, run, start)):
        if not _add_group(offset_map, group, start):
            return False
    offset_map.latest_offset = max(offset_map.latest_offset, run.next_offset - 1)
    return True


def _committed_data(transactions: TransactionCleaning, run: Run, start: int) -> list[int]:
    """The numbers of the batches whose keys go into the map: data from `start` on, without aborted transactions."""
    headers = run.headers
    is_data = (headers["record_count"] > 0) & ((headers["attributes"] & CONTROL_BIT) == 0)
    chosen = (is_data & (run.last_offsets >= start)).tolist()
    for number in np.flatnonzero(of_transactions(run) & (run.last_offsets >= start)).tolist():
        header = header_at(run.buffer, run.positions[number])
        if not header.is_control:
            chosen[number] = chosen[number] and not transactions.on_data(header)
            continue
        marker = end_marker_of(run.buffer, header)
        transactions.on_control(header, marker.type if marker else None, header.record_count <= 0)
    transactions.take_kept()
    return [number for number, is_chosen in enumerate(chosen) if is_chosen]


def _add_group(offset_map: OffsetMap, group: Group, start: int) -> bool:
    """Add the keys of the group's batches to the map; returns whether all fit.

    Where they do not, as many batches as fit are added.
    """
    records = decode_group(group)
    keys = records.fields.keys
    from_start = records.offsets >= start

    def add(chosen: Flags) -> bool:
        """Put the keys of the chosen records into the map; false where it has no room for them."""
        keyed = np.flatnonzero(chosen & from_start & ~keys.null)
        hashes = hash_keys(records.raw, keys.starts[keyed], keys.ends[keyed])
        if not offset_map.add(hashes, records.offsets[keyed], records.fields.values.null[keyed]):
            return False
        is_inside = per_record(group.headers["base_offset"], records.batch_of) >= start
        offset_map.keyless_records += int((keys.null & chosen & is_inside).sum())
        return True

    if add(np.ones(len(from_start), np.bool_)):
        return True
    last_offsets = group.headers["base_offset"].astype(np.int64) + group.headers["last_offset_delta"]
    for i, last_offset in enumerate(last_offsets.tolist()):
        if not add(records.batch_of == i):
            return False
        offset_map.latest_offset = max(offset_map.latest_offset, last_offset)
    return True


# -- the second pass ---------------------------------------------------------------------------------------------------


def _rewrite(
    disk: Disk, job: CleaningJob, group: Sequence[SourceSegment], batch_filter: BatchFilter, horizon_ms: int
) -> Iterator[Progress]:
    """Write the records that stay of these segments to one new segment; the last progress yielded has its files.

    It keeps the time at which the last of them was modified, which `horizon_ms` of later cleanings is counted from.
    """
    files = OpenFiles(disk, _OPEN_FILES)
    segment = _cleaned_segment(files, job, group[0].base_offset)
    output = _Output(segment)
    modified_ms = 0
    try:
        for source in group:
            path = log_path(job.directory, source.base_offset)
            modified_ms = disk.modified_ms(path)
            for run in read_runs(disk, path, source.size, job.read_bytes):
                before = segment.size
                for batch in _batches_left(batch_filter, run, keeps_legacy_tombstones=modified_ms > horizon_ms):
                    output.add(batch)
                for transaction in batch_filter.transactions.take_kept():
                    segment.transaction_index.append(transaction)
                output.write()
                yield Progress(len(run.buffer) + segment.size - before)
        segment.seal()
    finally:
        files.close()
    disk.set_modified_ms(segment.log_path, modified_ms)
    paths = [segment.path(kind) for kind in _KINDS]
    sync_files(disk, paths, ())
    replaced = tuple(source.base_offset for source in group)
    yield Progress(0, CleanedFiles(segment.base_offset, replaced, segment.size))


def _batches_left(
    batch_filter: BatchFilter, run: Run | LegacyRun, *, keeps_legacy_tombstones: bool
) -> Iterator[WrittenBatch]:
    """The batches of the run that are kept, in order. Raises CorruptBatch, CorruptRecords."""
    if isinstance(run, Run):
        return batch_filter.filter(run)
    return filter_legacy(run, batch_filter.offset_map, batch_filter.counts, keeps_tombstones=keeps_legacy_tombstones)


def _cleaned_segment(files: OpenFiles, job: CleaningJob, base_offset: int) -> Segment:
    """An empty segment whose files have the suffix `.cleaned`. Raises OSError."""
    segment = Segment(
        files,
        job.directory,
        base_offset,
        index_interval_bytes=job.index_interval_bytes,
        index_max_bytes=job.index_max_bytes,
        created_ms=job.now_ms,
        suffix=CLEANED,
    )
    for kind in _KINDS:
        if files.disk.exists(segment.path(kind)):
            raise CorruptFile(
                f"{segment.path(kind)} exists already: another process cleans this log. Stop that process."
            )
    files.disk.open(segment.log_path, create=True).close()
    return segment


class _Output:
    """Batches on their way into a segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._batches: list[WrittenBatch] = []
        self._size = 0

    def add(self, batch: WrittenBatch) -> None:
        """Append the batch to the new segment; batches are collected and written once there are `WRITE_BYTES`."""
        self._batches.append(batch)
        self._size += len(batch.content)
        if self._size >= WRITE_BYTES:
            self.write()

    def write(self) -> None:
        """Write the collected batches to the new segment's file and indexes."""
        if self._batches:
            marks = [(len(b.content), b.first_offset, b.last_offset, b.max_timestamp) for b in self._batches]
            self._segment.append_run(b"".join(b.content for b in self._batches), marks)
            self._batches, self._size = [], 0
