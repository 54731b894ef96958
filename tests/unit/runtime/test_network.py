"""The real network's sockets."""

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest
import uvloop

from klamm.runtime import network as networks
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.network import RealNetwork, SocketBuffers
from klamm.runtime.ports import free_ports


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_accepted_tcp_sockets_have_the_configured_buffer_sizes(factory) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        accepted: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport)

        network = RealNetwork()
        listener = await network.listen(Accepted, "127.0.0.1", 0, buffers=SocketBuffers(60_000, 50_000))
        await listener.start()
        await network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        ours = (await accepted).get_extra_info("socket")

        # Linux doubles what it is told, for its own bookkeeping
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (60_000, 120_000)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        await listener.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_tcp_keepalive_is_on_at_both_ends(factory) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        accepted: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport
                accepted.put_nowait(transport)

        network = RealNetwork()
        listener = await network.listen(Accepted, "127.0.0.1", 0)
        await listener.start()
        connected = await network.connect(Accepted, "127.0.0.1", listener.port)
        blocking = await asyncio.to_thread(RealBlockingWorld().connect, "127.0.0.1", listener.port, 10.0, 10.0)

        ends = [connected.transport, *[await accepted.get() for _ in range(3)]]
        sockets = [end.get_extra_info("socket") for end in ends]
        sockets.append(vars(blocking)["_socket"])
        assert all(end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for end in sockets)
        blocking.close()
        await listener.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("address", [("a" * 64, 9092), ("a..b", 9092), ("\udcff", 9092), ("127.0.0.1", 70_000)])
@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_impossible_address_raises_os_error(factory, address: tuple[str, int]) -> None:  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=factory) as runner, pytest.raises(OSError):
        runner.run(RealNetwork().connect(asyncio.Protocol, *address))

    with pytest.raises(OSError):
        RealBlockingWorld().connect(*address, 1.0, 1.0)


@contextlib.contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """An address that answers no connection attempt: its queue of connections to accept is full."""
    with socket.create_server(("127.0.0.2", 0), backlog=0) as silent, socket.create_connection(silent.getsockname()):
        select.select([silent], [], [])  # the only place in the queue is taken
        yield silent.getsockname()


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the host name `many` has for addresses."""
    listed: list[tuple[str, int]] = []

    async def look_up(host: str, port: int) -> list[Any]:
        assert host == "many"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in listed]

    monkeypatch.setattr(networks, "_look_up", look_up)
    monkeypatch.setattr(networks, "NEXT_ADDRESS_S", 0.001)
    return listed


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_host_is_reached_at_another_address_if_its_first_one_does_not_answer(
    factory: Any, addresses: list[tuple[str, int]]
) -> None:
    """As an ensemble or a cluster with one name in DNS, one machine of which has lost its power."""

    async def scenario() -> str:
        network = RealNetwork()
        listener = await network.listen(asyncio.Protocol, "127.0.0.1", 0)
        await listener.start()
        addresses.append(("127.0.0.1", listener.port))
        made: list[asyncio.BaseTransport] = []

        class Made(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(transport)

        await network.connect(Made, "many", 1)
        await listener.close()
        [transport] = made
        peer: str = transport.get_extra_info("peername")[0]
        transport.close()
        return peer

    with silent_address() as silent, asyncio.Runner(loop_factory=factory) as runner:
        addresses.append(silent)
        assert runner.run(scenario()) == "127.0.0.1"


async def test_each_connection_to_a_host_begins_with_another_of_its_addresses(
    addresses: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZooKeeper server without a quorum accepts connections, and closes them."""
    tried: list[Any] = []

    async def refuse(address: networks.AddressInfo) -> socket.socket:
        tried.append(address[4])
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(networks, "_connect_to", refuse)
    addresses += [("one", 1), ("two", 1), ("three", 1)]

    network = RealNetwork()
    for _ in range(4):
        with pytest.raises(OSError):
            await network.connect(asyncio.Protocol, "many", 1)

    assert [at for at, _ in tried[::3]] == ["one", "two", "three", "one"]
    assert all(len(set(tried[n : n + 3])) == 3 for n in range(0, 12, 3))


