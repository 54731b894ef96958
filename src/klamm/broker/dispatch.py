"""From a request frame to its handler, and from the response to a frame. Source: KafkaApis.handle, RequestContext.

A request that cannot be parsed, or whose version is not supported, ends the connection: the peer could not read an
answer. An unexpected error in a handler becomes UNKNOWN_SERVER_ERROR, and the connection stays.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from msgspec.structs import replace

from klamm.broker.api_rules import ApiRules
from klamm.broker.error_responses import error_response
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ClientConnection, Peer, Principal
from klamm.net.response_writer import Answer
from klamm.net.server import CloseConnection, EndsWithClient
from klamm.runtime.eager import Rest, first_step
from klamm.runtime.time_slices import CountedSlices, Slices
from klamm.telemetry.meters import Timer
from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage, free_in_steps, has_few_elements
from klamm.wire.errors import OversizedMessage, WireError
from klamm.wire.frames import decode_request_header, encode_response, encode_response_in_steps
from klamm.wire.source import STEP

_CHECK_CLIENT: Final = "Check that it is a Kafka client, and update its library."
_UPGRADE: Final = "Use a client that asks with ApiVersions first."
_NO_RULES: Final = ApiRules()
MAX_BYTES_AT_ONCE: Final = 16 * 1024
"""A longer request is decoded in time slices, if it has many elements."""
MAX_ELEMENTS: Final = 1_000_000
"""The default of `klamm.max.request.elements`."""
T = TypeVar("T")
log = structlog.get_logger("node")


class Request(NamedTuple):
    """The context of a request besides its message."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    connection: ClientConnection
    slices: Slices
    """The time slices that all requests of the node share, for work on many elements."""

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


class Pieces(NamedTuple):
    """The arrays of a request and of its response whose elements correspond to each other, each by itself.

    A large request of such an API is given to its handler in several small ones. `inner` names the arrays within the
    elements, such as the partitions of topics, where these correspond to each other, too.
    """

    asked: str
    answered: str
    inner: tuple[str, str] | None = None


class Route(NamedTuple):
    """An API with its versions and its handler."""

    offered: Offered
    handle: Handle
    is_hot: bool = False
    """Its first step runs at once, see `runtime.eager` for what it must not do."""
    ends_with_client: bool = False
    """What still waits is cancelled when its client is gone: nothing is left half done by that."""
    overlaps: bool = False
    """Requests of one connection may begin before the response to the one before, see `ClientConnection`."""
    pieces: Pieces | None = None
    """How a large request may be divided; None where the handler must see it as a whole."""
    rules: ApiRules = _NO_RULES
    """What authorization and which quota the API has."""


