"""Limits on the memory of all connections: for requests being received, and for responses that clients do not read.

Source of the first: SimpleMemoryPool.java, `queued.max.request.bytes`. Kafka has no counterpart of the second, since it
sends from files. Here a response from a file needs one chunk of memory, other responses are in memory as a whole.
"""

import asyncio
from typing import Final, Protocol

NO_LIMIT: Final = -1
CHUNK_BYTES: Final = 256 * 1024
"""The bytes of a file that are read at a time."""
MIN_CHUNK_BYTES: Final = 16 * 1024
"""The size of a chunk near the limit."""
STALL_GRACE_S: Final = 1.0
"""How long a stalled connection is kept before it may be closed."""


class WaitsForMemory(Protocol):
    """A connection that waits for request memory."""

    def on_memory_available(self) -> None:
        """Called when memory may be free: try again to reserve it."""


class HoldsMemory(Protocol):
    """A connection with responses in memory."""

    def close_stalled(self) -> None:
        """Close the connection, because its peer does not read and the memory is needed."""


class RequestMemory:
    """The memory of requests being received or handled; small requests are not counted.

    As in Kafka one request may exceed the limit: it is accepted while any memory is free, so that the largest request
    can be received.
    """

    def __init__(self, limit: int = NO_LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[WaitsForMemory, None] = {}
        self.taken = 0

    def reserve(self, size: int, waiter: WaitsForMemory) -> bool:
        """Reserve memory; if none is free, returns false and notifies `waiter` when there may be."""
        if self._limit > 0 and self.taken >= self._limit:
            self._waiting[waiter] = None
            return False
        self._waiting.pop(waiter, None)
        self.taken += size
        return True

    def release(self, size: int) -> None:
        """Return `size` bytes to the limit, and call the waiters while memory is free."""
        self.taken -= size
        while self._waiting and self.taken < self._limit:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter.on_memory_available()

    def stop_waiting(self, waiter: WaitsForMemory) -> None:
        """Remove the waiter from the queue for memory."""
        self._waiting.pop(waiter, None)


class ResponseMemory:
    """Bytes of responses held in memory because their peers have not read them.

    Near the limit, responses from files are read in small chunks. Above it, the connections whose peers have not read
    for the longest are closed, until the rest fits.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stalled: dict[HoldsMemory, float] = {}
        """Connections whose peers do not read, since when; the longest first."""
        self._check: asyncio.TimerHandle | None = None
        self.held = 0

    @property
    def chunk_bytes(self) -> int:
        """How many bytes of a file to read next for a response: fewer when much memory is in use."""
        return CHUNK_BYTES if self.held + CHUNK_BYTES <= self._limit else MIN_CHUNK_BYTES

    def change(self, difference: int) -> None:
        """Add `difference` to the bytes held; above the limit stalled connections are closed."""
        self.held += difference
        if difference > 0 and self.held > self._limit:
            self._close_stalled_connections()

    def mark_stalled(self, connection: HoldsMemory) -> None:
        """Record that the connection's peer has stopped reading."""
        self._stalled[connection] = asyncio.get_running_loop().time()

    def mark_reading(self, connection: HoldsMemory) -> None:
        """Record that the connection's peer reads again, or that the connection is closed."""
        self._stalled.pop(connection, None)

    def close(self) -> None:
        """Stop the timer that checks the limit."""
        if self._check is not None:
            self._check.cancel()

    def _close_stalled_connections(self) -> None:
        """Close the connections that stalled first, each after its grace time, until memory is below the limit."""
        loop = asyncio.get_running_loop()
        while self.held > self._limit and self._stalled:
            connection, since = next(iter(self._stalled.items()))
            due = since + STALL_GRACE_S
            if due > loop.time():
                self._schedule_check(due)
                return
            del self._stalled[connection]
            connection.close_stalled()

    def _schedule_check(self, moment: float) -> None:
        """Check the limit again at this time."""
        if self._check is None:
            self._check = asyncio.get_running_loop().call_at(moment, self._check_limit)

    def _check_limit(self) -> None:
        """Close stalled connections while the limit is exceeded; called by the timer."""
        self._check = None
        if self.held > self._limit:
            self._close_stalled_connections()
