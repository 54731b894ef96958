"""One asyncio connection to one broker; responses come in the order of the requests. Source: NetworkClient.java.

A request without a response in time closes the connection, as in Kafka, since the state of the peer is unknown.
"""

import asyncio
import errno
import re
from typing import Any, Final, Self, cast

from klamm.client.errors import AnswerTimedOut, ConnectionLost, ConnectionRefused, NotConnected
from klamm.client.protocol import ClientProtocol, InFlight
from klamm.client.versions import ApiVersions, Request, negotiate
from klamm.net.receive_buffer import BadFrameSize, ReceiveBuffer
from klamm.runtime.network import discard
from klamm.runtime.world import World
from klamm.wire.compile_encode import Parts

MAX_RESPONSE_BYTES: Final = 2**31 - 1
_JOIN_BYTES: Final = 64 * 1024
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


class _Pending(InFlight):
    """A request in flight, with the future of its response and its deadline."""

    __slots__ = ("answer", "deadline")

    def __init__(self, api_key: int, version: int, answer: "asyncio.Future[Any]") -> None:
        super().__init__(api_key, version)
        self.answer = answer
        self.deadline: asyncio.TimerHandle | None = None

    def finish(self) -> None:
        """Cancel the timer of the request's timeout, because the request has ended."""
        if self.deadline is not None:
            self.deadline.cancel()


