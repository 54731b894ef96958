"""Two independent implementations of the protocol read what we write and write what we read, byte for byte.

kio has every message in every version; kafka-python has those of clients. The values are such as both can hold: kio
turns error codes into an enum, durations and times into their Python types.
"""

import dataclasses
import datetime
import enum
import io
import random
import re
import uuid
from typing import Any, get_args

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.unit.wire.generated import NOTHING_SPECIAL, generate
from tests.unit.wire.strategies import by_message, class_of, versions

from klamm.model.errors import ErrorCode
from klamm.wire import messages
from klamm.wire.schema import Field, Kind, Message, Struct

MILLISECOND = datetime.timedelta(milliseconds=1)

UNKNOWN_TO_KAFKA_PYTHON = {
    "AllocateProducerIds",
    "AlterPartition",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "ControlledShutdown",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "Envelope",
    "ExpireDelegationToken",
    "LeaderAndIsr",
    "RenewDelegationToken",
    "StopReplica",
    "UpdateMetadata",
}


def tame(field: Field, dice: random.Random) -> Any:
    """Values every witness can hold."""
    if field.element is Kind.I16 and field.name.endswith("error_code"):
        return dice.choice(list(ErrorCode)).value
    if field.element is Kind.I64 and re.search(r"time|_ms$", field.name):
        return dice.randrange(4_000_000_000) * 1000  # kio drops the rest
    return NOTHING_SPECIAL


def generated(message: Message, version: int) -> list[Any]:
    dice = random.Random(f"{message.name} {version}")
    return [generate(message, version, dice, tame) for _ in range(5)]


def kio_type(message: Message, version: int) -> Any:
    load = load_request_schema if message.is_request else load_response_schema
    return load(message.api_key, version)


def kafka_python_type(message: Message, version: int) -> Any:
    for module in (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    ):
        found = getattr(module, message.name, None)
        if found is not None and version <= found.max_version:
            return found
    return None


def plainly(value: Any) -> Any:
    """A witness's value as ours would be."""
    if isinstance(value, datetime.timedelta):
        return round(value / MILLISECOND)
    if isinstance(value, datetime.datetime):
        return round((value - datetime.datetime.fromtimestamp(0, datetime.UTC)) / MILLISECOND)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set):
        return sum(1 << bit for bit in value) - ((31 in value) << 32)
    return value


def assert_same(ours: Any, theirs: Any, struct: Struct, version: int) -> None:
    """Every field of the version has the same value; structs are walked in the order of our fields."""
    for f in struct.fields:
        if version not in f.versions:
            continue
        mine, other = getattr(ours, f.name), field_of(theirs, f.name)
        if not isinstance(f.element, Struct):
            assert_same_value(mine, other, f)
        elif f.is_array and mine is not None:
            assert len(mine) == len(other)
            for a, b in zip(mine, other, strict=True):
                assert_same(a, b, f.element, version)
        elif mine is None or other is None:
            assert mine is other is None
        else:
            assert_same(mine, other, f.element, version)


def assert_same_value(mine: Any, other: Any, field: Field) -> None:
    if other is None and field.element is Kind.I64:
        assert mine == -1  # kio's word for "no time"
    elif isinstance(other, list | tuple):
        assert list(mine) == [plainly(v) for v in other]
    elif other is None and field.name.endswith("authorized_operations"):
        assert mine == -(2**31)
    elif field.element is Kind.UUID and other is None:
        assert mine == uuid.UUID(int=0)
    elif isinstance(mine, bytes | memoryview):
        assert bytes(mine) == bytes(other)
    else:
        assert mine == plainly(other), field.name


def field_of(theirs: Any, name: str) -> Any:
    """The value of a field in another library's message."""
    for candidate in (
        name,
        name + "_",
        name.removesuffix("_ms"),
        name.replace("is_kraft", "is_k_raft"),
        name.removeprefix("cluster_").removeprefix("topic_"),
    ):
        if hasattr(theirs, candidate):
            return getattr(theirs, candidate)
    raise AssertionError(f"{theirs!r} has no {name}")


