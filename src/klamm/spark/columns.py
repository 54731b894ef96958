"""Records as Arrow columns. Arrow copies the bytes; this module computes only where they are.

The trick: a binary array laid over the raw buffer, with offsets `.., start, end, start, end, ..`, has every slice as an
element; `take` of the needed elements copies them in C++.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.errors import LostRange
from klamm.wire.vectors.fields import Fields, HeaderFields, Slices
from klamm.wire.vectors.varints import Longs

HEADER_STRUCT: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

LOSS_STRUCT: Final = pa.struct([pa.field("endOffset", pa.int64()), pa.field("reason", pa.string())])

TIMESTAMP_ERROR: Final = "klamm.timestampError"
BEYOND: Final = " ms is outside of what Spark's TIMESTAMP holds, the years -290308 to 294247"
"""What follows, in the reason of an undecodable record, on `timestamp` and the number."""

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(HEADER_STRUCT)),
        pa.field("dataLoss", LOSS_STRUCT),
        pa.field(TIMESTAMP_ERROR, pa.string()),
    ]
)
"""The columns of Spark's Kafka source, and `dataLoss`; `headers` and it only where they are asked for.

TIMESTAMP_ERROR is no column of the source: with it `timestamp` is null where Spark cannot hold it, and it says why.
"""


MAX_MS: Final = (2**63 - 1) // 1000
"""The last time that Arrow and Spark hold in microseconds, in ms since 1970."""


class BadTimestamp(KlammError):
    """The timestamp of a record is one that Spark's TIMESTAMP cannot hold."""


class Rows(NamedTuple):
    """Some records of one partition, decoded but not yet copied."""

    raw: pa.Buffer
    topic_partition: TopicPartition
    fields: Fields
    headers: HeaderFields | None
    offsets: Longs
    timestamps_ms: Longs
    timestamp_types: npt.NDArray[np.int32]


def record_batch(rows: Rows, columns: tuple[str, ...], chosen: Longs) -> pa.RecordBatch:
    """The selected rows as an Arrow record batch with the named columns, in that order."""
    known = _REPORTING if TIMESTAMP_ERROR in columns else _COLUMNS
    arrays = [known[name](rows, chosen) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def lost_rows(lost: LostRange, columns: tuple[str, ...]) -> pa.RecordBatch:
    """One row that tells which offsets are lost: from `offset` to before `dataLoss.endOffset`."""
    known = {
        "topic": lost.topic_partition.topic,
        "partition": lost.topic_partition.partition,
        "offset": lost.first,
        "dataLoss": {"endOffset": lost.end, "reason": lost.reason},
    }
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([known.get(f.name)], f.type) for f in schema], schema=schema)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema of these columns."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def _binary_array(raw: pa.Buffer, slices: Slices, chosen: Longs) -> pa.BinaryArray:
    """Return the chosen slices of `raw` as a binary array; slices marked null become null."""
    starts, ends = slices.starts[chosen], slices.ends[chosen]
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = ends[-1] if len(ends) else 0
    overlay = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(bounds), raw])
    null = slices.null[chosen]
    elements = pa.array(np.arange(0, 2 * len(starts), 2), mask=null if null.any() else None)
    return overlay.take(elements)


def _topic_column(rows: Rows, chosen: Longs) -> pa.Array:
    """Return the topic's name for each chosen row."""
    return pa.repeat(pa.scalar(rows.topic_partition.topic, pa.string()), len(chosen))


def _partition_column(rows: Rows, chosen: Longs) -> pa.Array:
    """Return the partition number for each chosen row."""
    return pa.array(np.full(len(chosen), rows.topic_partition.partition, np.int32))