async def test_addresses_of_another_family_come_last(
    addresses: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    async def refuse(address: networks.AddressInfo) -> socket.socket:
        tried.append(address[4])
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    async def look_up(host: str, port: int) -> list[Any]:
        return [
            (family, socket.SOCK_STREAM, 6, "", (family.name, n))
            for n, family in enumerate((socket.AF_INET6, socket.AF_INET, socket.AF_INET6))
        ]

    monkeypatch.setattr(networks, "_connect_to", refuse)
    monkeypatch.setattr(networks, "_look_up", look_up)

    network = RealNetwork()
    for _ in range(2):
        with pytest.raises(OSError):
            await network.connect(asyncio.Protocol, "many", 1)

    assert [number for _, number in tried] == [0, 2, 1, 2, 0, 1]


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_host_that_refuses_connections_at_all_its_addresses_raises_the_errors(
    factory: Any, addresses: list[tuple[str, int]]
) -> None:
    addresses += [("127.0.0.1", port) for port in free_ports(2)]

    with asyncio.Runner(loop_factory=factory) as runner, pytest.raises(OSError) as raised:
        runner.run(RealNetwork().connect(asyncio.Protocol, "many", 1))
    assert str(raised.value).count(f"[Errno {errno.ECONNREFUSED}]") == len(addresses)


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_attempt_that_is_given_up_leaves_no_socket_open(
    factory: Any, addresses: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []
    both_opened = asyncio.Event()

    class Opened(socket.socket):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            opened.append(self)
            if len(opened) == 2:
                both_opened.set()

    async def scenario() -> None:
        monkeypatch.setattr(socket, "socket", Opened)
        connecting = asyncio.create_task(RealNetwork().connect(asyncio.Protocol, "many", 1))
        await both_opened.wait()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        assert [made.fileno() for made in opened] == [-1, -1]

    with silent_address() as one, silent_address() as two, asyncio.Runner(loop_factory=factory) as runner:
        addresses += [one, two]
        runner.run(scenario())


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_of_two_addresses_that_answer_at_the_same_time_one_is_used(
    factory: Any, addresses: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [socket.socketpair(), socket.socketpair()]
    may_answer = asyncio.Event()

    async def answer(address: Any) -> socket.socket:
        left = pairs[len(begun)][0]
        begun.append(address)
        if len(begun) == len(pairs):
            may_answer.set()
        await may_answer.wait()
        return left

    begun: list[Any] = []
    addresses += [("one", 1), ("two", 2)]
    monkeypatch.setattr(networks, "_connect_to", answer)

    async def scenario() -> None:
        protocol = await RealNetwork().connect(asyncio.Protocol, "many", 1)
        assert isinstance(protocol, asyncio.Protocol)
        assert sorted(pair[0].fileno() == -1 for pair in pairs) == [False, True]

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())
    for _, right in pairs:
        right.close()


_MANY: Final = bytes(64 << 20)  # more than the buffers of both systems hold


def _read_rest(accepted: socket.socket) -> int:
    """The number of bytes up to the end of the connection. Raises ConnectionResetError where it was reset."""
    count = 0
    while part := accepted.recv(1 << 20):
        count += len(part)
    return count


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_discarded_connection_delivers_nothing_of_what_the_system_still_had_to_send(
    factory: Callable[[], asyncio.AbstractEventLoop] | None, listening: socket.socket
) -> None:
    async def scenario() -> None:
        connected = await RealNetwork().connect(_Connected, "127.0.0.1", listening.getsockname()[1])
        connected.transport.write(_MANY)
        networks.discard(connected.transport)
        await connected.is_lost

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())
    accepted, _ = listening.accept()
    with accepted, pytest.raises(ConnectionResetError):
        _read_rest(accepted)


def test_a_discarded_blocking_connection_delivers_nothing_of_what_the_system_still_had_to_send(
    listening: socket.socket,
) -> None:
    blocking = RealBlockingWorld().connect("127.0.0.1", listening.getsockname()[1], 10.0, 0.01)
    with pytest.raises(BlockingIOError):
        blocking.send([_MANY])
    blocking.discard()
    accepted, _ = listening.accept()
    with accepted, pytest.raises(ConnectionResetError):
        _read_rest(accepted)


class _Connected(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.is_lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set_result(None)
