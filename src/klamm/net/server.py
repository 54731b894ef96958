"""The server of a node: a connection's requests and responses in order, all buffers bounded.

One request at a time is served, except that a request may begin while others of its kind wait for nothing but their
responses: see `ClientConnection.let_next_begin`.

Source: SocketServer.scala, Selector.java; limits: SocketServerConfigs.java (3.9).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast

import structlog

from klamm.model.errors import KlammError
from klamm.net.client_connection import ClientConnection, Peer, do_nothing
from klamm.net.connection_table import ConnectionLimits, ConnectionTable
from klamm.net.memory_limits import MIN_CHUNK_BYTES, NO_LIMIT, RequestMemory, ResponseMemory
from klamm.net.receive_buffer import SMALL_BYTES, BadFrameSize, ReceiveBuffer
from klamm.net.response_writer import Answer, ResponseWriter
from klamm.runtime.network import SYSTEM_BUFFERS, Listener, Network, SocketBuffers

_WRITE_HIGH_WATER_BYTES: Final = MIN_CHUNK_BYTES - 1  # one chunk at a time
_IDLE_CHECKS: Final = 10
MAX_UNANSWERED: Final = 100
"""Requests of one connection that wait for their responses."""

log = structlog.get_logger("net")


class CloseConnection(KlammError):
    """A handler raises this if it cannot answer a request: the connection is closed, the text is logged."""


class EndsWithClient(NamedTuple):
    """A future response that is cancelled when its client disconnects."""

    answer: Awaitable[Answer]


Handler = Callable[[bytes, ClientConnection], Answer | Awaitable[Answer] | EndsWithClient]
"""Serves one frame. An answer that is ready is written at once; one that must wait is awaited, and nothing else
of that connection is served meanwhile, unless the handler calls `let_next_begin`."""
MayOverlap = Callable[[bytes], bool]
"""Whether the request in this frame may begin while earlier requests, which may overlap as well, have no response."""


def _never(_: bytes) -> bool:
    """Return false: no request may begin before the response to the one before it."""
    return False


class _Unanswered:
    """A request without a response, or one whose response waits for those of earlier requests."""

    __slots__ = ("answer", "head", "is_done", "request_bytes", "waiting")

    def __init__(self, request_bytes: int, head: bytes) -> None:
        self.request_bytes = request_bytes
        """Of the request memory; 0 once they are released."""
        self.head = head
        """The first bytes of the frame, for the log: not the frame, which may be large and is no longer needed."""
        self.is_done = False
        self.answer: Answer = None
        """Once it is done."""
        self.waiting: asyncio.Future[Answer] | None = None
        """What to cancel when the client leaves."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    max_request_bytes: int = 100 * 1024 * 1024
    max_idle_ms: int = 600_000
    queued_request_bytes: int = NO_LIMIT
    queued_response_bytes: int = 128 * 1024 * 1024
    buffers: SocketBuffers = SYSTEM_BUFFERS
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


