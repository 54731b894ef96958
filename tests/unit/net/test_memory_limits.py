"""Memory of all connections together: for requests that arrive, and for answers that nobody reads."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from structlog.testing import capture_logs
from tests.unit.net.transports import RecordingTransport, connect, feed, frame

from klamm.model.errors import KlammError
from klamm.net.client_connection import ClientConnection
from klamm.net.connection_table import ConnectionLimits, ConnectionTable
from klamm.net.memory_limits import (
    CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    STALL_GRACE_S,
    RequestMemory,
    ResponseMemory,
)
from klamm.net.response_writer import Answer, Buffer
from klamm.net.server import Handler, ServerConnection
from klamm.sim.loop import SimulatedLoop

KIB = 1024
MAX = 1024 * KIB


class FromFile:
    """A part of an answer that is read late; it counts how much of it was."""

    def __init__(self, size: int, cold: bool = False) -> None:
        self.size = size
        self.cold = cold
        self.read_bytes = 0

    def __len__(self) -> int:
        return self.size

    def read_cached(self, start: int, count: int) -> Buffer | None:
        return None if self.cold else self.take(start, count)

    async def read(self, start: int, count: int) -> Buffer:
        await asyncio.sleep(0.001)
        return self.take(start, count)

    def take(self, start: int, count: int) -> bytes:
        assert start == self.read_bytes
        assert start + count <= self.size
        self.read_bytes += count
        return b"x" * count


class FullSocket(RecordingTransport):
    """A peer whose socket takes nothing until `drain`."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.buffered += len(data)
        if self.buffered > self.high:
            self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def drain(self) -> None:
        self.buffered = 0
        self.protocol.resume_writing()


def serve(
    handle: Handler, *, requests: RequestMemory | None = None, responses: ResponseMemory | None = None
) -> ServerConnection:
    table = ConnectionTable(ConnectionLimits())
    memory = requests or RequestMemory(), responses or ResponseMemory(64 * MAX)
    return ServerConnection("PLAINTEXT", handle, lambda _: False, MAX, table, *memory)


def dial(connection: ServerConnection) -> FullSocket:
    transport = FullSocket()
    transport.protocol = connection
    connection.connection_made(transport)
    return transport


# ---- answers


@pytest.mark.parametrize("cold", [False, True])
def test_a_client_that_does_not_read_its_response_holds_one_file_chunk_in_memory(cold: bool) -> None:
    SimulatedLoop().run(peer_that_does_not_read(cold))


