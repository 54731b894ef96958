"""Values decoded many at once give what decoding them one by one gives; bad ones are told apart and named."""

import json
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
    "another type": (b'{"id": "x"}', "Column(/id) changed from number to string"),
    "a fraction for an integer": (b'{"id": 1.5}', "parse:1.5"),
    "too large": (b'{"id": 99999999999999999999}', "parse:9999"),
    "a field twice": (b'{"id": 1, "id": 2}', "specified twice"),
    "two objects": (b'{"id": 1} {"id": 2}', "not exactly one JSON object"),
    "a list": (b'[{"id": 1}]', "not an object"),
    "a number": (b"7", "not an object"),
    "empty": (b"", "not an object"),
    "blank": (b" \n ", "not an object"),
    "not UTF-8": (b'{"name": "\xff"}', "Invalid UTF8"),
    "bytes": (b"\x00\x01", "not an object"),
}


@pytest.mark.parametrize(("value", "reason"), BAD.values(), ids=BAD)
def test_a_malformed_json_value_among_many_is_reported_and_the_others_are_decoded(value: bytes, reason: str) -> None:
    good = [b'{"id": %d}' % n for n in range(200)]

    found, reasons = decoded(*good[:77], value, *good[77:])

    assert list(reasons) == [77]
    assert reason in reasons[77]
    ids = [None if row is None else row["id"] for row in found.to_pylist()]
    assert ids == [*range(77), None, *range(77, 200)]


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
