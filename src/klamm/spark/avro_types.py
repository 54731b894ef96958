"""Avro schemas as Spark types, with the mapping of Spark's own from_avro."""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from klamm.spark.avro import parse_avro_schema
from klamm.spark.errors import BadOption

_PRIMITIVE: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}


def avro_struct(text: str) -> StructType:
    """The Spark type of records with this Avro schema. Raises BadOption for types that Spark does not have."""
    try:
        schema = parse_avro_schema(text)
    except ValueError as error:
        raise BadOption(f"option valueSchema: {error}") from error
    return _record(schema, {}, ())


def _record(schema: Mapping[str, Any], names: dict[str, Any], above: tuple[str, ...]) -> StructType:
    """The type of a record. `names` has the types defined so far, `above` the records that contain this one."""
    names[schema["name"]] = schema
    inside = (*above, schema["name"])
    return StructType([StructField(f["name"], _type(f["type"], f["name"], names, inside)) for f in schema["fields"]])


def _type(schema: Any, field: str, names: dict[str, Any], above: tuple[str, ...]) -> DataType:
    """The Spark type of a field. Raises BadOption."""
    if isinstance(schema, list):
        return _union(schema, field, names, above)
    if isinstance(schema, str) and schema in names:
        if schema in above:
            raise BadOption(f"option valueSchema: the field {field} contains its own record {schema}; remove it")
        schema = names[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    logical: str | None = None if isinstance(schema, str) else schema.get("logicalType")
    if kind == "record":
        return _record(schema, names, above)
    if kind == "array":
        return ArrayType(_type(schema["items"], field, names, above))
    if kind == "map":
        return MapType(StringType(), _type(schema["values"], field, names, above))
    if not isinstance(schema, str) and kind in ("enum", "fixed"):
        names[schema["name"]] = schema
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical is not None and logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical is not None or kind not in _PRIMITIVE:
        raise BadOption(
            f"option valueSchema: the field {field} is {logical or kind}, which has no type in Spark; remove it"
        )
    return _PRIMITIVE[kind]


def _union(members: list[Any], field: str, names: dict[str, Any], above: tuple[str, ...]) -> DataType:
    """The type of a union of null and one other type. Raises BadOption for other unions."""
    others = [m for m in members if m != "null"]
    if not others:
        return NullType()
    if len(others) > 1:
        raise BadOption(
            f"option valueSchema: the field {field} is a union of {len(others)} types, and a column has one; "
            "remove the field from the schema, or give it one type and null"
        )
    return _type(others[0], field, names, above)