class Dispatcher:
    """Parses frames and calls the handlers; only ApiVersions also gets unsupported versions, without a message."""

    def __init__(
        self,
        routes: Iterable[Route],
        slices: Slices | None = None,
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        """The arrays of a request may have `max_elements` elements together.

        Large requests share `slices`; without it, they are slices that count items.
        """
        self._slices = slices or CountedSlices()
        self._large_requests = 0
        """How many use the slices now."""
        self._max_elements = max_elements
        self._routes = {int(route.offered.api_key): route for route in routes}
        self.times = {key: Timer() for key in self._routes}
        """From a request's arrival to its response, by api key."""
        self.unexpected_errors: Counter[int] = Counter()
        """Requests whose handler had a bug, by api key."""
        self._messages = {key: api(ApiKey(key)).request for key in self._routes}
        self._overlapping = {key.to_bytes(2, "big") for key, route in self._routes.items() if route.overlaps}

    def may_overlap(self, frame: bytes) -> bool:
        """Whether the request may begin while earlier ones of its API wait for their responses."""
        return frame[:2] in self._overlapping

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
        request = Request(
            api_key, header.api_version, header.correlation_id, header.client_id, connection, self._slices
        )
        message: Any = None
        if route.offered.min_version <= request.version <= route.offered.max_version:
            try:
                if len(frame) <= MAX_BYTES_AT_ONCE:
                    message = self._messages[header.api_key].decode(frame, request.version, body)
                else:
                    steps = self._messages[header.api_key].decode_in_steps(
                        frame, request.version, body, self._max_elements
                    )
                    try:
                        next(steps)
                    except StopIteration as decoded:
                        message = decoded.value
                    else:
                        later = self._handle_large(route, request, steps)
                        return EndsWithClient(later) if route.ends_with_client else later
            except WireError as error:
                raise self._undecodable(request, error) from None
        elif api_key is not ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"the client sent {api_key.name} v{request.version}, but this node offers versions "
                f"{route.offered.min_version} to {route.offered.max_version}. {_UPGRADE}"
            )
        return self._handle(route, request, message)

    def _handle(self, route: Route, request: Request, message: Any) -> Answer | Awaitable[Answer] | EndsWithClient:
        """Call the handler with the decoded request, and encode its response now or when it is there."""
        timer = self.times[request.api_key]
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

    async def _handle_large(self, route: Route, request: Request, steps: Generator[None, None, Any]) -> Answer:
        """Decode the rest of a large request in time slices, call its handler, and free the request in slices."""
        try:
            with self._large_work() as slices:
                return await self._handle_in_slices(route, request, steps, slices)
        except WireError as error:
            raise self._undecodable(request, error) from None

    async def _handle_in_slices(
        self, route: Route, request: Request, steps: Generator[None, None, Any], slices: Slices
    ) -> Answer:
        """Do what `_handle_large` says. Raises WireError where the request cannot be decoded."""
        message = await _in_slices(steps, slices)
        if route.pieces is not None and not route.is_hot:
            route = route._replace(handle=partial(_handle_in_pieces, route.handle, route.pieces, slices))
        answer = self._handle(route, request, message)
        if isinstance(answer, EndsWithClient):
            answer = answer.answer
        finished = answer if answer is None or not isinstance(answer, Awaitable) else await answer
        await _in_slices(free_in_steps(message), slices)
        return finished

    @contextmanager
    def _large_work(self) -> Iterator[Slices]:
        """Give the time slices for a large request or response; they are closed when the last such work ends."""
        self._large_requests += 1
        try:
            yield self._slices
        finally:
            self._large_requests -= 1
            if not self._large_requests:
                self._slices.close()

    def _undecodable(self, request: Request, error: WireError) -> CloseConnection:
        """Return the error that closes the connection of a request that cannot be decoded, with the remedy."""
        remedy = _CHECK_CLIENT
        if isinstance(error, OversizedMessage):
            remedy = "Send several requests, or raise klamm.max.request.elements."
        return CloseConnection(f"cannot decode {request.api_key.name} v{request.version}: {error}. {remedy}")

    async def _await_answer(
        self, request: Request, message: Any, response: Awaitable[Any], timer: Timer, began: float
    ) -> Answer:
        """Await the handler's response, then encode it; an unexpected error becomes an error response."""
        try:
            answer = await self._encode_in_slices(request, await response)
        except CloseConnection:
            raise
        except Exception as error:
            answer = self._encode_unexpected_error(request, message, error)
        timer.observe((asyncio.get_running_loop().time() - began) * 1000)
        return answer

    async def _encode_in_slices(self, request: Request, response: WireMessage | None) -> Answer:
        """Encode the response with its header; a response with many elements in time slices."""
        if response is None or has_few_elements(response):
            return _encode_answer(request, response)
        with self._large_work() as slices:
            steps = encode_response_in_steps(request.api_key, request.version, request.correlation_id, response)
            parts = await _in_slices(steps, slices)
            if isinstance(response, WireMessage):
                await _in_slices(free_in_steps(response), slices)
            return parts

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


async def _handle_in_pieces(
    handle: Handle, pieces: Pieces, slices: Slices, request: Request, message: WireMessage
) -> WireMessage:
    """Give the request to the handler in small ones, in time slices, and join their responses."""
    joined: Any = None
    for part, continues in _divided(getattr(message, pieces.asked), pieces.inner):
        await slices.checkpoint(STEP)
        response = handle(request, replace(message, **{pieces.asked: part}))
        if isinstance(response, Awaitable):
            response = await response
        if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
            return response  # type: ignore[no-any-return]  # an error of the whole request
        if joined is None:
            joined = response
            continue
        elements, further = getattr(joined, pieces.answered), getattr(response, pieces.answered)
        if continues and pieces.inner is not None:
            first = further.pop(0)
            getattr(elements[-1], pieces.inner[1]).extend(getattr(first, pieces.inner[1]))
        elements.extend(further)
    return joined  # type: ignore[no-any-return]


def _divided(elements: Sequence[Any], inner: tuple[str, str] | None) -> Iterator[tuple[Sequence[Any], bool]]:
    """Divide the array into parts of at most `STEP` elements, at least one part.

    With `inner` a part has either several elements, or some of the inner elements of one: the flag tells whether it
    continues the last element of the part before.
    """
    if inner is None:
        for start in range(0, max(len(elements), 1), STEP):
            yield elements[start : start + STEP], False
        return
    part: list[Any] = []
    size = 0
    for element in elements:
        within = getattr(element, inner[0])
        if part and size + len(within) >= STEP:
            yield part, False
            part, size = [], 0
        part.append(element)
        size += 1 + len(within)
        if len(within) > STEP:
            for start in range(0, len(within), STEP):
                yield [replace(element, **{inner[0]: within[start : start + STEP]})], start > 0
            part, size = [], 0
    if part or not elements:
        yield part, False


async def _in_slices(steps: Generator[None, None, T], slices: Slices) -> T:
    """Run the generator to its end in time slices and return its result."""
    while True:
        await slices.checkpoint(STEP)
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def _encode_answer(request: Request, response: Any) -> Answer:
    """Encode the response with its header."""
    if response is None:
        return None
    return encode_response(request.api_key, request.version, request.correlation_id, response)