def _timestamp_column(rows: Rows, chosen: Longs) -> pa.Array:
    """Return the timestamp of each chosen row, in microseconds UTC. Raises BadTimestamp."""
    milliseconds = rows.timestamps_ms[chosen]
    if (beyond := ~fits_microseconds(milliseconds)).any():
        at = int(np.argmax(beyond))
        raise BadTimestamp(
            f"{rows.topic_partition}, offset {rows.offsets[chosen][at]}: {beyond_spark(int(milliseconds[at]))}; "
            "probably its producer wrote nanoseconds. Correct the producer. To read such records, set the option "
            "onDecodeError to report and read its column decodeError (in a pipeline: set dead_letter.topic), or give "
            "the read a schema without the column timestamp; to pass over them, delete the records up to this offset."
        )
    return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))


def _timestamp_or_null(rows: Rows, chosen: Longs) -> pa.Array:
    """Return the timestamp of each chosen row, in microseconds UTC; null where Spark cannot hold it."""
    milliseconds = rows.timestamps_ms[chosen]
    fits = fits_microseconds(milliseconds)
    times = np.where(fits, milliseconds, 0) * 1000
    return pa.array(times, mask=None if fits.all() else ~fits).view(pa.timestamp("us", tz="UTC"))


def _timestamp_error_column(rows: Rows, chosen: Longs) -> pa.Array:
    """Return why the timestamp of a row is null; null for timestamps that Spark can hold."""
    milliseconds = rows.timestamps_ms[chosen]
    fits = fits_microseconds(milliseconds)
    if fits.all():
        return pa.nulls(len(chosen), pa.string())
    return pa.array([None if ok else beyond_spark(int(ms)) for ok, ms in zip(fits, milliseconds, strict=True)])


def beyond_spark(timestamp_ms: int) -> str:
    """The reason why a record with this timestamp cannot be decoded."""
    return f"timestamp {timestamp_ms}{BEYOND}"


def fits_microseconds(milliseconds: Longs) -> npt.NDArray[np.bool_]:
    """Whether each time is one of 64 bits in microseconds, too: numpy would keep only the lower bits of others."""
    return (milliseconds >= -MAX_MS) & (milliseconds <= MAX_MS)


def _headers_column(rows: Rows, chosen: Longs) -> pa.Array:
    """The headers of each record; null where it has none, as in Spark's Kafka source."""
    assert rows.headers is not None
    counts, keys, values = rows.headers
    firsts = np.cumsum(counts) - counts
    mine = counts[chosen]
    bounds = np.zeros(len(chosen) + 1, np.int32)
    np.cumsum(mine, out=bounds[1:])
    picked = np.repeat(firsts[chosen] - bounds[:-1], mine) + np.arange(bounds[-1])
    structs = pa.StructArray.from_arrays(
        [_utf8_array(_binary_array(rows.raw, keys, picked)), _binary_array(rows.raw, values, picked)],
        fields=list(HEADER_STRUCT),
    )
    return pa.ListArray.from_arrays(pa.array(bounds), structs, mask=pa.array(mine == 0))


def _utf8_array(names: pa.BinaryArray) -> pa.StringArray:
    """The names as UTF-8; invalid bytes are replaced, as Java does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if n is None else n.decode(errors="replace") for n in names.to_pylist()], pa.string())


_COLUMNS: Final[Mapping[str, Callable[[Rows, Longs], pa.Array]]] = {
    "key": lambda rows, chosen: _binary_array(rows.raw, rows.fields.keys, chosen),
    "value": lambda rows, chosen: _binary_array(rows.raw, rows.fields.values, chosen),
    "topic": _topic_column,
    "partition": _partition_column,
    "offset": lambda rows, chosen: pa.array(rows.offsets[chosen]),
    "timestamp": _timestamp_column,
    "timestampType": lambda rows, chosen: pa.array(rows.timestamp_types[chosen]),
    "headers": _headers_column,
    TIMESTAMP_ERROR: _timestamp_error_column,
    "dataLoss": lambda rows, chosen: pa.nulls(len(chosen), LOSS_STRUCT),
}
_REPORTING: Final = dict(_COLUMNS) | {"timestamp": _timestamp_or_null}
