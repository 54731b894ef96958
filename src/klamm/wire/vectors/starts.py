"""Where each record begins and ends: the only part of a batch that must be walked in order.

Two ways give the same answer. Many batches: in lockstep, step k handles record k of every batch as one vector.
Few large batches: a plain loop. The cheaper one is chosen by how many batches share a step.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from klamm.wire.vectors.batches import MIN_RECORD_BYTES, CorruptBatch
from klamm.wire.vectors.varints import Bytes, Longs, read_varints

MIN_LANES_PER_STEP: Final = 96  # measured: a vector step costs as much as a loop over this many records


class Areas(NamedTuple):
    """The records' bytes of each batch inside one raw buffer, without headers, decompressed."""

    starts: Longs
    ends: Longs
    counts: Longs
    base_offsets: Longs
    """The first offset of each batch, which errors name."""


class Bodies(NamedTuple):
    """Each record after its length field, batch after batch in order."""

    starts: Longs
    ends: Longs


Finder = Callable[[memoryview, Bytes, Areas], Bodies]


def find_bodies(buffer: memoryview, raw: Bytes, areas: Areas) -> Bodies:
    """The start and end of each record.

    Raises CorruptBatch where records do not fill their batch exactly. `raw` is `buffer` as an array.
    """
    check_counts(areas)
    total, steps = int(areas.counts.sum()), int(areas.counts.max(initial=0))
    finder = find_in_lockstep if total > steps * MIN_LANES_PER_STEP else find_in_a_loop
    return finder(buffer, raw, areas)


def check_counts(areas: Areas) -> None:
    """Raise CorruptBatch where a batch has fewer bytes than its record count needs, so that memory is bounded."""
    sizes = areas.ends - areas.starts
    wrong = np.flatnonzero(areas.counts * MIN_RECORD_BYTES > sizes)
    if wrong.size:
        count, size = int(areas.counts[wrong[0]]), int(sizes[wrong[0]])
        raise CorruptBatch(
            f"the batch at offset {areas.base_offsets[wrong[0]]} announces {count:,} records, but its {size:,} bytes "
            f"hold at most {size // MIN_RECORD_BYTES:,}"
        )


def _record_too_long(areas: Areas, batch: int) -> CorruptBatch:
    """Return the error for a record that ends after its batch; `batch` counts from 0."""
    offset = areas.base_offsets[batch]
    return CorruptBatch(f"a record in the batch at offset {offset} is longer than the rest of its batch")


def _wrong_sum(areas: Areas, batch: int) -> CorruptBatch:
    """Return the error for a batch whose records are shorter or longer than itself; `batch` counts from 0."""
    offset = areas.base_offsets[batch]
    return CorruptBatch(f"the lengths of the records in the batch at offset {offset} do not add up to its length")


def find_in_lockstep(buffer: memoryview, raw: Bytes, areas: Areas) -> Bodies:
    """Find the records of all batches at once, with vectors: the first of each batch, then the second, and so on.

    All lengths are checked at the end: until then a wrong one leads to bytes that are no record.
    """
    order = np.argsort(-areas.counts, kind="stable")
    counts = areas.counts[order]
    position = areas.starts[order]
    slots = (np.cumsum(areas.counts) - areas.counts)[order]
    total = int(counts.sum())
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    # lanes still running at step k: counts fall, so they are a prefix
    running = np.searchsorted(-counts, -np.arange(int(counts.max(initial=0))), side="left")
    for k, lanes in enumerate(running.tolist()):
        length, begin = _read_lengths(raw, position[:lanes])
        slot = slots[:lanes] + k
        starts[slot] = begin
        ends[slot] = position[:lanes] = begin + length
    _check_ends(areas, starts, ends)
    return Bodies(starts, ends)


def _read_lengths(raw: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """The length of the record at each position, and where the record begins after it. Raises CorruptBatch.

    Lengths of two bytes, the usual ones of 64 to 8,191 bytes, are decoded in half the steps of other varints.
    """
    try:
        words = np.ndarray((len(raw) - 1,), "<u2", raw, strides=(1,))[at]
    except IndexError:
        return read_varints(raw, at)  # which raises the error
    if ((words & 0x8081) != 0x0080).any():  # not two bytes, or negative
        return read_varints(raw, at)
    return (words >> 1 & 0x3F | words >> 2 & 0x1FC0).astype(np.int64), at + 2


def _check_ends(areas: Areas, starts: Longs, ends: Longs) -> None:
    """Raise CorruptBatch where the records do not fill their batch exactly; it names the first such batch."""
    batch_of = np.repeat(np.arange(len(areas.counts)), areas.counts)
    too_long = (ends < starts) | (ends > areas.ends[batch_of])
    if too_long.any():
        raise _record_too_long(areas, int(batch_of[np.flatnonzero(too_long)[0]]))
    filled_to = areas.starts.copy()
    filled_to[areas.counts > 0] = ends[np.cumsum(areas.counts)[areas.counts > 0] - 1]
    if (filled_to != areas.ends).any():
        raise _wrong_sum(areas, int(np.flatnonzero(filled_to != areas.ends)[0]))


def find_in_a_loop(buffer: memoryview, raw: Bytes, areas: Areas) -> Bodies:
    """Find the records one by one by their lengths, then check all lengths with vectors."""
    lengths_at: list[int] = []
    behind: list[int] = []
    content = bytes(buffer)  # indexing bytes is twice as fast as indexing a view
    try:
        for begin, count in zip(areas.starts.tolist(), areas.counts.tolist(), strict=True):
            behind.append(_record_starts(content, begin, count, lengths_at))
    except IndexError as error:
        raise _record_too_long(areas, len(behind)) from error
    lengths, starts = read_varints(raw, np.array(lengths_at, np.int64))
    wrong_ends = np.flatnonzero(np.array(behind, np.int64) != areas.ends)
    if wrong_ends.size:
        raise _wrong_sum(areas, int(wrong_ends[0]))
    if (lengths < 0).any():
        first = np.flatnonzero(lengths < 0)[0]
        raise _wrong_sum(areas, int(np.searchsorted(np.cumsum(areas.counts), first, side="right")))
    return Bodies(starts, starts + lengths)


def _record_starts(content: bytes, position: int, count: int, lengths_at: list[int]) -> int:
    """Append the position of each record to `lengths_at`; returns the position after the last one."""
    note = lengths_at.append
    for _ in range(count):
        note(position)
        bits = content[position]
        if bits < 128:
            position += 1 + (bits >> 1)
        elif (more := content[position + 1]) < 128:  # two bytes, up to 8 kB: the usual length
            position += 2 + ((bits & 127 | more << 7) >> 1)
        else:
            position = _skip_long_record(content, position)
    return position


def _skip_long_record(content: bytes, position: int) -> int:
    """Return the position after a record whose length field takes three bytes or more."""
    bits = 0
    for shift in range(0, 70, 7):
        byte = content[position]
        position += 1
        bits |= (byte & 127) << shift
        if byte < 128:
            return position + (bits >> 1)
    raise CorruptBatch(f"the length of a record, which ends before byte {position} of the batches, exceeds ten bytes")
