"""Requests and responses of one connection without its socket. Source: InFlightRequests.java, NetworkClient.java.

The caller writes what `send` returns, splits what it reads into frames, and passes each frame to `match` and `decode`.
Responses come in the order of the requests; one that is out of order ends the connection, since it would go to the
wrong caller.
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from klamm.client.errors import ConnectionLost
from klamm.model.errors import KlammError
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.compile_encode import Parts
from klamm.wire.frames import RequestHeader, decode_response, encode_request

_CORRELATION: Final = struct.Struct(">i")
_CORRELATIONS: Final = 2**31


class InFlight:
    """A request that was sent and has no response yet; callers may add fields in a subclass."""

    __slots__ = ("api_key", "correlation_id", "version")

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = -1

    def __str__(self) -> str:
        return f"{ApiKey(self.api_key).name} v{self.version}"


Sent = TypeVar("Sent", bound=InFlight)


class ClientProtocol(Generic[Sent]):
    """The requests in flight on one connection."""

    def __init__(self, peer: str, client_id: str) -> None:
        self.peer = peer
        self._client_id = client_id
        self._in_flight: deque[Sent] = deque()
        self._next_correlation = 0

    def __len__(self) -> int:
        """How many requests are in flight."""
        return len(self._in_flight)

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._in_flight)

    def send(self, sent: Sent, message: WireMessage) -> Parts:
        """Encode a request and add it to those in flight."""
        sent.correlation_id = self._next_correlation
        parts = self.encode_unanswered(sent.api_key, sent.version, message)
        self._in_flight.append(sent)
        return parts

    def encode_unanswered(self, api_key: int, version: int, message: WireMessage) -> Parts:
        """Encode a request that brokers do not answer: Produce with acks=0."""
        number = self._next_correlation
        self._next_correlation = (number + 1) % _CORRELATIONS
        return encode_request(RequestHeader(api_key, version, number, self._client_id), message)

    def match(self, frame: bytes) -> Sent:
        """The request to which this response frame belongs. Raises ConnectionLost if it belongs to none."""
        if len(frame) < 4 or not self._in_flight:
            raise ConnectionLost(
                f"{self.peer}: a response of {len(frame)} bytes came, but no request is waiting for one"
            )
        sent = self._in_flight[0]
        number: int = _CORRELATION.unpack_from(frame)[0]
        if number != sent.correlation_id:
            raise ConnectionLost(
                f"{self.peer}: a response with correlation id {number} came, but {sent.correlation_id} was expected"
            )
        return self._in_flight.popleft()

    def decode(self, sent: Sent, frame: bytes) -> Any:
        """The response message in a frame. Raises ConnectionLost if it is malformed."""
        try:
            return decode_response(frame, sent.api_key, sent.version)[1]
        except KlammError as error:
            raise ConnectionLost(f"{self.peer}: cannot decode the response to {sent}: {error}") from error

    def end(self) -> deque[Sent]:
        """Remove and return the requests in flight, which get no response any more."""
        unanswered, self._in_flight = self._in_flight, deque()
        return unanswered
