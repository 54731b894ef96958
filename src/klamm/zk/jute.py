"""Jute, ZooKeeper's serialisation: big-endian numbers, strings and buffers with a length.

Source: BinaryInputArchive.java.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.model.errors import KlammError
from klamm.zk.acl import Acl

INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
STAT: Final = struct.Struct(">qqqqiiiqiiq")

pack_int: Final = INT.pack


class MalformedPacket(KlammError):
    """The bytes do not follow ZooKeeper's protocol."""


class Stat(NamedTuple):
    """The metadata of a znode; `ctime` and `mtime` are in ms since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def text(value: str) -> bytes:
    """Encode a string."""
    raw = value.encode()
    return pack_int(len(raw)) + raw


def buffer(value: bytes | None) -> bytes:
    """Encode a buffer; None and empty are encoded differently, since a znode may hold either."""
    return b"\xff\xff\xff\xff" if value is None else pack_int(len(value)) + value


def texts(values: Sequence[str]) -> bytes:
    """Encode a vector of strings."""
    return pack_int(len(values)) + b"".join(map(text, values))


def acls(values: Sequence[Acl]) -> bytes:
    """Encode an access control list."""
    entries = (pack_int(a.permissions) + text(a.scheme) + text(a.identity) for a in values)
    return pack_int(len(values)) + b"".join(entries)


class Reader:
    """Decodes the fields of one packet in order. Raises MalformedPacket if a field exceeds the packet."""

    __slots__ = ("packet", "position")

    def __init__(self, packet: bytes, position: int = 0) -> None:
        self.packet = packet
        self.position = position

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return len(self.packet) - self.position

    def int32(self) -> int:
        """Read a signed integer of 4 bytes."""
        start = self.position
        if start + 4 > len(self.packet):
            self._advance(4)
        self.position = start + 4
        value: int = INT.unpack_from(self.packet, start)[0]
        return value

    def int64(self) -> int:
        """Read a signed integer of 8 bytes."""
        value: int = LONG.unpack_from(self.packet, self._advance(8))[0]
        return value

    def boolean(self) -> bool:
        """Read a boolean of 1 byte."""
        return self.packet[self._advance(1)] != 0

    def buffer(self) -> bytes | None:
        """Read a byte string after its length; None for the length -1."""
        size = self.int32()
        if size == -1:
            return None
        start = self.position
        end = start + size
        if not start <= end <= len(self.packet):
            self._advance(size)
        self.position = end
        return self.packet[start:end]

    def text(self) -> str:
        """Decode a string; a null string is empty. Raises MalformedPacket also for invalid UTF-8."""
        raw = self.buffer()
        try:
            return raw.decode() if raw is not None else ""
        except UnicodeDecodeError as error:
            raise MalformedPacket(
                f"the string that ends at offset {self.position} of the packet is not UTF-8"
            ) from error

    def texts(self) -> list[str]:
        """Read a count and this many strings."""
        return [self.text() for _ in range(self._count(4))]

    def acls(self) -> list[Acl]:
        """Read a count and this many ACL entries."""
        return [Acl(self.int32(), self.text(), self.text()) for _ in range(self._count(12))]

    def stat(self) -> Stat:
        """Read the Stat of a znode."""
        return Stat._make(STAT.unpack_from(self.packet, self._advance(STAT.size)))

    def _count(self, smallest_element: int) -> int:
        """Decode a vector's length; a null vector is empty. Raises MalformedPacket if its elements cannot fit."""
        count = self.int32()
        if count == -1:
            return 0
        if not 0 <= count * smallest_element <= self.left:
            raise MalformedPacket(
                f"a vector of {count} elements at offset {self.position} exceeds the {self.left} bytes left"
            )
        return count

    def _advance(self, size: int) -> int:
        """The offset of the next `size` bytes, which are skipped. Raises MalformedPacket if they exceed the packet."""
        start = self.position
        if not 0 <= size <= len(self.packet) - start:
            raise MalformedPacket(
                f"a field of {size} bytes at offset {start} exceeds the {len(self.packet) - start} bytes left"
            )
        self.position = start + size
        return start
