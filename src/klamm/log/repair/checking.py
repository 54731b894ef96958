"""Checks the batches of a closed segment: their chain, checksums, order and leader epochs. Runs in any process.

The checksum of a batch does not cover its base offset, its length and its leader epoch. A wrong length breaks the
chain of batches; a wrong base offset or leader epoch is noticed where it contradicts the batches around it.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.log.repair.batch_reader import BatchReader
from klamm.runtime.disk import Disk
from klamm.wire.records.batch import NO_LEADER_EPOCH, BatchHeader, CorruptRecords

MAX_RANGES: Final = 100
"""A segment with more of them is replaced from the last one to its end."""
_MAX_CANDIDATES: Final = 100_000
_INDEX_ENTRY: Final = struct.Struct(">ii")


class DamagedRange(NamedTuple):
    """Bytes of a segment file that are not the batches that were written there, and the offsets that they had.

    Both ends are exclusive.
    """

    position: int
    end_position: int
    first_offset: int
    end_offset: int
    reason: str


class CheckedSegment(NamedTuple):
    """A segment to check: its files, its offsets up to `end_offset`, and the newest leader epoch it may have."""

    log_path: str
    index_path: str
    size: int
    base_offset: int
    end_offset: int
    latest_epoch: int | None


class Place(NamedTuple):
    """Where a batch begins, and the lowest offset and leader epoch it may have."""

    position: int
    offset: int
    epoch: int = NO_LEADER_EPOCH


class Progress(NamedTuple):
    """How far a check came, what it found on the way, and the errno of a read that failed."""

    place: Place
    before: Place | None
    damaged: tuple[DamagedRange, ...] = ()
    errno: int | None = None
    error: str = ""


def check_segment(disk: Disk, segment: CheckedSegment, place: Place, before: Place | None, max_bytes: int) -> Progress:
    """Check the batches of a closed segment from `place` on, for about `max_bytes`.

    `before` is the place of the batch before it.
    """
    try:
        file = disk.open_read(segment.log_path)
    except OSError as error:
        return Progress(place, before, (), error.errno or -1, str(error))
    try:
        return _Check(disk, BatchReader(file, segment.size), segment).run(place, before, max_bytes)
    except OSError as error:
        return Progress(place, before, (), error.errno or -1, str(error))
    finally:
        file.close()


class _Contradiction(CorruptRecords):
    """An intact batch that cannot follow the one before: either of them has a wrong base offset or leader epoch."""


class _Check:
    """Walks over the batches of one segment."""

    def __init__(self, disk: Disk, reader: BatchReader, segment: CheckedSegment) -> None:
        self._disk = disk
        self._reader = reader
        self._segment = segment

    def run(self, place: Place, before: Place | None, max_bytes: int) -> Progress:
        """Check batches until about `max_bytes` are read or the segment ends. Raises OSError."""
        size = self._segment.size
        stop = min(size, place.position + max_bytes)
        damaged: list[DamagedRange] = []
        while place.position < stop:
            try:
                header = self._checked(place)
            except CorruptRecords as error:
                begin = before if isinstance(error, _Contradiction) and before is not None else place
                found = self._damaged_from(begin, place, f"byte {place.position}: {error}")
                if len(damaged) == MAX_RANGES:
                    found = found._replace(end_position=size, end_offset=self._segment.end_offset)
                damaged.append(found)
                place, before = Place(found.end_position, found.end_offset, begin.epoch), None
            else:
                before, place = place, _after(header, place)
        return Progress(place, before, tuple(damaged))

    def _checked(self, place: Place) -> BatchHeader:
        """Read and check the batch at this place, and return its header. Raises OSError, CorruptRecords."""
        header = self._reader.batch_at(place.position)
        end, latest = self._segment.end_offset, self._segment.latest_epoch
        if header.last_offset < header.base_offset or header.last_offset >= end:
            raise _Contradiction(
                f"the batch at byte {place.position} has the offsets {header.base_offset} to {header.last_offset}, but "
                f"the segment ends before {end}"
            )
        if header.base_offset < place.offset:
            raise _Contradiction(
                f"the batch at byte {place.position} has the base offset {header.base_offset}, but {place.offset} or "
                "later was expected"
            )
        epoch = header.partition_leader_epoch
        if epoch != NO_LEADER_EPOCH and (epoch < place.epoch or (latest is not None and epoch > latest)):
            raise _Contradiction(
                f"the batch at byte {place.position} has the leader epoch {epoch}, but {place.epoch} to {latest} was "
                "expected"
            )
        return header

    def _damaged_from(self, begin: Place, place: Place, reason: str) -> DamagedRange:
        """The damaged range that begins at `begin` and ends at the next batch that is intact and fits."""
        for position in self._candidates(place.position):
            try:
                header = self._checked(Place(position, begin.offset, begin.epoch))
            except CorruptRecords:
                continue
            return DamagedRange(begin.position, position, begin.offset, header.base_offset, reason)
        return DamagedRange(begin.position, self._segment.size, begin.offset, self._segment.end_offset, reason)

    def _candidates(self, position: int) -> Iterator[int]:
        """Yield where the next batch may begin: after the damaged one, then where the offset index points."""
        chained = position
        for _ in range(_MAX_CANDIDATES):
            try:
                chained += self._reader.header_at(chained).size
            except CorruptRecords:
                break
            if chained >= self._segment.size:
                break
            yield chained
        yield from (indexed for indexed in self._indexed_positions() if position < indexed < self._segment.size)

    def _indexed_positions(self) -> list[int]:
        """The file positions in the offset index, ascending; none where the index cannot be read."""
        try:
            content = self._disk.read(self._segment.index_path)
        except OSError:
            return []
        whole = len(content) - len(content) % _INDEX_ENTRY.size
        return sorted(position for _offset, position in _INDEX_ENTRY.iter_unpack(content[:whole]))


def _after(header: BatchHeader, place: Place) -> Place:
    """The place after an intact batch."""
    epoch = max(place.epoch, header.partition_leader_epoch)
    return Place(place.position + header.size, header.next_offset, epoch)
