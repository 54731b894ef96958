"""One request at a time per connection, answers in order, nothing without a bound."""

import asyncio
from collections.abc import Awaitable

import pytest
from tests.unit.net.transports import RecordingTransport, connect, feed, frame

from klamm.net.client_connection import ANONYMOUS, ClientConnection, Principal
from klamm.net.connection_table import ConnectionLimits, ConnectionTable
from klamm.net.memory_limits import RequestMemory, ResponseMemory
from klamm.net.response_writer import Answer
from klamm.net.server import CloseConnection, EndsWithClient, Handler, Server, ServerConnection, ServerLimits
from klamm.runtime.network import Listener

MAX = 1024 * 1024


class Desk:
    """A handler: `w...` waits until released, `!` refuses, `x` breaks, `n` owes no answer, others are echoed."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.waiting: list[asyncio.Future[Answer]] = []

    def __call__(self, request: bytearray, connection: ClientConnection) -> Answer | Awaitable[Answer]:
        self.seen.append(bytes(request))
        match request[:1]:
            case b"!":
                raise CloseConnection("unknown api key 99")
            case b"x":
                raise ZeroDivisionError
            case b"n":
                return None
            case b"w":
                future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                self.waiting.append(future)
                return future
        return [frame(bytes(request))]

    async def release(self, answer: bytes) -> None:
        self.waiting.pop(0).set_result([frame(answer)])
        await asyncio.sleep(0)


def serve(
    handle: Handler,
    table: ConnectionTable,
    listener: str = "PLAINTEXT",
    *,
    request_memory: RequestMemory | None = None,
    response_memory: ResponseMemory | None = None,
) -> ServerConnection:
    return ServerConnection(
        listener, handle, MAX, table, request_memory or RequestMemory(), response_memory or ResponseMemory(MAX)
    )


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def table() -> ConnectionTable:
    return ConnectionTable(ConnectionLimits())


@pytest.fixture
async def client(desk: Desk, table: ConnectionTable) -> RecordingTransport:
    return connect(serve(desk, table))


async def test_requests_are_answered_in_order(client: RecordingTransport) -> None:
    feed(client, frame(b"one") + frame(b"two") + frame(b"three"))

    assert bytes(client.written) == frame(b"one") + frame(b"two") + frame(b"three")


async def test_a_second_request_waits_for_the_first(client: RecordingTransport, desk: Desk) -> None:
    feed(client, frame(b"wait") + frame(b"later"))
    assert desk.seen == [b"wait"]
    assert not client.written

    await desk.release(b"done")

    assert desk.seen == [b"wait", b"later"]
    assert bytes(client.written) == frame(b"done") + frame(b"later")


async def test_reading_pauses_once_the_next_request_is_complete(client: RecordingTransport, desk: Desk) -> None:
    feed(client, frame(b"wait"))
    assert client.reading

    taken = feed(client, frame(b"z" * 100_000) * 50)
    assert not client.reading
    assert taken < 200_000

    await desk.release(b"done")
    assert client.reading


async def test_a_peer_that_does_not_read_is_not_served_further(client: RecordingTransport, desk: Desk) -> None:
    client.protocol.pause_writing()
    taken = feed(client, frame(b"a" * 30_000) * 20)
    assert desk.seen == []
    assert taken < 100_000

    client.protocol.resume_writing()

    assert client.reading
    assert len(desk.seen) == 1


async def test_a_request_without_an_answer_writes_nothing(client: RecordingTransport, desk: Desk) -> None:
    feed(client, frame(b"nothing") + frame(b"echo"))

    assert bytes(client.written) == frame(b"echo")


@pytest.mark.parametrize("request_", [b"!", b"x"])
async def test_a_refusal_or_a_mistake_of_ours_closes_only_that_connection(
    client: RecordingTransport, desk: Desk, table: ConnectionTable, request_: bytes
) -> None:
    other = connect(serve(desk, table))

    feed(client, frame(request_) + frame(b"more"))
    feed(other, frame(b"fine"))

    assert client.aborted
    assert not client.written
    assert bytes(other.written) == frame(b"fine")


async def test_a_failing_wait_closes_the_connection(client: RecordingTransport, desk: Desk) -> None:
    feed(client, frame(b"wait"))
    desk.waiting[0].set_exception(CloseConnection("no"))
    await asyncio.sleep(0)

    assert client.aborted


async def test_an_answer_for_a_client_that_left_is_dropped(client: RecordingTransport, desk: Desk) -> None:
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
async def test_a_request_that_ends_with_its_client_is_cancelled_when_the_client_leaves(
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


async def test_a_connection_that_we_end_cancels_its_request_as_well(table: ConnectionTable) -> None:
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


async def test_handlers_see_one_state_per_connection(table: ConnectionTable) -> None:
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
async def test_rubbish_closes_the_connection(client: RecordingTransport, desk: Desk, rubbish: bytes) -> None:
    feed(client, rubbish)

    assert client.aborted
    assert desk.seen == []


async def test_a_large_answer_arrives_whole(table: ConnectionTable) -> None:
    parts = [b"head", memoryview(b"r" * 300_000), b"tail"]
    client = connect(serve(lambda request, connection: parts, table))

    feed(client, frame(b"q"))

    assert bytes(client.written) == b"head" + b"r" * 300_000 + b"tail"


class TestConnectionLimits:
    def dial(self, table: ConnectionTable, desk: Desk, host: str, listener: str = "PLAINTEXT") -> RecordingTransport:
        return connect(serve(desk, table, listener), (host, 1))

    async def test_per_address(self, desk: Desk) -> None:
        table = ConnectionTable(ConnectionLimits(max_per_address=1, per_address={"h2": 2}))

        first, second = self.dial(table, desk, "h1"), self.dial(table, desk, "h1")
        others = [self.dial(table, desk, "h2") for _ in range(3)]

        assert [c.aborted for c in (first, second, *others)] == [False, True, False, False, True]

    async def test_a_place_is_free_again_once_its_holder_left(self, desk: Desk) -> None:
        table = ConnectionTable(ConnectionLimits(max_connections=1))
        self.dial(table, desk, "h1").protocol.connection_lost(None)

        assert not self.dial(table, desk, "h2").aborted
        assert self.dial(table, desk, "h3").aborted

    async def test_a_broker_takes_the_place_of_the_least_used_client(self, desk: Desk) -> None:
        table = ConnectionTable(ConnectionLimits(max_connections=2), protected_listener="REPLICATION")
        first, second = self.dial(table, desk, "h1"), self.dial(table, desk, "h2")
        first.protocol.last_active = second.protocol.last_active + 1

        broker = self.dial(table, desk, "b", listener="REPLICATION")

        assert [c.aborted for c in (first, second, broker)] == [False, True, False]
        assert len(table) == 2


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


async def test_idle_connections_end_busy_ones_stay(desk: Desk) -> None:
    network = FakeNetwork()
    server = Server(network, ServerLimits(max_idle_ms=1000))
    assert await server.bind("PLAINTEXT", "", 0) == 4711
    await server.start(desk)
    idle, busy, stuck = (connect(network.make()) for _ in range(3))
    feed(busy, frame(b"wait"))
    feed(stuck, frame(b"wait"))
    stuck.protocol.pause_writing()
    for client in (idle, busy, stuck):
        client.protocol.last_active -= 2

    server._check_idle()

    assert [c.aborted for c in (idle, busy, stuck)] == [True, False, True]
    await server.close()
    assert busy.aborted


async def test_a_stream_cut_at_every_byte_serves_only_whole_requests(table: ConnectionTable, desk: Desk) -> None:
    content = frame(b"first") + frame(b"second" * 3)
    for cut in range(len(content)):
        desk.seen.clear()
        client = connect(serve(desk, table))

        feed(client, content[:cut])
        client.protocol.connection_lost(None)

        assert desk.seen == [b"first"][: cut >= 9]
    assert not len(table)
