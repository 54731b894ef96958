"""The proxies between nodes, with real sockets: what a cut delays, what arrives after it, and who owns a connection."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from klamm.runtime.network import RealNetwork
from klamm.runtime.ports import free_port
from klamm.runtime.socket_owners import owner_of_port
from klamm.testing.links import HOST, Links, Path

TIMEOUT_S = 60
LARGE = b"x" * 5_000_000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that sends back what it receives, and counts its connections."""

    def __init__(self) -> None:
        self.port = free_port()
        self.connections = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._answer, HOST, self.port)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while received := await reader.read(65_536):
            writer.write(received)
            await writer.drain()
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    async with await server.serve():
        yield server


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[tuple[Links, int]]:
    """Links with one proxy from member 2 to member 1, and its port."""
    links = Links(RealNetwork(), lambda _port: 2)
    port = free_port()
    await links.open([Path(port, echo.port, target=1)])
    yield links, port
    await links.close()


LINK = frozenset((1, 2))


async def ask(streams: Streams, question: bytes) -> bytes:
    reader, writer = streams
    writer.write(question)
    return await asyncio.wait_for(reader.readexactly(len(question)), TIMEOUT_S)


async def test_the_fault_injecting_proxy_passes_bytes_in_both_directions(proxy: tuple[Links, int]) -> None:
    streams = await asyncio.open_connection(HOST, proxy[1])

    assert await ask(streams, b"hello") == b"hello"
    assert await ask(streams, LARGE) == LARGE
    streams[1].close()


async def test_a_cut_proxy_link_holds_bytes_back_until_the_link_is_restored(proxy: tuple[Links, int]) -> None:
    links, port = proxy
    streams = await asyncio.open_connection(HOST, port)
    await ask(streams, b"before")

    links.cut([LINK])
    answer = asyncio.ensure_future(ask(streams, b"during"))
    done, _ = await asyncio.wait([answer], timeout=0.3)
    assert not done
    links.join()

    assert await answer == b"during"
    streams[1].close()


async def test_a_connection_opened_over_a_cut_proxy_link_is_made_after_the_link_is_restored(
    proxy: tuple[Links, int], echo: Echo
) -> None:
    links, port = proxy
    links.cut([LINK])
    streams = await asyncio.open_connection(HOST, port)
    answer = asyncio.ensure_future(ask(streams, b"hello"))
    await asyncio.wait([answer], timeout=0.3)
    assert echo.connections == 0

    links.join()

    assert await answer == b"hello"
    streams[1].close()


async def test_cutting_the_link_between_two_nodes_leaves_other_links_working(proxy: tuple[Links, int]) -> None:
    links, port = proxy
    links.cut([frozenset((1, 3))])

    streams = await asyncio.open_connection(HOST, port)

    assert await ask(streams, b"hello") == b"hello"
    streams[1].close()


async def test_closing_one_side_of_a_proxied_connection_closes_the_other_side(
    proxy: tuple[Links, int], echo: Echo
) -> None:
    links, _port = proxy
    unused = free_port()
    await links.open([Path(unused, free_port(), target=1)])

    reader, writer = await asyncio.open_connection(HOST, unused)  # nobody listens behind it

    assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_proxy_attributes_a_connection_to_the_process_that_opened_it() -> None:
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as connection:
        port = connection.getsockname()[1]

        assert owner_of_port(port, [os.getppid(), os.getpid()]) == os.getpid()
        assert owner_of_port(port, [os.getppid()]) is None
        assert owner_of_port(free_port(), [os.getpid()]) is None
