"""Logical types of Avro: what fastavro does with them is adapted to the schema of the reader.

fastavro converts a value by the logical type in the writer's schema: one that only the reader's schema has changes
nothing, and defaults of the reader's schema stay as they are. Source: GenericDatumReader.java (`readWithConversion`).
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

Adapter = Callable[[Any], Any]
_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")
_NESTED: Final = ("type", "fields", "items", "values")
"""The keys of a schema that have other schemas."""


def without_uuids(schema: Any) -> Any:
    """The schema with UUIDs as the strings that they are: fastavro makes objects of them, Arrow takes strings."""
    if isinstance(schema, list):
        return [without_uuids(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    is_uuid = schema.get("logicalType") == "uuid"
    kept = {name: value for name, value in schema.items() if not (is_uuid and name == "logicalType")}
    return {name: without_uuids(value) if name in _NESTED else value for name, value in kept.items()}


def adapter_of(schema: Any, names: dict[str, Any]) -> Adapter | None:
    """A function that makes a decoded value one of this reader's schema; None where all values are already.

    `names` has the types defined so far.
    """
    if isinstance(schema, list):
        return next((adapt for member in schema if (adapt := adapter_of(member, names)) is not None), None)
    if isinstance(schema, str):
        return adapter_of(names[schema], names) if schema in names else None
    if "name" in schema:
        names[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical in _MILLIS:
        return _micros_of_millis
    if logical == "decimal":
        return _decimals(schema.get("scale", 0))
    if schema["type"] in ("record", "error"):
        fields = {f["name"]: adapt for f in schema["fields"] if (adapt := adapter_of(f["type"], names)) is not None}
        return _records(fields) if fields else None
    inner = (
        adapter_of(schema["items" if schema["type"] == "array" else "values"], names) if _has_items(schema) else None
    )
    return None if inner is None else _lists(inner) if schema["type"] == "array" else _maps(inner)


def _has_items(schema: Mapping[str, Any]) -> bool:
    """Whether values of the schema are arrays or maps."""
    return schema["type"] in ("array", "map")


def _micros_of_millis(value: Any) -> Any:
    """A time in microseconds, as Arrow has it, of a number of milliseconds; what fastavro converted stays."""
    return value * 1000 if isinstance(value, int) else value


def _decimals(scale: int) -> Adapter:
    """Return a function that makes decimals of bytes; a default value has them as characters."""

    def adapt(value: Any) -> Any:
        """The decimal; what fastavro converted stays."""
        stored = value.encode("latin-1") if isinstance(value, str) else value
        return Decimal(f"{int.from_bytes(stored, signed=True)}e-{scale}") if isinstance(stored, bytes) else value

    return adapt


def _records(fields: Mapping[str, Adapter]) -> Adapter:
    """Return a function that adapts these fields of records."""

    def adapt(value: Any) -> Any:
        """The record with its fields adapted."""
        return None if value is None else value | {name: adapt(value[name]) for name, adapt in fields.items()}

    return adapt


def _lists(inner: Adapter) -> Adapter:
    """Return a function that adapts the elements of arrays."""
    return lambda value: None if value is None else [inner(element) for element in value]


def _maps(inner: Adapter) -> Adapter:
    """Return a function that adapts the values of maps."""
    return lambda value: None if value is None else {key: inner(element) for key, element in value.items()}
