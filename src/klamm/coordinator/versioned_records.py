"""Keys and values of the coordinators' topics: two bytes with the version, then the message in that version."""

import struct
from typing import Final, TypeVar

from klamm.model.errors import KlammError
from klamm.wire.codec import WireMessage
from klamm.wire.errors import WireError

_VERSION: Final = struct.Struct(">h")
MessageT = TypeVar("MessageT", bound=WireMessage)


class UnknownRecord(KlammError):
    """A record of a version that no 3.9 coordinator writes, or that cannot be decoded."""


def encode_record(message: WireMessage, version: int) -> bytes:
    """Return the message encoded in this version, after two bytes with the version."""
    return _VERSION.pack(version) + message.encode(version)


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
    """Decode the message behind the version. Raises UnknownRecord, which names the record as `what`."""
    try:
        message: MessageT = kind.decode(record, version, _VERSION.size)
    except WireError as error:
        raise UnknownRecord(f"cannot decode {what} with the record version {version}: {error}") from error
    return message
