"""The files of one log: roll, read, truncate, remove segments; without leader epochs and producers.

Source: LocalLog.scala, LogSegment.java.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm.config.topic_config import TopicConfig
from klamm.log.file_slice import Records
from klamm.log.loader import create_segment_file
from klamm.log.names import DELETED, SNAPSHOT, SWAP
from klamm.log.open_files import OpenFiles
from klamm.log.segment import Segment, new_segment
from klamm.log.segments import Segments
from klamm.runtime.clock import Clock
from klamm.wire.records.batch import NO_TIMESTAMP, PREFIX_BYTES, CorruptRecords, entry_size

_NOTHING = b""


class Location(NamedTuple):
    """Where batches lie in a file; the first may begin before the requested offset, the last may be incomplete.

    `is_incomplete`: there are records, but the first batch is larger than what was allowed.
    """

    segment: Segment
    position: int
    size: int
    is_incomplete: bool = False


class ReadResult(NamedTuple):
    """The bytes of located batches."""

    records: Records
    segment_base: int
    position: int
    is_incomplete: bool = False


class LocalLog:
    """Segments of one log and their files."""

    __slots__ = ("_clock", "_draw_below", "config", "directory", "end_offset", "files", "segments")

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        config: TopicConfig,
        segments: Segments,
        end_offset: int,
        clock: Clock,
        draw_below: Callable[[int], int],
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.segments = segments
        self.end_offset = end_offset
        self._clock = clock
        self._draw_below = draw_below
        for segment in segments:
            segment.use(files)
        segments.active.roll_jitter_ms = self._jitter_ms()

    def _jitter_ms(self) -> int:
        """A random time up to `segment.jitter.ms`, by which a segment is rolled earlier."""
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._draw_below(most) if most > 0 else 0

    # -- roll ----------------------------------------------------------------------------------------------------------

    def must_roll(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch of `size` bytes has to go into a new segment."""
        active = self.segments.active
        if active.size > self.config.segment_bytes - size and active.size > 0:
            return True
        if active.has_full_index or not active.fits(last_offset):
            return True
        return active.size > 0 and self._exceeds_segment_ms(active, max_timestamp)

    def _exceeds_segment_ms(self, segment: Segment, max_timestamp: int) -> bool:
        """Whether the segment's age requires a roll before a batch with this timestamp."""
        limit = self.config.max_segment_age_ms - segment.roll_jitter_ms
        first = segment.first_timestamp
        if first is not None and first >= 0 and max_timestamp > NO_TIMESTAMP:
            return max_timestamp - first > limit
        return self._clock.now_ms() - segment.created_ms > limit

    def roll(self, base_offset: int) -> Segment:
        """Close the active segment and create one at `base_offset`; an empty segment there is reset. Raises OSError."""
        old = self.segments.active
        if old.base_offset == base_offset:
            assert not old.size, f"{old} has records; no second segment can begin at {base_offset}"
            old.reset()
            return old
        old.seal()
        return self._create_segment(base_offset)

    def _create_segment(self, base_offset: int) -> Segment:
        """Create an empty segment and its file."""
        segment = new_segment(self.files, self.directory, base_offset, self.config, self._clock.now_ms())
        segment.roll_jitter_ms = self._jitter_ms()
        create_segment_file(self.files.disk, segment, self.config)
        self.segments.add(segment)
        return segment

    # -- read ----------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, bound: int, *, min_one: bool) -> ReadResult:
        """Read the batches that `locate` returns. Raises OSError, CorruptRecords."""
        found = self.locate(offset, max_bytes, bound, min_one=min_one)
        content = found.segment.pread(found.size, found.position) if found.size else _NOTHING
        return ReadResult(content, found.segment.base_offset, found.position, found.is_incomplete)

    def locate(self, offset: int, max_bytes: int, bound: int, *, min_one: bool) -> Location:
        """Locate batches of one segment, from the one that contains `offset` up to `bound`.

        `offset` must be within the log. Raises OSError, CorruptRecords.
        """
        if offset >= bound:
            return self._no_batches_at(offset)
        segments = self.segments
        slot = segments.slot_of(offset)
        while (segment := segments.at(slot)) is not None:
            spot = segment.find(offset)
            if spot is not None:
                return self._locate_from(segment, spot.position, max_bytes, bound, min_one=min_one)
            slot += 1  # compaction left a gap at this segment's end
        return self._no_batches_at(offset)

    def _no_batches_at(self, offset: int) -> Location:
        """An empty location, where no batch follows `offset`."""
        segment = self.segments.from_slot(self.segments.slot_of(offset))[0]
        return Location(segment, segment.size, 0)

    def _locate_from(self, segment: Segment, position: int, max_bytes: int, bound: int, *, min_one: bool) -> Location:
        """Locate batches from this file position on."""
        end = segment.size
        if bound < self.end_offset:
            if bound <= segment.base_offset:
                return Location(segment, position, 0)
            spot = segment.find(bound)
            end = segment.size if spot is None else spot.position
        if end <= position:
            return Location(segment, position, 0)
        if segment.damaged:
            end = min(end, _end_before_damage(segment, position))
        available = min(end, segment.file_size()) - position
        if available < PREFIX_BYTES:
            raise CorruptRecords(
                f"{segment.log_path} ends at byte {position + available}, before the end of the records to read"
            )
        if max_bytes >= available:
            return Location(segment, position, available)
        first = entry_size(segment.pread(PREFIX_BYTES, position))
        if first <= max_bytes:
            return Location(segment, position, max_bytes)
        return Location(segment, position, min(first, available)) if min_one else Location(segment, position, 0, True)

    # -- truncate ------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> list[str]:
        """Truncate the log to `offset`; returns the names of the files to delete later. Raises OSError.

        A batch that contains `offset` is removed as a whole, so the log may end before it. Raises CorruptRecords where
        a damaged segment does not tell what stays, and then nothing was changed.
        """
        self.segments.from_slot(self.segments.slot_of(offset))[0].check_before(offset)
        removed = self.remove([s for s in reversed(list(self.segments)) if s.base_offset > offset])
        active = self.segments.active
        active.truncate_to(offset, self._clock.now_ms())
        active.roll_jitter_ms = self._jitter_ms()
        # the batch that holds `offset` went as a whole: the log may end before it
        self.end_offset = min(offset, active.next_offset())
        return removed

    def truncate_fully(self, offset: int) -> list[str]:
        """Remove all records and continue at `offset`; returns the names of the files to delete later.

        Raises OSError.
        """
        removed = self.remove(list(reversed(list(self.segments))))
        self._create_segment(offset)
        self.end_offset = offset
        return removed

    def remove(self, segments: Sequence[Segment], keep_snapshot: Segment | None = None) -> list[str]:
        """Remove segments and rename their files in this order; returns the new names. Raises OSError.

        A crash must leave no gap: from the end of the log the last segment goes first, from its start the first. The
        producer snapshot of `keep_snapshot` stays.
        """
        renamed = []
        disk = self.files.disk
        for segment in segments:
            self.segments.remove(segment)
            segment.close_files()
            for path in segment.paths():
                is_kept = segment is keep_snapshot and path.endswith(SNAPSHOT)
                if not is_kept and disk.exists(path):
                    disk.rename(path, path + DELETED)
                    renamed.append(path + DELETED)
        return renamed

    def replace(self, old: Sequence[Segment], size: int) -> list[str]:
        """Replace adjacent segments by the `.swap` files of their first one, which have `size` bytes of records.

        Returns the new names of the old files. Raises OSError, CorruptFile.
        """
        first = old[0]
        renamed = self.remove(old, keep_snapshot=first)
        disk = self.files.disk
        for path in first.paths():
            if disk.exists(path + SWAP):
                disk.rename(path + SWAP, path)
        segment = new_segment(self.files, self.directory, first.base_offset, self.config, first.created_ms)
        segment.size = size
        segment.load_indexes()
        self.segments.add(segment)
        return renamed

    def move_to(self, directory: str) -> None:
        """Use these paths from now on, because the log's directory was renamed to `directory`."""
        self.directory = directory
        for segment in self.segments:
            segment.move_to(directory)

    def close_files(self) -> None:
        """Close the open files of all segments; they are opened again when needed."""
        for segment in self.segments:
            segment.close_files()


def _end_before_damage(segment: Segment, position: int) -> int:
    """The end of the intact bytes that begin at this position. Raises CorruptRecords where there are none."""
    for damage in segment.damaged:
        if damage.position <= position < damage.end_position:
            raise CorruptRecords(
                f"{segment.log_path}: offsets {damage.first_offset} to {damage.end_offset - 1} are damaged: "
                f"{damage.reason}"
            )
        if damage.position > position:
            return damage.position
    return segment.size
