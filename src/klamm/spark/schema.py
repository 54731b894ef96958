"""The columns of the source as Spark types, and which of them a user's schema selects."""

from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm.spark.errors import BadOption
from klamm.spark.options import ReadOptions

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_LOSS: Final = StructType([StructField("endOffset", LongType()), StructField("reason", StringType())])
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
DATA_LOSS: Final = StructField("dataLoss", _LOSS)
FIELDS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


class Columns(NamedTuple):
    """The columns of a read: `names` as the source calls them, `labels` as the user's schema spells them."""

    names: tuple[str, ...]
    labels: tuple[str, ...]


def source_schema(options: ReadOptions | None) -> StructType:
    """The Spark schema of a read with these options; without options that of Spark's own Kafka source."""
    fields = list(FIELDS)
    if options is not None and options.include_headers:
        fields.append(HEADERS)
    if options is not None and options.reports_losses:
        fields.append(DATA_LOSS)
    return StructType(fields)


def columns_of(schema: StructType) -> Columns:
    """The columns that the user's schema selects, in its order; names in any case.

    Raises BadOption for any other column or type.
    """
    known = {field.name.lower(): field for field in (*FIELDS, HEADERS, DATA_LOSS)}
    names = []
    for field in schema.fields:
        found = known.get(field.name.lower())
        if found is None or field.dataType != found.dataType:
            raise BadOption(
                f"the schema has the column {field.name} {field.dataType.simpleString()}, which klamm does not have. "
                "Use some of: " + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in known.values())
            )
        names.append(found.name)
    return Columns(tuple(names), tuple(schema.names))
