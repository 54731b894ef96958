"""One connection to another node: requests go out in order, answers come back in order.

Source: NetworkClient.java, InFlightRequests.java. A request that is not answered in time ends the connection, as in
Kafka: nobody can tell how far behind the peer is, and an answer out of order would go to the wrong caller.
"""

import asyncio
import errno
import re
import struct
from collections import deque
from typing import Any, Final, Self, TypeVar, cast

from klamm.model.errors import KlammError
from klamm.net.receive_buffer import BadFrameSize, ReceiveBuffer
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request

MAX_RESPONSE_BYTES: Final = 2**31 - 1
_JOIN_BYTES: Final = 64 * 1024
_CORRELATION: Final = struct.Struct(">i")
_CORRELATIONS: Final = 2**31
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")
T = TypeVar("T")


class ConnectionLost(KlammError):
    """The connection could not be made, or ended before the answer came."""


class ConnectionRefused(ConnectionLost):
    """Nobody listens there: an answer at once, and of that machine."""


class AnswerTimedOut(ConnectionLost):
    """No answer within the time allowed; the connection was closed."""


class _Pending:
    __slots__ = ("answer", "api_key", "correlation_id", "deadline", "version")

    def __init__(self, correlation_id: int, api_key: int, version: int, answer: "asyncio.Future[Any]") -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version
        self.answer = answer
        self.deadline: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """Open it with `Connection.open`; it never reconnects by itself."""

    def __init__(self, peer: str, client_id: str, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.peer = peer
        self._client_id = client_id
        self._received = ReceiveBuffer(max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._next_correlation = 0
        self._reason = "connection closed"
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(cls, world: World, host: str, port: int, client_id: str, timeout_s: float) -> Self:
        """Raises ConnectionLost where nobody answers there in time."""
        peer = f"{host}:{port}"
        try:
            # not wait_for: in Python 3.11 it swallows a cancellation that meets the answer
            async with asyncio.timeout(timeout_s):
                return await world.network.connect(lambda: cls(peer, client_id), host, port)
        except TimeoutError:
            raise ConnectionLost(f"{peer} did not accept a connection within {timeout_s:g} s") from None
        except OSError as error:
            kind = ConnectionRefused if _is_refusal(error) else ConnectionLost
            raise kind(f"no connection to {peer}: {error.strerror or error}") from error

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def request(self, api_key: int, version: int, message: Any, timeout_s: float) -> Any:
        """The answer to `message`. Several may be under way; answers are matched in order.

        Raises ConnectionLost (AnswerTimedOut where that is why).
        """
        return await self.send(api_key, version, message, timeout_s)

    def send(self, api_key: int, version: int, message: Any, timeout_s: float) -> "asyncio.Future[Any]":
        """Write now, answer later: for callers that keep an order of their own. Raises ConnectionLost."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost(f"{self.peer}: {self._reason}")
        correlation_id = self._next_correlation
        self._next_correlation = (correlation_id + 1) % _CORRELATIONS
        header = RequestHeader(api_key, version, correlation_id, self._client_id)
        parts = encode_request(header, message)
        pending = _Pending(correlation_id, api_key, version, self._loop.create_future())
        pending.deadline = self._loop.call_later(timeout_s, self._timed_out, pending, timeout_s)
        self._pending.append(pending)
        if sum(map(len, parts)) <= _JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            for part in parts:
                transport.write(part)
        return pending.answer

    def close(self) -> None:
        """End it now; requests under way fail with ConnectionLost."""
        self._end("closed by us")

    async def wait_closed(self) -> None:
        await asyncio.shield(self._gone)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc}" if exc else "the peer closed the connection")
        if not self._gone.done():
            self._gone.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._received.received(nbytes)
        try:
            while self._transport is not None and (frame := self._received.next_frame()) is not None:
                self._answered(frame)
        except BadFrameSize as error:
            self._end(str(error))

    def _answered(self, frame: bytes) -> None:
        if len(frame) < 4 or not self._pending:
            self._end(f"{len(frame)} bytes came that nobody asked for")
            return
        pending = self._pending.popleft()
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
        if correlation_id != pending.correlation_id:
            self._pending.appendleft(pending)
            self._end(f"answer {correlation_id} came where {pending.correlation_id} was due")
            return
        if pending.deadline is not None:
            pending.deadline.cancel()
        if pending.answer.done():  # its caller gave up
            return
        try:
            _, message = decode_response(frame, pending.api_key, pending.version)
        except KlammError as error:
            pending.answer.set_exception(ConnectionLost(f"{self.peer}: {error}"))
            self._end(str(error))
            return
        pending.answer.set_result(message)

    def _timed_out(self, pending: _Pending, timeout_s: float) -> None:
        text = f"no answer to {ApiKey(pending.api_key).name} v{pending.version} within {timeout_s:g} s"
        if not pending.answer.done():
            pending.answer.set_exception(AnswerTimedOut(f"{self.peer}: {text}"))
        self._end(text)

    def _end(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        self._reason = reason
        transport.abort()
        waiting, self._pending = self._pending, deque()
        for pending in waiting:
            if pending.deadline is not None:
                pending.deadline.cancel()
            if not pending.answer.done():
                pending.answer.set_exception(ConnectionLost(f"{self.peer}: {reason}"))


def _is_refusal(error: OSError) -> bool:
    """Also where a name has several addresses: asyncio then joins the texts of all failures into one error."""
    if isinstance(error, ConnectionRefusedError):
        return True
    numbers = {int(n) for n in _NUMBER.findall(str(error))} if error.errno is None else set[int]()
    return errno.ECONNREFUSED in numbers and numbers <= {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH}
