"""Keys and values of the coordinators' topics: two bytes with the version, then the message in that version."""

import struct
from collections.abc import Generator
from typing import Final, TypeVar

from klamm.model.errors import KlammError
from klamm.wire.codec import WireMessage
from klamm.wire.errors import WireError

_VERSION: Final = struct.Struct(">h")
MessageT = TypeVar("MessageT", bound=WireMessage)
ResultT = TypeVar("ResultT")


class UnknownRecord(KlammError):
    """A record of a version that no 3.9 coordinator writes, or that cannot be decoded."""


def encode_record(message: WireMessage, version: int) -> bytes:
    """Return the message encoded in this version, after two bytes with the version."""
    return _VERSION.pack(version) + message.encode(version)


def encode_record_in_steps(message: WireMessage, version: int) -> Generator[None, None, bytes]:
    """Encode as `encode_record` does, and pause after every step of elements."""
    parts = yield from message.encode_in_steps(version)
    return b"".join((_VERSION.pack(version), *parts))


def version_of(record: bytes, what: str) -> int:
    """Return the version that the first two bytes name. Raises UnknownRecord where there are fewer.

    `what` names the record in the error, for example "a key in __consumer_offsets".
    """
    if len(record) < _VERSION.size:
        raise UnknownRecord(
            f"cannot read {what}: it has {len(record)} bytes, but its version alone needs {_VERSION.size}"
        )
    version: int = _VERSION.unpack_from(record)[0]
    return version


def decode_record(kind: type[MessageT], record: bytes, version: int, what: str) -> MessageT:
    """Decode the message after the version. Raises UnknownRecord, which names the record as `what`."""
    try:
        message: MessageT = kind.decode(record, version, _VERSION.size)
    except WireError as error:
        raise UnknownRecord(f"cannot decode {what} with the record version {version}: {error}") from error
    return message


def decode_record_in_steps(
    kind: type[MessageT], record: bytes, version: int, what: str
) -> Generator[None, None, MessageT]:
    """Decode as `decode_record` does, and pause after every step of elements. Raises UnknownRecord."""
    try:
        message: MessageT = yield from kind.decode_in_steps(record, version, _VERSION.size, len(record))
    except WireError as error:
        raise UnknownRecord(f"cannot decode {what} with the record version {version}: {error}") from error
    return message


def result_of(steps: Generator[None, None, ResultT]) -> ResultT:
    """Run the generator to its end at once and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: ResultT = done.value
            return result
