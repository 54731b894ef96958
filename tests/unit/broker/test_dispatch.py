"""From a frame to its handler."""

import asyncio

import pytest

from klamm.broker.dispatch import Dispatcher, Offered, Request, Route
from klamm.net.client_connection import ClientConnection, Peer
from klamm.net.server import EndsWithClient
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, encode_request
from klamm.wire.messages import MetadataRequest, MetadataResponse

METADATA = Offered(ApiKey.METADATA, 1, 9)
FRAME = b"".join(encode_request(RequestHeader(ApiKey.METADATA, 4, 7, "c"), MetadataRequest(topics=[])))[4:]


@pytest.mark.parametrize("ends_with_client", [True, False])
async def test_a_disconnecting_client_cancels_only_requests_of_apis_that_allow_cancellation(
    ends_with_client: bool,
) -> None:
    release = asyncio.Event()

    async def handle(request: Request, message: MetadataRequest) -> MetadataResponse:
        await release.wait()
        return MetadataResponse()

    dispatcher = Dispatcher([Route(METADATA, handle, is_hot=True, ends_with_client=ends_with_client)])
    answer = dispatcher(FRAME, ClientConnection(Peer("PLAINTEXT", "h", 1)))

    assert isinstance(answer, EndsWithClient) is ends_with_client
    release.set()
    assert await (answer.answer if isinstance(answer, EndsWithClient) else answer)  # type: ignore[misc]


async def test_request_handlers_receive_the_connection_and_its_principal() -> None:
    seen: list[ClientConnection] = []

    def handle(request: Request, message: MetadataRequest) -> MetadataResponse:
        seen.append(request.connection)
        return MetadataResponse()

    connection = ClientConnection(Peer("PLAINTEXT", "h", 1))
    Dispatcher([Route(METADATA, handle)])(FRAME, connection)

    assert seen == [connection]
    assert str(seen[0].principal) == "User:ANONYMOUS"
