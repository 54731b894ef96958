"""Adjacent batches decoded together: one buffer of decompressed records, and the fields of all of them as vectors."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.wire.compression import BadCompression, Codec
from klamm.wire.records.batch import CODEC_MASK, HEADER_BYTES
from klamm.wire.unfolding import decompress
from klamm.wire.vectors.batches import CorruptBatch, Headers, Run
from klamm.wire.vectors.fields import Fields, read_fields
from klamm.wire.vectors.starts import Areas, Bodies, Finder, find_bodies
from klamm.wire.vectors.varints import Bytes, Longs, read_varints

GROUP_BYTES: Final = 8 << 20
"""Decompressed bytes worked on at once: bounds memory, and keeps columns in cache."""


class Group(NamedTuple):
    """Batches decoded together. `numbers` are their places in the run, `areas` where their records lie in `buffer`."""

    numbers: list[int]
    headers: Headers
    buffer: memoryview
    areas: Areas


class GroupRecords(NamedTuple):
    """The records of a group in order; `batch_of` is the place of each record's batch in the group."""

    raw: Bytes
    bodies: Bodies
    fields: Fields
    batch_of: Longs
    offsets: Longs
    timestamps: Longs
    """Base timestamp plus delta; LogAppendTime is not applied."""


def group_batches(run: Run, chosen: Iterable[int], group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
    """Group adjacent batches until they have enough bytes; compressed batches count as decompressed.

    Raises CorruptBatch where a batch cannot be decompressed.
    """
    codecs = (run.headers["attributes"] & CODEC_MASK).tolist()
    numbers: list[int] = []
    unpacked: dict[int, bytes] = {}
    size = 0
    for i in chosen:
        numbers.append(i)
        if codecs[i]:
            unpacked[i] = _decompress(run, i, codecs[i])
        size += len(unpacked[i]) if codecs[i] else run.sizes[i]
        if size >= group_bytes:
            yield _build_group(run, numbers, unpacked)
            numbers, unpacked, size = [], {}, 0
    if numbers:
        yield _build_group(run, numbers, unpacked)


def _record_bytes(run: Run, i: int) -> memoryview:
    """Return the records of batch number `i` of the run as stored, without the header and possibly compressed."""
    return run.buffer[run.positions[i] + HEADER_BYTES : run.positions[i] + run.sizes[i]]


def _decompress(run: Run, i: int, codec: int) -> bytes:
    """Return the decompressed records of batch number `i` of the run. Raises CorruptBatch, naming its base offset."""
    try:
        return decompress(Codec(codec), _record_bytes(run, i))
    except (BadCompression, ValueError) as error:
        raise CorruptBatch(f"the batch at offset {int(run.headers['base_offset'][i])}: {error}") from error


def _build_group(run: Run, numbers: list[int], unpacked: dict[int, bytes]) -> Group:
    """Make one group: the headers, and one buffer with the position of each batch's records."""
    headers = run.headers[numbers]
    if unpacked:
        parts = [unpacked[i] if i in unpacked else _record_bytes(run, i) for i in numbers]
        lengths = np.array([len(part) for part in parts], np.int64)
        buffer = memoryview(b"".join(parts))
        starts = np.cumsum(lengths) - lengths
    else:  # the bytes of the run themselves, from the first of these batches on
        first, last = numbers[0], numbers[-1]
        begin = run.positions[first]
        lengths = np.array([run.sizes[i] for i in numbers], np.int64) - HEADER_BYTES
        buffer = run.buffer[begin : run.positions[last] + run.sizes[last]]
        starts = np.array([run.positions[i] for i in numbers], np.int64) - begin + HEADER_BYTES
    counts = headers["record_count"].astype(np.int64)
    areas = Areas(starts, starts + lengths, counts, headers["base_offset"].astype(np.int64))
    return Group(numbers, headers, buffer, areas)


class LocatedRecords(NamedTuple):
    """Where the records of a group are, in order, and their offsets; columns as in GroupRecords."""

    bodies: Bodies
    batch_of: Longs
    offsets: Longs
    timestamps: Longs


def locate_records(group: Group, find: Finder = find_bodies) -> LocatedRecords:
    """Locate all records of the group without looking at keys, values and headers. Raises CorruptBatch."""
    raw: Bytes = np.frombuffer(group.buffer, np.uint8)
    bodies = find(group.buffer, raw, group.areas)
    timestamp_deltas, at = read_varints(raw, bodies.starts + 1)
    offset_deltas, _ = read_varints(raw, at)
    return _located(group, bodies, timestamp_deltas, offset_deltas)


def _located(group: Group, bodies: Bodies, timestamp_deltas: Longs, offset_deltas: Longs) -> LocatedRecords:
    """Add the deltas of the records to their batches' headers. Raises CorruptBatch for offsets that do not rise."""
    batch_of = np.repeat(np.arange(len(group.headers)), group.areas.counts)
    _check_offset_deltas(group, offset_deltas, batch_of)
    offsets = per_record(group.headers["base_offset"], batch_of) + offset_deltas
    timestamps = per_record(group.headers["base_timestamp"], batch_of) + timestamp_deltas
    return LocatedRecords(bodies, batch_of, offsets, timestamps)


def decode_group(group: Group, find: Finder = find_bodies) -> GroupRecords:
    """Locate all records of the group. Raises CorruptBatch where they do not fit their batches."""
    raw: Bytes = np.frombuffer(group.buffer, np.uint8)
    bodies = find(group.buffer, raw, group.areas)
    fields = read_fields(raw, bodies)
    located = _located(group, bodies, fields.timestamp_deltas, fields.offset_deltas)
    return GroupRecords(raw, bodies, fields, located.batch_of, located.offsets, located.timestamps)


def per_record(column: npt.NDArray[np.int64], batch_of: Longs) -> Longs:
    """Repeat each value of a column of batch headers for every record of its batch."""
    return column.astype(np.int64)[batch_of]


def _check_offset_deltas(group: Group, deltas: Longs, batch_of: Longs) -> None:
    """Raise CorruptBatch unless offsets rise within each batch, up to the last offset of its header."""
    if not len(deltas):
        return
    same_batch = batch_of[1:] == batch_of[:-1]
    falls = (deltas[1:] <= deltas[:-1]) & same_batch
    last = per_record(group.headers["last_offset_delta"], batch_of)
    outside = (deltas < 0) | (deltas > last)
    if falls.any() or outside.any():
        at = int(np.flatnonzero(falls)[0]) + 1 if falls.any() else int(np.flatnonzero(outside)[0])
        offset = int(group.headers["base_offset"][batch_of[at]])
        raise CorruptBatch(
            f"the offsets of the records in the batch at offset {offset} do not increase up to its last offset"
        )
