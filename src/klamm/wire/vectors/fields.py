"""The fields of all records at once: deltas, and where keys, values and headers are in the raw buffer.

Source: DefaultRecord.java. A record's body is: attributes (1 byte), timestamp delta, offset delta, key length, key,
value length, value, number of headers, headers; numbers are varints, a length of -1 means null.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.wire.vectors.batches import CorruptBatch
from klamm.wire.vectors.starts import Bodies
from klamm.wire.vectors.varints import Bytes, Longs, read_varints

BEYOND = "the key, value or headers of a record exceed its length"


class Slices(NamedTuple):
    """Byte ranges of the raw buffer; where `null`, start and end are equal."""

    starts: Longs
    ends: Longs
    null: npt.NDArray[np.bool_]


class Fields(NamedTuple):
    timestamp_deltas: Longs
    offset_deltas: Longs
    keys: Slices
    values: Slices


class HeaderFields(NamedTuple):
    """All headers in order of their records; `counts` has one number per record."""

    counts: Longs
    keys: Slices
    values: Slices


def read_fields(raw: Bytes, bodies: Bodies) -> Fields:
    """The fields of each record. Raises CorruptBatch where a key or value passes the end of its record."""
    timestamp_deltas, at = read_varints(raw, bodies.starts + 1)
    offset_deltas, at = read_varints(raw, at)
    keys = read_slices(raw, at, bodies.ends)
    values = read_slices(raw, keys.ends, bodies.ends)
    return Fields(timestamp_deltas, offset_deltas, keys, values)


def read_slices(raw: Bytes, at: Longs, limits: Longs) -> Slices:
    """The byte string (length, then bytes) at each position of `at`. Raises CorruptBatch where one passes its limit."""
    lengths, starts = read_varints(raw, at)
    if (lengths < -1).any() or (lengths > limits - starts).any() or (starts > limits).any():
        raise CorruptBatch(BEYOND)
    return Slices(starts, starts + np.maximum(lengths, 0), lengths < 0)


def read_headers(raw: Bytes, bodies: Bodies, values: Slices) -> HeaderFields:
    """Decode the headers of all records.

    Header k of all records is decoded at once, with vectors, for one k after the other; then all are sorted by record.
    """
    counts, at = read_varints(raw, values.ends)
    if (counts < 0).any() or (counts * 2 > bodies.ends - at).any():
        raise CorruptBatch(BEYOND)
    records = np.flatnonzero(counts)
    at = at[records]
    header_columns: list[tuple[Longs, Slices, Slices]] = []
    while records.size:
        keys = read_slices(raw, at, bodies.ends[records])
        values_ = read_slices(raw, keys.ends, bodies.ends[records])
        header_columns.append((records, keys, values_))
        more = counts[records] > len(header_columns)
        records, at = records[more], values_.ends[more]
    return HeaderFields(counts, *_in_record_order(header_columns))


def _in_record_order(header_columns: list[tuple[Longs, Slices, Slices]]) -> tuple[Slices, Slices]:
    """Sort the headers by their records."""
    if not header_columns:
        nothing = Slices(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))
        return nothing, nothing
    records, keys, values = zip(*header_columns, strict=True)
    order = np.argsort(np.concatenate(records), kind="stable")
    return _concatenate(keys, order), _concatenate(values, order)


def _concatenate(parts: tuple[Slices, ...], order: Longs) -> Slices:
    """Join the slices and reorder them."""
    starts, ends, null = zip(*parts, strict=True)
    return Slices(np.concatenate(starts)[order], np.concatenate(ends)[order], np.concatenate(null)[order])
