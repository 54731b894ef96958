"""Reading a segment's batches again: its indexes, its producers, its leader epochs. Source: LogSegment.java (recover).

What was flushed is treated differently from what was not. Behind the recovery point the first damaged batch ends the
log, as in Apache Kafka: replication has the rest. Below the recovery point no other replica may have the batches. There
a damaged batch stays where it is, only bytes that cannot be parsed are cut off, and other segments are not touched.
Where batches and the leader epoch checkpoint contradict each other, the batches are right.
"""

import itertools
from dataclasses import dataclass, field

from klamm.log.epochs import LeaderEpochs
from klamm.log.producer_files import update_producers
from klamm.log.producers import Producers
from klamm.log.scan import BATCH_CHUNK_BYTES, ScannedBatch, scan_batches
from klamm.log.segment import Segment
from klamm.log.transactions import AbortedTransaction
from klamm.runtime.disk import Disk, File
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import NO_LEADER_EPOCH, BatchHeader, crc_is_valid


@dataclass(slots=True)
class RebuildResult:
    """The result of rebuilding a segment."""

    next_offset: int
    """The offset after the last undamaged batch."""
    cut: str | None = None
    """Why the segment's end was cut off; None where it was not."""
    kept: list[str] = field(default_factory=list)
    """Damaged batches below the recovery point."""
    saved: str | None = None
    """The file with the flushed bytes that were cut off; None where there were none."""


class SegmentRebuild:
    """Rebuilds one segment from its `.log` file: both indexes, and the index of aborted transactions where asked to."""

    def __init__(
        self, disk: Disk, segment: Segment, producers: Producers, epochs: LeaderEpochs, *, transactions: bool
    ) -> None:
        """`producers`: the state at the segment's base offset."""
        self._disk = disk
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._transactions = transactions
        before = epochs.epoch_for(segment.base_offset - 1)
        self._last_epoch = NO_LEADER_EPOCH if before is None else before

    def run(self, expected: int, flushed_below: int, limit: int | None) -> RebuildResult:
        """Rebuild the segment's indexes and the producer state from its batches. Raises OSError.

        `expected` is the lowest allowed offset, `flushed_below` the recovery point, `limit` the first offset that
        cannot be in this segment (None: not known).
        """
        segment, result = self._segment, RebuildResult(expected)
        size = segment.size
        segment.reset()
        if self._transactions:
            segment.transaction_index.remove()
        good_end = 0
        file = self._disk.open(segment.log_path)
        try:
            try:
                for batch in scan_batches(file, 0, size, check=False):
                    problem = _problem(batch, segment, result.next_offset, limit)
                    if problem is None and result.next_offset >= flushed_below:
                        problem = self._falling_epoch(batch)
                    if problem is None:
                        self._index_batch(batch)
                        result.next_offset = batch.header.next_offset
                        good_end = segment.size
                    elif result.next_offset < flushed_below:
                        segment.skip_batch(batch.position, batch.header.size)
                        result.kept.append(problem)
                    else:
                        result.cut = problem
                        break
            except CorruptRecords as error:
                result.cut = str(error)
            else:
                if result.cut is None and segment.size < size:
                    result.cut = f"the last {size - segment.size} bytes are not a complete batch"
            if limit in (None, result.next_offset) and _has_zeros(file, good_end, size):
                result.cut = None
                file.truncate(good_end)
            if result.cut is None and limit is None and good_end < segment.size:
                result.cut = result.kept.pop()  # the end of the log is not known from a damaged batch
            if result.cut is not None:
                segment.size = good_end if limit is None else segment.size
                if result.next_offset < flushed_below and segment.size < size:
                    result.saved = self._save_bytes(file, segment.size, size)
                file.truncate(segment.size)
        finally:
            file.close()
        segment.time_index.append(*segment.largest)
        segment.write_indexes()
        return result

    def _save_bytes(self, file: File, position: int, end: int) -> str:
        """Copy these bytes of the segment into a file beside it and return its path: no other replica may have them."""
        disk = self._disk
        paths = (f"{self._segment.log_path}.cut-{number}" for number in itertools.count())
        path = next(path for path in paths if not disk.exists(path))
        copy = disk.open(path, create=True)
        try:
            for at in range(position, end, BATCH_CHUNK_BYTES):
                copy.pwrite([file.pread(min(BATCH_CHUNK_BYTES, end - at), at)], at - position)
            copy.sync()
        finally:
            copy.close()
        disk.sync_directory(self._segment.log_path.rpartition("/")[0])
        return path

    def _falling_epoch(self, batch: ScannedBatch) -> str | None:
        """Why an unflushed batch cannot follow the one before it: its leader epoch is lower; None where it is not.

        A power loss may undo a truncation and keep a batch that was written after it. Apache Kafka does not check this.
        """
        epoch = batch.header.partition_leader_epoch
        if epoch == NO_LEADER_EPOCH or epoch >= self._last_epoch:
            return None
        where = f"batch at byte {batch.position}, offset {batch.header.base_offset}"
        return f"{where}: the batch has the leader epoch {epoch}, but the batch before has {self._last_epoch}"

    def _index_batch(self, batch: ScannedBatch) -> None:
        """Add an intact batch to indexes, producers and leader epochs."""
        position, header, buffer = batch
        self._segment.index_batch(position, header.size, header.base_offset, header.last_offset, header.max_timestamp)
        match_epochs(self._epochs, header)
        self._last_epoch = max(self._last_epoch, header.partition_leader_epoch)
        if not header.has_producer:
            return
        completed = update_producers(self._producers, header, buffer)
        if completed is not None and completed.is_aborted and self._transactions:
            stable = self._producers.last_stable_offset_after(completed)
            entry = AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            self._segment.transaction_index.append(entry)


def _has_zeros(file: File, position: int, size: int) -> bool:
    """Whether the rest of the file is zeros, as in a preallocated file; only its first MiB is checked."""
    content = file.pread(min(BATCH_CHUNK_BYTES, size - position), position)
    return bool(content) and not any(content)


def _problem(batch: ScannedBatch, segment: Segment, expected: int, limit: int | None) -> str | None:
    """Why the batch is damaged, or None."""
    header = batch.header
    where = f"batch at byte {batch.position}"
    if not crc_is_valid(batch.buffer, header):
        return f"{where}, offset {header.base_offset}: its CRC does not match its bytes"
    if header.base_offset < expected or not segment.fits(header.last_offset):
        return f"{where}: the batch has the base offset {header.base_offset}, but {expected} or later was expected"
    if limit is not None and header.last_offset >= limit:
        return f"{where}: its last offset is {header.last_offset}, but the next segment begins at {limit}"
    return None


def match_epochs(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """Replace the leader epoch entries that contradict a batch that was read; later batches bring the entries after it.

    The checkpoint may be ahead of the log: a power loss undoes a truncation and the batches of the new leader epoch,
    while the checkpoint that names the epoch is synced already. Apache Kafka only adds newer epochs.
    """
    epoch = header.partition_leader_epoch
    if epoch == NO_LEADER_EPOCH:
        return
    if epochs.epoch_for(header.base_offset) == epoch == epochs.epoch_for(header.last_offset):
        return
    epochs.truncate_from_end(header.base_offset)
    assign_new_epoch(epochs, epoch, header.base_offset)


def assign_new_epoch(epochs: LeaderEpochs, epoch: int, base_offset: int) -> None:
    """Assign the leader epoch where a batch with a newer one begins."""
    latest = epochs.latest_epoch
    if epoch != NO_LEADER_EPOCH and (latest is None or epoch > latest):
        epochs.assign(epoch, base_offset)
