"""The records of the dirty range that are the last ones of their keys, by offset.

Once the offset map is complete, an offset tells whether a record of the dirty range stays: the second pass needs no key
of it, and no record of a batch that stays or goes as a whole.
"""

import numpy as np
import numpy.typing as npt

from klamm.wire.vectors.varints import Longs

Flags = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.uint64]
"""Twice the offset of a record, plus one for a tombstone: in the order of offsets."""


def marks_of(offsets: Longs) -> Marks:
    """The marks of records with these offsets that are no tombstones."""
    return offsets.astype(np.uint64) << np.uint64(1)


class LatestRecords:
    """The last records of all keys in the offset map."""

    def __init__(self, marks: Marks) -> None:
        """`marks` are in rising order."""
        self._marks = marks
        self._tombstones = marks[(marks & np.uint64(1)).astype(np.bool_)]

    def count(self, first: Longs, last: Longs) -> Longs:
        """How many of these records there are from each offset of `first` up to that of `last`."""
        return _count(self._marks, first, last)

    def count_tombstones(self, first: Longs, last: Longs) -> Longs:
        """How many of them are tombstones."""
        return _count(self._tombstones, first, last)

    def find(self, offsets: Longs) -> tuple[Flags, Flags]:
        """Whether the record at each offset is one of these; and whether it is one of these and a tombstone."""
        if not len(self._marks):
            return np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
        wanted = marks_of(offsets)
        marks = self._marks[np.minimum(np.searchsorted(self._marks, wanted), len(self._marks) - 1)]
        is_tombstone: Flags = marks == wanted + np.uint64(1)
        is_latest: Flags = (marks == wanted) | is_tombstone
        return is_latest, is_tombstone


def _count(marks: Marks, first: Longs, last: Longs) -> Longs:
    """The number of marks in each range of offsets, both ends included."""
    # of the same type as the marks: numpy would compare other integers as floats
    return np.searchsorted(marks, marks_of(last + 1)) - np.searchsorted(marks, marks_of(first))
