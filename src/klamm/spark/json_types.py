"""The Arrow types with which JSON is parsed, and the conversion from them to those of the schema.

Arrow's JSON parser itself would turn a float that is too large into infinity, and shift a date or a time without a time
zone by the zone that its text has.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_DATE_CHARS: Final = 10
_TIME_AFTER_DATE: Final = (
    r"^.{10}([T ]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type with which to parse JSON of this type; `converted` makes that of the schema of it."""
    if pa.types.is_date(kind) or _is_local_time(kind):
        return pa.string()
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_list(kind):
        return pa.list_(parsed_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(parsed_type(field.type)) for field in kind])
    return kind


def converted(parsed: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of `parsed_type(kind)` as one of `kind`. Raises ArrowInvalid where the type cannot hold a value."""
    if parsed.type == kind:
        return parsed
    if pa.types.is_struct(kind):
        children = [converted(parsed.field(i), field.type) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=_nulls(parsed))
    if pa.types.is_list(kind):
        items = converted(parsed.values, kind.value_type)
        return pa.ListArray.from_arrays(parsed.offsets, items, type=kind, mask=_nulls(parsed))
    if pa.types.is_date(kind):
        return _dates(parsed)
    if pa.types.is_float32(kind):
        return _floats(parsed)
    return pc.cast(parsed, kind)  # of a time without a time zone; it refuses a text that has one


def _is_local_time(kind: pa.DataType) -> bool:
    """Whether it is a timestamp without a time zone."""
    return pa.types.is_timestamp(kind) and kind.tz is None


def _dates(texts: pa.StringArray) -> pa.Array:
    """The dates with which texts begin; a time and a zone behind them do not matter. Raises ArrowInvalid."""
    days = pc.cast(pc.utf8_slice_codeunits(texts, 0, _DATE_CHARS), pa.date32())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > _DATE_CHARS and not pc.all(pc.match_substring_regex(texts, _TIME_AFTER_DATE), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is not a date")
    return days


def _floats(numbers: pa.DoubleArray) -> pa.Array:
    """The numbers as floats. Raises ArrowInvalid for a finite number that would become infinite."""
    floats = pc.cast(numbers, pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(floats), pc.is_finite(numbers)), min_count=0).as_py():
        raise pa.ArrowInvalid("a number is too large for a float")
    return floats


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    """Which elements are null; None where none is."""
    return array.is_null() if array.null_count else None
