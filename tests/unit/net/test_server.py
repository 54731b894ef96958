"""One request at a time per connection, answers in order, nothing without a bound."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable
from typing import cast

import pytest
from tests.unit.net.desk import MAX, Desk, serve
from tests.unit.net.transports import RecordingTransport, connect, feed, frame

from klamm.net.client_connection import ANONYMOUS, ClientConnection, Principal
from klamm.net.connection_table import ConnectionTable
from klamm.net.receive_buffer import ReceiveBuffer
from klamm.net.response_writer import Answer, LateBytes
from klamm.net.server import (
    MAX_UNANSWERED,
    CloseConnection,
    EndsWithClient,
    Server,
    ServerConnection,
    ServerLimits,
)
from klamm.runtime.network import Listener, Network, RealNetwork


@pytest.fixture
async def client(desk: Desk, table: ConnectionTable) -> RecordingTransport:
    return connect(serve(desk, table))


async def test_the_server_answers_requests_of_a_connection_in_order(client: RecordingTransport) -> None:
    feed(client, frame(b"one") + frame(b"two") + frame(b"three"))

    assert bytes(client.written) == frame(b"one") + frame(b"two") + frame(b"three")


async def test_the_server_serves_a_connections_second_request_after_the_first_response(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"wait") + frame(b"later"))
    assert desk.seen == [b"wait"]
    assert not client.written

    await desk.release(b"done")

    assert desk.seen == [b"wait", b"later"]
    assert bytes(client.written) == frame(b"done") + frame(b"later")


@pytest.fixture
async def overlapping(desk: Desk, table: ConnectionTable) -> RecordingTransport:
    """A connection whose requests `p...` and `w...` may begin before the response to the one before."""
    return connect(serve(desk, table, may_overlap=lambda frame: frame[:1] in b"pw"))


async def test_a_request_begins_when_the_one_before_waits_for_its_response_only(
    overlapping: RecordingTransport, desk: Desk
) -> None:
    feed(overlapping, frame(b"p1") + frame(b"p2") + frame(b"w3") + frame(b"p4"))

    assert desk.seen == [b"p1", b"p2", b"w3"]


async def test_responses_keep_the_order_of_their_requests(overlapping: RecordingTransport, desk: Desk) -> None:
    feed(overlapping, frame(b"p1") + frame(b"p2") + frame(b"p3"))
    first, second, third = desk.waiting

    third.set_result([frame(b"3")])
    second.set_result(None)
    await asyncio.sleep(0)
    assert not overlapping.written
    first.set_result([frame(b"1")])
    await asyncio.sleep(0)

    assert bytes(overlapping.written) == frame(b"1") + frame(b"3")


async def test_a_small_response_is_sent_after_the_rest_of_a_large_one(
    overlapping: RecordingTransport, desk: Desk
) -> None:
    feed(overlapping, frame(b"p1") + frame(b"p2"))
    overlapping.protocol.pause_writing()

    await desk.release(bytes(100_000))
    await desk.release(b"small")
    overlapping.protocol.resume_writing()

    assert bytes(overlapping.written) == frame(bytes(100_000)) + frame(b"small")


async def test_a_request_that_may_not_overlap_begins_after_the_last_response(
    overlapping: RecordingTransport, desk: Desk
) -> None:
    feed(overlapping, frame(b"p1") + frame(b"p2") + frame(b"echo"))
    desk.waiting[1].set_result([frame(b"2")])
    await asyncio.sleep(0)
    assert desk.seen == [b"p1", b"p2"]

    desk.waiting[0].set_result([frame(b"1")])
    await asyncio.sleep(0)

    assert bytes(overlapping.written) == frame(b"1") + frame(b"2") + frame(b"echo")


async def test_a_handler_may_let_the_next_request_begin_later(table: ConnectionTable) -> None:
    connections: list[ClientConnection] = []

    async def answer() -> Answer:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    def handle(request: bytes, connection: ClientConnection) -> Awaitable[Answer]:
        connections.append(connection)
        return answer()

    client = connect(serve(handle, table, may_overlap=lambda _: True))
    feed(client, frame(b"1") + frame(b"2"))
    await asyncio.sleep(0)
    assert len(connections) == 1

    connections[0].let_next_begin()
    await asyncio.sleep(0)

    assert len(connections) == 2
    client.protocol.connection_lost(None)


async def test_the_requests_of_a_connection_without_a_response_are_limited(
    overlapping: RecordingTransport, desk: Desk
) -> None:
    feed(overlapping, frame(b"p") * (MAX_UNANSWERED + 2))
    assert len(desk.seen) == MAX_UNANSWERED

    await desk.release(b"")

    assert len(desk.seen) == MAX_UNANSWERED + 1


async def test_a_connection_that_ends_cancels_all_its_requests_that_allow_it(table: ConnectionTable) -> None:
    waiting: list[asyncio.Future[Answer]] = []

    def handle(request: bytes, connection: ClientConnection) -> EndsWithClient:
        waiting.append(asyncio.get_running_loop().create_future())
        connection.let_next_begin()
        return EndsWithClient(waiting[-1])

    client = connect(serve(handle, table, may_overlap=lambda _: True))
    feed(client, frame(b"1") + frame(b"2"))

    client.protocol.connection_lost(None)

    assert [w.cancelled() for w in waiting] == [True, True]


async def test_the_server_stops_reading_a_connection_while_a_complete_request_waits(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"wait"))
    assert client.reading

    taken = feed(client, frame(b"z" * 100_000) * 50)
    assert not client.reading
    assert taken < 200_000

    await desk.release(b"done")
    assert client.reading


async def test_the_server_does_not_serve_further_requests_of_a_client_that_reads_no_responses(
    client: RecordingTransport, desk: Desk
) -> None:
    client.protocol.pause_writing()
    taken = feed(client, frame(b"a" * 30_000) * 20)
    assert desk.seen == []
    assert taken < 100_000

    client.protocol.resume_writing()

    assert client.reading
    assert len(desk.seen) == 1


async def test_the_server_sends_nothing_for_a_request_without_a_response(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"nothing") + frame(b"echo"))

    assert bytes(client.written) == frame(b"echo")


@pytest.mark.parametrize("request_", [b"!", b"x"])
async def test_an_error_in_a_request_handler_closes_only_its_own_connection(
    client: RecordingTransport, desk: Desk, table: ConnectionTable, request_: bytes
) -> None:
    other = connect(serve(desk, table))

    feed(client, frame(request_) + frame(b"more"))
    feed(other, frame(b"fine"))

    assert client.aborted
    assert not client.written
    assert bytes(other.written) == frame(b"fine")


async def test_a_request_whose_response_future_fails_closes_its_connection(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"wait"))
    desk.waiting[0].set_exception(CloseConnection("no"))
    await asyncio.sleep(0)

    assert client.aborted


async def test_the_server_drops_a_response_after_its_client_disconnected(
    client: RecordingTransport, desk: Desk
) -> None:
    feed(client, frame(b"wait") + frame(b"later"))
    client.protocol.connection_lost(None)

    await desk.release(b"done")

    assert not client.written
    assert desk.seen == [b"wait"]


class Parked:
    """Its requests wait for ever; it knows which were cancelled."""

    def __init__(self, ends_with_client: bool) -> None:
        self.ends_with_client = ends_with_client
        self.cancelled = 0
        self.waiting = 0

    async def wait(self) -> Answer:
        self.waiting += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return None

    def __call__(self, request: bytes, connection: ClientConnection) -> EndsWithClient | Awaitable[Answer]:
        return EndsWithClient(self.wait()) if self.ends_with_client else self.wait()


@pytest.mark.parametrize("sends_more", [b"", frame(b"next"), frame(b"next") + frame(b"third")[:5]])
@pytest.mark.parametrize("ends_with_client", [True, False])
async def test_a_request_that_allows_cancellation_is_cancelled_when_its_client_disconnects(
    table: ConnectionTable, ends_with_client: bool, sends_more: bytes
) -> None:
    parked = Parked(ends_with_client)
    client = connect(serve(parked, table))
    feed(client, frame(b"fetch") + sends_more)
    await asyncio.sleep(0)
    assert parked.waiting == 1
    assert client.reading, "whoever does not read does not see that the client leaves"

    client.protocol.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert parked.waiting == (not ends_with_client)
    assert parked.cancelled == ends_with_client


async def test_a_connection_closed_by_the_server_cancels_its_running_request(table: ConnectionTable) -> None:
    parked = Parked(ends_with_client=True)
    client = connect(serve(parked, table))
    feed(client, frame(b"fetch"))
    await asyncio.sleep(0)

    feed(client, b"\xff" * 30_000)
    client.protocol.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert parked.waiting == 0
    assert client.aborted


async def test_the_request_handler_gets_the_same_connection_object_for_each_request(table: ConnectionTable) -> None:
    seen: list[ClientConnection] = []

    def handle(request: bytes, connection: ClientConnection) -> Answer:
        seen.append(connection)
        connection.principal = Principal("User", request.decode())
        return None

    client, other = (connect(serve(handle, table), (host, 1)) for host in ("h1", "h2"))
    feed(client, frame(b"alice") + frame(b"bob"))
    feed(other, frame(b"carol"))

    assert seen[0] is seen[1]
    assert str(seen[0].principal) == "User:bob"
    assert seen[2].peer.host == "h2"
    assert ClientConnection(seen[0].peer).principal == ANONYMOUS


@pytest.mark.parametrize("rubbish", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\xff" * 8])
async def test_received_bytes_of_another_protocol_close_the_connection(
    client: RecordingTransport, desk: Desk, rubbish: bytes
) -> None:
    feed(client, rubbish)

    assert client.aborted
    assert desk.seen == []


async def test_the_server_writes_a_large_response_completely(table: ConnectionTable) -> None:
    parts: list[bytes | bytearray | memoryview | LateBytes] = [b"head", memoryview(b"r" * 300_000), b"tail"]
    client = connect(serve(lambda request, connection: parts, table))

    feed(client, frame(b"q"))

    assert bytes(client.written) == b"head" + b"r" * 300_000 + b"tail"


async def test_a_large_request_is_served_without_a_copy_of_its_frame(table: ConnectionTable) -> None:
    size = 8 * MAX
    received: list[bytes] = []

    def keep(request: bytes, connection: ClientConnection) -> Answer:
        received.append(request)
        return [b"ok"]

    client = connect(serve(keep, table, max_request_bytes=size))
    sent = frame(b"r" * size)
    content = sent + frame(b"next")
    tracemalloc.start()
    try:
        taken = feed(client, content, at_most=65_536)
        assert received == []  # the transport still has a view of the memory
        await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    feed(client, frame(b"next"))

    assert taken == len(sent)
    assert received == [sent[4:], b"next"]
    assert bytes(client.written) == b"okok"
    assert peak < 1.5 * size


class FakeNetwork:
    """Listens nowhere; the test makes the connections."""

    def __init__(self) -> None:
        self.make = None

    async def connect(self, make, host, port):  # type: ignore[no-untyped-def]
        raise OSError

    async def listen(self, make, host, port, backlog=50, buffers=None) -> Listener:  # type: ignore[no-untyped-def]
        self.make = make

        class Open:
            port = 4711

            async def start(self) -> None:
                pass

            async def close(self) -> None:
                pass

        return Open()


async def test_an_idle_connection_is_closed_unless_a_request_is_in_progress(desk: Desk) -> None:
    network = FakeNetwork()
    server = Server(cast(Network, network), ServerLimits(max_idle_ms=1000))
    assert await server.bind("PLAINTEXT", "", 0) == 4711
    await server.start(desk)
    make = network.make
    assert make is not None
    idle, busy, stuck = (connect(make()) for _ in range(3))
    feed(busy, frame(b"wait"))
    feed(stuck, frame(b"wait"))
    stuck.protocol.pause_writing()
    for client in (idle, busy, stuck):
        client.protocol.last_active -= 2

    server._check_idle()

    assert [c.aborted for c in (idle, busy, stuck)] == [True, False, True]
    await server.close()
    assert busy.aborted


async def test_a_connection_that_ends_at_any_byte_serves_only_complete_requests(
    table: ConnectionTable, desk: Desk
) -> None:
    content = frame(b"first") + frame(b"second" * 3)
    for cut in range(len(content)):
        desk.seen.clear()
        client = connect(serve(desk, table))

        feed(client, content[:cut])
        client.protocol.connection_lost(None)

        assert desk.seen == [b"first"][: cut >= 9]
    assert not len(table)


def _connections_and_buffers() -> list[ServerConnection | ReceiveBuffer]:
    return [each for each in gc.get_objects() if isinstance(each, ServerConnection | ReceiveBuffer)]


async def test_a_closed_connection_leaves_no_reference_cycle() -> None:
    """The collector rarely looks at old objects in a node: each would keep its receive buffer for hours."""
    server = Server(RealNetwork(), ServerLimits())
    port = await server.bind("PLAINTEXT", "127.0.0.1", 0)
    await server.start(lambda request, connection: [frame(request), bytes(200_000)])
    gc.collect()
    gc.disable()
    known = _connections_and_buffers()  # of other tests of this process
    try:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(b"one"))
            assert await reader.readexactly(7) == frame(b"one")
            writer.close()
        await server.close()
        await asyncio.sleep(0)  # the transports tell it to the connections
        left = [each for each in _connections_and_buffers() if not any(each is other for other in known)]
    finally:
        gc.enable()
    assert not left
