"""Request frames of every API and version, valid ones that mean something to the node, and what is made of them."""

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.unit.wire.generated import NOTHING_SPECIAL, generate

from klamm.wire.api import ApiKey
from klamm.wire.classes import MESSAGES
from klamm.wire.compression import Codec
from klamm.wire.frames import RequestHeader, encode_request
from klamm.wire.records import NewRecord, build_batch
from klamm.wire.records.legacy import Message as OldMessage
from klamm.wire.records.legacy import encode_messages
from klamm.wire.schema import Field, Kind, Message

TOPIC: Final = "fuzzed"
GROUP: Final = "group"
NAMES: Final = (TOPIC, GROUP, "member", "range", "consumer", "__consumer_offsets", "1", "")
SMALL_NUMBERS: Final = (-1, 0, 1, 2, 5)
EXTREMES: Final = (0, 1, 0x7F, 0x80, 0xFF)
MAX_CUT: Final = 64
HEADER_BYTES: Final = 16
"""API, version, correlation id, client id."""
MAX_CHANGES: Final = 4

Mutation = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def requests() -> list[Message]:
    """The requests of all APIs that Kafka has."""
    return [message for message in MESSAGES.values() if message.is_request]


def valid_frame(message: Message, version: int, dice: random.Random, topic_id: uuid.UUID) -> bytes:
    """A frame without its size that decodes, and often names what the node has."""

    def special(field: Field, dice: random.Random) -> Any:
        """Names, small numbers and batches in the places of random ones, mostly."""
        if dice.random() < 0.2:
            return NOTHING_SPECIAL
        if field.element is Kind.RECORDS:
            return _records(dice)
        if field.element is Kind.STR:
            return TOPIC if "topic" in field.name else dice.choice(NAMES)
        if field.element is Kind.UUID:
            return topic_id
        if field.element in (Kind.I8, Kind.I16, Kind.I32, Kind.I64):
            return dice.choice(SMALL_NUMBERS)
        return NOTHING_SPECIAL

    body = generate(message, version, dice, special)
    header = RequestHeader(ApiKey(message.api_key), version, dice.randrange(1 << 31), "fuzzer")
    return b"".join(encode_request(header, body))[4:]


def _records(dice: random.Random) -> bytes:
    """One batch, in any codec, or messages of an old format."""
    count = dice.choice((1, 2, 20))
    if dice.random() < 0.2:
        old = [OldMessage(n, 0, b"key", b"value") for n in range(count)]
        return encode_messages(old, dice.randrange(2), dice.choice((Codec.NONE, Codec.GZIP)))
    content = [NewRecord(b"value" * dice.randrange(20), b"key", 0) for _ in range(count)]
    return build_batch(content, dice.choice(list(Codec)), producer_id=dice.choice((-1, -1, 1)))


# -- what is made of a valid frame -------------------------------------------------------------------------------------


def flip_bit(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    if frame:
        frame[dice.randrange(len(frame))] ^= 1 << dice.randrange(8)


def set_byte(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    if frame:
        frame[dice.randrange(len(frame))] = dice.choice(EXTREMES)


def set_number(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    """An extreme number over two, four or eight bytes, such as a length."""
    code = dice.choice((">h", ">i", ">q"))
    bits = struct.calcsize(code) * 8
    highest = 2 ** (bits - 1) - 1
    number = dice.choice((-1, -2, highest, -highest - 1, 0, 1, len(frame) % highest, 1_000_000 % highest))
    at = dice.randrange(len(frame) + 1)
    frame[at : at + bits // 8] = struct.pack(code, number)


def cut_end(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    del frame[dice.randrange(len(frame) + 1) :]


def cut_middle(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    at = dice.randrange(len(frame) + 1)
    del frame[at : at + dice.randint(1, MAX_CUT)]


def insert_bytes(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    at = dice.randrange(len(frame) + 1)
    frame[at:at] = dice.randbytes(dice.randint(1, MAX_CUT))


def repeat_part(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    at = dice.randrange(len(frame) + 1)
    frame[at:at] = frame[at : at + dice.randint(1, MAX_CUT)] * dice.choice((1, 2, 50))


def splice(frame: bytearray, dice: random.Random, others: Sequence[bytes]) -> None:
    """The beginning of this frame, the end of another."""
    other = dice.choice(others)
    frame[dice.randrange(len(frame) + 1) :] = other[dice.randrange(len(other) + 1) :]


def change_api(frame: bytearray, dice: random.Random, _others: Sequence[bytes]) -> None:
    """Another API or version in the header."""
    frame[:4] = struct.pack(">hh", dice.choice((*ApiKey, -1, 32767)), dice.randrange(-1, 20))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bit, flip_bit, set_byte, set_byte, set_number, set_number, cut_end, cut_middle, insert_bytes, repeat_part,
    splice, change_api,
)  # fmt: skip


def malformed_frame(frames: Sequence[bytes], dice: random.Random) -> bytes:
    """One of the frames after one to `MAX_CHANGES` mutations, mostly behind its header."""
    frame = bytearray(dice.choice(frames))
    header = bytes(frame[:HEADER_BYTES]) if dice.random() < 0.9 else b""
    del frame[: len(header)]
    for _ in range(dice.randint(1, MAX_CHANGES)):
        dice.choice(MUTATIONS)(frame, dice, frames)
    return header + bytes(frame)
