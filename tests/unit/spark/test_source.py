"""What Spark is told before a broker is asked: schema, columns, refusals; and what it may never do to us."""

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StringType, StructField, StructType

import pyspark_klamm
from klamm.spark.columns import arrow_schema
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import OnDecodeError
from klamm.spark.options import ValueOptions
from klamm.spark.schema import HEADERS, columns_of
from klamm.spark.source import KlammSource

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"}
SPARKS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_spark_finds_the_source_named_klamm_by_its_package() -> None:
    assert pyspark_klamm.DefaultSource.name() == "klamm"


def test_the_sources_schema_has_the_columns_of_sparks_kafka_source() -> None:
    assert schema_of() == SPARKS
    assert schema_of(includeHeaders="true") == [*SPARKS, "headers"]
    assert schema_of(onDataLoss="report") == [*SPARKS, "dataLoss"]


def schema_of(**options: str) -> list[str]:
    """The names of the columns with these options."""
    schema = KlammSource(OPTIONS | options).schema()
    assert isinstance(schema, StructType)
    return list(schema.names)


JSON = {"valueFormat": "json", "valueSchema": "id BIGINT, user STRUCT<name STRING>"}


def test_the_value_column_has_the_type_given_by_the_value_format_options() -> None:
    json = KlammSource(OPTIONS | JSON | {"onDecodeError": "report"}).schema()
    string = KlammSource(OPTIONS | {"valueFormat": "string"}).schema()

    assert json == (
        "key binary, value STRUCT<id BIGINT, user STRUCT<name STRING>>, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int, decodeError string"
    )
    assert "value STRING" in string


def test_value_format_json_without_a_schema_is_refused() -> None:
    with pytest.raises(BadOption, match="valueSchema is missing for valueFormat json"):
        KlammSource(OPTIONS | {"valueFormat": "json"}).schema()


def test_a_value_schema_with_a_type_unsupported_in_json_is_refused_naming_the_field() -> None:
    inner = StructType([StructField("raw", ArrayType(BinaryType()))])
    schema = StructType([StructField("value", StructType([StructField("in", inner)]))])

    with pytest.raises(BadOption, match=r"valueSchema has in\.raw binary, which JSON cannot be decoded to"):
        columns_of(schema, ValueOptions("json", None, OnDecodeError()))


def test_a_value_schema_with_a_field_twice_is_refused_also_inside_of_an_object() -> None:
    twice = StructType([StructField(name, LongType()) for name in ("a", "A", "a")])

    for kind in (twice, StructType([StructField("in", ArrayType(twice))])):
        with pytest.raises(BadOption, match="option valueSchema has the field 'a' more than once"):
            columns_of(StructType([StructField("value", kind)]), ValueOptions("json", None, OnDecodeError()))
    once = StructType([StructField("value", StructType(twice.fields[:2]))])
    columns_of(once, ValueOptions("json", None, OnDecodeError()))


def test_the_arrow_schema_of_the_source_equals_its_spark_schema() -> None:
    schema = KlammSource(OPTIONS | {"includeHeaders": "true", "onDataLoss": "report"}).schema()

    assert isinstance(schema, StructType)
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(tuple(schema.names)))


def test_an_invalid_source_option_is_refused_before_any_read() -> None:
    with pytest.raises(BadOption, match="option subscribes does not exist"):
        KlammSource(OPTIONS | {"subscribes": "x"})


def test_a_user_schema_selects_and_orders_the_columns_of_the_source() -> None:
    chosen = StructType([StructField("value", BinaryType()), HEADERS, StructField("offset", LongType())])

    assert columns_of(chosen).names == ("value", "headers", "offset")


@pytest.mark.parametrize(("name", "kind"), [("id", LongType()), ("value", StringType())])
def test_an_unknown_column_in_a_user_schema_is_refused_with_the_known_columns(name: str, kind: DataType) -> None:
    with pytest.raises(
        BadOption, match=rf"the schema has the column {name} .*.* Use some of: key binary, value binary, topic"
    ):
        columns_of(StructType([StructField(name, kind)]))


def test_reading_an_input_partition_that_klamm_did_not_plan_returns_no_rows() -> None:
    source = KlammSource(OPTIONS)

    schema = StructType([StructField("offset", LongType())])

    assert list(source.reader(schema).read(InputPartition(None))) == []


def test_a_wrong_option_of_a_streaming_read_is_named_not_the_one_that_is_only_for_streaming() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "maxBytesPerTrigger": "64m", "startingTimestamp": "-5"}

    with pytest.raises(BadOption, match="startingTimestamp"):
        KlammSource(given)
