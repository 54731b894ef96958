"""Encoded rows are byte for byte the records that klamm's plain builder makes, and other libraries read them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.spark.batch_bytes import plain_rows

from klamm.client.partitioners import murmur2
from klamm.model.ids import TopicPartition
from klamm.spark.record_encoder import TABLE_SIZE, RecordColumns, Run, encode_runs, varint_sizes, varints
from klamm.spark.row_partitioner import StickyPartitions, murmur2_of
from klamm.wire.records import NewRecord, build_batch
from klamm.wire.records.batch import HEADER_BYTES

HEADERS = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)

Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]] | None]
some_bytes = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(lambda n: b"x" * n)
rows = st.lists(
    st.tuples(some_bytes, some_bytes, st.none() | st.lists(st.tuples(st.binary(max_size=5), some_bytes), max_size=3)),
    min_size=1,
    max_size=30,
)


def columns_of(content: list[Row]) -> RecordColumns:
    keys, values, headers = zip(*content, strict=True)
    structs = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    return RecordColumns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(structs, HEADERS))


def plain(content: list[Row]) -> list[NewRecord]:
    return [NewRecord(v, k, 0, tuple((n.decode("latin-1"), c) for n, c in headers or ())) for k, v, headers in content]


@given(rows, st.integers(0, 5), st.integers(50, 2000))
def test_vectorised_spark_record_batches_equal_those_of_the_plain_batch_builder(
    content: list[Row], skipped: int, max_bytes: int
) -> None:
    ascii_only = [(k, v, h and [(n.hex().encode(), c) for n, c in h]) for k, v, h in content]
    columns = columns_of([(b"skipped", b"", None)] * skipped + ascii_only).slice(skipped, skipped + len(content))
    middle = len(content) // 2

    batches = list(encode_runs(columns, [Run(P0, 0, middle), Run(P1, middle, len(content))], max_bytes))

    at = 0
    for batch in batches:
        expected = plain(ascii_only[at : at + batch.rows])
        assert bytes(batch.payload) == build_batch(expected)[HEADER_BYTES:]
        assert len(batch.payload) <= max_bytes or batch.rows == 1
        assert batch.partition == (P0 if at < middle else P1)
        assert batch.source.values.to_pylist() == [r.value for r in expected]
        at += batch.rows
    assert at == len(content)


def test_kafka_python_reads_records_encoded_by_the_spark_sink() -> None:
    content: list[Row] = [(None, None, None), (b"k", b"", [(b"h", None)]), (b"", b"x" * 200_000, [(b"a", b"1")] * 70)]
    [batch] = encode_runs(columns_of(content), [Run(P0, 0, 3)], 1 << 20)
    header = build_batch(plain(content))[:HEADER_BYTES]

    read = [(row[0], row[1], len(row[4])) for row in plain_rows(header + bytes(batch.payload))]  # type: ignore[arg-type]

    assert read == [(None, None, 0), (b"k", b"", 1), (b"", b"x" * 200_000, 70)]


def test_the_spark_record_encoder_accepts_rows_without_key_and_header_columns() -> None:
    columns = RecordColumns(None, pa.array([b"a", b"b"], pa.binary()))

    [batch] = encode_runs(columns, [Run(P0, 0, 2)], 1000)

    assert bytes(batch.payload) == build_batch([NewRecord(b"a"), NewRecord(b"b")])[HEADER_BYTES:]
    assert list(encode_runs(columns.slice(0, 0), [], 1000)) == []


@pytest.mark.parametrize(
    "numbers", [[-1, 0, 63, 64, 8191, 8192], [TABLE_SIZE - 2, TABLE_SIZE - 1, 1 << 20, (1 << 27) - 1, 1 << 27, -1]]
)
def test_the_computed_sizes_of_varints_equal_their_encoded_sizes(numbers: list[int]) -> None:
    found = varints(np.array(numbers)).to_pylist()

    assert [len(v) for v in found] == varint_sizes(np.array(numbers)).tolist()
    assert [decoded(v) for v in found] == numbers


def decoded(varint: bytes) -> int:
    bits = sum((byte & 127) << (7 * n) for n, byte in enumerate(varint))
    return (bits >> 1) ^ -(bits & 1)


@given(st.lists(st.none() | st.binary(max_size=23), min_size=1), st.integers(0, 3))
def test_vectorised_murmur2_hashes_equal_those_of_the_plain_function(keys: list[bytes | None], skipped: int) -> None:
    column = pa.array([b"skipped"] * skipped + keys, pa.binary()).slice(skipped)

    hashes = murmur2_of(column).tolist()

    assert [h for h, k in zip(hashes, keys, strict=True) if k is not None] == [
        murmur2(k) for k in keys if k is not None
    ]


def test_rows_without_a_key_fill_a_batch_of_one_partition_before_the_next_partition() -> None:
    sticky = StickyPartitions(task=2, batch_bytes=100)

    first = sticky.choose("a", np.full(5, 30), 3).tolist()
    other = sticky.choose("b", np.full(1, 30), 3).tolist()
    later = sticky.choose("a", np.full(4, 30), 3).tolist()

    assert first == [2, 2, 2, 2, 0]
    assert other == [2]
    assert later == [0, 0, 1, 1]