class Server:
    """All listeners of one node. `bind` each, then `start`: addresses are reserved before clients can connect."""

    def __init__(self, network: Network, limits: ServerLimits, protected_listener: str | None = None) -> None:
        self._network = network
        self._handle: Handler | None = None
        self._may_overlap: MayOverlap = _never
        self._limits = limits
        self._table = ConnectionTable(limits.connections, protected_listener)
        self.request_memory = RequestMemory(limits.queued_request_bytes)
        self.response_memory = ResponseMemory(limits.queued_response_bytes)
        self._listeners: list[Listener] = []
        self._idle_check: asyncio.TimerHandle | None = None

    def limit_connections(self, limits: ConnectionLimits) -> None:
        """Set new limits for later connections; open ones stay."""
        self._table.set_limits(limits)

    async def bind(self, name: str, host: str, port: int, backlog: int = 50) -> int:
        """Bind an address for one more listener and return its port. Raises OSError."""

        def make_connection() -> asyncio.BaseProtocol:
            """Return the asyncio protocol for one accepted client connection."""
            assert self._handle is not None, "a client connected before Server.start"
            return ServerConnection(
                name,
                self._handle,
                self._may_overlap,
                self._limits.max_request_bytes,
                self._table,
                self.request_memory,
                self.response_memory,
            )

        listener = await self._network.listen(make_connection, host, port, backlog, self._limits.buffers)
        self._listeners.append(listener)
        return listener.port

    async def start(self, handle: Handler, may_overlap: MayOverlap = _never) -> None:
        """Accept connections on every listener."""
        self._handle, self._may_overlap = handle, may_overlap
        for listener in self._listeners:
            await listener.start()
        if self._limits.max_idle_ms > 0:
            self._check_idle()

    async def close(self) -> None:
        """Stop accepting and close every connection; requests in progress get no response."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for connection in list(self._table):
            connection.end()
        self.response_memory.close()

    def _check_idle(self) -> None:
        """Close connections idle for `connections.max.idle.ms`, and schedule the next check."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._limits.max_idle_ms / 1000
        for connection in list(self._table):
            if connection.is_idle_since(oldest):
                connection.end()
        self._idle_check = loop.call_later(self._limits.max_idle_ms / 1000 / _IDLE_CHECKS, self._check_idle)


