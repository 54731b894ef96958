"""Splits received bytes into frames: `int32 size`, then `size` bytes. Source: NetworkReceive.java.

The socket writes directly into this memory (asyncio's BufferedProtocol), so that a frame of a megabyte is not joined
from pieces. The memory grows with the received bytes, not with the announced size. A large frame can be
returned without a copy: to copy the largest one would hold the event loop for a tenth of a second.
"""

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Final

from klamm.model.errors import KlammError

_SIZE: Final = struct.Struct(">i")
SMALL_BYTES: Final = 16 * 1024
_FIRST_BIG_BYTES: Final = 1024 * 1024
_MOST_GROWTH_BYTES: Final = 8 * 1024 * 1024
"""Memory is added and zeroed in such steps, each of which takes a few milliseconds."""


class BadFrameSize(KlammError):
    """The announced frame size is not allowed: another protocol, or a request above socket.request.max.bytes."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(
            f"the client announced a request of {size} bytes, socket.request.max.bytes allows {max_bytes}. Check that "
            "it speaks Kafka's protocol, or raise socket.request.max.bytes."
        )
        self.size = size


class ReceiveBuffer:
    """Fill `writable()`, call `received(n)`, then take frames with `next_frame()`.

    Small frames share an area of 16 KiB; a larger frame gets memory of its own, which grows as bytes arrive. Returned
    frames own their bytes. A view from `writable` must be dropped before the next one is taken.
    """

    __slots__ = (
        "_big", "_big_size", "_end", "_filled", "_grown", "_max_bytes", "_small", "_start", "_take", "_view",
        "waits_for_memory",
    )  # fmt: skip

    def __init__(self, max_bytes: int, take: Callable[[int], bool] = lambda size: True) -> None:
        """`take` decides whether a large frame may get memory; after False, `next_frame` asks again."""
        self._max_bytes = max_bytes
        self._take = take
        self.waits_for_memory = False
        self._small = bytearray(SMALL_BYTES)
        self._view = memoryview(self._small)
        self._start = 0
        self._end = 0
        self._big: BytesIO | None = None
        self._big_size = 0
        self._grown = 0
        """The present size of the memory of a large frame."""
        self._filled = 0

    def close(self) -> None:
        """Free the memory of the buffer; nothing can be received any more."""
        self._take = _take_nothing
        self._big = None
        self._small = bytearray()
        self._view = memoryview(b"")

    @property
    def has_large_frame(self) -> bool:
        """Whether `next_frame` would return a large frame: without a copy if no view from `writable` is left."""
        return self._big is not None and self._filled == self._big_size > _FIRST_BIG_BYTES

    @property
    def is_full(self) -> bool:
        """Whether `next_frame` must be called before more bytes fit."""
        return self._big is None and self._end == SMALL_BYTES

    def writable(self) -> memoryview:
        """The memory for the next bytes; empty only while a full buffer waits for `next_frame`."""
        if self._big is not None:
            if self._filled == self._grown < self._big_size:
                self._grow()
            return self._big.getbuffer()[self._filled :]
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Count bytes that were written to the memory from `writable`."""
        if self._big is None:
            self._end += count
            return
        self._filled += count

    def next_frame(self) -> bytes | None:
        """The next complete frame without its size, or None. Raises BadFrameSize."""
        if self._big is not None:
            return self._pop_big_frame() if self._filled == self._big_size else None
        start = self._start
        held = self._end - start
        if held < 4:
            self._compact(4)
            return None
        size: int = _SIZE.unpack_from(self._small, start)[0]
        if not 0 <= size <= self._max_bytes:
            raise BadFrameSize(size, self._max_bytes)
        if held < size + 4:
            self._prepare_for_frame(size)
            return None
        frame = bytes(self._view[start + 4 : start + 4 + size])
        self._start = start + 4 + size
        if self._start == self._end:
            self._start = self._end = 0
        return frame

    def _prepare_for_frame(self, size: int) -> None:
        """Make space for an announced frame: in the small buffer, or in a big one if memory is free."""
        if size + 4 <= SMALL_BYTES:
            self._compact(size + 4)
            return
        self.waits_for_memory = not self._take(size)
        if self.waits_for_memory:
            return
        arrived = self._view[self._start + 4 : self._end]
        self._big = BytesIO()
        self._big_size = size
        self._grown = 0
        self._grow()
        self._filled = len(arrived)
        self._big.getbuffer()[: len(arrived)] = arrived
        self._start = self._end = 0

    def _compact(self, frame_bytes: int) -> None:
        """Move the held bytes to the front where a frame would not fit after them."""
        if self._start + frame_bytes > SMALL_BYTES:
            held = self._end - self._start
            self._small[:held] = self._small[self._start : self._end]
            self._start, self._end = 0, held

    def _grow(self) -> None:
        """Add memory for a large frame: at first as much as there is, at most `_MOST_GROWTH_BYTES`.

        The system moves large memory without copying it.
        """
        assert self._big is not None
        added = min(max(self._grown, _FIRST_BIG_BYTES), _MOST_GROWTH_BYTES)
        self._grown = min(self._big_size, self._grown + added)
        self._big.seek(self._grown - 1)
        self._big.write(b"\0")

    def _pop_big_frame(self) -> bytes:
        """Return the complete large frame, and use the small buffer again."""
        assert self._big is not None
        frame, self._big = self._big.getvalue(), None
        self._filled = self._big_size = 0
        return frame


def _take_nothing(_size: int) -> bool:
    """Refuse any memory: the `take` function of a closed buffer."""
    return False
