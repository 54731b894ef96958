"""Writes responses to one client in chunks, as fast as the client reads.

Parts from files are read when the socket has room. uvloop has no sendfile, so each chunk passes through memory; a
client that does not read costs one chunk.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from klamm.net.memory_limits import ResponseMemory

Buffer = bytes | bytearray | memoryview


class LateBytes(Protocol):
    """A part of a response that is read when it can be sent; its length is already announced.

    Both methods raise KlammError if the bytes are lost: then the connection must end.
    """

    def __len__(self) -> int: ...
    def read_cached(self, start: int, count: int) -> Buffer | None:
        """Return between one and `count` bytes; None if the disk would have to be read."""
        ...

    async def read(self, start: int, count: int) -> Buffer:
        """Return exactly `count` bytes from position `start` of the slice."""
        ...


Part = Buffer | LateBytes
Answer = Sequence[Part] | None
"""The complete response frame in parts; None where the request is owed none (acks=0)."""

_JOIN_BYTES = 64 * 1024  # below this one copy is cheaper than one more system call
_IN_MEMORY = (bytes, bytearray, memoryview)


class ResponseWriter:
    """Writes one connection's responses; `blocked` while the peer does not read; `on_failed` ends the connection."""

    __slots__ = (
        "_at", "_held", "_memory", "_on_failed", "_on_sent", "_parts", "_queued", "_reading",
        "_transport", "blocked",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        memory: ResponseMemory,
        on_sent: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._transport = transport
        self._memory = memory
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._parts: deque[Part] = deque()
        self._at = 0
        """So much of the first part is written."""
        self._queued = 0
        """Bytes of the parts that are in memory and not written."""
        self._held = 0
        self._reading: asyncio.Task[Buffer] | None = None
        self.blocked = False

    @property
    def is_busy(self) -> bool:
        """Whether bytes are left to write, or the peer has not read what was written."""
        return self.blocked or bool(self._parts)

    def write(self, parts: Sequence[Part]) -> None:
        """Write one response, or queue what the peer cannot take yet."""
        size = sum(map(len, parts))
        if size <= _JOIN_BYTES and not self._parts and all(isinstance(part, _IN_MEMORY) for part in parts):
            self._transport.write(b"".join(parts))  # type: ignore[arg-type]
        else:
            self._parts.extend(parts)
            self._queued += sum(len(part) for part in parts if isinstance(part, _IN_MEMORY))
            self._write_parts()
        self._update_memory()

    def resume(self) -> None:
        """Continue writing, because the socket accepts bytes again."""
        self.blocked = False
        self._write_parts()
        self._update_memory()

    def close(self) -> None:
        """Drop queued parts and cancel a read in progress."""
        self._parts.clear()
        self._queued = 0
        if self._reading is not None:
            self._reading.cancel()
        self._memory.change(-self._held)
        self._held = 0

    def _write_parts(self) -> None:
        """Write queued parts until the peer blocks or a chunk must be read from disk."""
        while self._parts and not self.blocked and self._reading is None:
            part = self._parts[0]
            if isinstance(part, _IN_MEMORY):
                self._write_chunk(part, self._next_chunk(part))
                continue
            count = min(len(part) - self._at, self._memory.chunk_bytes)
            try:
                chunk = part.read_cached(self._at, count)
            except Exception as error:
                self._on_failed(error)
                return
            if chunk is None:
                self._reading = asyncio.ensure_future(part.read(self._at, count))
                self._reading.add_done_callback(self._on_chunk_read)
                return
            self._write_chunk(part, chunk)

    def _next_chunk(self, part: Buffer) -> Buffer:
        """The next chunk of a part in memory, so that memory shrinks as the peer reads."""
        end = self._at + self._memory.chunk_bytes
        return part if not self._at and len(part) <= end else memoryview(part)[self._at : end]

    def _write_chunk(self, part: Part, chunk: Buffer) -> None:
        """Write a chunk of the first part and move on to the next part at its end."""
        self._at += len(chunk)
        if isinstance(part, _IN_MEMORY):
            self._queued -= len(chunk)
        if self._at >= len(part):
            self._parts.popleft()
            self._at = 0
        self._transport.write(chunk)  # may block us at once

    def _on_chunk_read(self, done: "asyncio.Task[Buffer]") -> None:
        """Write a chunk that was read from disk, then continue with the next one."""
        self._reading = None
        if done.cancelled() or not self._parts:
            return
        if error := done.exception():
            self._on_failed(error)
            return
        self._write_chunk(self._parts[0], done.result())
        self._write_parts()
        self._update_memory()
        if not self.is_busy:
            self._on_sent()

    def _update_memory(self) -> None:
        """Report to the memory limit how many bytes of responses are held in memory."""
        held = self._queued + (self._transport.get_write_buffer_size() if self.blocked else 0)
        difference, self._held = held - self._held, held
        if difference:
            self._memory.change(difference)
