"""`GET /metrics` over HTTP/1.1, on a port of its own: a page of readings, one request per connection.

Served on the node's event loop, with limits on connections, request size and time. Other requests get an error in one
line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

import structlog

from klamm.runtime.network import Listener, Network

MAX_CONNECTIONS: Final = 16
MAX_REQUEST_BYTES: Final = 8 * 1024
TIMEOUT_S: Final = 10.0
log = structlog.get_logger("metrics")

Page = Callable[[str], Awaitable[tuple[bytes, str]]]
"""From the Accept header to a body and its content type."""


class MetricsEndpoint:
    """The HTTP server of the metrics page: `open` binds the port, `close` ends all connections."""

    def __init__(self, network: Network, page: Page) -> None:
        self._network = network
        self._page = page
        self._listener: Listener | None = None
        self._open: set[_Exchange] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen for HTTP; the bound port. Raises OSError where it cannot be bound."""
        self._listener = await self._network.listen(self._new_connection, host, port)
        await self._listener.start()
        log.info("serving metrics", host=host, port=self._listener.port)
        return self._listener.port

    async def close(self) -> None:
        """Stop listening and abort the open connections."""
        if self._listener is not None:
            await self._listener.close()
        for exchange in list(self._open):
            exchange.abort()

    def _new_connection(self) -> "_Exchange":
        """Return the protocol for one accepted connection."""
        return _Exchange(self._page, self._open)


class _Exchange(asyncio.Protocol):
    """One connection: one request, one response."""

    def __init__(self, page: Page, others: set["_Exchange"]) -> None:
        self._page = page
        self._others = others
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection with a time limit; abort it where `MAX_CONNECTIONS` are open."""
        self._transport = stream = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if len(self._others) >= MAX_CONNECTIONS:
            stream.abort()
            return
        self._others.add(self)
        self._too_late = asyncio.get_running_loop().call_later(TIMEOUT_S, stream.abort)

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the time limit and the response that is being written."""
        self._others.discard(self)
        if self._too_late is not None:
            self._too_late.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect the bytes of the request, and answer once its headers are complete; 431 where they are too long."""
        if self._answering is not None:
            return  # one request is all that is served
        self._received += data
        if len(self._received) > MAX_REQUEST_BYTES:
            self._respond("431 Request Header Fields Too Large", b"the request is too long; send GET /metrics\n")
        elif b"\r\n\r\n" in self._received:
            self._answering = asyncio.get_running_loop().create_task(self._answer_request(bytes(self._received)))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _answer_request(self, request: bytes) -> None:
        """Answer `GET /metrics`, or send an HTTP error."""
        head = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        method, _, rest = head[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            self._respond(
                "405 Method Not Allowed", b"only GET and HEAD are allowed; send GET /metrics\n", "Allow: GET, HEAD\r\n"
            )
        elif path not in ("/metrics", "/"):
            self._respond("404 Not Found", b"there is only /metrics; send GET /metrics\n")
        else:
            try:
                body, content_type = await self._page(_header_value(head[1:], "accept"))
            except Exception as error:  # a bug in a metric must not leave the client without a response
                log.error(
                    "cannot compute the metrics: the client gets HTTP 500",
                    reason=repr(error),
                    action="Report this as a bug in klamm.",
                )
                self._respond("500 Internal Server Error", b"cannot compute the metrics; see the log of this node\n")
                return
            self._respond("200 OK", body, f"Content-Type: {content_type}\r\n", with_body=method == "GET")

    def _respond(self, status: str, body: bytes, headers: str = "", *, with_body: bool = True) -> None:
        """Send a response and close the connection."""
        assert self._transport is not None, "connected"
        head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode("latin-1") + (body if with_body else b""))
        self._transport.close()


def _header_value(lines: list[str], wanted: str) -> str:
    """The value of the first header of that name; empty where there is none."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""
