"""The segment files of one replica, as a directory listing shows them between two steps of a running broker."""

from typing import Final, NamedTuple

from klamm.log.names import CLEANED, DELETED, LOG, SWAP, offset_of
from klamm.log.open_files import OpenFiles
from klamm.log.segment import Segment
from klamm.runtime.disk import Disk

_MAX_LISTINGS: Final = 100


class SegmentFile(NamedTuple):
    """One segment: `suffix` is `.swap` where compaction has not renamed its files yet, else empty."""

    base_offset: int
    suffix: str


class SegmentFiles(NamedTuple):
    """The segments in order of their offsets, and whether compaction or a truncation replaces some of them now."""

    segments: tuple[SegmentFile, ...]
    is_changing: bool

    def at(self, offset: int, after: int) -> SegmentFile | None:
        """The segment that has the offset or else the next one, of those that begin after `after`; None at the end."""
        later = [file for file in self.segments if file.base_offset > after]
        holding = [file for file in later if file.base_offset <= offset]
        return holding[-1] if holding else next(iter(later), None)


def list_segment_files(disk: Disk, directory: str) -> SegmentFiles:
    """List the segments of a replica. Raises FileNotFoundError where the directory is gone, OSError.

    A listing during a rename may lack the file under both names, so it counts only when a second one is equal. A
    `.swap` file is complete; where the old file of the same offset is still there, all replaced ones are.
    """
    names = disk.list_directory(directory)
    for _ in range(_MAX_LISTINGS):
        again = disk.list_directory(directory)
        if again == names:
            break
        names = again
    found: dict[int, str] = {}
    for suffix in (SWAP, ""):
        bases = (offset_of(name) for name in names if name.endswith(LOG + suffix))
        found |= {base: suffix for base in bases if base is not None}
    segments = tuple(SegmentFile(*item) for item in sorted(found.items()))
    first = segments[0].base_offset if segments else 0
    # what retention deleted lies before the first segment
    replaced = any(name.endswith(DELETED) and (offset_of(name) or 0) >= first for name in names)
    return SegmentFiles(segments, replaced or any(name.endswith((CLEANED, SWAP)) for name in names))


def open_segment(files: OpenFiles, directory: str, file: SegmentFile) -> Segment:
    """Open a segment to read, with its size now and its offset index as far as it is written.

    Raises FileNotFoundError where it is gone, OSError.
    """
    segment = Segment(
        files, directory, file.base_offset, index_interval_bytes=0, index_max_bytes=0, created_ms=0, suffix=file.suffix
    )
    segment.size = segment.file_size()
    segment.offset_index.load_hints()
    return segment
