"""Avro values, with a schema and with a registry; fastavro writes them, and confluent-kafka's format is spelt out."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from tests.support.schema_registry import FakeRegistry, schema_registry
from tests.unit.spark.scripts import options

from klamm.spark import avro
from klamm.spark.avro import Registry, RegistryUnusable, decode_avro
from klamm.spark.avro_types import avro_struct
from klamm.spark.errors import BadOption
from klamm.spark.secrets import resolve_secret
from klamm.spark.values import Decoded

SECRET = "reader:canary-5f2d"
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"], "default": None}],
}
TYPES: dict[str, Any] = {
    "type": "record",
    "name": "Types",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "part", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 2}},
        {"name": "again", "type": ["null", "Mac"]},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
    ],
}
VALUE: dict[str, Any] = {
    "flag": True,
    "part": 0.5,
    "raw": b"\x00\xff",
    "mac": b"ab",
    "again": None,
    "color": "BLUE",
    "day": date(2024, 2, 29),
    "at": datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
    "local": datetime.fromisoformat("2023-11-14T22:13:20.500001"),
    "price": Decimal("1.25"),
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "inner": {"x": 1.5},
}


def encoded(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def decoded(schema: Any, values: list[bytes | None], registry: Registry | None = None) -> Decoded:
    text = json.dumps(schema)
    kind = to_arrow_type(avro_struct(text), timezone="UTC")
    return decode_avro(text, kind, registry)(pa.array(values, pa.binary()))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(avro, "_FIRST_BACKOFF_S", 0.001)
    avro._writer_schema.cache_clear()
    avro._missing.clear()
    with schema_registry({1: OLD, 2: NEW, 3: {"schemaType": "JSON", "schema": "{}"}}, SECRET) as running:
        yield running


@pytest.fixture
def at(registry: FakeRegistry, tmp_path: Path) -> Registry:
    (tmp_path / "auth").write_text(f"{SECRET}\n")
    return Registry(registry.url, f"file:{tmp_path}/auth")


def test_avro_values_are_decoded_to_a_struct_with_the_types_of_sparks_from_avro() -> None:
    values, reasons = decoded(TYPES, [encoded(TYPES, VALUE), None])

    assert reasons == {}
    assert values.to_pylist() == [VALUE | {"counts": [("a", 1)]}, None]
    assert avro_struct(json.dumps(TYPES)).simpleString() == (
        "struct<flag:boolean,part:float,raw:binary,mac:binary,again:binary,color:string,day:date,at:timestamp,"
        "local:timestamp_ntz,price:decimal(10,2),tags:array<string>,counts:map<string,bigint>,inner:struct<x:double>>"
    )


def test_values_that_are_not_avro_of_the_schema_become_null_with_a_reason() -> None:
    good = encoded(NEW, {"id": 7, "user": "u"})
    bad = [b"", good[:-1], good + b"x", b"\xff" * 30, b"\x0e\x04", b"\x0e\x02\x02\xff", b"\x0e\x02\x03u"]

    values, reasons = decoded(NEW, [good, *bad, good])

    assert values.to_pylist() == [{"id": 7, "user": "u"}, *[None] * len(bad), {"id": 7, "user": "u"}]
    assert list(reasons) == list(range(1, len(bad) + 1))
    assert all(reason.startswith("the value is not Avro of the schema: ") for reason in reasons.values())
    assert reasons[3].endswith("1 bytes of the value are left after the record")
    assert reasons[7].endswith("a length in it is negative")


def test_a_value_out_of_the_range_of_its_column_becomes_null_with_a_reason() -> None:
    schema = TYPES | {"fields": [f for f in TYPES["fields"] if f["name"] in ("price", "flag")]}
    too_large = b"\x01" + b"\x14" + b"\x7f" + b"\xff" * 9  # a decimal of 25 digits

    values, reasons = decoded(schema, [too_large, encoded(schema, {"flag": True, "price": Decimal(1)})])

    assert [v and v["price"] for v in values.to_pylist()] == [None, Decimal(1)]
    assert list(reasons) == [0]


def test_uuids_are_strings() -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": ["null", {"type": "array", "items": uuid}]}],
    }
    text = "1e7f41b3-6608-47e0-b874-afbf70dcba45"

    values, reasons = decoded(schema, [encoded(schema, {"id": [UUID(text)]}), encoded(schema, {"id": None})])

    assert reasons == {}
    assert values.to_pylist() == [{"id": [text]}, {"id": None}]


def test_logical_types_of_the_readers_schema_hold_where_the_writers_schema_has_none(
    registry: FakeRegistry, at: Registry
) -> None:
    """Of the writer's own logical types, too, and of defaults."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    plain = [{"name": "at", "type": "long"}, {"name": "price", "type": "bytes"}, {"name": "id", "type": "string"}]
    wanted = [
        {"name": "at", "type": ["null", millis]},
        {"name": "price", "type": price},
        {"name": "id", "type": "string"},
        {"name": "times", "type": {"type": "map", "values": {"type": "array", "items": millis}}, "default": {"a": [1]}},
        {"name": "inner", "type": {"type": "record", "name": "In", "fields": [{"name": "at", "type": millis}]},
         "default": {"at": 2}},
        {"name": "most", "type": price, "default": "\u007f"},
    ]  # fmt: skip
    own = [wanted[0], wanted[1], {"name": "id", "type": {"type": "string", "logicalType": "uuid"}}]
    old, new, reader = ({"type": "record", "name": "R", "fields": fields} for fields in (plain, own, wanted))
    registry.schemas = {4: old, 5: new}
    time = datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
    text = "1e7f41b3-6608-47e0-b874-afbf70dcba45"
    written = [
        framed(4, encoded(old, {"at": 1_700_000_000_500, "price": b"\x7d", "id": text})),
        framed(5, encoded(new, {"at": time, "price": Decimal("1.25"), "id": UUID(text)})),
    ]

    values, reasons = decoded(reader, [*written, None], at)

    def after(ms: int) -> datetime:
        return datetime(1970, 1, 1, 0, 0, 0, ms * 1000, UTC)

    defaults = {"times": [("a", [after(1)])], "inner": {"at": after(2)}, "most": Decimal("1.27")}
    assert reasons == {}
    assert values.to_pylist() == [{"at": time, "price": Decimal("1.25"), "id": text} | defaults] * 2 + [None]