@by_message
def test_the_kio_library_decodes_and_encodes_messages_to_the_same_bytes(message: Message) -> None:
    for version in versions(message):
        theirs_type = kio_type(message, version)
        for ours in generated(message, version):
            wire = ours.encode(version)

            theirs, size = entity_reader(theirs_type)(wire, 0)
            written = io.BytesIO()
            entity_writer(theirs_type)(written, theirs)

            assert size == len(wire)
            assert_same(ours, theirs, message.body, version)
            assert written.getvalue() == wire
            assert class_of(message).decode(written.getvalue(), version) == ours


@by_message
def test_the_kafka_python_library_decodes_and_encodes_messages_to_the_same_bytes(message: Message) -> None:
    if message.api_name in UNKNOWN_TO_KAFKA_PYTHON:
        assert kafka_python_type(message, 0) is None
        return
    assert kafka_python_type(message, 0) is not None, "kafka-python lacks it: add it to UNKNOWN_TO_KAFKA_PYTHON"
    for version in versions(message):
        for ours in generated(message, version):
            if message.name == "ApiVersionsResponse":
                ours.error_code = 0  # kafka-python reads an error as version 0
            wire = ours.encode(version)

            theirs = kafka_python_type(message, version).decode(wire, version=version)
            theirs._header = None  # which it forgets where it decodes without one

            assert_same(ours, theirs, message.body, version)
            assert theirs.encode(version=version) == wire


def assert_same_defaults(struct: Struct, ours: Any, kio_class: Any, version: int) -> None:
    """Where kio gives a field a default, ours has the same; where it does not, ours is zero, "" or empty."""
    theirs = dataclasses.fields(kio_class)
    fields = [f for f in struct.fields if version in f.versions]
    assert len(fields) == len(theirs)
    for mine, other in zip(fields, theirs, strict=True):
        if isinstance(mine.element, Struct):
            inner = next(t for t in inner_types(other.type) if dataclasses.is_dataclass(t))
            assert_same_defaults(mine.element, getattr(messages, mine.element.name), inner, version)
        if other.default is not dataclasses.MISSING and not dataclasses.is_dataclass(other.default):
            assert_same_value(getattr(ours(), mine.name), other.default, mine)


def inner_types(annotation: Any) -> list[Any]:
    arguments = get_args(annotation)
    return [t for a in arguments for t in inner_types(a)] if arguments else [annotation]


@by_message
def test_default_values_of_message_fields_equal_those_of_kio(message: Message) -> None:
    for version in versions(message):
        assert_same_defaults(message.body, class_of(message), kio_type(message, version), version)


def schema_fields(schema: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Field facts of a schema kafka-python carries, by path; common structs where they are used."""
    common = {s["name"]: s["fields"] for s in schema.get("commonStructs", ())}
    found: dict[tuple[str, ...], dict[str, Any]] = {}

    def walk(fields: list[dict[str, Any]], path: tuple[str, ...]) -> None:
        for f in fields:
            here = (*path, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", f["name"]).lower())
            found[here] = f
            walk(f.get("fields") or common.get(f["type"].removeprefix("[]"), []), here)

    walk(schema["fields"], ())
    return found


def our_fields(struct: Struct, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Field]:
    """The fields of a struct and its inner structs, by path."""
    found: dict[tuple[str, ...], Field] = {}
    for f in struct.fields:
        found[(*path, f.name)] = f
        if isinstance(f.element, Struct):
            found |= our_fields(f.element, (*path, f.name))
    return found


@by_message
def test_ignorable_message_fields_equal_those_of_kafka_python(message: Message) -> None:
    if message.api_name in UNKNOWN_TO_KAFKA_PYTHON:
        return
    theirs = schema_fields(kafka_python_type(message, 0).json)
    for path, field in our_fields(message.body).items():
        if path in theirs and field.versions != message.versions:  # elsewhere it changes nothing
            assert field.ignorable == (str(theirs[path].get("ignorable", False)).lower() == "true"), path
