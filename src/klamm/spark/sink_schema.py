"""Which columns of a DataFrame are written, and where they are. Source: KafkaWriter.scala, KafkaRowWriter."""

from typing import Final, NamedTuple

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from klamm.spark.errors import BadOption

COLUMNS: Final = ("topic", "key", "value", "headers", "partition")
_BYTES: Final = "STRING or BINARY"
_HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


class SinkColumns(NamedTuple):
    """The position of each column among those of the DataFrame; None for one that it does not have."""

    topic: int | None
    key: int | None
    value: int
    headers: int | None
    partition: int | None


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Find the columns by name, in any case; others are not written. `topic` is the option.

    Raises BadOption for missing columns and wrong types.
    """
    found: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in COLUMNS:
            continue
        if name in found:
            raise BadOption(f"the rows have two columns {name}: drop or rename one of them")
        found[name] = position
        expected = _expected_type(name, field.dataType)
        if expected is not None and not (name == "topic" and topic is not None):
            raise BadOption(
                f"the column {field.name} is {field.dataType.simpleString().upper()}, it must be {expected}: cast it"
            )
    if "value" not in found:
        raise BadOption("the rows have no column value, which is written: select the column to write AS value")
    if topic is None and "topic" not in found:
        raise BadOption("no topic is given: set the option topic, or add a column topic")
    return SinkColumns(
        topic=None if topic is not None else found["topic"],
        key=found.get("key"),
        value=found["value"],
        headers=found.get("headers"),
        partition=found.get("partition"),
    )


def _expected_type(name: str, kind: DataType) -> str | None:
    """The type that the column must have; None where it has it."""
    match name:
        case "topic":
            return None if isinstance(kind, StringType) else "STRING"
        case "partition":
            return None if isinstance(kind, IntegerType) else "INT"
        case "headers":
            return None if _are_headers(kind) else _HEADERS
    return None if isinstance(kind, StringType | BinaryType) else _BYTES


def _are_headers(kind: DataType) -> bool:
    """Whether the type is a list of headers."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [f.name for f in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
