"""A log's segments in order, found by offset. Source: LogSegments.java."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from klamm.log.segment import Segment


class Segments:
    """The segments of a log in ascending order."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """The last segment, to which records are appended."""
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        """The segment with the lowest base offset."""
        return self._segments[0]

    @property
    def size(self) -> int:
        """The bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def slot_of(self, offset: int) -> int:
        """The position in the list of the segment with the greatest base offset not above `offset`; 0 if none has."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_slot(self, slot: int) -> Sequence[Segment]:
        """The segments from this position in the list on."""
        return self._segments[slot:]

    def at(self, slot: int) -> Segment | None:
        """The segment at this position in the list, or None."""
        return self._segments[slot] if slot < len(self._segments) else None

    def add(self, segment: Segment) -> None:
        """Insert the segment in the order of base offsets."""
        slot = bisect_left(self._bases, segment.base_offset)
        self._bases.insert(slot, segment.base_offset)
        self._segments.insert(slot, segment)

    def remove(self, segment: Segment) -> None:
        """Remove the segment from the list; its files stay."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._bases[slot], self._segments[slot]
