"""From a request frame to its handler, and from the response to a frame. Source: KafkaApis.handle, RequestContext.

A request that cannot be parsed, or whose version is not supported, ends the connection: the peer could not read an
answer. An unexpected error in a handler becomes UNKNOWN_SERVER_ERROR, and the connection stays.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from types import CoroutineType
from typing import Any, Final, NamedTuple

import structlog

from klamm.broker.api_rules import ApiRules
from klamm.broker.error_responses import error_response
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ClientConnection, Peer, Principal
from klamm.net.response_writer import Answer
from klamm.net.server import CloseConnection, EndsWithClient
from klamm.runtime.eager import Rest, first_step
from klamm.telemetry.meters import Timer
from klamm.wire.api import ApiKey, api
from klamm.wire.errors import WireError
from klamm.wire.frames import decode_request_header, encode_response

_CHECK_CLIENT: Final = "Check that it is a Kafka client, and update its library."
_UPGRADE: Final = "Use a client that asks with ApiVersions first."
_NO_RULES: Final = ApiRules()
log = structlog.get_logger("node")


class Request(NamedTuple):
    """The context of a request besides its message."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    connection: ClientConnection

    @property
    def peer(self) -> Peer:
        """The client's address."""
        return self.connection.peer

    @property
    def principal(self) -> Principal:
        """Who sends the request, for authorization and quotas."""
        return self.connection.principal


class Offered(NamedTuple):
    """The versions of an API that this node serves."""

    api_key: ApiKey
    min_version: int
    max_version: int


Handle = Callable[[Request, Any], Any]
"""(request, message) -> the response message, a coroutine for it, or None where the API owes no response."""


class Route(NamedTuple):
    """An API with its versions and its handler."""

    offered: Offered
    handle: Handle
    is_hot: bool = False
    """Its first step runs at once, see `runtime.eager` for what it must not do."""
    ends_with_client: bool = False
    """What still waits is cancelled when its client is gone: nothing is left half done by that."""
    rules: ApiRules = _NO_RULES
    """What authorization and which quota the API has."""


class Dispatcher:
    """Parses frames and calls the handlers; only ApiVersions also gets unsupported versions, without a message."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = {int(route.offered.api_key): route for route in routes}
        self.times = {key: Timer() for key in self._routes}
        """From a request's arrival to its response, by api key."""
        self.unexpected_errors: Counter[int] = Counter()
        """Requests whose handler had a bug, by api key."""
        self._decoders = {key: api(ApiKey(key)).request.decode for key in self._routes}

    def __call__(self, frame: bytes, connection: ClientConnection) -> Answer | Awaitable[Answer] | EndsWithClient:
        """Handle one request frame. Raises CloseConnection."""
        try:
            header, body = decode_request_header(frame)
        except WireError as error:
            raise CloseConnection(f"cannot decode a request of {len(frame)} bytes: {error}. {_CHECK_CLIENT}") from None
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(
                f"the client sent API key {header.api_key} v{header.api_version}, which this node does not offer. "
                f"{_UPGRADE}"
            )
        api_key = route.offered.api_key
        request = Request(api_key, header.api_version, header.correlation_id, header.client_id, connection)
        message: Any = None
        if route.offered.min_version <= request.version <= route.offered.max_version:
            try:
                message = self._decoders[header.api_key](frame, request.version, body)
            except WireError as error:
                raise CloseConnection(
                    f"cannot decode {api_key.name} v{request.version}: {error}. {_CHECK_CLIENT}"
                ) from None
        elif api_key is not ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"the client sent {api_key.name} v{request.version}, but this node offers versions "
                f"{route.offered.min_version} to {route.offered.max_version}. {_UPGRADE}"
            )
        timer = self.times[header.api_key]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            response = route.handle(request, message)
            if isinstance(response, CoroutineType):
                if not route.is_hot:
                    assert not route.ends_with_client, "only hot routes can end with their client"
                    return self._await_answer(request, message, response, timer, began)
                response = first_step(response)
                if isinstance(response, Rest):
                    later = self._await_answer(request, message, response, timer, began)
                    return EndsWithClient(later) if route.ends_with_client else later
            answer = _encode_answer(request, response)
        except CloseConnection:
            raise
        except Exception as error:
            answer = self._encode_unexpected_error(request, message, error)
        timer.observe((loop.time() - began) * 1000)
        return answer

    async def _await_answer(
        self, request: Request, message: Any, response: Awaitable[Any], timer: Timer, began: float
    ) -> Answer:
        """Await the handler's response, then encode it; an unexpected error becomes an error response."""
        try:
            answer = _encode_answer(request, await response)
        except CloseConnection:
            raise
        except Exception as error:
            answer = self._encode_unexpected_error(request, message, error)
        timer.observe((asyncio.get_running_loop().time() - began) * 1000)
        return answer

    def _encode_unexpected_error(self, request: Request, message: Any, error: Exception) -> Answer:
        """Log the error and encode UNKNOWN_SERVER_ERROR.

        Raises CloseConnection where the API has no response to carry it.
        """
        api_key, version = request.api_key, request.version
        self.unexpected_errors[api_key] += 1
        log.error(
            "unexpected error while handling a request: it is answered with UNKNOWN_SERVER_ERROR",
            api=api_key.name,
            version=version,
            client=request.client_id,
            peer=str(request.peer),
            action="Report this as a bug in klamm, with the stack trace.",
            exc_info=error,
        )
        response = error_response(api_key, message, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        if response is None:
            raise CloseConnection(
                f"{api_key.name} v{version} failed and has no response, so the connection is closed. See the "
                "error before this line."
            )
        return _encode_answer(request, response)


def _encode_answer(request: Request, response: Any) -> Answer:
    """Encode the response with its header."""
    if response is None:
        return None
    return encode_response(request.api_key, request.version, request.correlation_id, response)
