"""What Spark is told before a broker is asked: schema, columns, refusals; and what it may never do to us."""

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

import pyspark_klamm
from klamm.spark.columns import arrow_schema
from klamm.spark.errors import BadOption
from klamm.spark.source import HEADERS, KlammSource, columns_of

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"}
SPARKS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_spark_finds_it_by_itself() -> None:
    assert pyspark_klamm.DefaultSource.name() == "klamm"


def test_the_columns_of_sparks_kafka_source() -> None:
    assert KlammSource(OPTIONS).schema().names == SPARKS
    assert KlammSource(OPTIONS | {"includeHeaders": "true"}).schema().names == [*SPARKS, "headers"]


def test_arrow_and_spark_mean_the_same_types() -> None:
    schema = KlammSource(OPTIONS | {"includeHeaders": "true"}).schema()

    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(tuple(schema.names)))


def test_a_wrong_option_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadOption, match="option subscribes is unknown"):
        KlammSource(OPTIONS | {"subscribes": "x"})


def test_a_schema_chooses_columns() -> None:
    chosen = StructType([StructField("value", BinaryType()), HEADERS, StructField("offset", LongType())])

    assert columns_of(chosen) == ("value", "headers", "offset")


@pytest.mark.parametrize(("name", "kind"), [("id", LongType()), ("value", StringType()), ("Offset", LongType())])
def test_a_column_that_is_not_ours_is_refused_with_the_list(name: str, kind: DataType) -> None:
    with pytest.raises(BadOption, match=rf"the schema asks for {name} .*; klamm has key binary, value binary, topic"):
        columns_of(StructType([StructField(name, kind)]))


def test_a_partition_that_spark_made_up_is_nothing_to_read() -> None:
    source = KlammSource(OPTIONS)

    assert list(source.reader(source.schema()).read(InputPartition(None))) == []
