"""What a client sent before it closed its side is executed, as by Apache Kafka; then the connection is closed."""

import asyncio
from collections.abc import Awaitable

import pytest
from tests.unit.net.desk import Desk, serve
from tests.unit.net.transports import RecordingTransport, connect, feed, frame

from klamm.net.client_connection import ClientConnection
from klamm.net.connection_table import ConnectionTable
from klamm.net.response_writer import Answer
from klamm.net.server import EndsWithClient, Server, ServerLimits
from klamm.runtime.network import RealNetwork


@pytest.fixture
async def client(desk: Desk, table: ConnectionTable) -> RecordingTransport:
    """A connection whose requests `p...` and `w...` may begin before the response to the one before."""
    return connect(serve(desk, table, may_overlap=lambda request: request[:1] in b"pw"))


async def test_requests_that_arrived_before_the_client_ended_are_executed(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"wait") + frame(b"n1") + frame(b"wait") + frame(b"n2") + frame(b"cut off")[:6])

    assert client.protocol.eof_received()
    await desk.release(b"")
    assert desk.seen == [b"wait", b"n1", b"wait"]
    assert not client.closed

    await desk.release(b"")
    assert desk.seen == [b"wait", b"n1", b"wait", b"n2"]
    assert client.closed


async def test_a_connection_without_requests_ends_with_its_client(client: RecordingTransport, desk: Desk) -> None:
    feed(client, frame(b"echo") + frame(b"cut off")[:6])

    assert not client.protocol.eof_received()


async def test_the_connection_of_an_ended_client_does_not_wait_for_responses(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"p1") + frame(b"p2"))

    assert not client.protocol.eof_received()


async def test_the_connection_of_an_ended_client_is_closed_once_its_last_request_waits_for_its_response_only(
    table: ConnectionTable,
) -> None:
    connections: list[ClientConnection] = []

    def handle(request: bytes, connection: ClientConnection) -> EndsWithClient:
        connections.append(connection)
        return EndsWithClient(asyncio.get_running_loop().create_future())

    client = connect(serve(handle, table, may_overlap=lambda _: True))
    feed(client, frame(b"1"))
    assert client.protocol.eof_received()
    assert not client.closed

    connections[0].let_next_begin()
    await asyncio.sleep(0)

    assert client.closed


@pytest.mark.parametrize("sends_more", [b"", frame(b"next")])
async def test_the_connection_of_an_ended_client_does_not_wait_for_a_request_that_ends_with_it(
    table: ConnectionTable, sends_more: bytes
) -> None:
    def handle(request: bytes, connection: ClientConnection) -> EndsWithClient:
        return EndsWithClient(asyncio.get_running_loop().create_future())

    client = connect(serve(handle, table))
    feed(client, frame(b"fetch") + sends_more)

    assert not client.protocol.eof_received()


async def test_a_client_that_sends_and_closes_has_all_its_requests_executed() -> None:
    seen: list[bytes] = []
    is_done = asyncio.Event()
    is_ended = asyncio.Event()

    async def work(request: bytes) -> Answer:
        await is_ended.wait()
        seen.append(request)
        if len(seen) == 3:
            is_done.set()
        return None

    def handle(request: bytes, connection: ClientConnection) -> Awaitable[Answer]:
        return work(bytes(request))

    server = Server(RealNetwork(), ServerLimits())
    port = await server.bind("PLAINTEXT", "127.0.0.1", 0)
    await server.start(handle)
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(b"1") + frame(b"2") + frame(b"3"))
    writer.close()
    await writer.wait_closed()
    for _ in range(10):  # the server reads the end
        await asyncio.sleep(0)
    is_ended.set()

    async with asyncio.timeout(60):
        await is_done.wait()

    assert seen == [b"1", b"2", b"3"]
    await server.close()
