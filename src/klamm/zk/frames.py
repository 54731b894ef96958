"""Splits a stream of bytes into packets, each with its length in four bytes in front, in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.zk.jute import INT, MalformedPacket

HEAD_BYTES: Final = 16
"""The part of an oversized packet that is kept: xid, zxid and error, which tell whose reply it is."""
MAX_BYTES: Final = 1 << 30
"""A length above this is malformed."""


class Packet(NamedTuple):
    """One packet: `whole`, or only the first 16 bytes of one that is above the limit."""

    content: bytes
    whole: bool


class PacketReader:
    """Takes the bytes of a connection as they arrive, and returns packets."""

    __slots__ = ("_buffer", "_skip", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> Iterable[Packet]:
        """Add received bytes and return the packets that they complete; the caller must iterate to the end.

        Raises MalformedPacket for a wrong length.
        """
        size = len(data) - 4
        if not self._buffer and not self._skip and 0 <= size <= self.limit and INT.unpack_from(data)[0] == size:
            return (Packet(data[4:], True),)  # as nearly always: one packet, and all of it
        return self._split(data)

    def _split(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that `data` completes, and keep the rest for the next call."""
        if self._skip:
            dropped = min(self._skip, len(data))
            self._skip -= dropped
            data = data[dropped:]
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= 4:
                size: int = INT.unpack_from(self._buffer, start)[0]
                if not 0 <= size <= MAX_BYTES:
                    raise MalformedPacket(
                        f"a packet from ZooKeeper announces {size} bytes, but only 0 to {MAX_BYTES} are valid"
                    )
                if size > self.limit:
                    if len(self._buffer) - start < 4 + HEAD_BYTES:
                        break
                    yield Packet(bytes(self._buffer[start + 4 : start + 4 + HEAD_BYTES]), False)
                    end = start + 4 + size
                    self._skip = max(0, end - len(self._buffer))
                    start = min(end, len(self._buffer))
                    continue
                if len(self._buffer) - start < 4 + size:
                    break
                packet = bytes(memoryview(self._buffer)[start + 4 : start + 4 + size])
                start += 4 + size
                yield Packet(packet, True)
        finally:
            del self._buffer[:start]
