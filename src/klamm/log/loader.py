"""Loads a log from its directory: segments, leader epochs and producers, with recovery after a crash.

Source: LogLoader.scala (reference 4.5).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.config.topic_config import TopicConfig
from klamm.log.epochs import EpochEntry, LeaderEpochs, parse_epochs
from klamm.log.errors import CorruptFile
from klamm.log.leftovers import clear_leftovers
from klamm.log.names import LEADER_EPOCHS, LOG, offset_of
from klamm.log.open_files import OpenFiles
from klamm.log.producer_files import SnapshotFiles, rebuild_producers
from klamm.log.producers import Producers
from klamm.log.recovery import RebuildResult, SegmentRebuild, assign_new_epoch
from klamm.log.segment import Segment, new_segment
from klamm.log.segments import Segments
from klamm.runtime.disk import Disk
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import NO_LEADER_EPOCH

MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CheckpointedState:
    """What the checkpoints and the clean-shutdown marker record about a log."""

    is_clean: bool = False
    recovery_point: int = 0
    log_start: int = 0
    compacted_below: int | None = None
    """The cleaner checkpoint: gaps below it and below the recovery point may be compaction's; None: any gap may be."""


@dataclass(slots=True)
class LoadedLog:
    """A log as loaded from its directory, with what was damaged."""

    segments: Segments
    epochs: LeaderEpochs
    producers: Producers
    log_start: int
    end_offset: int
    recovery_point: int
    epochs_changed: bool = False
    """Whether the epochs are not what their file says."""
    notes: list[str] = field(default_factory=list)
    """What was repaired, one sentence each."""
    is_after_crash: bool = False
    """Whether the process before was killed: a truncation that it made may not be on the device."""
    possible_loss: int | None = None
    """Where unflushed offsets of a compacted log are missing, between two segments; None where none are."""


