"""Fetched record batches into Arrow record batches, without a Python object per record."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from klamm.model.ids import TopicPartition
from klamm.spark.columns import Rows, record_batch
from klamm.spark.errors import READ_AGAIN
from klamm.spark.transactions import Aborted, committed_batches, data_batches
from klamm.wire.compression import BadCompression, Codec
from klamm.wire.records.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME_BIT
from klamm.wire.unfolding import decompress
from klamm.wire.vectors.batches import CorruptBatch, Headers, Run, check_crc, check_order
from klamm.wire.vectors.fields import Fields, read_fields, read_headers
from klamm.wire.vectors.starts import Areas, Finder, find_bodies
from klamm.wire.vectors.varints import Bytes, Longs

GROUP_BYTES: Final = 8 << 20  # decompressed bytes worked on at once: bounds memory, and keeps columns in cache
MAX_ROWS_PER_BATCH: Final = 1 << 16  # of one Arrow record batch


class RecordSelection(NamedTuple):
    """Which records of a partition, and which of their columns."""

    topic_partition: TopicPartition
    start: int
    end: int  # exclusive
    columns: tuple[str, ...]


def decode(
    run: Run, selection: RecordSelection, aborted: Sequence[Aborted] | None = None, find: Finder = find_bodies
) -> Iterator[pa.RecordBatch]:
    """The selected records of the run. `aborted` is None for read_uncommitted.

    Raises CorruptBatch, naming the partition and offset, before anything of a damaged group is given out.
    """
    try:
        check_order(run)
        check_crc(run)
        for group in _group_batches(run, _selected_batches(run, selection, aborted)):
            rows = _decode_group(run, group, selection, find)
            yield from _record_batches(rows, selection)
    except CorruptBatch as error:
        first = int(run.headers["base_offset"][0])
        raise CorruptBatch(
            f"{selection.topic_partition}, batches at offsets {first} to {run.next_offset - 1}: {error}. {READ_AGAIN}"
        ) from error


def _selected_batches(run: Run, selection: RecordSelection, aborted: Sequence[Aborted] | None) -> list[int]:
    """The indexes of the batches to decode: in range, and not of aborted transactions."""
    kept = data_batches(run) if aborted is None else committed_batches(run, aborted)
    kept &= (run.last_offsets >= selection.start) & (run.headers["base_offset"] < selection.end)
    return [int(i) for i in np.flatnonzero(kept & (run.headers["record_count"] > 0))]


class _Group(NamedTuple):
    """Batches decoded together: their headers, one raw buffer, and where in it their records lie."""

    headers: Headers
    buffer: memoryview
    areas: Areas


def _group_batches(run: Run, chosen: list[int]) -> Iterator[_Group]:
    """Group adjacent batches until they have enough bytes; compressed batches count as decompressed."""
    codecs = (run.headers["attributes"] & CODEC_MASK).tolist()
    numbers: list[int] = []
    unpacked: dict[int, bytes] = {}
    size = 0
    for i in chosen:
        numbers.append(i)
        if codecs[i]:
            unpacked[i] = _decompress(run, i, codecs[i])
        size += len(unpacked[i]) if codecs[i] else run.sizes[i]
        if size >= GROUP_BYTES:
            yield _build_group(run, numbers, unpacked)
            numbers, unpacked, size = [], {}, 0
    if numbers:
        yield _build_group(run, numbers, unpacked)


def _record_bytes(run: Run, i: int) -> memoryview:
    """The bytes of the records of a batch."""
    return run.buffer[run.positions[i] + HEADER_BYTES : run.positions[i] + run.sizes[i]]


def _decompress(run: Run, i: int, codec: int) -> bytes:
    try:
        return decompress(Codec(codec), _record_bytes(run, i))
    except (BadCompression, ValueError) as error:
        raise CorruptBatch(f"the batch at offset {int(run.headers['base_offset'][i])}: {error}") from error


def _build_group(run: Run, numbers: list[int], unpacked: dict[int, bytes]) -> _Group:
    """One group: the headers, and one buffer with where each batch's records are in it."""
    headers = run.headers[numbers]
    if unpacked:
        parts = [unpacked[i] if i in unpacked else _record_bytes(run, i) for i in numbers]
        lengths = np.array([len(part) for part in parts], np.int64)
        buffer = memoryview(b"".join(parts))
        starts = np.cumsum(lengths) - lengths
    else:  # the fetched bytes themselves, from the first of these batches on
        first, last = numbers[0], numbers[-1]
        begin = run.positions[first]
        lengths = np.array([run.sizes[i] for i in numbers], np.int64) - HEADER_BYTES
        buffer = run.buffer[begin : run.positions[last] + run.sizes[last]]
        starts = np.array([run.positions[i] for i in numbers], np.int64) - begin + HEADER_BYTES
    return _Group(headers, buffer, Areas(starts, starts + lengths, headers["record_count"].astype(np.int64)))


def _decode_group(run: Run, group: _Group, selection: RecordSelection, find: Finder) -> Rows:
    """Decode the records of a group of batches."""
    raw: Bytes = np.frombuffer(group.buffer, np.uint8)
    bodies = find(group.buffer, raw, group.areas)
    fields = read_fields(raw, bodies)
    headers = read_headers(raw, bodies, fields.values) if "headers" in selection.columns else None
    batch_of = np.repeat(np.arange(len(group.headers)), group.areas.counts)
    _check_offset_deltas(group, fields, batch_of)
    offsets = _per_record(group.headers["base_offset"], batch_of) + fields.offset_deltas
    log_append = (group.headers["attributes"] & LOG_APPEND_TIME_BIT) != 0
    timestamps = _per_record(group.headers["base_timestamp"], batch_of) + fields.timestamp_deltas
    if log_append.any():
        timestamps = np.where(log_append[batch_of], _per_record(group.headers["max_timestamp"], batch_of), timestamps)
    types = log_append.astype(np.int32)[batch_of]
    return Rows(pa.py_buffer(group.buffer), selection.topic_partition, fields, headers, offsets, timestamps, types)


def _per_record(column: np.ndarray[tuple[int], np.dtype[np.int64]], batch_of: Longs) -> Longs:
    """A column of the batch headers, repeated for each record of its batch."""
    return column.astype(np.int64)[batch_of]


def _check_offset_deltas(group: _Group, fields: Fields, batch_of: Longs) -> None:
    """Raises CorruptBatch unless offsets rise within each batch, up to the last offset of its header."""
    deltas = fields.offset_deltas
    if not len(deltas):
        return
    same_batch = batch_of[1:] == batch_of[:-1]
    falls = (deltas[1:] <= deltas[:-1]) & same_batch
    last = _per_record(group.headers["last_offset_delta"], batch_of)
    if falls.any() or (deltas < 0).any() or (deltas > last).any():
        raise CorruptBatch("the offsets of the records in a batch do not increase")


def _record_batches(rows: Rows, selection: RecordSelection) -> Iterator[pa.RecordBatch]:
    """The rows in range, as record batches of limited size."""
    inside = np.flatnonzero((rows.offsets >= selection.start) & (rows.offsets < selection.end))
    for begin in range(0, len(inside), MAX_ROWS_PER_BATCH):
        yield record_batch(rows, selection.columns, inside[begin : begin + MAX_ROWS_PER_BATCH])
