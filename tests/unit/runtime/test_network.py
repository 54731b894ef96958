"""The real network's sockets."""

import asyncio
import socket

import pytest
import uvloop

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.network import RealNetwork, SocketBuffers


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


@pytest.mark.parametrize("address", [("a" * 64, 9092), ("a..b", 9092), ("\udcff", 9092), ("127.0.0.1", 70_000)])
@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_impossible_address_raises_os_error(factory, address: tuple[str, int]) -> None:  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=factory) as runner, pytest.raises(OSError):
        runner.run(RealNetwork().connect(asyncio.Protocol, *address))

    with pytest.raises(OSError):
        RealBlockingWorld().connect(*address, 1.0, 1.0)
