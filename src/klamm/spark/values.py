"""The option valueFormat: values decoded in the worker, one Arrow array for many records, bad ones told apart.

A second Python process after the source would cost more than the read itself.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from klamm.spark.json_reasons import reason_of
from klamm.spark.json_types import converted, parsed_type

MAX_REASON_CHARS: Final = 300
PART: Final = 256
"""Values that are parsed together where one of many is bad."""
_ROW: Final = re.compile(r" in row ([0-9]+)$")
_NUMBER: Final = "klamm.number"


class Decoded(NamedTuple):
    """Values of a type, null where a record could not be decoded; `reasons` says why, by the record's place."""

    values: pa.Array
    reasons: dict[int, str]


Decoder = Callable[[pa.BinaryArray], Decoded]


def decode_strings(values: pa.BinaryArray) -> Decoded:
    """Decode the values as UTF-8 text; where some are not UTF-8, these become null with a reason."""
    try:
        return Decoded(values.cast(pa.string()), {})
    except pa.ArrowInvalid:
        return _one_by_one(values)


def _one_by_one(values: pa.BinaryArray) -> Decoded:
    """Decode the values as UTF-8 text one by one, because some are not UTF-8: these become null with a reason."""
    texts: list[str | None] = []
    reasons = {}
    for i, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            reasons[i] = f"the value is not UTF-8: {error.reason} at byte {error.start}"
    return Decoded(pa.array(texts, pa.string()), reasons)


def decode_json(kind: pa.StructType) -> Decoder:
    """A decoder of JSON objects to structs of this type; fields that it lacks are ignored, missing ones are null."""

    def decode(values: pa.BinaryArray) -> Decoded:
        """Parse all values at once, and smaller and smaller parts where some are bad."""
        given = values.to_pylist()
        places = [i for i, value in enumerate(given) if value is not None]
        reasons: dict[int, str] = {}
        parts: list[pa.StructArray] = []
        _parse([given[i] for i in places], places, kind, parts, reasons)
        structs = pa.concat_arrays(parts) if parts else pa.array([], kind)
        return Decoded(_spread(structs.cast(kind), len(given), places, reasons), reasons)

    return decode


def _parse(
    values: list[bytes], places: list[int], kind: pa.StructType, parts: list[pa.StructArray], reasons: dict[int, str]
) -> None:
    """Add the structs of the values to `parts`, in order, and why some could not be parsed to `reasons`."""
    if not values:
        return
    try:
        parts.append(_parse_all(values, kind, _name_of_number(values, kind)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if len(values) == 1:
            why = reason_of(values[0], kind) or _ROW.sub("", str(error))
            reasons[places[0]] = f"the value is not JSON of the schema: {why}"
            return
        ends = _cuts(len(values), str(error))
        for start, end in pairwise((0, *ends, len(values))):
            _parse(values[start:end], places[start:end], kind, parts, reasons)


def _name_of_number(values: list[bytes], kind: pa.StructType) -> str:
    """A name for the field that `_numbered` adds: the schema has no such field.

    A value may have one that the schema lacks. It is then refused with others, and parsed alone in the end, with a name
    that is too long for any of its fields.
    """
    name = _NUMBER if len(values) > 1 else _NUMBER.ljust(len(values[0]), ".")
    while name in kind.names:
        name += "."
    return name


def _cuts(count: int, error: str) -> list[int]:
    """The row numbers at which to split values that could not be parsed together.

    Many values are split into small parts; a small part is split around the row that the error names.
    """
    if count > PART:
        return list(range(PART, count, PART))
    row = _ROW.search(error)
    around = [cut for cut in (int(row[1]), int(row[1]) + 1) if 0 < cut < count] if row else []
    return around or [count // 2]


def _parse_all(values: list[bytes], kind: pa.StructType, number: str) -> pa.StructArray:
    """Parse the values into structs; `number` is the name of a field that none of them has.

    Raises ArrowInvalid where a value is not exactly one object of the schema.
    """
    name = number.encode()
    joined = b"\n".join(_numbered(name, i, value) for i, value in enumerate(values))
    schema = pa.schema([*parsed_type(kind), pa.field(number, pa.int64())])
    table = arrow_json.read_json(
        pa.BufferReader(joined),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.column(number).to_pylist() != list(range(len(values))):
        raise pa.ArrowInvalid("a value is not exactly one JSON object")
    table.validate(full=True)
    return converted(table.drop_columns([number]).to_struct_array().combine_chunks(), kind)


def _numbered(name: bytes, number: int, value: bytes) -> bytes:
    """Return the JSON object with its number as an additional first field, by which its row is recognised.

    Raises ArrowInvalid.
    """
    text = value.lstrip()
    if not text.startswith(b"{"):
        raise pa.ArrowInvalid("the value is not an object")
    rest = text[1:].lstrip()
    return b'{"%s":%d%s%s' % (name, number, b"" if rest.startswith(b"}") else b",", rest)


def _spread(structs: pa.StructArray, count: int, places: list[int], reasons: dict[int, str]) -> pa.StructArray:
    """Put each struct at the position of its record; the positions of records that could not be decoded are null."""
    good = [i for i in places if i not in reasons]
    if len(good) == count:
        return structs
    rows = np.zeros(count, np.int64)
    rows[good] = np.arange(len(good))
    missing = np.ones(count, np.bool_)
    missing[good] = False
    return structs.take(pa.array(rows, mask=missing))


def reason_column(count: int, reasons: dict[int, str]) -> pa.StringArray:
    """Return, as a column, why each record could not be decoded; null for those that were."""
    return pa.array([reasons[i][:MAX_REASON_CHARS] if i in reasons else None for i in range(count)], pa.string())


def without(rows: pa.RecordBatch, reasons: dict[int, str]) -> pa.RecordBatch:
    """Return the rows without those in `reasons`, whose values could not be decoded."""
    bad = np.zeros(rows.num_rows, np.bool_)
    bad[list(reasons)] = True
    return rows.filter(pc.invert(pa.array(bad)))
