"""Where a stored replica begins and ends, and the offsets of times, without the broker that wrote it.

Source: UnifiedLog.scala (fetchOffsetByTimestamp, fetchLastStableOffsetMetadata, collectAbortedTransactions).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

import numpy as np

from klamm.log.errors import CorruptFile
from klamm.log.lookup import times_and_offsets
from klamm.log.names import LOG, SNAPSHOT, SWAP, TRANSACTION_INDEX, offset_of, segment_file
from klamm.log.open_files import OpenFiles
from klamm.log.replicas.directories import StoredReplica
from klamm.log.replicas.reader import Gap, ReplicaGone, ReplicaReader
from klamm.log.replicas.segment_files import SegmentFile, list_segment_files, open_segment
from klamm.log.scan import ScannedBatch
from klamm.log.segment import Segment
from klamm.log.snapshots import parse_snapshot
from klamm.log.transactions import AbortedTransaction, TransactionIndex
from klamm.runtime.disk import Disk
from klamm.wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, CorruptRecords
from klamm.wire.vectors.batches import Run

T = TypeVar("T")
_MAX_TRIES: Final = 100
"""A file vanishes between its listing and its opening once or twice; a directory that is gone stays so."""


class StoredOffsets:
    """Offsets of one replica up to its checkpointed high watermark.

    Each call looks at the files as they are then. Raises ReplicaGone, CorruptFile, CorruptRecords, OSError.
    """

    def __init__(self, disk: Disk, replica: StoredReplica, topic_id: UUID | None) -> None:
        self._disk = disk
        self._replica = replica
        self._topic_id = topic_id

    def log_start(self) -> int:
        """The checkpointed log start offset, or the first segment's where that is greater."""
        segments = self._files_from(0)
        return max(self._replica.checkpointed_log_start, segments[0].base_offset if segments else 0)

    def high_watermark(self) -> int:
        """The checkpointed high watermark; the log start offset where no checkpoint has one yet."""
        return max(self._replica.high_watermark or 0, self.log_start())

    def file_end(self) -> int:
        """The offset after the last complete batch in the files; what is not committed yet is included."""
        return self._retried(self._find_end)

    def last_stable(self) -> int:
        """The first offset of the transactions that are open at the high watermark, or the high watermark itself."""
        end = self.high_watermark()
        start, transactions = self._open_at_snapshot(end)
        start = max(start, self.log_start())
        for found in ReplicaReader(self._disk, self._replica, self._topic_id, start, end, converts=True):
            if not isinstance(found, Gap):
                _follow_transactions(found.run, transactions)
        return min([end, *transactions.values()])

    def at_time(self, timestamp: int, end: int) -> int | None:
        """The offset of the first record before `end` with at least this timestamp; None where there is none."""
        return self._retried(lambda: self._find_time(timestamp, end))

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records from `start` to before `end`, by the transaction indexes."""
        return self._retried(lambda: self._collect_aborted(start, end))

    def size(self) -> int:
        """The bytes of all segments."""
        return self._retried(lambda: sum(self._disk.size(self._path(file, LOG)) for file in self._files_from(0)))

    # ---- files

    def _retried(self, look: Callable[[], T]) -> T:
        """Call `look` and return its result; where a file vanishes meanwhile, list the files and call it again."""
        for _ in range(_MAX_TRIES):
            try:
                return look()
            except FileNotFoundError as error:
                last = error
        raise last

    def _files_from(self, offset: int) -> list[SegmentFile]:
        """The segments from the one that has the offset on. Raises ReplicaGone."""
        try:
            files = list_segment_files(self._disk, self._replica.directory).segments
        except FileNotFoundError as error:
            raise ReplicaGone(f"{self._replica.directory} is gone: the topic was deleted, or moved") from error
        holding = [file for file in files if file.base_offset <= offset]
        return [file for file in files if not holding or file.base_offset >= holding[-1].base_offset]

    def _path(self, file: SegmentFile, kind: str) -> str:
        """The path of one of a segment's files."""
        return f"{self._replica.directory}/{segment_file(file.base_offset, kind)}{file.suffix}"

    def _find_end(self) -> int:
        """Look for the last complete batch of the last segment, behind which another one may be half written."""
        end = self.high_watermark()
        for file in self._files_from(end)[-1:]:
            end = max(end, file.base_offset)
            segment = open_segment(OpenFiles(self._disk, most=1), self._replica.directory, file)
            with suppress(CorruptRecords):
                for found in segment.headers_from(segment.offset_index.last_offset):
                    end = max(end, found.header.next_offset)
        return end

    # ---- times

    def _find_time(self, timestamp: int, end: int) -> int | None:
        """Look for the first record with at least this timestamp, segment by segment."""
        log_start = self.log_start()
        files = OpenFiles(self._disk, most=1)
        for file in self._files_from(log_start):
            if file.base_offset >= end:
                break
            segment = open_segment(files, self._replica.directory, file)
            _end_before(segment, end)
            offset = _first_at_or_after(segment, timestamp, log_start)
            if offset is not None:
                return offset if offset < end else None
        return None

    # ---- transactions

    def _open_at_snapshot(self, end: int) -> tuple[int, dict[int, int]]:
        """The newest valid producer snapshot up to `end`: its offset, and where open transactions begin by producer.

        Offset 0 and none where there is no snapshot.
        """
        names = self._disk.list_directory(self._replica.directory)
        offsets = [o for name in names if name.endswith(SNAPSHOT) and (o := offset_of(name)) is not None and o <= end]
        for offset in reversed(offsets):
            path = f"{self._replica.directory}/{segment_file(offset, SNAPSHOT)}"
            try:
                producers = parse_snapshot(self._disk.read(path), path)
            except (CorruptFile, FileNotFoundError):
                continue  # an older one, and more batches, say the same
            return offset, {p.producer_id: p.transaction_start for p in producers if p.transaction_start is not None}
        return 0, {}

    def _collect_aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Read the transaction indexes from the segment with `start` on, until no later one can matter.

        Raises FileNotFoundError where compaction replaced one meanwhile.
        """
        found: list[AbortedTransaction] = []
        files, names = self._files_from(start), self._transaction_indexes()
        for file in files:
            index = TransactionIndex(self._disk, self._transaction_index(file, names), file.base_offset)
            try:
                if index.collect(start, end, found):
                    break
            except CorruptFile as error:
                raise CorruptFile(
                    f"{error}. Start the broker, which builds it again, or read another replica."
                ) from error
        if self._transaction_indexes() != names:  # a missing one looks like one without entries
            raise FileNotFoundError(f"the transaction indexes in {self._replica.directory} are being replaced")
        return found

    def _transaction_indexes(self) -> list[str]:
        """The names of all transaction indexes: in use, to be, and deleted."""
        return [name for name in self._disk.list_directory(self._replica.directory) if TRANSACTION_INDEX in name]

    def _transaction_index(self, file: SegmentFile, names: Sequence[str]) -> str:
        """The path of the index of a segment, whose files compaction renames one after the other: the `.log` first."""
        plain = self._path(file._replace(suffix=""), TRANSACTION_INDEX)
        paths = (plain + SWAP, plain) if file.suffix else (plain, plain + SWAP)
        return next((path for path in paths if path.rpartition("/")[2] in names), plain)


def _end_before(segment: Segment, end: int) -> None:
    """Let the segment end before the batch with offset `end`: what follows may be half written.

    Raises CorruptRecords where the batches before cannot be read.
    """
    position, next_offset = 0, segment.base_offset
    try:
        for found in segment.headers_from(end):
            if found.header.base_offset >= end:
                break
            position, next_offset = found.position + found.header.size, found.header.next_offset
    except CorruptRecords:
        if next_offset < end:
            raise
    segment.size = position


def _first_at_or_after(segment: Segment, timestamp: int, log_start: int) -> int | None:
    """The offset of the first record in the segment, from `log_start` on, with at least this timestamp."""
    for found in _batches_from(segment, timestamp):
        if found.header.max_timestamp >= timestamp and found.header.last_offset >= log_start:
            for time, offset in times_and_offsets(segment, found):
                if time >= timestamp and offset >= log_start:
                    return offset
    return None


def _batches_from(segment: Segment, timestamp: int) -> Iterator[ScannedBatch]:
    """The batches from the time index entry for this timestamp on.

    An entry that does not fit its batch is not used: all batches are scanned then.
    """
    segment.time_index.load_hints()
    entry = segment.time_index.last_before(timestamp)  # records up to that entry are all older
    if entry is None or segment.max_timestamp_at(entry.offset) != entry.timestamp:
        return segment.headers(0)
    return segment.headers_from(entry.offset)


def _follow_transactions(run: Run, transactions: dict[int, int]) -> None:
    """Add the transactions that begin in the run to `transactions`, first offset by producer; remove those that end."""
    attributes = run.headers["attributes"]
    for i in np.flatnonzero((attributes & TRANSACTIONAL_BIT) != 0):
        producer = int(run.headers["producer_id"][i])
        if attributes[i] & CONTROL_BIT:
            transactions.pop(producer, None)
        else:
            transactions.setdefault(producer, int(run.headers["base_offset"][i]))
