"""Record batches as kafka-python writes them, and the plain reading of them that the decoder is compared with."""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import google_crc32c
import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from klamm.client.read_committed import Aborted
from klamm.model.ids import TopicPartition
from klamm.spark.columns import arrow_schema
from klamm.spark.decoder import RecordSelection, decode
from klamm.wire.vectors.batches import read_run
from klamm.wire.vectors.starts import Finder, find_bodies

ORDERS = TopicPartition("orders", 3)
ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Record(NamedTuple):
    key: bytes | None = None
    value: bytes | None = b""
    timestamp: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()


def batch(
    records: Iterable[Record], base_offset: int = 0, codec: int = 0, *, producer: int = -1, extra_attributes: int = 0
) -> bytes:
    """One batch; `producer` makes it transactional, `extra_attributes` are set behind the builder's back."""
    builder = DefaultRecordBatchBuilder(2, codec, producer >= 0, producer, 0, 0, 1 << 30)
    for delta, record in enumerate(records):
        builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    return restamped(bytes(builder.build()), base_offset, extra_attributes)


def restamped(built: bytes, base_offset: int, extra_attributes: int = 0) -> bytes:
    """As a broker does it: base offset and attributes changed, checksum made anew."""
    raw = bytearray(built)
    struct.pack_into(">q", raw, 0, base_offset)
    raw[22] |= extra_attributes
    return with_crc(raw)


def with_crc(raw: bytearray) -> bytes:
    """The batch with its CRC computed again."""
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


def marker(base_offset: int, producer: int, control_type: int) -> bytes:
    """The end of a transaction: 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, control_type)
    return batch([Record(key, b"\0\0\0\0\0\0")], base_offset, producer=producer, extra_attributes=0x20)


def rows_of(
    data: bytes,
    start: int = 0,
    end: int = 1 << 60,
    columns: tuple[str, ...] = ALL_COLUMNS,
    find: Finder = find_bodies,
    aborted: Sequence[Aborted] | None = None,
) -> list[dict[str, object]]:
    wanted = RecordSelection(ORDERS, start, end, columns)
    table = pa.Table.from_batches(list(decode(read_run(data), wanted, aborted, find)), arrow_schema(columns))
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def plain_rows(data: bytes) -> list[tuple[object, ...]]:
    """(key, value, offset, timestamp in ms, headers) as kafka-python reads them."""
    rows: list[tuple[object, ...]] = []
    memory = MemoryRecords(data)
    while memory.has_next():
        rows += [(r.key, r.value, r.offset, r.timestamp, tuple(map(tuple, r.headers))) for r in memory.next_batch()]
    return rows


def comparable(row: dict[str, object]) -> tuple[object, ...]:
    """A decoded row in the shape of `plain_rows`."""
    headers = tuple((h["key"], h["value"]) for h in row["headers"] or [])  # type: ignore[attr-defined]
    return row["key"], row["value"], row["offset"], milliseconds(row["timestamp"]), headers


def milliseconds(when: object) -> int:
    assert isinstance(when, datetime)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
