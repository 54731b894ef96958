"""What Spark is told before a broker is asked: schema, columns, refusals; and what it may never do to us."""

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

import pyspark_klamm
from klamm.spark.columns import arrow_schema
from klamm.spark.errors import BadOption
from klamm.spark.schema import HEADERS, columns_of
from klamm.spark.source import KlammSource

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"}
SPARKS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_spark_registers_the_source_by_its_package() -> None:
    assert pyspark_klamm.DefaultSource.name() == "klamm"


def test_the_schema_has_the_columns_of_sparks_kafka_source() -> None:
    assert KlammSource(OPTIONS).schema().names == SPARKS
    assert KlammSource(OPTIONS | {"includeHeaders": "true"}).schema().names == [*SPARKS, "headers"]


def test_arrow_and_spark_types_are_equal() -> None:
    schema = KlammSource(OPTIONS | {"includeHeaders": "true"}).schema()

    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(tuple(schema.names)))


def test_an_invalid_option_is_refused_before_any_read() -> None:
    with pytest.raises(BadOption, match="option subscribes does not exist"):
        KlammSource(OPTIONS | {"subscribes": "x"})


def test_a_user_schema_selects_and_orders_columns() -> None:
    chosen = StructType([StructField("value", BinaryType()), HEADERS, StructField("offset", LongType())])

    assert columns_of(chosen).names == ("value", "headers", "offset")


@pytest.mark.parametrize(("name", "kind"), [("id", LongType()), ("value", StringType())])
def test_an_unknown_column_is_refused_with_the_list_of_columns(name: str, kind: DataType) -> None:
    with pytest.raises(
        BadOption, match=rf"the schema has the column {name} .*.* Use some of: key binary, value binary, topic"
    ):
        columns_of(StructType([StructField(name, kind)]))


def test_an_input_partition_that_klamm_did_not_plan_reads_nothing() -> None:
    source = KlammSource(OPTIONS)

    assert list(source.reader(source.schema()).read(InputPartition(None))) == []
