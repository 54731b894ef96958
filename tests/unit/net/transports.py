"""A transport that remembers what was done to it, and a peer that feeds bytes as a socket would."""

import asyncio
from typing import Any


class RecordingTransport(asyncio.Transport):
    def __init__(self, peername: tuple[str, int] = ("10.0.0.7", 5000)) -> None:
        super().__init__({"peername": peername, "discard": self._discard})
        self.written = bytearray()
        self.aborted = False
        self.discarded = False
        self.closed = False
        self.reading = True
        self.protocol: Any = None
        self.buffered = 0
        """What the peer has not taken, as far as the test says so."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def _discard(self) -> None:
        self.aborted = self.discarded = True


def connect(protocol: asyncio.BufferedProtocol, peername: tuple[str, int] = ("10.0.0.7", 5000)) -> RecordingTransport:
    transport = RecordingTransport(peername)
    transport.protocol = protocol
    protocol.connection_made(transport)
    return transport


def feed(transport: RecordingTransport, content: bytes, at_most: int = 1 << 30) -> int:
    """Hand over as a socket does: only while it reads, only what fits. The bytes taken."""
    taken = 0
    while taken < len(content) and transport.reading and not transport.aborted:
        room = transport.protocol.get_buffer(-1)
        assert len(room) > 0, "the protocol offered no room while reading"
        part = content[taken : taken + min(len(room), at_most)]
        room[: len(part)] = part
        del room
        transport.protocol.buffer_updated(len(part))
        taken += len(part)
    return taken


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