class ServerConnection(asyncio.BufferedProtocol):
    """One client connection: the requests in progress, and one complete request after them.

    Reading continues until the receive buffer is full, so that a disconnect is noticed while a request waits.
    """

    __slots__ = (
        "_client", "_handle", "_has_ended", "_is_serving", "_keeps_order", "_listener", "_loop", "_may_overlap",
        "_next", "_paused", "_received", "_request_bytes", "_request_memory", "_response_memory", "_table",
        "_taken_bytes", "_transport", "_unanswered", "_writer", "last_active",
    )  # fmt: skip

    def __init__(
        self,
        listener: str,
        handle: Handler,
        may_overlap: MayOverlap,
        max_request_bytes: int,
        table: ConnectionTable,
        request_memory: RequestMemory,
        response_memory: ResponseMemory,
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._may_overlap = may_overlap
        self._table = table
        self._request_memory = request_memory
        self._response_memory = response_memory
        self._received = ReceiveBuffer(max_request_bytes, self._take_memory)
        self._transport: asyncio.Transport | None = None
        self._writer: ResponseWriter | None = None
        self._next: bytes | None = None  # complete, waiting for requests in progress
        self._unanswered: deque[_Unanswered] = deque()
        self._keeps_order = False
        """Whether the newest of these has to end before another request begins."""
        self._is_serving = False
        self._has_ended = False
        """Whether the client sends nothing more."""
        self._paused = False
        self._taken_bytes = 0
        """Of the request memory, requests in progress included."""
        self._request_bytes = 0
        """Of these, for requests in progress."""
        self._client = ClientConnection(Peer(listener, "", 0))
        self._client.let_next_begin = self._let_next_begin
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection."""
        return self._listener

    @property
    def remote_host(self) -> str:
        """The address of the client."""
        return self._client.peer.host

    # -- asyncio.BufferedProtocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the accepted connection in the table, and close it where a connection limit is reached."""
        transport = self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self._client.peer = Peer(self._listener, str(name[0]), int(name[1]))
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        self._writer = ResponseWriter(
            transport, self._response_memory, self._on_response_written, self._on_response_failed
        )
        if refusal := self._table.admit(self):
            log.warning("connection refused", peer=str(self._client.peer), listener=self._listener, reason=refusal)
            self._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what still runs for the client and free its buffers."""
        self._abort()
        self._table.remove(self)
        # without these references this object goes at once: the garbage collector would find it hours later
        self._client.let_next_begin = do_nothing
        self._writer = None
        self._received.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the part of the receive buffer where asyncio shall put the next bytes."""
        return self._received.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Process `nbytes` received bytes, and serve the next request if one is complete."""
        self._received.received(nbytes)
        self.last_active = self._loop.time()
        if self._received.has_large_frame:
            # the transport has a view of the memory until this returns: the frame would be copied
            self._set_reading(False)
            self._loop.call_soon(self._serve_next)
            return
        self._serve_next()

    def eof_received(self) -> bool:
        """Keep the connection while requests that arrived before the client's end are not executed yet.

        A producer with acks=0 closes its connection once it has sent its records. Source: Selector.java
        (maybeReadFromClosingChannel).
        """
        self._has_ended = True
        return self._is_executing()

    def pause_writing(self) -> None:
        """Stop writing responses: the socket accepts no more, and the connection counts as stalled."""
        if self._writer is not None:
            self._writer.blocked = True
            self._response_memory.mark_stalled(self)

    def resume_writing(self) -> None:
        """Continue writing responses and serving requests: the socket accepts bytes again."""
        if self._writer is not None:
            self.last_active = self._loop.time()
            self._response_memory.mark_reading(self)
            self._writer.resume()
            self._serve_next()

    # -- for the table of connections and the limits of memory ---------------------------------------------------------

    def is_idle_since(self, moment: float) -> bool:
        """Whether no bytes were received or sent since `moment`.

        A connection with a request in progress is idle only if its peer does not read.
        """
        is_blocked = self._writer is not None and self._writer.blocked
        return self.last_active < moment and (is_blocked or not self._unanswered)

    def end(self) -> None:
        """Close the connection without waiting for the client to read."""
        self._abort()

    def close_stalled(self) -> None:
        """Close the connection because its peer does not read and memory is needed."""
        self._close_with_warning(
            "the client does not read its responses, and the memory for responses is full: repair the client, or raise "
            "klamm.queued.max.response.bytes"
        )

    def on_memory_available(self) -> None:
        """Request memory was released: try again to receive the large request."""
        self._serve_next()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _serve_next(self) -> None:
        """Serve complete requests until one has to wait, the peer stops reading, or bytes run out."""
        while self._transport is not None:
            if self._next is None:
                try:
                    self._next = self._received.next_frame()
                except BadFrameSize as error:
                    self._close_with_warning(str(error))
                    return
            frame = self._next
            if frame is None or self._has_to_wait(frame):
                if not self._has_ended:
                    self._set_reading(not self._received.waits_for_memory and not self._received.is_full)
                elif not self._is_executing():
                    self._transport.close()
                return
            self._next = None
            self._is_serving = True
            self._serve(frame)
            self._is_serving = False

    def _has_to_wait(self, frame: bytes) -> bool:
        """Whether this request may not begin yet, because of earlier ones or of a response not fully written."""
        if self._writer is not None and self._writer.is_busy:
            return True
        if not self._unanswered:
            return False
        return self._keeps_order or len(self._unanswered) >= MAX_UNANSWERED or not self._may_overlap(frame)

    def _is_executing(self) -> bool:
        """Whether a complete request waits to begin, or the newest one does more than to wait for its response.

        A Fetch that waits for records is not worth waiting for: nobody reads its response.
        """
        if not self._keeps_order:
            return self._next is not None
        newest = self._unanswered[-1]
        return self._may_overlap(newest.head) or (self._next is not None and newest.waiting is None)

    def _let_next_begin(self) -> None:
        """Let the next request begin, as far as it may overlap with the newest, whose frame is no longer needed."""
        self._keeps_order = False
        if not self._is_serving and self._unanswered:
            self._loop.call_soon(self._release_and_serve_next, self._unanswered[-1])

    def _release_and_serve_next(self, request: _Unanswered) -> None:
        """Release the memory of a request that waits for nothing but its response, and serve the next one."""
        self._release_request(request)
        self._serve_next()

    def _serve(self, frame: bytes) -> None:
        """Pass one request to the handler; send its response now, or when its future is done."""
        request_bytes = len(frame) if len(frame) + 4 > SMALL_BYTES else 0
        self._request_bytes += request_bytes
        self._keeps_order = True
        try:
            answer = self._handle(frame, self._client)
        except Exception as error:
            self._release_memory(request_bytes)
            self._close_after_error(error, frame[:4])
            return
        ends_with_client = isinstance(answer, EndsWithClient)
        pending = answer.answer if isinstance(answer, EndsWithClient) else answer
        request = _Unanswered(request_bytes, frame[:4])
        self._unanswered.append(request)
        if pending is None or not isinstance(pending, Awaitable):
            self._end_request(request, pending)
            return
        waiting = asyncio.ensure_future(pending)
        if ends_with_client:
            request.waiting = waiting
        waiting.add_done_callback(partial(self._on_request_done, request))
        if not self._keeps_order:
            self._release_request(request)

    def _on_request_done(self, request: _Unanswered, done: "asyncio.Future[Answer]") -> None:
        """End a request that had to wait, then serve the next one."""
        if done.cancelled() or (error := done.exception()) is not None:
            self._release_request(request)
            if done.cancelled():
                self._abort()
            else:
                assert error is not None
                self._close_after_error(error, request.head)
            return
        self.last_active = self._loop.time()
        self._end_request(request, done.result())
        self._serve_next()

    def _end_request(self, request: _Unanswered, answer: Answer) -> None:
        """Release the request's memory, and send its response and those after it that waited for it."""
        self._release_request(request)
        request.answer, request.is_done, request.waiting = answer, True, None
        if self._unanswered and self._unanswered[-1] is request:
            self._keeps_order = False
        while self._unanswered and self._unanswered[0].is_done:
            self._send(self._unanswered.popleft().answer)

    def _take_memory(self, size: int) -> bool:
        """Reserve memory for a large request; False where it has to wait."""
        is_taken = self._request_memory.reserve(size, self)
        if is_taken:
            self._taken_bytes += size
        return is_taken

    def _release_request(self, request: _Unanswered) -> None:
        """Release the memory of a request, once: its frame is no longer needed."""
        size, request.request_bytes = request.request_bytes, 0
        self._release_memory(size)

    def _release_memory(self, size: int) -> None:
        """Release the memory of a request that is no longer in progress."""
        if size:
            self._request_bytes -= size
            self._taken_bytes -= size
            self._request_memory.release(size)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _send(self, answer: Answer) -> None:
        """Write a response, unless the request has none or the connection is closing."""
        transport = self._transport
        if answer is None or transport is None or self._writer is None or transport.is_closing():
            return
        self._writer.write(answer)

    def _on_response_written(self) -> None:
        """Serve the next request after the response was written."""
        self.last_active = self._loop.time()
        self._serve_next()

    def _on_response_failed(self, error: BaseException) -> None:
        """Close the connection: the response's length is sent already, but the rest cannot be read."""
        self._close_after_error(error if not isinstance(error, KlammError) else CloseConnection(str(error)), b"")

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close_after_error(self, error: BaseException, head: bytes) -> None:
        """Log a failed request and close the connection."""
        if isinstance(error, CloseConnection):
            self._close_with_warning(str(error))
            return
        log.error(
            "unexpected error while handling a request: its connection is closed, the client may connect again",
            peer=str(self._client.peer),
            head=head.hex(),
            exc_info=error,
        )
        self._abort()

    def _close_with_warning(self, reason: str) -> None:
        """Log why the connection is closed, with its client, and close it."""
        client = self._client
        log.warning(
            "connection closed",
            peer=str(client.peer),
            listener=self._listener,
            principal=str(client.principal),
            software=f"{client.software.name} {client.software.version}",
            reason=reason,
        )
        self._abort()

    def _abort(self) -> None:
        """Abort the connection, release its memory and cancel its requests; may be called twice."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        self._next = None
        transport.abort()
        if self._writer is not None:
            self._writer.close()
        self._response_memory.mark_reading(self)
        self._request_memory.stop_waiting(self)
        for request in self._unanswered:
            if request.waiting is not None:
                request.waiting.cancel()
        self._unanswered.clear()
        incomplete_bytes, self._taken_bytes = self._taken_bytes - self._request_bytes, self._request_bytes
        if incomplete_bytes:
            self._request_memory.release(incomplete_bytes)

    def _set_reading(self, reading: bool) -> None:
        """Pause or resume reading from the socket."""
        if self._transport is None or reading is not self._paused or self._transport.is_closing():
            return
        self._paused = not reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
