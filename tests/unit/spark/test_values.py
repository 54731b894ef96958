"""Values decoded many at once give what decoding them one by one gives; bad ones are told apart and named."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.spark.values import Decoded, decode_json, decode_strings, reason_column, without

KIND = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("more", pa.struct([pa.field("ok", pa.bool_()), pa.field("days", pa.list_(pa.date32()))])),
    ]
)


def decoded(*values: bytes | None) -> Decoded:
    return decode_json(KIND)(pa.array(values, pa.binary()))


def test_json_values_are_decoded_to_a_struct_with_the_types_of_the_schema() -> None:
    text = b"""{"id": 7, "name": "a", "at": "2023-11-14T22:13:20.5Z", "day": "2024-02-29", "price": 1.25,
        "tags": ["x", null], "more": {"ok": true, "days": ["2024-01-01"]}, "unknown": {"a": [1]}}"""
    found, reasons = decoded(text)

    assert reasons == {}
    assert found.type == KIND
    assert found.to_pylist() == [
        {
            "id": 7,
            "name": "a",
            "at": datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
            "day": date(2024, 2, 29),
            "price": Decimal("1.25"),
            "tags": ["x", None],
            "more": {"ok": True, "days": [date(2024, 1, 1)]},
        }
    ]


def test_missing_json_fields_become_null_and_a_null_value_is_no_error() -> None:
    found, reasons = decoded(None, b"{}", None)

    assert found.to_pylist() == [None, dict.fromkeys(KIND.names), None]
    assert reasons == {}


BAD = {
    "broken": (b'{"id": 1', "Missing a comma"),
    "two objects": (b'{"id": 1} {"id": 2}', "not exactly one JSON object"),
    "a list": (b'[{"id": 1}]', "not an object"),
    "a number": (b"7", "not an object"),
    "empty": (b"", "not an object"),
    "blank": (b" \n ", "not an object"),
    "not UTF-8": (b'{"name": "\xff"}', "Invalid UTF8"),
    "bytes": (b"\x00\x01", "not an object"),
    "another type": (
        b'{"id": "x"}',
        'field id has "x", which is no BIGINT: send a whole number from -9223372036854775808',
    ),
    "a field twice": (b'{"id": 1, "id": 2}', "field id is there more than once: send it once"),
    "in a list": (b'{"tags": ["x", 7]}', "field tags[1] has 7, which is no STRING: send a text, or change the schema"),
    "in an object": (b'{"more": {"ok": 1}}', "field more.ok has 1, which is no BOOLEAN: send true or false"),
    "an object for a list": (b'{"tags": {}}', "field tags has an object, which is no ARRAY: send a list"),
    "a list for an object": (b'{"more": []}', "field more has a list, which is no STRUCT: send an object"),
    "a text for a list": (b'{"tags": "x"}', 'field tags has "x", which is no ARRAY: send a list'),
    "a text for an object": (b'{"more": "x"}', 'field more has "x", which is no STRUCT: send an object'),
    "a text for an inner list": (b'{"more": {"days": "2024-01-01"}}', "which is no ARRAY: send a list"),
    "half of a surrogate pair": (b'{"id": "\\ud800"}', "field id has "),
    "half of a surrogate pair for a time": (b'{"at": "\\ud800"}', "field at has "),
    "half of a surrogate pair for a day": (b'{"day": "\\ud800"}', "field day has "),
    "a number within 600 lists": (b'{"x": ' + b"[" * 600 + b"1e400" + b"]" * 600 + b"}", "Number too big"),
    "thousands of digits": (b'{"id": -' + b"1" * 5_000 + b"}", "field id has -11"),
    "too large where the schema has no field": (
        b'{"x": [1e400]}',
        "field x[0] has 1e400, and the parser takes no number",
    ),
}


@pytest.mark.parametrize(("value", "reason"), BAD.values(), ids=BAD)
def test_a_malformed_json_value_among_many_is_reported_and_the_others_are_decoded(value: bytes, reason: str) -> None:
    good = [b'{"id": %d}' % n for n in range(200)]

    found, reasons = decoded(*good[:77], value, *good[77:])

    assert list(reasons) == [77]
    assert reason in reasons[77]
    ids = [None if row is None else row["id"] for row in found.to_pylist()]
    assert ids == [*range(77), None, *range(77, 200)]


FLOAT, DOUBLE, DECIMAL = pa.float32(), pa.float64(), pa.decimal128(4, 2)
DAY, TIME, LOCAL = pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")
FITS: list[tuple[pa.DataType, str, object]] = [
    (pa.int8(), "-128", -128),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (FLOAT, "3.4028235e38", 3.4028234663852886e38),
    (FLOAT, "1e-50", 0.0),
    (FLOAT, "Infinity", float("inf")),
    (DOUBLE, "-Infinity", float("-inf")),
    (DOUBLE, "1e39", 1e39),
    (DECIMAL, "-99.99", Decimal("-99.99")),
    (DECIMAL, "1e1", Decimal(10)),
    (DECIMAL, '"1.5"', Decimal("1.5")),
    (DAY, '"2024-02-29"', date(2024, 2, 29)),
    (DAY, '"2024-02-29T23:30:00-05:00"', date(2024, 2, 29)),
    (TIME, '"2024-02-29T23:30:00-05:00"', datetime(2024, 3, 1, 4, 30, tzinfo=UTC)),
    (TIME, '"2024-02-29 23:30"', datetime(2024, 2, 29, 23, 30, tzinfo=UTC)),
    (LOCAL, '"2024-02-29T23:30:00.5"', datetime(2024, 2, 29, 23, 30, 0, 500_000)),  # noqa: DTZ001  # it has no zone
]  # fmt: skip
DOES_NOT_FIT: list[tuple[pa.DataType, str, str]] = [
    (pa.int8(), "128", "TINYINT: send a whole number from -128 to 127"),
    (pa.int8(), "-129", "TINYINT"),
    (pa.int16(), "32768", "SMALLINT"),
    (pa.int32(), "2147483648", "INT"),
    (pa.int64(), "9223372036854775808", "BIGINT"),
    (pa.int64(), "1.0", "BIGINT"),
    (pa.int64(), "1e2", "BIGINT"),
    (pa.int64(), "NaN", "BIGINT"),
    (FLOAT, "1e39", "FLOAT: send a number of at most 3.40282e+38"),
    (FLOAT, "-3.5e38", "FLOAT"),
    (FLOAT, "1e400", "FLOAT"),
    (FLOAT, '"NaN"', "FLOAT"),
    (DOUBLE, "1e309", "DOUBLE"),
    (DOUBLE, "true", "DOUBLE"),
    (DECIMAL, "100", "DECIMAL(4,2): send a number with at most 2 digits before and 2 after the point"),
    (DECIMAL, "1.234", "DECIMAL(4,2)"),
    (DECIMAL, "99.995", "DECIMAL(4,2)"),
    (DECIMAL, "1e39", "DECIMAL(4,2)"),
    (DECIMAL, "NaN", "DECIMAL(4,2)"),
    (DECIMAL, '"x"', "DECIMAL(4,2)"),
    (pa.bool_(), '"true"', "BOOLEAN"),
    (pa.string(), "1", "STRING"),
    (DAY, '"2023-02-29"', "DATE: send a text such as 2026-01-31"),
    (DAY, '"10000-01-01"', "DATE"),
    (DAY, '"2024-02-29T25:00"', "DATE"),
    (DAY, '"2024-02-29x"', "DATE"),
    (DAY, "19782", "DATE"),
    (TIME, '"10000-01-01"', "TIMESTAMP: send a text such as 2026-01-31T08:00:00.000001Z"),
    (TIME, '"2024-02-29T10:00:00.1234567Z"', "TIMESTAMP"),
    (TIME, "1700000000", "TIMESTAMP"),
    (LOCAL, '"2024-02-29T10:00:00Z"', "TIMESTAMP_NTZ: send a text such as 2026-01-31T08:00:00.000001, without a"),
    (LOCAL, '"2024-02-29T10:00:00+02:00"', "TIMESTAMP_NTZ"),
]
Wrap = Callable[[pa.DataType], pa.DataType]
SHAPES: dict[str, tuple[Wrap, str, str]] = {
    "field": (lambda kind: kind, "%s", "field f "),
    "in an object": (lambda kind: pa.struct([("g", kind)]), '{"g": %s}', "field f.g "),
    "in a list": (pa.list_, "[null, %s]", "field f[1] "),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "text", "value"), FITS, ids=str)
def test_a_json_field_has_the_value_that_its_text_says(kind: pa.DataType, text: str, value: object, shape: str) -> None:
    wrap, form, _ = SHAPES[shape]
    given = [None, b"{}", b'{"f": null}', b'{"f": %s}' % (form % text).encode(), None]

    found, reasons = decode_json(pa.struct([("f", wrap(kind))]))(pa.array(given, pa.binary()))

    assert reasons == {}
    expected = {"field": value, "in an object": {"g": value}, "in a list": [None, value]}[shape]
    assert found.to_pylist() == [None, {"f": None}, {"f": None}, {"f": expected}, None]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "text", "takes"), DOES_NOT_FIT, ids=str)
def test_a_json_field_that_its_type_cannot_hold_is_named_with_its_value_and_what_to_send(
    kind: pa.DataType, text: str, takes: str, shape: str
) -> None:
    wrap, form, field = SHAPES[shape]
    given = [b'{"x": 1}', b'{"f": %s}' % (form % text).encode(), b"{}"]

    found, reasons = decode_json(pa.struct([("f", wrap(kind))]))(pa.array(given, pa.binary()))

    assert found.to_pylist() == [{"f": None}, None, {"f": None}]
    [reason] = reasons.values()
    assert f"{field}has {text}, which is no {takes}" in reason
    assert reason.endswith(", or change the schema")


def test_a_long_json_field_and_its_long_text_are_cut_in_the_reason() -> None:
    [reason] = decoded(b'{"name": {"%s": 1}}' % (b"x" * 999)).reasons.values()
    [of_text] = decoded(b'{"id": "%s"}' % (b"x" * 999)).reasons.values()

    assert reason.endswith("field name has an object, which is no STRING: send a text, or change the schema")
    assert f'field id has "{"x" * 56}..., which is no BIGINT' in of_text
    assert len(of_text) < 300


NAMES = (
    "klamm.number",
    "klamm.number.",
    "value",
    "offset",
    "_corrupt_record",
    "a.b",
    "`a`",
    "",
    " ",
    "ä",
    "A",
    "a",
    "'",
)


@pytest.mark.parametrize("name", NAMES)
def test_json_fields_may_have_any_name_whether_the_schema_has_them_or_not(name: str) -> None:
    kind = pa.struct([("id", pa.int64()), *([] if name == "id" else [(name, pa.string())])])
    one = json.dumps({"id": 1, name: "x", "more": {name: 2}}).encode()
    other = json.dumps({name: 0, "id": 2}).encode()

    found, reasons = decode_json(kind)(pa.array([one, b'{"id": 3}', one], pa.binary()))
    ignored, no_reasons = decode_json(pa.struct([("id", pa.int64())]))(pa.array([one, other, b"x"], pa.binary()))

    assert reasons == {}
    assert [(row["id"], row[name]) for row in found.to_pylist()] == [(1, "x"), (3, None), (1, "x")]
    assert [row and row["id"] for row in ignored.to_pylist()] == [1, 2, None]
    assert list(no_reasons) == [2]


def test_an_empty_value_next_to_a_value_with_two_json_objects_shifts_no_row() -> None:
    found, reasons = decoded(b'{"id": 1}{"id": 2}', b"", b'{"id": 3}')

    assert [row and row["id"] for row in found.to_pylist()] == [None, None, 3]
    assert list(reasons) == [0, 1]


def test_an_incomplete_json_value_is_not_completed_by_the_next_value() -> None:
    found, reasons = decoded(b'{"more": ', b'{"ok": true}}', b'{"id": 3}{"id": 4}', b'{"id": 5}')

    assert [row and row["id"] for row in found.to_pylist()] == [None, None, None, 5]
    assert list(reasons) == [0, 1, 2]


values = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.text("{}[],: \n", max_size=6).map(str.encode),
    st.fixed_dictionaries({}, optional={"id": st.integers(-9, 9), "name": st.text(max_size=4)}).map(
        lambda v: json.dumps(v).encode()
    ),
)


@given(st.lists(values, max_size=30))
def test_json_values_decoded_together_equal_those_decoded_one_by_one(given_values: list[bytes | None]) -> None:
    together, reasons = decoded(*given_values)
    alone = [decoded(v) for v in given_values]

    assert together.to_pylist() == [row for each in alone for row in each.values.to_pylist()]
    assert set(reasons) == {i for i, each in enumerate(alone) if each.reasons}


def test_text_values_are_decoded_and_values_that_are_not_utf_8_are_reported() -> None:
    found, reasons = decode_strings(pa.array([b"a", None, b"\xff", "ä".encode()], pa.binary()))

    assert found.to_pylist() == ["a", None, None, "ä"]
    assert list(reasons) == [2]
    assert "not UTF-8" in reasons[2]


def test_rows_with_undecodable_values_are_marked_with_a_reason_or_removed() -> None:
    rows = pa.RecordBatch.from_pydict({"offset": [5, 6, 7]})

    assert reason_column(3, {1: "x" * 999}).to_pylist() == [None, "x" * 300, None]
    assert without(rows, {1: "x"}).to_pydict() == {"offset": [5, 7]}