class Loader:
    """Loads one log, in any thread: it opens files of its own through `files`."""

    def __init__(
        self, files: OpenFiles, directory: str, config: TopicConfig, known: CheckpointedState, now_ms: int
    ) -> None:
        self._files = files
        self._disk: Disk = files.disk
        self._directory = directory
        self._config = config
        self._known = known
        self._now_ms = now_ms
        self._notes: list[str] = []
        self._possible_loss: int | None = None

    def begin(self) -> LoadedLog:
        """Create an empty log in a new directory. Raises OSError."""
        start = self._known.log_start
        segment = new_segment(self._files, self._directory, start, self._config, self._now_ms)
        create_segment_file(self._disk, segment, self._config)
        return LoadedLog(Segments([segment]), LeaderEpochs(), Producers(start), start, start, start)

    def load(self) -> LoadedLog:
        """Open the log, recovered as far as needed. Raises OSError, CorruptRecords."""
        clear_leftovers(self._disk, self._directory)
        segments = Segments(self._open_segment(base) for base in self._segment_bases())
        unflushed = self._first_unflushed(segments)
        producers = Producers()
        stored_epochs = self._stored_epochs(segments)
        epochs = LeaderEpochs(stored_epochs or ())
        self._check_flushed(segments, unflushed)
        flushed = segments.from_slot(0)[:unflushed]
        if stored_epochs is None or self._lacks_last_epoch(flushed, epochs):
            self._read_epochs(flushed, epochs)
        is_recovered = unflushed < len(segments)
        if is_recovered:
            self._recover_segments(segments, unflushed, epochs, producers)
        checkpointed_start = self._log_start(segments)
        end = self._end_or_start_empty(segments, epochs, producers, checkpointed_start)
        log_start = max(checkpointed_start, segments.first.base_offset)
        epochs = self._with_first_epochs(segments, epochs, log_start)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(log_start)
        snapshots = self._drop_stray_snapshots(segments, end)
        if is_recovered:
            producers.end_offset = end
            SnapshotFiles(self._disk, self._directory).write(producers)
        elif self._known.is_clean and not snapshots:
            producers.restore((), end)  # after an upgrade: no producer numbered its batches before
        else:
            self._rebuild_producers(producers, segments, log_start, end)
        if end < self._known.recovery_point:
            self._notes.append(
                f"offsets {end} to {self._known.recovery_point - 1} are missing, although they were flushed to disk: "
                f"the log ends at {end}. Check the disk; a follower copies them from its leader."
            )
        recovery_point = end if self._known.is_clean else min(self._known.recovery_point, end)
        epochs_changed = list(epochs.entries) != stored_epochs
        loss = self._possible_loss if is_recovered else self._kept_loss(segments)
        if loss is not None and not log_start <= loss < end:
            loss = None
        return LoadedLog(
            segments,
            epochs,
            producers,
            log_start,
            end,
            recovery_point,
            epochs_changed,
            self._notes,
            is_after_crash=not self._known.is_clean,
            possible_loss=loss,
        )

    # -- files ---------------------------------------------------------------------------------------------------------

    def _segment_bases(self) -> list[int]:
        """The base offsets of all segments in the directory, ascending."""
        names = self._disk.list_directory(self._directory)
        offsets = (offset_of(name) for name in names if name.endswith(LOG))
        return [base for base in offsets if base is not None]

    def _open_segment(self, base: int) -> Segment:
        """The segment with this base offset; its indexes are not loaded."""
        segment = new_segment(self._files, self._directory, base, self._config, self._now_ms)
        segment.size = self._disk.size(segment.log_path)
        return segment

    # -- leader epochs -------------------------------------------------------------------------------------------------

    def _stored_epochs(self, segments: Segments) -> list[EpochEntry] | None:
        """The entries of the leader epoch checkpoint; None where it is missing, empty or damaged.

        The epochs can then be read from the batches. Apache Kafka creates the file empty, and writes the first epoch
        later.
        """
        path = f"{self._directory}/{LEADER_EPOCHS}"
        try:
            if content := self._disk.read(path):
                return parse_epochs(content, path)
            return None if segments.size else []
        except FileNotFoundError:
            return None if segments.size else []
        except CorruptFile as error:
            self._notes.append(f"{error}: the leader epochs were read from the batches instead. Nothing to do.")
            return None

    def _lacks_last_epoch(self, flushed: Sequence[Segment], epochs: LeaderEpochs) -> bool:
        """Whether the last flushed batch has another leader epoch than its offset in the leader epoch checkpoint.

        A kill shortly after a truncation leaves the checkpoints of before: what was appended since counts as flushed.
        """
        if self._known.is_clean or not flushed or not flushed[-1].size:
            return False
        try:
            last = [found.header for found in flushed[-1].headers_from(flushed[-1].offset_index.last_offset)][-1]
        except CorruptRecords:
            return False  # a reader of the segment reports the damage
        return last.partition_leader_epoch not in (NO_LEADER_EPOCH, epochs.epoch_for(last.base_offset))

    def _with_first_epochs(self, segments: Segments, epochs: LeaderEpochs, log_start: int) -> LeaderEpochs:
        """Return the epochs with those of the batches between the log start and the first entry.

        DeleteRecords drops entries at once, but a kill takes the log start back to the last checkpoint. Without entries
        for what is there again, a follower that has other records at these offsets is not told to truncate them; Apache
        Kafka's are not.
        """
        first = epochs.earliest
        if first is None or first.start_offset <= log_start:
            return epochs
        before = [s for s in segments.from_slot(segments.slot_of(log_start)) if s.base_offset < first.start_offset]
        if not before or self._begins_without_epoch(before[0]):
            return epochs
        found = LeaderEpochs()
        self._read_epochs(before, found)
        for entry in epochs.entries:
            found.assign(*entry)
        return found

    def _begins_without_epoch(self, segment: Segment) -> bool:
        """Whether the first batch has no leader epoch, as those of old message formats, or cannot be read."""
        try:
            found = next(iter(segment.headers(0)), None)
        except CorruptRecords:
            return True  # a reader of the segment reports the damage
        return found is None or found.header.partition_leader_epoch == NO_LEADER_EPOCH

    def _read_epochs(self, segments: Sequence[Segment], epochs: LeaderEpochs) -> None:
        """Add the leader epochs of the batches in these segments."""
        for segment in segments:
            try:
                for found in segment.headers(0):
                    assign_new_epoch(epochs, found.header.partition_leader_epoch, found.header.base_offset)
            except CorruptRecords as error:
                self._notes.append(
                    f"{error}: the leader epochs of this segment were read up to this batch. Check the disk."
                )

    # -- segments ------------------------------------------------------------------------------------------------------

    def _first_unflushed(self, segments: Segments) -> int:
        """The position in `segments` of the first segment with offsets at or above the recovery point."""
        if self._known.is_clean or not len(segments):
            return len(segments)
        return segments.slot_of(self._known.recovery_point)

    def _check_flushed(self, segments: Segments, unflushed: int) -> None:
        """Open the indexes of flushed segments; a damaged index is rebuilt from its segment.

        The last of them may have been rolled after its flush: then a power loss may undo what the roll wrote.
        """
        for slot, segment in enumerate(segments.from_slot(0)[:unflushed]):
            is_last = slot == unflushed - 1
            damaged_transactions = self._damage_of_transactions(segment)
            try:
                segment.load_indexes()
                if is_last:
                    segment.check_end()
                    if not self._known.is_clean:
                        segment.complete_time_index()
            except (FileNotFoundError, CorruptFile, CorruptRecords) as error:
                self._rebuild_indexes(segments, slot, str(error), transactions=damaged_transactions is not None)
            else:
                if damaged_transactions is not None:
                    self._rebuild_indexes(segments, slot, damaged_transactions, transactions=True)

    def _damage_of_transactions(self, segment: Segment) -> str | None:
        """Why the segment's transaction index is damaged, or None."""
        try:
            segment.transaction_index.check()
        except CorruptFile as error:
            return str(error)
        return None

    def _rebuild_indexes(self, segments: Segments, slot: int, reason: str, *, transactions: bool) -> None:
        """Rebuild the indexes of one flushed segment from its batches."""
        segment, following = segments.from_slot(slot)[0], segments.at(slot + 1)
        self._notes.append(f"rebuilt the indexes of {segment.log_path}: {reason}. Nothing to do.")
        producers = Producers()
        if transactions:
            self._producers_before(segments, slot, producers)
        rebuild = SegmentRebuild(self._disk, segment, producers, LeaderEpochs(), transactions=transactions)
        limit = None if following is None else following.base_offset
        rebuilt = rebuild.run(segment.base_offset, MAX_OFFSET, limit)
        self._add_damage_notes(segment, rebuilt)

    def _recover_segments(self, segments: Segments, slot: int, epochs: LeaderEpochs, producers: Producers) -> None:
        """Rebuild the segments from position `slot` on.

        The log is cut at the first damaged batch that was not flushed.
        """
        pending = list(segments.from_slot(slot))
        expected = pending[0].base_offset
        self._producers_before(segments, slot, producers)
        while pending:
            segment = pending.pop(0)
            limit = pending[0].base_offset if pending else None
            rebuild = SegmentRebuild(self._disk, segment, producers, epochs, transactions=True)
            rebuilt = rebuild.run(expected, self._known.recovery_point, limit)
            self._check_gap(rebuilt, segment, limit)
            self._add_damage_notes(segment, rebuilt)
            expected = rebuilt.next_offset
            if rebuilt.cut is not None:
                self._remove_segments_after(segments, pending)
                break
        self._remove_empty_end(segments, expected)

    def _check_gap(self, rebuilt: RebuildResult, segment: Segment, limit: int | None) -> None:
        """Cut the log where unflushed offsets before the next segment are missing; remember where, if it is compacted.

        A power loss may keep a later segment and not the end of this one. Apache Kafka continues after the gap. So does
        a compacted log: a follower of Apache Kafka begins a segment after a gap that the leader's compaction left.
        """
        first = rebuilt.next_offset
        if limit is None or rebuilt.cut is not None or not self._known.recovery_point <= first < limit:
            return
        gap = f"offsets {first} to {limit - 1} are missing"
        if not self._config.is_compacted:
            rebuilt.cut = gap
        elif self._possible_loss is None and not self._may_be_compacted(first):
            self._possible_loss = first
            self._notes.append(
                f"{gap} after {segment.log_path}: a power loss or the compaction of another broker removed them. A "
                "follower truncates its log there and copies the records from its leader; a leader keeps its log."
            )

    def _kept_loss(self, segments: Segments) -> int | None:
        """The possible loss that was not settled before a clean shutdown, at which the recovery point stayed."""
        point = self._known.recovery_point
        if point <= 0 or not self._config.is_compacted or self._may_be_compacted(point):
            return None
        slot = segments.slot_of(point - 1)
        following = segments.at(slot + 1)
        if following is None or following.base_offset <= point:
            return None
        try:
            return point if segments.from_slot(slot)[0].next_offset() == point else None
        except CorruptRecords:
            return None  # a reader of the segment reports the damage

    def _may_be_compacted(self, offset: int) -> bool:
        """Whether the cleaner of this directory may have removed what was at this unflushed offset."""
        below = self._known.compacted_below
        return below is None or offset < below

    def _add_damage_notes(self, segment: Segment, rebuilt: RebuildResult) -> None:
        """Add a note about each damaged batch of the segment, for the log output."""
        for problem in rebuilt.kept:
            self._notes.append(
                f"kept a damaged batch, because it was flushed: {segment.log_path}, {problem}. Check the disk. To "
                "copy this replica from its leader, stop the node and move the partition's directory away."
            )
        if rebuilt.cut is not None:
            self._notes.append(
                f"truncated {segment.log_path} to {segment.size} bytes, log end offset {rebuilt.next_offset}: "
                f"{rebuilt.cut}. A follower copies what is missing from its leader.{_remedy(rebuilt.saved)}"
            )

    def _remove_segments_after(self, segments: Segments, behind: Sequence[Segment]) -> None:
        """Remove the unflushed segments after the one that was truncated."""
        for segment in reversed(behind):
            self._notes.append(
                f"removed {segment.log_path}: it follows the truncated segment and was not flushed. A follower copies "
                "it from its leader."
            )
            segments.remove(segment)
            remove_segment_files(self._disk, segment)

    def _remove_empty_end(self, segments: Segments, end: int) -> None:
        """Remove unflushed segments without batches that begin after `end`, the offset after the last batch.

        A power loss may keep the file of a segment without its batches, and not the end of the segment before it. With
        such a log end no follower would ever be in sync, since no batch leads there. Apache Kafka keeps these segments.
        What compaction may have removed does not move the log end: its offsets must not be given again.
        """
        lowest_end = max(self._known.recovery_point, self._known.compacted_below or 0)
        if end < lowest_end:
            end = next((segment.base_offset for segment in segments if segment.base_offset >= lowest_end), lowest_end)
        for segment in reversed([segment for segment in segments if segment.base_offset > end]):
            self._notes.append(
                f"removed {segment.log_path}: it is empty, and no batch has the unflushed offsets {end} to "
                f"{segment.base_offset - 1} before it. A follower copies what is missing from its leader."
            )
            segments.remove(segment)
            remove_segment_files(self._disk, segment)

    def _log_start(self, segments: Segments) -> int:
        """The checkpointed log start offset.

        After a clean shutdown a value above both recovery point and log end counts as damaged. The recovery point alone
        does not tell: it is 0 where its own checkpoint is damaged.
        """
        known = self._known
        end = max(known.recovery_point, segments.active.next_offset() if len(segments) else 0)
        if not known.is_clean or known.log_start <= end:
            return known.log_start
        self._notes.append(
            f"ignored the checkpointed log start offset {known.log_start}, which is after the log end offset "
            f"{end}: the log starts at its first segment. Nothing to do."
        )
        return 0

    def _end_or_start_empty(self, segments: Segments, epochs: LeaderEpochs, producers: Producers, start: int) -> int:
        """The log end offset; a log that ends below its start is emptied at that start."""
        if len(segments):
            end = segments.active.next_offset()
            if end >= start:
                return end
            self._notes.append(
                f"removed all segments: the log end offset {end} is before the log start offset {start}. A follower "
                "copies the records from its leader."
            )
            for segment in reversed(list(segments)):
                segments.remove(segment)
                remove_segment_files(self._disk, segment)
            epochs.clear()
            producers.restore((), start)  # a transaction that is open in them may have ended in what is lost
        segment = new_segment(self._files, self._directory, start, self._config, self._now_ms)
        create_segment_file(self._disk, segment, self._config)
        segments.add(segment)
        return start

    # -- producers -----------------------------------------------------------------------------------------------------

    def _producers_before(self, segments: Segments, slot: int, producers: Producers) -> None:
        """Restore the producer state as it was at the base offset of the segment at position `slot`."""
        begin = segments.from_slot(slot)[0].base_offset
        start = min(max(self._known.log_start, segments.first.base_offset), begin)
        self._rebuild_producers(producers, Segments(segments.from_slot(0)[:slot]), start, begin)

    def _rebuild_producers(self, producers: Producers, segments: Segments, start: int, end: int) -> None:
        """Restore the producer state at `end` from a snapshot and the batches after it."""
        self._notes += rebuild_producers(self._disk, producers, segments, self._directory, start, end)

    def _drop_stray_snapshots(self, segments: Segments, end: int) -> list[int]:
        """Remove snapshots that belong to no segment or lie beyond the log end; returns the offsets of the others."""
        files = SnapshotFiles(self._disk, self._directory)
        offsets = files.offsets()
        newest = max((offset for offset in offsets if offset <= end), default=-1)
        keep = {segment.base_offset for segment in segments} | {newest}
        files.remove(offset for offset in offsets if offset not in keep or offset > end)
        return [offset for offset in offsets if offset in keep and offset <= end]


def remove_segment_files(disk: Disk, segment: Segment) -> None:
    """Delete the files of the segment that exist: the log and its indexes."""
    for path in segment.paths():
        if disk.exists(path):
            disk.remove(path)


def create_segment_file(disk: Disk, segment: Segment, config: TopicConfig) -> None:
    """Create the `.log` file of the segment, with `preallocate` of `segment.bytes` zeros; none of them is a batch."""
    file = disk.open(segment.log_path, create=True)
    try:
        if config.preallocate:
            file.truncate(config.segment_bytes)
            segment.is_preallocated = True
    finally:
        file.close()


def _remedy(saved: str | None) -> str:
    """What to do with bytes that were flushed and had to be cut off; empty where there were none."""
    if saved is None:
        return ""
    return f" The bytes that were cut off are in {saved}: remove it once another replica has these records."