class Connection(asyncio.BufferedProtocol):
    """One connection; open it with `Connection.open`. It never reconnects by itself.

    Brokers know each other's versions by configuration, and use `request`; other clients call `negotiate` first, and
    then `ask`.
    """

    def __init__(self, peer: str, client_id: str, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.peer = peer
        self._protocol: ClientProtocol[_Pending] = ClientProtocol(peer, client_id)
        self._received = ReceiveBuffer(max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._versions: ApiVersions | None = None
        self._reason = f"{peer}: connection closed"
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, world: World, host: str, port: int, client_id: str, timeout_s: float) -> Self:
        """Connect to a broker; versions are not negotiated yet. Raises NotConnected."""
        peer = f"{host}:{port}"
        try:
            # not wait_for: in Python 3.11 it swallows a cancellation that meets the answer
            async with asyncio.timeout(timeout_s):
                return await world.network.connect(lambda: cls(peer, client_id), host, port)
        except TimeoutError:
            raise NotConnected(f"{peer} did not accept a connection within {timeout_s:g} s") from None
        except OSError as error:
            kind = ConnectionRefused if _is_connection_refused(error) else NotConnected
            raise kind(f"no connection to {peer}: {error.strerror or error}") from error

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._transport is None or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._protocol)

    async def negotiate(self, timeout_s: float) -> None:
        """Negotiate API versions, with `timeout_s` for each message; a failure closes the connection.

        Raises ConnectionLost.
        """
        handshake = negotiate(self.peer)
        greeting = next(handshake)
        try:
            while self._versions is None:
                answer = await self.request(*greeting, timeout_s)
                try:
                    greeting = handshake.send(answer)
                except StopIteration as done:
                    self._versions = done.value
        except BaseException:
            self.close()
            raise

    async def ask(self, request: Request, timeout_s: float) -> Any:
        """Send a request in the negotiated version and return its response.

        Raises ConnectionLost, UnsupportedVersion.
        """
        assert self._versions is not None, f"{self.peer}: no request can be sent before negotiate"
        version = self._versions.agreed_version(request)
        return await self.send(request.key, version, request.body(version), timeout_s)

    async def tell(self, request: Request, timeout_s: float) -> None:
        """Send a request that brokers do not answer, and wait until the broker has executed it.

        Brokers execute the requests of a connection in order: the response to a following ApiVersions shows it.
        Raises ConnectionLost, UnsupportedVersion.
        """
        assert self._versions is not None, f"{self.peer}: no request can be sent before negotiate"
        version = self._versions.agreed_version(request)
        transport = self._open_transport()
        self._write(transport, self._protocol.encode_unanswered(request.key, version, request.body(version)))
        await self.request(*next(negotiate(self.peer)), timeout_s)

    async def request(self, api_key: int, version: int, message: Any, timeout_s: float) -> Any:
        """Send a message in this version and return its response; several requests may be in flight.

        Raises ConnectionLost; AnswerTimedOut if that is the cause.
        """
        return await self.send(api_key, version, message, timeout_s)

    def send(self, api_key: int, version: int, message: Any, timeout_s: float) -> "asyncio.Future[Any]":
        """Send a request; returns a future of its response, for callers that keep an order. Raises ConnectionLost."""
        transport = self._open_transport()
        pending = _Pending(api_key, version, self._loop.create_future())
        parts = self._protocol.send(pending, message)
        pending.deadline = self._loop.call_later(timeout_s, self._on_deadline, pending, timeout_s)
        self._write(transport, parts)
        return pending.answer

    def _open_transport(self) -> asyncio.Transport:
        """The transport. Raises ConnectionLost where the connection is closed or closing."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost(self._reason)
        return transport

    @staticmethod
    def _write(transport: asyncio.Transport, parts: Parts) -> None:
        """Write an encoded request; a small one in one piece."""
        if sum(map(len, parts)) <= _JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            for part in parts:
                transport.write(part)

    def close(self) -> None:
        """Close the connection now; requests in flight fail with ConnectionLost."""
        self._fail_and_close(f"{self.peer}: this side closed the connection")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests without response."""
        self._fail_and_close(
            f"{self.peer}: connection lost: {exc}" if exc else f"{self.peer}: the peer closed the connection"
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the part of the receive buffer where asyncio shall put the next bytes."""
        return self._received.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Process `nbytes` received bytes, and complete the requests whose responses are complete."""
        self._received.received(nbytes)
        try:
            while self._transport is not None and (frame := self._received.next_frame()) is not None:
                self._on_response(frame)
        except BadFrameSize as error:
            self._fail_and_close(
                f"{self.peer} does not speak Kafka's protocol: it announced a response of {error.size} bytes. Give the "
                "port of a broker's PLAINTEXT listener"
            )
        except ConnectionLost as error:
            self._fail_and_close(str(error))

    def _on_response(self, frame: bytes) -> None:
        """Pass a response to the oldest request in flight; an unexpected response closes the connection."""
        pending = self._protocol.match(frame)
        pending.finish()
        if pending.answer.done():  # its caller gave up
            return
        try:
            pending.answer.set_result(self._protocol.decode(pending, frame))
        except Exception as error:  # also a bug: else the caller waits for ever
            pending.answer.set_exception(error)
            raise

    def _on_deadline(self, pending: _Pending, timeout_s: float) -> None:
        """Close the connection because a request got no response in time."""
        reason = f"{self.peer}: no response to {pending} within {timeout_s:g} s"
        if not pending.answer.done():
            pending.answer.set_exception(AnswerTimedOut(reason))
        self._fail_and_close(reason)

    def _fail_and_close(self, reason: str) -> None:
        """Close the connection and fail all requests in flight with `reason`.

        Those that have not reached the broker never do: the caller may send them again on another connection.
        """
        transport, self._transport = self._transport, None
        if transport is None:
            return
        self._reason = reason
        if self._protocol:
            discard(transport)
        else:
            transport.abort()
        for pending in self._protocol.end():
            pending.finish()
            if not pending.answer.done():
                pending.answer.set_exception(ConnectionLost(reason))


def _is_connection_refused(error: OSError) -> bool:
    """Whether the error says that the connection was refused.

    For a name with several addresses, asyncio joins the texts of all failures into one error.
    """
    if isinstance(error, ConnectionRefusedError):
        return True
    numbers = {int(n) for n in _NUMBER.findall(str(error))} if error.errno is None else set[int]()
    return errno.ECONNREFUSED in numbers and numbers <= {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH}
