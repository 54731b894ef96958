"""Why a JSON value is not of the schema: the field, what it has, and what the type takes."""

import json
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from klamm.spark.json_types import converted

_MAX_SHOWN: Final = 60
_MAX_INT_CHARS: Final = 20
"""Of -9223372036854775808; int() refuses thousands of digits."""
_CONSTANTS: Final = frozenset(("NaN", "Infinity", "-Infinity"))
_ZONE: Final = re.compile(r"(?<=T| )(.*)(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$")
_LARGEST_FLOAT: Final = float(np.finfo(np.float32).max)


class _Number(str):
    """A number as it is written in the JSON text."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """A JSON object: its fields in order, also those that are there more than once."""


def reason_of(value: bytes, kind: pa.StructType) -> str | None:
    """Why the value is not of the schema; None where it is no JSON, or where no field explains it."""
    try:
        found = json.loads(
            value.decode(),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Number,
            object_pairs_hook=_Object,
        )
    except (ValueError, RecursionError):
        return None
    try:
        reason = _misfit("", found, kind) or _beyond_double("", found)
    except RecursionError:  # json nests deeper
        return None
    return reason and reason.encode(errors="backslashreplace").decode()  # it may quote half of a surrogate pair


def _misfit(path: str, found: Any, kind: pa.DataType) -> str | None:
    """Why a part of a value does not fit its type; None where it does, or where it is null."""
    if found is None and path:
        return None
    if pa.types.is_struct(kind) and isinstance(found, _Object):
        return _misfit_in_object(path, found, kind)
    if pa.types.is_list(kind) and isinstance(found, list) and not isinstance(found, _Object):
        items = (_misfit(f"{path}[{i}]", item, kind.value_type) for i, item in enumerate(found))
        return next((reason for reason in items if reason), None)
    if not path or _fits(found, kind):
        return None
    name = from_arrow_type(kind).simpleString() if not pa.types.is_nested(kind) else _shape(kind)
    return f"field {_cut(path)} has {_shown(found)}, which is no {name.upper()}: {_rule(kind)}, or change the schema"


def _misfit_in_object(path: str, found: _Object, kind: pa.StructType) -> str | None:
    """Why a field of an object does not fit its type; None where all do. Fields that the type lacks do not matter."""
    kinds = {field.name: field.type for field in kind}
    seen = set()
    for name, value in found:
        if name not in kinds:
            continue
        inner = f"{path}.{name}" if path else name
        if name in seen:
            return f"field {_cut(inner)} is there more than once: send it once"
        seen.add(name)
        if reason := _misfit(inner, value, kinds[name]):
            return reason
    return None


def _beyond_double(path: str, found: Any) -> str | None:
    """Name a number that no DOUBLE holds, which Arrow cannot parse in any field; None where there is none."""
    if isinstance(found, _Number):
        if found in _CONSTANTS or math.isfinite(float(found)):
            return None
        return f"field {_cut(path)} has {_shown(found)}, and the parser takes no number beyond DOUBLE, in no field"
    if isinstance(found, _Object):
        parts = ((f"{path}.{name}" if path else name, part) for name, part in found)
    elif isinstance(found, list):
        parts = ((f"{path}[{i}]", part) for i, part in enumerate(found))
    else:
        return None
    return next((reason for inner, part in parts if (reason := _beyond_double(inner, part))), None)


def _fits(found: Any, kind: pa.DataType) -> bool:
    """Whether a value without parts is one of the type."""
    if pa.types.is_boolean(kind):
        return isinstance(found, bool)
    if pa.types.is_integer(kind):
        low, high = _integer_limits(kind)
        is_whole = isinstance(found, _Number) and found.lstrip("-").isdecimal()
        return is_whole and len(found) <= _MAX_INT_CHARS and low <= int(found) <= high
    if pa.types.is_floating(kind):
        return isinstance(found, _Number) and (found in _CONSTANTS or _is_in_range(float(found), kind))
    if pa.types.is_decimal(kind):
        return isinstance(found, str) and _is_decimal(found, kind)
    if not isinstance(found, str) or isinstance(found, _Number) or pa.types.is_nested(kind):
        return False
    return pa.types.is_string(kind) or _is_time(found, kind)


def _is_in_range(number: float, kind: pa.DataType) -> bool:
    """Whether the number is finite as a value of the type."""
    if not pa.types.is_float32(kind):
        return math.isfinite(number)
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(number)))


def _is_decimal(text: str, kind: pa.Decimal128Type) -> bool:
    """Whether the text is a number that the type holds without rounding."""
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=exact).is_finite()
    except (Inexact, InvalidOperation):
        return False


def _is_time(text: str, kind: pa.DataType) -> bool:
    """Whether the text is a date or a time of the type."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    local = _ZONE.sub(r"\1", text) if zoned else text
    try:
        converted(pa.array([local]), pa.timestamp("us") if zoned else kind)
    except ValueError:  # ArrowInvalid, or half of a surrogate pair
        return False
    return True


def _rule(kind: pa.DataType) -> str:
    """What to send for a field of the type."""
    if pa.types.is_integer(kind):
        low, high = _integer_limits(kind)
        return f"send a whole number from {low} to {high}"
    if pa.types.is_decimal(kind):
        before = kind.precision - kind.scale
        return f"send a number with at most {before} digits before and {kind.scale} after the point"
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "send a text such as 2026-01-31T08:00:00.000001, without a time zone"
    return next(text for test, text in _RULES if test(kind))


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "send true or false"),
    (pa.types.is_float32, f"send a number of at most {_LARGEST_FLOAT:.6g}"),
    (pa.types.is_floating, "send a number"),
    (pa.types.is_string, "send a text"),
    (pa.types.is_date, "send a text such as 2026-01-31"),
    (pa.types.is_timestamp, "send a text such as 2026-01-31T08:00:00.000001Z"),
    (pa.types.is_list, "send a list"),
    (pa.types.is_struct, "send an object"),
)


def _integer_limits(kind: pa.DataType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _shape(kind: pa.DataType) -> str:
    """The name of a type that has parts, without them."""
    return "array" if pa.types.is_list(kind) else "struct"


def _shown(found: Any) -> str:
    """What a field has, as an error shows it."""
    if isinstance(found, _Object):
        return "an object"
    if isinstance(found, list):
        return "a list"
    return _cut(found if isinstance(found, _Number) else json.dumps(found, ensure_ascii=False))


def _cut(text: str) -> str:
    """The text, its end left out where it is long."""
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