def test_values_of_a_registry_are_resolved_from_their_writers_schema(registry: FakeRegistry, at: Registry) -> None:
    old = framed(1, encoded(OLD, {"id": 1, "old": "x"}))
    new = framed(2, encoded(NEW, {"id": 2, "user": "u"}))

    values, reasons = decoded(NEW, [old, new, old, None], at)

    assert reasons == {}
    assert values.to_pylist() == [{"id": 1, "user": None}, {"id": 2, "user": "u"}, {"id": 1, "user": None}, None]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"], "each schema is asked for once"


def test_values_without_the_wire_format_or_with_a_foreign_schema_become_null_with_a_reason(at: Registry) -> None:
    body = encoded(NEW, {"id": 2, "user": "u"})

    _, reasons = decoded(NEW, [body, b"\x00\x00", b"\x01" + framed(2, body)[1:], framed(9, body), framed(3, body)], at)

    without = "the value is not Avro of the schema: the value does not begin with the byte 0 and the id of a schema"
    assert reasons == {
        0: without,
        1: without,
        2: without,
        3: "the registry has no schema at /schemas/ids/9",
        4: "the schema 3 of the registry is JSON, not Avro",
    }


def test_a_schema_that_a_registry_lacks_is_asked_for_again_after_a_while_and_not_for_each_value(
    registry: FakeRegistry, at: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(avro, "RealBlockingWorld", lambda: SimpleNamespace(now_s=lambda: now_s[0]))
    value = framed(9, encoded(NEW, {"id": 2, "user": "u"}))

    _, reasons = decoded(NEW, [value, framed(3, b""), value, framed(3, b"")], at)

    assert sorted(reasons) == [0, 1, 2, 3]
    assert reasons[0] == reasons[2] == "the registry has no schema at /schemas/ids/9"
    assert registry.asked == ["/schemas/ids/9", "/schemas/ids/3"]
    registry.schemas = {9: NEW}
    now_s[0] += avro.MISSING_S
    assert decoded(NEW, [value], at).reasons == {}


def test_a_value_whose_writers_schema_cannot_be_resolved_becomes_null_with_a_reason(
    registry: FakeRegistry, at: Registry
) -> None:
    text_id = NEW | {"fields": [{"name": "id", "type": "string"}, NEW["fields"][1]]}
    no_id = NEW | {"fields": [NEW["fields"][1]]}
    registry.schemas = {2: NEW, 6: text_id, 7: no_id}
    bad = [framed(6, encoded(text_id, {"id": "a", "user": "u"})), framed(7, encoded(no_id, {"user": "u"}))]
    good = framed(2, encoded(NEW, {"id": 2, "user": "u"}))

    values, reasons = decoded(NEW, [good, *bad, good], at)

    assert [v and v["id"] for v in values.to_pylist()] == [2, None, None, 2]
    assert list(reasons) == [1, 2]
    assert all(reason.startswith("the value is not Avro of the schema: ") for reason in reasons.values())


def test_a_registry_that_recovers_is_asked_again(registry: FakeRegistry, at: Registry) -> None:
    registry.statuses = [503, 500]

    assert decoded(NEW, [framed(2, encoded(NEW, {"id": 2, "user": None}))], at).reasons == {}


@pytest.mark.parametrize(("status", "expected"), [(500, "status 500"), (401, "status 401; set schemaRegistryAuth to")])
def test_a_registry_that_fails_or_refuses_fails_the_read_without_its_secret(
    registry: FakeRegistry, at: Registry, status: int, expected: str
) -> None:
    registry.statuses = [status] * 10

    with pytest.raises(RegistryUnusable, match=expected) as caught:
        decoded(NEW, [framed(2, b"\x02\x00")], at)

    assert registry.url in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_registry_whose_answer_has_no_schema_fails_the_read_and_not_the_record(
    registry: FakeRegistry, at: Registry
) -> None:
    registry.statuses = [200]

    with pytest.raises(RegistryUnusable, match=r"its answer has no schema\. Correct schemaRegistry"):
        decoded(NEW, [framed(2, b"\x02\x00")], at)


def test_a_registry_that_does_not_answer_fails_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_FIRST_BACKOFF_S", 0.001)

    with pytest.raises(RegistryUnusable, match="refused"):
        decoded(NEW, [framed(2, b"\x02\x00")], Registry("http://127.0.0.1:1", None))


def test_secrets_come_from_the_environment_or_a_file_and_errors_do_not_repeat_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAMM_TEST_SECRET", SECRET)
    (tmp_path / "auth").write_text(f"{SECRET}\n")

    assert resolve_secret("o", "env:KLAMM_TEST_SECRET") == resolve_secret("o", f"file:{tmp_path}/auth") == SECRET
    with pytest.raises(BadOption, match="the environment of this worker has no variable KLAMM_ABSENT; set it"):
        resolve_secret("o", "env:KLAMM_ABSENT")
    with pytest.raises(BadOption, match="cannot read the file on this worker: No such file"):
        resolve_secret("o", f"file:{tmp_path}/absent")


AVRO = {"valueFormat": "avro", "valueSchema": json.dumps(NEW)}
WRONG = {
    "a secret": (AVRO | {"schemaRegistry": "http://r", "schemaRegistryAuth": SECRET}, "a secret is not written here"),
    "a password": (AVRO | {"schemaRegistry": f"http://{SECRET}@r"}, "remove them, and set schemaRegistryAuth"),
    "no URL": (AVRO | {"schemaRegistry": "schemas:8081"}, "is not a URL; give for example http://schemas:8081"),
    "auth alone": (AVRO | {"schemaRegistryAuth": "env:A"}, "is set without schemaRegistry"),
    "JSON": (
        {"valueFormat": "json", "valueSchema": "id INT", "schemaRegistry": "http://r"},
        "only for",
    ),
}


@pytest.mark.parametrize(("given", "expected"), WRONG.values(), ids=WRONG)
def test_wrong_options_for_avro_are_refused_without_repeating_a_secret(given: dict[str, str], expected: str) -> None:
    with pytest.raises(BadOption, match=expected) as caught:
        options(**given)

    assert "canary" not in str(caught.value)


SCHEMAS = {
    "not JSON": ("{", "is not an Avro schema in JSON"),
    "unknown type": (
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "T"}]}',
        "is not an Avro schema",
    ),
    "no record": ('"string"', "is not a record"),
    "union": (json.dumps(NEW | {"fields": [{"name": "a", "type": ["int", "string"]}]}), "a is a union of 2 types"),
    "recursion": (
        json.dumps(NEW | {"fields": [{"name": "a", "type": ["null", "Order"]}]}),
        "own record",
    ),
    "time": (
        json.dumps(NEW | {"fields": [{"name": "a", "type": {"type": "int", "logicalType": "time-millis"}}]}),
        "a is time-millis, which has no type in Spark",
    ),
}


@pytest.mark.parametrize(("schema", "expected"), SCHEMAS.values(), ids=SCHEMAS)
def test_an_avro_schema_without_a_spark_type_is_refused_with_the_field(schema: str, expected: str) -> None:
    with pytest.raises(BadOption, match=expected):
        avro_struct(schema)