async def peer_that_does_not_read(cold: bool) -> None:
    records = FromFile(50 * MAX, cold)
    memory = ResponseMemory(64 * MAX)
    client = dial(serve(lambda request, connection: [b"head", records, b"tail"], responses=memory))

    feed(client, frame(b"q"))
    await asyncio.sleep(0.01)
    assert records.read_bytes == CHUNK_BYTES
    assert memory.held == CHUNK_BYTES + len(b"headtail")

    for _ in range(50 * MAX // CHUNK_BYTES):
        client.drain()
        await asyncio.sleep(0.002)
    assert len(client.written) == 50 * MAX + len(b"headtail")
    assert bytes(client.written[-5:]) == b"xtail"
    client.drain()
    assert memory.held == 0


@pytest.mark.parametrize("cold", [False, True])
def test_a_connections_next_request_is_served_after_the_client_read_the_response(cold: bool) -> None:
    SimulatedLoop().run(two_requests(cold))


async def two_requests(cold: bool) -> None:
    answers: list[Answer] = [[FromFile(MAX, cold)], [b"second"]]
    client = dial(serve(lambda request, connection: answers.pop(0)))

    feed(client, frame(b"one") + frame(b"two"))
    for _ in range(4):
        await asyncio.sleep(0.002)
        assert not client.written.endswith(b"second")
        client.drain()
    await asyncio.sleep(0.002)

    assert client.written.endswith(b"xsecond")


async def test_the_server_closes_a_connection_if_the_file_being_sent_is_truncated() -> None:
    class Lost(FromFile):
        def read_cached(self, start: int, count: int) -> Buffer | None:
            if start:
                raise KlammError("truncated")
            return super().read_cached(start, count)

    client = dial(serve(lambda request, connection: [Lost(MAX), b"tail"]))
    feed(client, frame(b"q"))
    client.drain()

    assert client.aborted
    assert bytes(client.written) == b"x" * CHUNK_BYTES


def answer_with(file: FromFile, request: bytes, connection: ClientConnection) -> Answer:
    return [file]


@pytest.mark.parametrize(("error", "level"), [(KlammError, "warning"), (OSError, "error")])
async def test_the_server_logs_an_error_for_an_unreadable_response_file_unless_truncated(
    error: type[Exception], level: str
) -> None:
    class Lost(FromFile):
        def read_cached(self, start: int, count: int) -> Buffer | None:
            raise error("it cannot be read")

    with capture_logs() as lines:
        client = dial(serve(lambda request, connection: [Lost(MAX)]))
        feed(client, frame(b"q"))

    assert client.aborted
    assert [line["log_level"] for line in lines] == [level]


async def test_stalled_clients_get_small_chunks_once_the_response_memory_limit_is_reached() -> None:
    limit = 4 * MAX
    memory = ResponseMemory(limit)
    files = [FromFile(10 * MAX) for _ in range(100)]
    for file in files:
        feed(dial(serve(partial(answer_with, file), responses=memory)), frame(b"q"))

    assert memory.held <= limit + 100 * MIN_CHUNK_BYTES
    assert {f.read_bytes for f in files} == {CHUNK_BYTES, MIN_CHUNK_BYTES}


def test_the_longest_stalled_connection_is_closed_above_the_response_memory_limit() -> None:
    async def scenario() -> None:
        memory = ResponseMemory(2 * MAX)

        def client() -> FullSocket:
            made = dial(serve(lambda request, connection: [b"y" * MAX], responses=memory))
            feed(made, frame(b"q"))
            return made

        first, second = client(), client()
        await asyncio.sleep(STALL_GRACE_S / 2)
        first.drain()  # reads on
        await asyncio.sleep(STALL_GRACE_S * 0.9)

        third, fourth = client(), client()
        assert [c.aborted for c in (first, second, third, fourth)] == [False, True, False, False]
        assert memory.held > 2 * MAX  # who stalled just now has its grace

        await asyncio.sleep(STALL_GRACE_S)
        assert [c.aborted for c in (first, third, fourth)] == [True, False, False]
        assert memory.held <= 2 * MAX
        third.protocol.connection_lost(None)
        fourth.protocol.connection_lost(None)
        assert memory.held == 0

    SimulatedLoop().run(scenario())


def test_stalled_connections_are_closed_each_time_that_the_response_memory_limit_is_exceeded() -> None:
    async def scenario() -> None:
        memory = ResponseMemory(MAX)
        for _ in range(2):
            stalled = []
            for _ in range(2):
                stalled.append(dial(serve(lambda request, connection: [b"y" * MAX], responses=memory)))
                feed(stalled[-1], frame(b"q"))
            await asyncio.sleep(2 * STALL_GRACE_S)
            assert [c.aborted for c in stalled] == [True, False]
            stalled[1].protocol.connection_lost(None)

    SimulatedLoop().run(scenario())


# ---- requests


async def test_a_large_request_is_read_only_when_request_memory_is_free() -> None:
    memory = RequestMemory(100 * KIB)
    parked: list[asyncio.Future[Answer]] = []

    def park(request: bytes, connection: object) -> asyncio.Future[Answer]:
        parked.append(asyncio.get_running_loop().create_future())
        return parked[-1]

    first, second, small = (connect(serve(park, requests=memory)) for _ in range(3))
    feed(first, frame(b"a" * 150 * KIB))
    taken = feed(second, frame(b"b" * 150 * KIB))
    feed(small, frame(b"c"))
    assert len(parked) == 2  # the small one passes
    assert taken <= 16 * KIB
    assert not second.reading

    parked[0].set_result([b"done"])
    await asyncio.sleep(0)
    assert second.reading
    feed(second, frame(b"b" * 150 * KIB)[taken:])

    assert len(parked) == 3
    assert memory.taken == 150 * KIB


async def test_the_memory_of_an_incomplete_request_is_released_on_disconnect() -> None:
    memory = RequestMemory(100 * KIB)
    client = connect(serve(lambda request, connection: None, requests=memory))
    feed(client, frame(b"a" * 150 * KIB)[:50_000])
    assert memory.taken == 150 * KIB
    waiting = connect(serve(lambda request, connection: None, requests=memory))
    feed(waiting, frame(b"a" * 150 * KIB)[:50_000])
    assert not waiting.reading
    waiting.protocol.connection_lost(None)

    client.protocol.connection_lost(None)

    assert memory.taken == 0


async def test_a_running_request_keeps_its_memory_reserved_after_its_client_disconnects() -> None:
    memory = RequestMemory(1024 * KIB)
    pending: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    client = connect(serve(lambda request, connection: pending, requests=memory))
    feed(client, frame(b"a" * 150 * KIB))
    feed(client, frame(b"b" * 200 * KIB)[:50_000])
    assert memory.taken == 350 * KIB

    client.protocol.connection_lost(None)
    assert memory.taken == 150 * KIB

    pending.set_result([b"done"])
    await asyncio.sleep(0)
    assert memory.taken == 0


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_a_request_that_waits_for_nothing_but_its_response_holds_no_request_memory(is_at_once: bool) -> None:
    """A produce request that waits for followers must not keep their fetch requests from being read."""
    memory = RequestMemory(100 * KIB)
    pending: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    appended: list[Callable[[], None]] = []

    def produce(request: bytes, connection: ClientConnection) -> asyncio.Future[Answer]:
        appended.append(connection.let_next_begin)
        if is_at_once:
            connection.let_next_begin()
        return pending

    producer = connect(serve(produce, requests=memory))
    fetched: list[bytes] = []
    follower = connect(serve(lambda request, connection: fetched.append(request), requests=memory))
    feed(producer, frame(b"a" * 150 * KIB))
    taken = feed(follower, frame(b"b" * 20 * KIB))
    if not is_at_once:
        assert not follower.reading
        appended[0]()
        await asyncio.sleep(0)
        feed(follower, frame(b"b" * 20 * KIB)[taken:])

    assert len(fetched) == 1
    assert memory.taken == 0

    pending.set_result([b"done"])
    await asyncio.sleep(0)
    assert memory.taken == 0


async def test_requests_are_read_at_once_if_no_request_memory_limit_is_set() -> None:
    memory = RequestMemory(-1)  # the default of queued.max.request.bytes
    clients = [connect(serve(lambda request, connection: None, requests=memory)) for _ in range(10)]
    for client in clients:
        assert feed(client, frame(b"a" * 900 * KIB)[:-1]) == 900 * KIB + 3
    assert memory.taken == 9000 * KIB
