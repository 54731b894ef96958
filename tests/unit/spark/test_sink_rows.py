"""Which columns and rows can be written, and where they go."""

import re

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from klamm.client.partitioners import by_murmur2
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.row_partitioner import StickyPartitions
from klamm.spark.sink_rows import BadRow, Router, gather, rows_of
from klamm.spark.sink_schema import SinkColumns, sink_columns

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS = {
    "topic": StringType(), "key": StringType(), "value": BinaryType(), "headers": ArrayType(HEADER),
    "partition": IntegerType(), "id": LongType(), "VALUE": BinaryType(),
}  # fmt: skip
ALL = SinkColumns(topic=0, key=1, value=2, headers=3, partition=4)


def schema(*names: str, **kinds: object) -> StructType:
    return StructType([StructField(name, (KINDS | kinds)[name]) for name in names])  # type: ignore[arg-type]


def test_the_spark_sink_matches_columns_case_insensitively_and_ignores_other_columns() -> None:
    assert sink_columns(schema("id", "VALUE", "key", "topic"), None) == SinkColumns(3, 2, 1, None, None)
    assert sink_columns(schema("value", "topic"), "orders").topic is None


@pytest.mark.parametrize(
    ("given", "topic", "message"),
    [
        (schema("key"), "orders", "no column value"),
        (schema("value"), None, "no topic is given"),
        (schema("value", "VALUE"), "orders", "two columns value: drop or rename"),
        (schema("value", value=LongType()), "orders", "value is BIGINT, it must be STRING or BINARY: cast it"),
        (schema("value", "key", key=LongType()), "orders", "key is BIGINT, it must be STRING or BINARY"),
        (schema("value", "topic", topic=BinaryType()), None, "topic is BINARY, it must be STRING"),
        (schema("value", "partition", partition=LongType()), "orders", "partition is BIGINT, it must be INT"),
        (schema("value", "headers", headers=HEADER), "orders", "it must be ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        (schema("value", "headers", headers=ArrayType(StringType())), "orders", "headers is ARRAY<STRING>, it must be"),
    ],
)
def test_the_spark_sink_refuses_missing_columns_and_wrong_column_types(
    given: StructType, topic: str | None, message: str
) -> None:
    with pytest.raises(BadOption, match=re.escape(message)):
        sink_columns(given, topic)


def table(**columns: object) -> pa.RecordBatch:
    kinds = {
        "topic": pa.string(), "key": pa.string(), "value": pa.binary(),
        "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
        "partition": pa.int32(),
    }  # fmt: skip
    count = len(columns["value"])  # type: ignore[arg-type]
    arrays = [pa.array(columns.get(name, [None] * count), kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def test_the_spark_sink_refuses_a_null_topic_and_a_header_without_a_key() -> None:
    with pytest.raises(BadRow, match="the column topic is null in 1 rows of 2"):
        rows_of(table(topic=["orders", None], value=[b"", b""]), ALL)
    with pytest.raises(BadRow, match="a header that is null, or whose key is null"):
        rows_of(table(topic=["orders"], value=[b""], headers=[[{"key": None, "value": b""}]]), ALL)


def test_spark_sink_rows_go_in_order_to_the_given_partition_or_that_of_the_key() -> None:
    keys = [f"k{n}" for n in range(20)]
    content = table(
        topic=["b", "a"] * 10, key=keys, value=[b"%d" % n for n in range(20)],
        partition=[2 if n in (1, 4) else None for n in range(20)],
    )  # fmt: skip
    router = Router(None, StickyPartitions(0, 1000), ignores_keys=False)

    records, runs = router.route(rows_of(content, ALL), {"a": 3, "b": 4})

    values = [int(v) for v in records.values.to_pylist()]
    found = {run.partition: values[run.start : run.end] for run in runs}
    expected: dict[TopicPartition, list[int]] = {}
    for n, key in enumerate(keys):
        topic, count = (("b", 4), ("a", 3))[n % 2]
        partition = 2 if n in (1, 4) else by_murmur2(key.encode(), count)
        expected.setdefault(TopicPartition(topic, partition), []).append(n)
    assert found == expected


@pytest.mark.parametrize("partition", [3, -1])
def test_the_spark_sink_refuses_a_row_for_a_partition_that_does_not_exist(partition: int) -> None:
    rows = rows_of(table(topic=["a"], value=[b""], partition=[partition]), ALL)

    with pytest.raises(BadRow, match=f"partition is {partition} in a row for topic a, which has the partitions 0 to 2"):
        Router(None, StickyPartitions(0, 1000), ignores_keys=False).route(rows, {"a": 3})


def test_the_spark_sink_can_ignore_keys_when_choosing_partitions() -> None:
    rows = rows_of(table(topic=["a"] * 4, key=list("abcd"), value=[b""] * 4), ALL)

    _, runs = Router(None, StickyPartitions(1, 1 << 20), ignores_keys=True).route(rows, {"a": 3})

    assert [run.partition.partition for run in runs] == [1]


def test_the_spark_sink_collects_arrow_record_batches_up_to_a_size_limit() -> None:
    batches = [pa.RecordBatch.from_arrays([pa.array(np.arange(n))], names=["n"]) for n in (10, 0, 10, 30, 10)]

    assert [b.num_rows for b in gather(batches, 200)] == [20, 30, 10]
    assert list(gather([], 200)) == []
