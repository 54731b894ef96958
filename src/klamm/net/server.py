"""Connections to a node: one request in progress on each, answers in order, every buffer bounded.

Source: SocketServer.scala, Selector.java; reference of the limits: SocketServerConfigs.java (3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import structlog

from klamm.model.errors import KlammError
from klamm.net.connection_table import ConnectionLimits, ConnectionTable
from klamm.net.receive_buffer import BadFrameSize, ReceiveBuffer
from klamm.runtime.network import Listener, Network

Buffer = bytes | bytearray | memoryview
Answer = Sequence[Buffer] | None
"""The complete response frame in pieces; None where the request is owed none (acks=0)."""

_JOIN_BYTES: Final = 64 * 1024  # below this one copy is cheaper than one more system call
_WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
_IDLE_CHECKS: Final = 10

log = structlog.get_logger("net")


class CloseConnection(KlammError):
    """Said by a handler: this request cannot be answered, the connection ends. Its text goes to the log."""


class Peer(NamedTuple):
    """Where a request came from and on which of our listeners."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Handler = Callable[[bytes, Peer], Answer | Awaitable[Answer]]
"""Serves one frame. An answer that is ready is written at once; one that must wait is awaited, and nothing else
of that connection is served meanwhile."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    max_request_bytes: int = 100 * 1024 * 1024
    max_idle_ms: int = 600_000
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


class Server:
    """All listeners of one node. `bind` each, then `start`; a port is refused to others before clients get in."""

    def __init__(self, network: Network, limits: ServerLimits, protected_listener: str | None = None) -> None:
        self._network = network
        self._handle: Handler | None = None
        self._limits = limits
        self._table = ConnectionTable(limits.connections, protected_listener)
        self._listeners: list[Listener] = []
        self._idle_check: asyncio.TimerHandle | None = None

    def limit_connections(self, limits: ConnectionLimits) -> None:
        """For connections to come; those that are open stay."""
        self._table.limit(limits)

    async def bind(self, name: str, host: str, port: int, backlog: int = 50) -> int:
        """Take an address for one more listener; the port. Raises OSError where it cannot be had."""

        def make() -> asyncio.BaseProtocol:
            assert self._handle is not None, "nobody gets in before the start"
            return ServerConnection(name, self._handle, self._limits.max_request_bytes, self._table)

        listener = await self._network.listen(make, host, port, backlog)
        self._listeners.append(listener)
        return listener.port

    async def start(self, handle: Handler) -> None:
        """Let clients in on every listener."""
        self._handle = handle
        for listener in self._listeners:
            await listener.start()
        if self._limits.max_idle_ms > 0:
            self._check_idle()

    @property
    def connection_count(self) -> int:
        return len(self._table)

    async def close(self) -> None:
        """Accept no more and end every connection; requests still in progress lose their answers."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for connection in list(self._table):
            connection.end()

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._limits.max_idle_ms / 1000
        for connection in list(self._table):
            if connection.is_idle_since(oldest):
                connection.end()
        self._idle_check = loop.call_later(self._limits.max_idle_ms / 1000 / _IDLE_CHECKS, self._check_idle)


class ServerConnection(asyncio.BufferedProtocol):
    """One client. At most one frame is being served, one more stands complete behind it; then reading pauses."""

    __slots__ = (
        "_blocked", "_busy", "_handle", "_listener", "_loop", "_next", "_paused", "_received", "_table", "_transport",
        "last_active", "peer",
    )  # fmt: skip

    def __init__(self, listener: str, handle: Handler, max_request_bytes: int, table: ConnectionTable) -> None:
        self._listener = listener
        self._handle = handle
        self._table = table
        self._received = ReceiveBuffer(max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._next: bytes | None = None  # complete, waiting for the request in progress
        self._busy = False
        self._blocked = False  # the peer does not read what we wrote
        self._paused = False
        self.peer = Peer(listener, "", 0)
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def remote_host(self) -> str:
        return self.peer.host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self.peer = Peer(self._listener, str(name[0]), int(name[1]))
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        if refusal := self._table.admit(self):
            log.warning("connection refused", peer=str(self.peer), listener=self._listener, reason=refusal)
            self._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._next = None
        self._table.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._received.received(nbytes)
        self.last_active = self._loop.time()
        self._advance()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self.last_active = self._loop.time()
        self._advance()

    def is_idle_since(self, moment: float) -> bool:
        """Nothing came or went since; a request in progress is not idle, a peer that does not read is."""
        return self.last_active < moment and (self._blocked or not self._busy)

    def end(self) -> None:
        """Close without waiting for what the peer has not read."""
        self._drop()

    def _advance(self) -> None:
        """Serve what is complete, until a request has to wait, the peer stops reading, or bytes run out."""
        while self._transport is not None:
            frame, self._next = self._next, None
            if frame is None:
                try:
                    frame = self._received.next_frame()
                except BadFrameSize as error:
                    self._refuse(str(error))
                    return
            if frame is None:
                self._resume_reading()
                return
            if self._busy or self._blocked:
                self._next = frame
                self._pause_reading()
                return
            self._serve(frame)

    def _serve(self, frame: bytes) -> None:
        try:
            answer = self._handle(frame, self.peer)
        except Exception as error:
            self._failed(error, frame[:4])
            return
        if answer is None or not isinstance(answer, Awaitable):
            self._send(answer)
            return
        self._busy = True
        waiting = asyncio.ensure_future(answer)
        head = frame[:4]  # not the frame: it may be large and is no longer needed
        waiting.add_done_callback(lambda done: self._finished(done, head))

    def _finished(self, done: "asyncio.Future[Answer]", head: bytes) -> None:
        self._busy = False
        if done.cancelled():
            self._drop()
            return
        if error := done.exception():
            self._failed(error, head)
            return
        self._send(done.result())
        self.last_active = self._loop.time()
        self._advance()

    def _send(self, answer: Answer) -> None:
        transport = self._transport
        if answer is None or transport is None or transport.is_closing():
            return
        if sum(map(len, answer)) <= _JOIN_BYTES:
            transport.write(b"".join(answer))
            return
        for part in answer:
            transport.write(part)

    def _failed(self, error: BaseException, head: bytes) -> None:
        if isinstance(error, CloseConnection):
            self._refuse(str(error))
            return
        log.error("request failed, connection closed", peer=str(self.peer), head=head.hex(), exc_info=error)
        self._drop()

    def _refuse(self, reason: str) -> None:
        log.warning("connection closed", peer=str(self.peer), listener=self._listener, reason=reason)
        self._drop()

    def _drop(self) -> None:
        transport, self._transport = self._transport, None
        self._next = None
        if transport is not None:
            transport.abort()

    def _pause_reading(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
