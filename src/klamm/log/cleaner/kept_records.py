"""What is left of the batches of a group, as ranges of bytes: adjacent records are copied together."""

import numpy as np

from klamm.log.cleaner.latest_records import Flags
from klamm.wire.records.batch import NO_TIMESTAMP
from klamm.wire.vectors.groups import Group, LocatedRecords
from klamm.wire.vectors.varints import Longs


class KeptRecords:
    """The records of a group that stay. A batch is named by its place in the group."""

    def __init__(self, group: Group, records: LocatedRecords, kept: Flags) -> None:
        """`kept` has one flag per record."""
        batches = len(group.numbers)
        numbers = np.flatnonzero(kept)
        batch_of = records.batch_of[numbers]
        counts = np.bincount(batch_of, minlength=batches)
        self.counts: list[int] = counts.tolist()
        """How many records of each batch stay."""
        self.max_timestamps: list[int] = _largest(records.timestamps[numbers], counts).tolist()
        """The largest of their timestamps, for each batch; -1 where none stays."""
        self._buffer = group.buffer
        self._find_ranges(group, records, numbers)

    def _find_ranges(self, group: Group, records: LocatedRecords, numbers: Longs) -> None:
        """Find the ranges of bytes with the records of these numbers: each has adjacent records of one batch."""
        batch_of = records.batch_of[numbers]
        begins = np.ones(len(numbers), np.bool_)
        begins[1:] = (np.diff(numbers) != 1) | (np.diff(batch_of) != 0)
        firsts = numbers[begins]
        lasts = np.append(numbers[:-1][begins[1:]], numbers[-1:])
        area_starts = group.areas.starts[records.batch_of[firsts]]
        is_first_of_batch = np.ones(len(firsts), np.bool_)
        is_first_of_batch[firsts > 0] = records.batch_of[firsts[firsts > 0] - 1] != records.batch_of[firsts[firsts > 0]]
        self._starts: list[int] = np.where(is_first_of_batch, area_starts, records.bodies.ends[firsts - 1]).tolist()
        self._ends: list[int] = records.bodies.ends[lasts].tolist()
        self._ranges: list[int] = np.searchsorted(batch_of[begins], np.arange(len(group.numbers) + 1)).tolist()

    def payload(self, batch: int) -> bytes:
        """The encoded records of the batch that stay, decompressed."""
        ranges = slice(self._ranges[batch], self._ranges[batch + 1])
        return b"".join(
            [self._buffer[start:end] for start, end in zip(self._starts[ranges], self._ends[ranges], strict=True)]
        )


def _largest(timestamps: Longs, counts: Longs) -> Longs:
    """The largest timestamp of each batch, of which `counts` has the number of records; -1 where it is 0."""
    largest = np.full(len(counts), NO_TIMESTAMP, np.int64)
    ends = np.cumsum(counts)
    has_records = counts > 0
    largest[has_records] = np.maximum.reduceat(timestamps, (ends - counts)[has_records]) if len(timestamps) else 0
    return largest
