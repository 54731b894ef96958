"""Opening a log directory: leftovers, indexes, recovery of what a crash tore. Source: LogLoader.scala (ref. 4.5)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from klamm.config.topic_config import TopicConfig
from klamm.log.epochs import EpochEntry, LeaderEpochs, parse_epochs
from klamm.log.errors import CorruptFile
from klamm.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_of,
)
from klamm.log.open_files import OpenFiles
from klamm.log.producer_files import SnapshotFiles, note_written, rebuild_producers
from klamm.log.producers import Producers
from klamm.log.scan import scan_batches, scan_headers
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.log.transactions import AbortedTransaction, append_aborted
from klamm.runtime.disk import Disk
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class Known:
    """What the checkpoints and the clean-shutdown marker say of a log."""

    is_clean: bool = False
    recovery_point: int = 0
    log_start: int = 0


@dataclass(slots=True)
class Loaded:
    segments: Segments
    epochs: LeaderEpochs
    producers: Producers
    log_start: int
    end_offset: int
    recovery_point: int
    epochs_changed: bool = False
    """Whether the epochs are not what their file says."""
    notes: list[str] = field(default_factory=list)
    """What had to be mended, a sentence each."""


class Loader:
    """Loads one log, in any thread: it opens files of its own through `files`."""

    def __init__(self, files: OpenFiles, directory: str, config: TopicConfig, known: Known, now_ms: int) -> None:
        self._files = files
        self._disk: Disk = files.disk
        self._directory = directory
        self._config = config
        self._known = known
        self._now_ms = now_ms
        self._notes: list[str] = []

    def begin(self) -> Loaded:
        """A log that has nothing yet, in a directory just made. Raises OSError."""
        start = self._known.log_start
        segment = new_segment(self._files, self._directory, start, self._config, self._now_ms)
        create_segment_file(self._disk, segment)
        return Loaded(Segments([segment]), LeaderEpochs(), Producers(start), start, start, start)

    def load(self) -> Loaded:
        """Raises OSError."""
        self._clear_leftovers()
        stored_epochs = self._stored_epochs()
        epochs = LeaderEpochs(stored_epochs or ())
        producers = Producers()
        bases = self._segment_bases()
        segments = Segments(self._open_segment(base) for base in bases)
        recover_from = self._open_indexes(segments)
        if stored_epochs is None and bases:
            recover_from = 0  # every batch names its epoch
        if recover_from is not None:
            self._recover(segments, recover_from, epochs, producers)
        end = self._end_or_begin_anew(segments, epochs)
        log_start = max(self._known.log_start, segments.first.base_offset)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(log_start)
        snapshots = self._drop_stray_snapshots(segments, end)
        if recover_from is not None:
            producers.end_offset = end
            SnapshotFiles(self._disk, self._directory).write(producers)
        elif self._known.is_clean and not snapshots:
            producers.restore((), end)  # after an upgrade: no producer numbered its batches before
        else:
            rebuild_producers(self._disk, producers, segments, self._directory, log_start, end)
        recovery_point = end if self._known.is_clean else min(self._known.recovery_point, end)
        epochs_changed = list(epochs.entries) != stored_epochs
        return Loaded(segments, epochs, producers, log_start, end, recovery_point, epochs_changed, self._notes)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _remove(self, name: str) -> None:
        self._disk.remove(self._path(name))

    def _clear_leftovers(self) -> None:
        """Finish or undo what a crash interrupted: deletions, compactions, checkpoint writes."""
        names = self._disk.list_directory(self._directory)
        cleaned = [offset for name in names if name.endswith(CLEANED) and (offset := offset_of(name)) is not None]
        for name in names:
            offset = offset_of(name)
            is_incomplete = name.endswith(SWAP) and offset is not None and cleaned and offset >= min(cleaned)
            if name.endswith((DELETED, CLEANED, ".tmp")) or is_incomplete:
                self._remove(name)
        self._finish_swaps()
        self._remove_lone_indexes()

    def _finish_swaps(self) -> None:
        names = self._disk.list_directory(self._directory)
        for name in names:
            if name.endswith(LOG + SWAP):
                self._make_room_for(name, names)
        for name in names:
            if name.endswith(SWAP):
                self._disk.rename(self._path(name), self._path(name.removesuffix(SWAP)))

    def _make_room_for(self, swap: str, names: Sequence[str]) -> None:
        """Remove the segments whose content the finished compaction replaces."""
        first = offset_of(swap)
        assert first is not None
        path = self._path(swap)
        file = self._disk.open_read(path)
        try:
            last = first
            for found in scan_headers(file, 0, file.size()):
                last = found.header.last_offset
        finally:
            file.close()
        for name in names:
            offset = offset_of(name)
            if (
                offset is not None
                and first <= offset <= last
                and name.endswith((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX))
            ):
                self._remove(name)

    def _remove_lone_indexes(self) -> None:
        names = self._disk.list_directory(self._directory)
        logs = {offset_of(name) for name in names if name.endswith(LOG)}
        for name in names:
            offset = offset_of(name)
            if offset is not None and offset not in logs and name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)):
                self._remove(name)

    def _segment_bases(self) -> list[int]:
        names = self._disk.list_directory(self._directory)
        found = (offset_of(name) for name in names if name.endswith(LOG))
        return [base for base in found if base is not None]

    def _stored_epochs(self) -> list[EpochEntry] | None:
        """None where a power cut spoilt the file."""
        path = self._path(LEADER_EPOCHS)
        try:
            return parse_epochs(self._disk.read(path), path)
        except FileNotFoundError:
            return []
        except CorruptFile as error:
            self._notes.append(f"read the leader epochs from the batches again: {error}")
            return None

    # -- segments ------------------------------------------------------------------------------------------------------

    def _open_segment(self, base: int) -> Segment:
        segment = new_segment(self._files, self._directory, base, self._config, self._now_ms)
        segment.size = self._disk.size(segment.log_path)
        return segment

    def _open_indexes(self, segments: Segments) -> int | None:
        """Take the index files over; the slot of the first segment to be recovered, None where none needs it."""
        unclean_from = len(segments)
        if not self._known.is_clean and len(segments):
            unclean_from = segments.slot_of(self._known.recovery_point)
        for slot, segment in enumerate(segments.from_slot(0)[:unclean_from]):
            try:
                segment.offset_index.load(segment.size)
                segment.time_index.load()
                if self._known.is_clean:
                    segment.largest = segment.time_index.last  # its final entry, made at roll or close
                else:
                    segment.restore_largest()
                if slot == len(segments) - 1:
                    segment.next_offset()
            except (FileNotFoundError, CorruptFile, CorruptRecords) as error:
                self._notes.append(f"rebuilt the indexes from offset {segment.base_offset} on: {error}")
                return slot
        return unclean_from if unclean_from < len(segments) else None

    def _recover(self, segments: Segments, slot: int, epochs: LeaderEpochs, producers: Producers) -> None:
        """Rebuild from this slot on; cut at the first bad batch and remove what lies behind it."""
        begin = segments.from_slot(slot)[0].base_offset
        before = Segments(segments.from_slot(0)[:slot])
        start = min(max(self._known.log_start, segments.first.base_offset), begin)
        rebuild_producers(self._disk, producers, before, self._directory, start, begin)
        pending = list(segments.from_slot(slot))
        expected = begin
        while pending:
            segment = pending.pop(0)
            expected, bad = self._recover_segment(segment, expected, epochs, producers)
            if bad is None:
                continue
            self._notes.append(f"cut {segment.log_path} at {segment.size} bytes, offset {expected}: {bad}")
            for later in reversed(pending):
                self._notes.append(f"removed {later.log_path}, which lies behind the cut")
                segments.remove(later)
                remove_segment_files(self._disk, later)
            return

    def _recover_segment(
        self, segment: Segment, expected: int, epochs: LeaderEpochs, producers: Producers
    ) -> tuple[int, str | None]:
        """Rebuild one segment's indexes and replay it; the offset behind its last good batch, and what ended it."""
        bad = None
        file = self._disk.open(segment.log_path)
        try:
            end = segment.size
            self._reset(segment)
            try:
                for position, header, buffer in scan_batches(file, 0, end, check=True):
                    if header.base_offset < expected or not segment.fits(header.last_offset):
                        raise CorruptRecords(f"batch at offset {header.base_offset}, expected {expected} or later")
                    segment.note_batch(
                        position, header.size, header.base_offset, header.last_offset, header.max_timestamp
                    )
                    if header.partition_leader_epoch != NO_LEADER_EPOCH:
                        latest = epochs.latest_epoch
                        if latest is None or header.partition_leader_epoch > latest:
                            epochs.assign(header.partition_leader_epoch, header.base_offset)
                    expected = header.next_offset
                    if header.has_producer:
                        done = note_written(producers, header, buffer)
                        if done is not None and done.is_aborted:
                            stable = producers.last_stable_offset_after(done)
                            aborted = AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)
                            append_aborted(self._disk, segment.path(TRANSACTION_INDEX), aborted)
            except CorruptRecords as error:
                bad = str(error)
                file.truncate(segment.size)
        finally:
            file.close()
        segment.time_index.append(*segment.largest)
        segment.write_indexes()
        return expected, bad

    def _reset(self, segment: Segment) -> None:
        segment.reset()
        path = segment.path(TRANSACTION_INDEX)
        if self._disk.exists(path):
            self._disk.remove(path)

    def _end_or_begin_anew(self, segments: Segments, epochs: LeaderEpochs) -> int:
        if len(segments):
            end = segments.active.next_offset()
            if end >= self._known.log_start:
                return end
            self._notes.append(f"removed everything: the log ends at {end} and starts at {self._known.log_start}")
            for segment in reversed(list(segments)):
                segments.remove(segment)
                remove_segment_files(self._disk, segment)
            epochs.clear()
        segment = new_segment(self._files, self._directory, self._known.log_start, self._config, self._now_ms)
        create_segment_file(self._disk, segment)
        segments.add(segment)
        return self._known.log_start

    # -- producers -----------------------------------------------------------------------------------------------------

    def _drop_stray_snapshots(self, segments: Segments, end: int) -> list[int]:
        """Remove snapshots that belong to no segment or lie beyond the end; the offsets of those left."""
        files = SnapshotFiles(self._disk, self._directory)
        offsets = files.offsets()
        newest = max((offset for offset in offsets if offset <= end), default=-1)
        keep = {segment.base_offset for segment in segments} | {newest}
        files.remove(offset for offset in offsets if offset not in keep or offset > end)
        return [offset for offset in offsets if offset in keep and offset <= end]


def new_segment(files: OpenFiles, directory: str, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
    return Segment(
        files,
        directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        created_ms=now_ms,
    )


def remove_segment_files(disk: Disk, segment: Segment) -> None:
    for path in segment.paths():
        if disk.exists(path):
            disk.remove(path)


def create_segment_file(disk: Disk, segment: Segment) -> None:
    disk.open(segment.log_path, create=True).close()
