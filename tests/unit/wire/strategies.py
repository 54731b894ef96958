"""Hypothesis strategies for every message in every version, drawn from the same facts the codec is compiled from."""

from typing import Any

import pytest
from hypothesis import strategies as st

from klamm.wire import messages
from klamm.wire.classes import MESSAGES
from klamm.wire.codec import WireMessage
from klamm.wire.schema import Field, Kind, Message, Struct

by_message = pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
"""Tests go through the versions of a message in one go: a test each costs more than what it tests."""


def versions(message: Message) -> range:
    return range(message.versions.first, message.versions.last + 1)


_PRIMITIVES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.I8: st.integers(-(2**7), 2**7 - 1),
    Kind.I16: st.integers(-(2**15), 2**15 - 1),
    Kind.U16: st.integers(0, 2**16 - 1),
    Kind.I32: st.integers(-(2**31), 2**31 - 1),
    Kind.I64: st.integers(-(2**63), 2**63 - 1),
    Kind.F64: st.floats(allow_nan=False),
    Kind.BOOL: st.booleans(),
    Kind.UUID: st.uuids(),
    Kind.STR: st.text(max_size=20) | st.just("x" * 200),
    Kind.BYTES: st.binary(max_size=20) | st.just(b"\x00" * 200),
    Kind.RECORDS: st.binary(max_size=20) | st.just(b"\xff" * 5000),
}


def class_of(message: Message) -> type[WireMessage]:
    made: type[WireMessage] = getattr(messages, message.name)
    return made


def instances(message: Message, version: int) -> st.SearchStrategy[Any]:
    """Instances that differ from their defaults only in fields the version has."""
    return _structs(message.body, version, class_of(message).CODEC.classes)


def _structs(struct: Struct, version: int, classes: Any) -> st.SearchStrategy[Any]:
    present = {f.name: _values(f, version, classes) for f in struct.fields if version in f.versions}
    return st.builds(classes[struct.name], **present)


def _values(field: Field, version: int, classes: Any) -> st.SearchStrategy[Any]:
    if isinstance(field.element, Struct):
        one = _structs(field.element, version, classes)
        values = st.lists(one, max_size=3) if field.is_array else one
    else:
        one = _PRIMITIVES[field.element]
        values = st.lists(one, max_size=4).map(tuple) if field.is_array else one
    return values | st.none() if field.is_nullable(version) else values
