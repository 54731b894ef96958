"""Bytes from strangers: whatever they are, decoding ends quickly, in a message or in MalformedMessage."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from tests.unit.wire.generated import generate
from tests.unit.wire.strategies import by_message, class_of, versions

from klamm.wire import plain
from klamm.wire.classes import MESSAGES
from klamm.wire.errors import MalformedMessage
from klamm.wire.messages import (
    ApiVersionsResponse,
    DeleteTopicsRequest,
    FetchRequest,
    LeaderAndIsrRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from klamm.wire.schema import Message
from klamm.wire.source import ParseError, continue_uvarint, min_bytes, read_uvarint, uvarint

ALL = [(m, v) for m in MESSAGES.values() for v in versions(m)]


def outcome(message: Message, version: int, wire: bytes) -> Any:
    """What compiled code makes of the bytes, a message or an error; plain code must make the same of them."""
    cls = class_of(message)
    fast = caught(lambda: cls.decode(wire, version))
    slow = caught(lambda: plain.decode(message, version, cls.CODEC.classes, wire, 0))
    if isinstance(fast, MalformedMessage):
        assert str(slow) == str(fast)
        assert 0 <= fast.offset <= len(wire)
    else:
        assert slow == fast or slow.encode(version) == fast.encode(version)  # a NaN equals nothing
    return fast


def caught(decode: Callable[[], Any]) -> Any:
    """The error that decoding raises, or the decoded value."""
    try:
        return decode()
    except MalformedMessage as error:
        return error


@by_message
def test_a_truncated_message_raises_malformed_message(message: Message) -> None:
    dice = random.Random(message.name)
    for version in versions(message):
        wire = generate(message, version, dice).encode(version)
        cuts = dice.sample(range(len(wire)), min(len(wire), settings().max_examples // 2))
        for cut in cuts:
            assert isinstance(outcome(message, version, wire[:cut]), MalformedMessage)


@by_message
def test_decoding_a_message_with_flipped_bytes_gives_a_message_or_raises_malformed_message(message: Message) -> None:
    dice = random.Random(message.name)
    for version in versions(message):
        for _ in range(settings().max_examples // 50):
            wire = generate(message, version, dice).encode(version)
            for _ in range(6 if wire else 0):
                flipped = bytearray(wire)
                for _ in range(dice.randint(1, 3)):
                    flipped[dice.randrange(len(flipped))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
                outcome(message, version, bytes(flipped))


@by_message
def test_decoding_random_bytes_gives_a_message_or_raises_malformed_message(message: Message) -> None:
    dice = random.Random(message.name)
    for version in versions(message):
        for size in (0, 1, 2, 7, 30, 200):
            outcome(message, version, dice.randbytes(size))
            outcome(message, version, b"\xff" * size)
            outcome(message, version, b"\x7f" * size)
            outcome(message, version, bytes(size))


HUGE_COUNTS = {
    "array count": (MetadataRequest, 1, struct.pack(">i", 2**31 - 1)),
    "compact array count": (MetadataRequest, 9, b"\xff\xff\xff\xff\x07"),
    "array of numbers": (
        LeaderAndIsrRequest,
        0,
        bytes(8) + struct.pack(">ihiiiii", 1, 0, 0, 0, 0, 0, 2**31 - 1),
    ),
    "array of strings": (DeleteTopicsRequest, 0, struct.pack(">i", 2**31 - 1) + bytes(50)),
    "string": (FetchRequest, 12, b"\xff" * 4 + bytes(20)),
    "records": (
        ProduceRequest,
        3,
        struct.pack(">hhiihiii", -1, 1, 1, 1, 0, 1, 0, 2**31 - 1) + bytes(9),
    ),
    "tagged fields": (ApiVersionsResponse, 3, bytes.fromhex("0000 01 00000000 ffffffff07") + bytes(30)),
    "unknown tagged fields": (MetadataRequest, 9, bytes.fromhex("00 00 00 00 ffffffff07") + b"\x05\x00" * 10),
}


@pytest.mark.parametrize(("cls", "version", "wire"), HUGE_COUNTS.values(), ids=HUGE_COUNTS)
def test_a_huge_array_count_raises_malformed_message_and_allocates_little_memory(
    cls: Any, version: int, wire: bytes
) -> None:
    with pytest.raises(MalformedMessage):
        cls.decode(wire, version)  # once, so that compiling is not measured

    tracemalloc.start()
    with pytest.raises(MalformedMessage):
        cls.decode(wire, version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 100_000


def test_the_schema_of_every_array_element_has_a_minimum_size_above_zero() -> None:
    for message, version in ALL:
        for struct_ in message.structs():
            for f in struct_.fields:
                if f.is_array and version in f.versions:
                    assert min_bytes(f.element, version, message.is_flexible(version)) > 0


def test_the_minimum_element_size_in_a_schema_is_at_most_any_elements_size() -> None:
    for message, version in ALL:
        least = min_bytes(message.body, version, message.is_flexible(version))
        assert least <= len(class_of(message)().encode(version))


def test_a_malformed_message_error_names_message_version_field_and_byte_offset() -> None:
    one_broker_cut_in_its_port = struct.pack(">iih8sh", 1, 5, 8, b"hostname", 9)

    with pytest.raises(MalformedMessage) as error:
        MetadataResponse.decode(one_broker_cut_in_its_port, 1)

    assert (error.value.message, error.value.version) == ("MetadataResponse", 1)
    assert (error.value.field, error.value.offset) == ("brokers[0].port", 18)
    assert (
        str(error.value)
        == "MetadataResponse v1, field brokers[0].port at byte 18: the field needs 4 bytes, but only 2 remain"
    )


def test_decoding_null_in_a_non_nullable_field_raises_malformed_message() -> None:
    with pytest.raises(MalformedMessage, match="topics at byte 4: null is not valid"):
        MetadataRequest.decode(struct.pack(">i", -1), 0)

    assert MetadataRequest.decode(struct.pack(">i", -1), 1).topics is None


def test_a_tagged_field_with_a_wrong_size_raises_malformed_message() -> None:
    good = ApiVersionsResponse(finalized_features_epoch=5).encode(3)
    assert good[-11:] == bytes.fromhex("01 01 08 0000000000000005")

    with pytest.raises(MalformedMessage, match=r"finalized_features_epoch .*size"):
        ApiVersionsResponse.decode(good[:-9] + b"\x09" + good[-8:] + b"\0", 3)


@pytest.mark.parametrize("length", [32767, 32768])
def test_decoding_a_string_longer_than_32767_bytes_raises_malformed_message(length: int) -> None:
    wire = b"\x02" + uvarint(length + 1) + b"x" * length + bytes(5)

    read = outcome(MESSAGES["MetadataRequest"], 9, wire)

    assert isinstance(read, MalformedMessage) == (length > 32767)


def test_unknown_tagged_fields_of_a_message_are_skipped() -> None:
    plainly = MetadataRequest(topics=[]).encode(9)
    tagged = plainly[:-1] + bytes.fromhex("02 05 01 aa 91 4e 00")

    assert MetadataRequest.decode(tagged, 9) == MetadataRequest(topics=[])


def test_more_than_127_unknown_tagged_fields_of_a_message_are_skipped() -> None:
    wire = MetadataRequest(topics=[]).encode(9)[:-1] + uvarint(300) + b"\x05\x01z" * 300

    assert MetadataRequest.decode(wire, 9) == MetadataRequest(topics=[])


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**28, 2**31 - 1])
def test_an_encoded_unsigned_varint_decodes_to_the_same_number(value: int) -> None:
    assert read_uvarint(uvarint(value), 0) == (value, len(uvarint(value)))


@pytest.mark.parametrize("wire", ["ffffffff08", "ffffffffff01", "8080808080"])
def test_decoding_an_unsigned_varint_beyond_31_bits_raises_parse_error(wire: str) -> None:
    raw = bytes.fromhex(wire)
    with pytest.raises(ParseError):
        read_uvarint(raw, 0)
    with pytest.raises(ParseError):
        continue_uvarint(raw, 1, raw[0])
