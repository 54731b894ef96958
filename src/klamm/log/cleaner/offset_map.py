"""The last record of each key, in bounded memory. Source: SkimpyOffsetMap.java.

Keys are known by 128 bits of a hash with a secret of this process. Where a hash of 64 bits belongs to two keys, one of
them may count as unknown: its records stay.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from klamm.log.cleaner.key_hashes import KeyHashes
from klamm.log.cleaner.latest_records import Flags, LatestRecords, marks_of
from klamm.wire.vectors.varints import Longs

UNKNOWN: Final = -1
_SHIFT: Final = np.uint64(1)


class OffsetMap:
    """At most `capacity` keys of the records from `start` on; `get` and `latest` work once `seal` was called."""

    def __init__(self, capacity: int, start: int = 0) -> None:
        self._first = np.empty(capacity, np.int64)
        self._second = np.empty(capacity, np.int64)
        self._marks = np.empty(capacity, np.uint64)
        self._count = 0
        self.start = start
        self.latest_offset = start - 1
        """All records from `start` up to this offset are in the map."""
        self.keyless_records = 0
        """The records of batches in the map that have no key."""
        self.latest = LatestRecords(self._marks[:0])

    @property
    def utilization(self) -> float:
        """The used share of the map's capacity, 0 to 1."""
        return self._count / len(self._first)

    def add(self, hashes: KeyHashes, offsets: Longs, tombstones: Flags) -> bool:
        """Add the keys of records with these offsets, of which some are tombstones.

        If they do not all fit, add none and return False.
        """
        more = len(offsets)
        if self._count + more > len(self._first):
            self._remove_duplicates()
        end = self._count + more
        if end > len(self._first):
            return False
        self._first[self._count : end] = hashes.first
        self._second[self._count : end] = hashes.second
        self._marks[self._count : end] = marks_of(offsets) | tombstones
        self._count = end
        return True

    def seal(self) -> None:
        """Remove duplicate keys once after the last `add`; `get` and `latest` are valid from then on."""
        self._remove_duplicates()
        self.latest = LatestRecords(np.sort(self._marks[: self._count]))

    def get(self, hashes: KeyHashes) -> Longs:
        """The last offset of each key; -1 for those that are not in the map."""
        count = self._count
        if not count:
            return np.full(len(hashes.first), UNKNOWN, np.int64)
        order = np.argsort(hashes.first)  # a search in rising order reads the map once, from one end to the other
        wanted = hashes.first[order]
        slots = np.minimum(np.searchsorted(self._first[:count], wanted), count - 1)
        same = (self._first[slots] == wanted) & (self._second[slots] == hashes.second[order])
        found: npt.NDArray[np.int64] = np.empty(len(wanted), np.int64)
        found[order] = np.where(same, (self._marks[slots] >> _SHIFT).view(np.int64), UNKNOWN)
        return found

    def _remove_duplicates(self) -> None:
        """Keep the last offset of each key, in the order of the hashes."""
        count = self._count
        if not count:
            return
        first, second, marks = self._first[:count], self._second[:count], self._marks[:count]
        self._reorder(np.argsort(first))
        is_new = np.ones(count, np.bool_)
        is_new[1:] = first[1:] != first[:-1]
        if (~is_new[1:] & (second[1:] != second[:-1])).any():  # one hash of 64 bits belongs to two keys
            self._reorder(np.lexsort((second, first)))
            is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        starts = np.flatnonzero(is_new)
        kept = len(starts)
        marks[:kept] = np.maximum.reduceat(marks, starts)
        first[:kept] = first[starts]
        second[:kept] = second[starts]
        self._count = kept

    def _reorder(self, order: Longs) -> None:
        """Bring all entries into this order; one column is copied at a time, which bounds the memory."""
        for column in (self._first, self._second, self._marks):
            column[: len(order)] = column[order]
