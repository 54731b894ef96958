"""Rows as the records of Kafka's batches: Arrow columns in, the bytes of whole batches out.

Varints come from a table or are encoded once for each distinct number; Arrow joins the parts of all records in C++.
Source: DefaultRecord.java, ByteUtils.java.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from klamm.model.ids import TopicPartition

Longs = npt.NDArray[np.int64]

TABLE_SIZE: Final = 1 << 16
"""Varints of -1 to 65,534 are looked up; larger ones are lengths of large records, of which there are few."""
_NO_ATTRIBUTES: Final = b"\x00\x00"
"""The attributes of a record, and its timestamp's difference to that of its batch: both 0."""
_NULL: Final = b"\x01"
"""The varint of the length -1."""
_MAX_VARINT_BYTES: Final = 5
_FIXED_BYTES: Final = len(_NO_ATTRIBUTES) + 2 * _MAX_VARINT_BYTES
_EMPTY: Final = b""


class RecordColumns(NamedTuple):
    """The columns of records in their order. `keys` and `headers` are None where no record has one.

    `headers` are lists of structs of key and value, with binary keys that are not null.
    """

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    headers: pa.ListArray | None = None

    def slice(self, start: int, end: int) -> "RecordColumns":
        """The records from `start` to before `end`, without a copy."""
        return RecordColumns(*(None if c is None else c.slice(start, end - start) for c in self))


class Run(NamedTuple):
    """The rows from `start` to before `end` go to one partition."""

    partition: TopicPartition
    start: int
    end: int


class EncodedRecords(NamedTuple):
    """The records of one batch, without a header; `source` are the rows that they were made of."""

    partition: TopicPartition
    rows: int
    payload: memoryview
    source: RecordColumns


def encode_runs(columns: RecordColumns, runs: Sequence[Run], max_bytes: int) -> Iterator[EncodedRecords]:
    """Encode rows that are in the order of the runs, as batches of at most `max_bytes`.

    A larger record is a batch of its own.
    """
    sizes = record_sizes(columns)
    cuts = [(run.partition, *cut) for run in runs for cut in _cut(sizes, run, max_bytes)]
    if not cuts:
        return
    records = _join(columns, _positions(cuts))
    bounds = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1, offset=4 * records.offset)
    content = memoryview(records.buffers()[2] or b"")
    for partition, start, end in cuts:
        payload = content[bounds[start] : bounds[end]]
        yield EncodedRecords(partition, end - start, payload, columns.slice(start, end))


def record_sizes(columns: RecordColumns) -> Longs:
    """At most how many bytes each record has in its batch."""
    sizes = lengths_of(columns.values).clip(0) + 2 * _MAX_VARINT_BYTES + _FIXED_BYTES
    if columns.keys is not None:
        sizes += lengths_of(columns.keys).clip(0)
    if columns.headers is not None:
        _, blobs = _header_blobs(columns.headers)
        sizes += lengths_of(blobs)
    return sizes


def lengths_of(column: pa.BinaryArray) -> Longs:
    """The length of each value in bytes; -1 for null."""
    bounds = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, offset=4 * column.offset)
    lengths = np.diff(bounds).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _cut(sizes: Longs, run: Run, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Where each batch of a run starts and ends."""
    ends = np.cumsum(sizes[run.start : run.end])
    start, before = 0, 0
    while start < len(ends):
        end = max(int(np.searchsorted(ends, before + max_bytes, "right")), start + 1)
        yield run.start + start, run.start + end
        start, before = end, int(ends[end - 1])


def _positions(cuts: Sequence[tuple[TopicPartition, int, int]]) -> Longs:
    """The place of each record in its batch."""
    starts = np.array([start for _, start, _ in cuts])
    counts = np.array([end - start for _, start, end in cuts])
    positions: Longs = np.arange(counts.sum()) + cuts[0][1] - np.repeat(starts, counts)
    return positions


# ---- bytes


def _join(columns: RecordColumns, positions: Longs) -> pa.BinaryArray:
    """Each record with its length in front."""
    values = lengths_of(columns.values)
    parts: list[Any] = [_NO_ATTRIBUTES, varints(positions)]
    size = len(_NO_ATTRIBUTES) + varint_sizes(positions) + varint_sizes(values) + values.clip(0)
    if columns.keys is None:
        parts.append(_NULL)
        size += len(_NULL)
    else:
        keys = lengths_of(columns.keys)
        parts += [varints(keys), _without_nulls(columns.keys)]
        size += varint_sizes(keys) + keys.clip(0)
    parts += [varints(values), _without_nulls(columns.values)]
    if columns.headers is None:
        parts.append(b"\x00")
        size += 1
    else:
        counts, blobs = _header_blobs(columns.headers)
        parts += [varints(counts), blobs]
        size += varint_sizes(counts) + lengths_of(blobs)
    return pc.binary_join_element_wise(varints(size), *parts, _EMPTY)


def _header_blobs(headers: pa.ListArray) -> tuple[Longs, pa.BinaryArray]:
    """The number of headers of each record, and their bytes."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    flat = headers.flatten()
    names, contents = flat.field("key"), flat.field("value")
    each = pc.binary_join_element_wise(
        varints(lengths_of(names)), names, varints(lengths_of(contents)), _without_nulls(contents), _EMPTY
    )
    inside = np.frombuffer(each.buffers()[1], np.int32, len(each) + 1, offset=4 * each.offset)
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    bounds = pa.py_buffer(np.ascontiguousarray(inside[firsts]))
    content = each.buffers()[2] or pa.py_buffer(b"")
    return counts, pa.Array.from_buffers(pa.binary(), len(counts), [None, bounds, content])


def _without_nulls(column: pa.BinaryArray) -> pa.BinaryArray:
    """The column with nothing in place of null: Arrow would make the whole record null."""
    return pc.fill_null(column, _EMPTY) if column.null_count else column


# ---- varints


def varints(numbers: Longs) -> pa.BinaryArray:
    """Each number, at least -1, as a zig-zag varint."""
    if not len(numbers) or numbers.max() < TABLE_SIZE - 1:
        return _table().take(pa.array(numbers + 1))
    distinct, which = np.unique(numbers, return_inverse=True)
    return pa.array([_varint(int(n)) for n in distinct], pa.binary()).take(pa.array(which))


def varint_sizes(numbers: Longs) -> Longs:
    """How many bytes each number, at least -1, has as a zig-zag varint."""
    sizes = np.ones(len(numbers), np.int64)
    for bits in range(6, 35, 7):
        sizes += numbers >= 1 << bits
    return sizes


def _varint(number: int) -> bytes:
    """One zig-zag varint."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    content = bytearray()
    while rest > 127:
        content.append(rest & 127 | 128)
        rest >>= 7
    content.append(rest)
    return bytes(content)


@cache
def _table() -> pa.BinaryArray:
    """The varints of -1 and all numbers below `TABLE_SIZE` - 1."""
    return pa.array([_varint(n) for n in range(-1, TABLE_SIZE - 1)], pa.binary())
