"""From a frame to its handler and back to a frame. Source: KafkaApis.handle, RequestContext.parseRequest.

What cannot be parsed, or is not offered in that version, ends the connection: the peer has no way to read an answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import CoroutineType
from typing import Any, NamedTuple

from klamm.net.client_connection import ClientConnection, Peer
from klamm.net.response_writer import Answer
from klamm.net.server import CloseConnection, EndsWithClient
from klamm.runtime.eager import Rest, first_step
from klamm.telemetry.meters import Timer
from klamm.wire.api import ApiKey, api
from klamm.wire.errors import WireError
from klamm.wire.frames import decode_request_header, encode_response


class Request(NamedTuple):
    """What a handler may want to know besides the message."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    connection: ClientConnection

    @property
    def peer(self) -> Peer:
        return self.connection.peer


class Offered(NamedTuple):
    """A range of versions that works here."""

    api_key: ApiKey
    min_version: int
    max_version: int


Handle = Callable[[Request, Any], Any]
"""(request, message) -> the response message, a coroutine for it, or None where no answer is owed."""


class Route(NamedTuple):
    offered: Offered
    handle: Handle
    is_hot: bool = False
    """Its first step runs at once, see `runtime.eager` for what it must not do."""
    ends_with_client: bool = False
    """What still waits is cancelled when its client is gone: nothing is left half done by that."""


class Dispatcher:
    """Serves frames; `parse_unoffered` are keys whose handler gets requests of a newer version with no message."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = {int(route.offered.api_key): route for route in routes}
        self.times = {key: Timer() for key in self._routes}
        """From a request's arrival to its answer, by api key."""
        self._decoders = {key: api(ApiKey(key)).request.decode for key in self._routes}

    def __call__(self, frame: bytes, connection: ClientConnection) -> Answer | Awaitable[Answer] | EndsWithClient:
        """Raises CloseConnection."""
        try:
            header, body = decode_request_header(frame)
        except WireError as error:
            raise CloseConnection(f"{len(frame)} bytes that are no request: {error}") from None
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"api key {header.api_key} v{header.api_version} is not offered")
        api_key = route.offered.api_key
        request = Request(api_key, header.api_version, header.correlation_id, header.client_id, connection)
        message: Any = None
        if route.offered.min_version <= request.version <= route.offered.max_version:
            try:
                message = self._decoders[header.api_key](frame, request.version, body)
            except WireError as error:
                raise CloseConnection(f"{len(frame)} bytes, {api_key.name} v{request.version}: {error}") from None
        elif api_key is not ApiKey.API_VERSIONS:
            raise CloseConnection(f"{api_key.name} v{request.version} is not offered")
        timer = self.times[header.api_key]
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = route.handle(request, message)
        if isinstance(response, CoroutineType):
            if not route.is_hot:
                assert not route.ends_with_client, "only hot routes can end with their client"
                return _answer_later(request, response, timer, began)
            response = first_step(response)
            if isinstance(response, Rest):
                later = _answer_later(request, response, timer, began)
                return EndsWithClient(later) if route.ends_with_client else later
        timer.observe((loop.time() - began) * 1000)
        return _answer(request, response)


async def _answer_later(request: Request, response: Awaitable[Any], timer: Timer, began: float) -> Answer:
    answer = _answer(request, await response)
    timer.observe((asyncio.get_running_loop().time() - began) * 1000)
    return answer


def _answer(request: Request, response: Any) -> Answer:
    if response is None:
        return None
    return encode_response(request.api_key, request.version, request.correlation_id, response)
