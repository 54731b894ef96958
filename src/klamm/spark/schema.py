"""The columns of the source as Spark types, and which of them a user's schema selects."""

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from klamm.spark.avro_types import avro_struct
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import OnDecodeError
from klamm.spark.options import ReadOptions, ValueOptions

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_LOSS: Final = StructType([StructField("endOffset", LongType()), StructField("reason", StringType())])
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
RAW_VALUE: Final = StructField("rawValue", BinaryType())
DECODE_ERROR: Final = StructField("decodeError", StringType())
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

RAW_VALUES: Final = ValueOptions("raw", None, OnDecodeError())
_JSON_TYPES: Final = (NumericType, DecimalType, StringType, BooleanType, DateType, TimestampType, TimestampNTZType)


class Columns(NamedTuple):
    """The columns of a read: `names` as the source calls them, `labels` as the user's schema spells them.

    `value_type` is the Arrow type of values that are decoded to a STRUCT, None where they are not.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    value_type: pa.StructType | None = None


def source_schema(options: ReadOptions | None) -> StructType | str:
    """The Spark schema of a read with these options, as DDL for Spark to parse where options have DDL.

    Without options it is that of Spark's own source. Raises BadOption for JSON without a schema.
    """
    if options is None:
        return StructType(list(FIELDS))
    fields = list(FIELDS)
    if options.include_headers:
        fields.append(HEADERS)
    if options.values.include_raw:
        fields.append(RAW_VALUE)
    if options.values.on_error.reports:
        fields.append(DECODE_ERROR)
    if options.reports_losses:
        fields.append(DATA_LOSS)
    if options.values.format == "raw":
        return StructType(fields)
    if options.values.format == "json" and options.values.schema is None:
        raise BadOption(
            "option valueSchema is missing for valueFormat json; set it to the fields of the values, for example "
            "id BIGINT, user STRING, or give the read a schema"
        )
    if options.values.format == "avro":
        value_field = StructField("value", _avro_value(options.values))
        return StructType([value_field if f.name == "value" else f for f in fields])
    value = "STRING" if options.values.format == "string" else f"STRUCT<{options.values.schema}>"
    types = [(f.name, value if f.name == "value" else f.dataType.simpleString()) for f in fields]
    return ", ".join(f"{name} {kind}" for name, kind in types)


def columns_of(schema: StructType, values: ValueOptions = RAW_VALUES) -> Columns:
    """The columns that the user's schema selects, in its order; names in any case.

    Raises BadOption for any other column or type.
    """
    known = {field.name.lower(): field for field in (*FIELDS, HEADERS, RAW_VALUE, DECODE_ERROR, DATA_LOSS)}
    if values.format == "string":
        known["value"] = StructField("value", StringType())
    names = []
    value_type = None
    for field in schema.fields:
        found = known.get(field.name.lower())
        is_value = found is not None and found.name == "value"
        is_json = is_value and values.format == "json"
        if is_json and isinstance(field.dataType, StructType):
            value_type = _json_type(field.dataType)
        elif is_value and values.format == "avro" and field.dataType == (avro := _avro_value(values)):
            value_type = to_arrow_type(avro, timezone="UTC")
        elif found is None or is_json or field.dataType != found.dataType:
            raise BadOption(
                f"the schema has the column {field.name} {field.dataType.simpleString()}, which klamm does not have. "
                "Use some of: " + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in known.values())
            )
        names.append(known[field.name.lower()].name)
    return Columns(tuple(names), tuple(schema.names), value_type)


def _avro_value(values: ValueOptions) -> StructType:
    """The Spark type of Avro values. Raises BadOption."""
    if values.schema is None:
        raise BadOption(
            "option valueSchema is missing for valueFormat avro; set it to the Avro schema of the values, as JSON"
        )
    return avro_struct(values.schema)


def _json_type(kind: StructType) -> pa.StructType:
    """The Arrow type of JSON values. Raises BadOption for types that JSON cannot be decoded to."""
    _check_json_names(kind)
    for field in kind.fields:
        _check_json_type(field.name, field.dataType)
    return to_arrow_type(kind, timezone="UTC")


def _check_json_names(kind: StructType) -> None:
    """Raise BadOption where two fields of an object have one name; those that differ in case are two."""
    if repeated := next((name for name in kind.names if kind.names.count(name) > 1), None):
        raise BadOption(f"option valueSchema has the field {repeated!r} more than once; remove one of them")


def _check_json_type(name: str, kind: DataType) -> None:
    """Raise BadOption unless JSON can be decoded to the type."""
    if isinstance(kind, ArrayType):
        _check_json_type(name, kind.elementType)
    elif isinstance(kind, StructType):
        _check_json_names(kind)
        for field in kind.fields:
            _check_json_type(f"{name}.{field.name}", field.dataType)
    elif not isinstance(kind, _JSON_TYPES):
        raise BadOption(
            f"option valueSchema has {name} {kind.simpleString()}, which JSON cannot be decoded to; read it as "
            "STRING, or decode the value in Spark with from_json"
        )
