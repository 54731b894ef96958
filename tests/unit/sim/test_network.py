"""Simulated connections: order, cuts, resets, dead processes, half-open connections, back-pressure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from klamm.runtime.network import discard
from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import SimulatedNetwork


class Peer(asyncio.Protocol):
    """A protocol that records what it receives."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: list[str] = []
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(type(exc).__name__)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True


class Pair:
    """A client and a server on two hosts."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(5)
        self.network = SimulatedNetwork(self.loop)
        self.a, self.b = self.loop.add_host("a"), self.loop.add_host("b")
        self.accepted: list[Peer] = []

    def _make(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def open(self) -> None:
        """Connect the client to the server."""
        listener = await self.network.of(self.b).listen(self._make, "", 9092)
        await listener.start()
        self.client = await self.loop.spawn(self.a, self.network.of(self.a).connect(Peer, "b", 9092))
        await asyncio.sleep(1)
        [self.server] = self.accepted

    def on(self, host: Host, call: Callable[..., object], *args: object) -> None:
        """Call a function on a host."""
        self.loop.call_on(host, self.loop.time(), call, *args)

    def run(self, story: Callable[["Pair"], Coroutine[Any, Any, None]]) -> None:
        """Run a test scenario with a new pair."""

        async def main() -> None:
            await self.open()
            await story(self)

        self.loop.run(main(), limit_s=1_000)


def test_bytes_on_the_simulated_network_arrive_in_order_after_the_link_latency() -> None:
    async def story(pair: Pair) -> None:
        for number in range(100):
            pair.client.transport.write(b"%d," % number)
        assert pair.server.got == b""
        await asyncio.sleep(1)
        assert pair.server.got == b"".join(b"%d," % n for n in range(100))
        pair.server.transport.write(b"thanks")
        await asyncio.sleep(1)
        assert pair.client.got == b"thanks"

    Pair().run(story)


def test_a_cut_simulated_link_delays_one_direction_and_loses_no_bytes() -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.write(b"1")  # on its way when the link is cut
        pair.network.cut("a", "b")
        pair.client.transport.write(b"2")
        pair.server.transport.write(b"other way")
        await asyncio.sleep(100)
        assert (pair.server.got, pair.client.got) == (b"", b"other way")
        pair.network.end_cut("a", "b")
        pair.client.transport.write(b"3")
        await asyncio.sleep(1)
        assert pair.server.got == b"123"

    Pair().run(story)


def test_closing_a_simulated_connection_ends_both_sides() -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.write(b"last words")
        pair.client.transport.close()
        await asyncio.sleep(1)
        assert (pair.server.got, pair.server.lost, pair.client.lost) == (b"last words", ["NoneType"], ["NoneType"])

    Pair().run(story)


@pytest.mark.parametrize("is_cut_before", [True, False])
def test_what_waits_at_a_cut_simulated_link_is_lost_where_its_connection_is_discarded(is_cut_before: bool) -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.write(b"here, ")
        await asyncio.sleep(1)
        if is_cut_before:
            pair.network.cut("a", "b")
        pair.client.transport.write(b"late")
        discard(pair.client.transport)
        pair.network.cut("a", "b")
        await asyncio.sleep(100)
        pair.network.end_cut("a", "b")
        await asyncio.sleep(100)
        assert (pair.server.got, pair.server.lost, pair.client.lost) == (b"here, ", [], ["NoneType"])
        pair.server.transport.write(b"are you there?")
        await asyncio.sleep(1)
        assert pair.server.lost == ["ConnectionResetError"]

    Pair().run(story)


def test_discarding_a_simulated_connection_delivers_what_is_on_its_way_and_ends_both_sides() -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.write(b"last words")
        discard(pair.client.transport)
        await asyncio.sleep(1)
        assert (pair.server.got, pair.server.lost, pair.client.lost) == (b"last words", ["NoneType"], ["NoneType"])

    Pair().run(story)


def test_healing_the_simulated_network_ends_connections_whose_other_end_was_discarded() -> None:
    async def story(pair: Pair) -> None:
        pair.network.cut("a", "b")
        pair.client.transport.write(b"late")
        discard(pair.client.transport)
        pair.network.heal()
        await asyncio.sleep(1)
        assert (pair.server.got, pair.server.lost) == (b"", ["ConnectionResetError"])

    Pair().run(story)


def test_resetting_a_simulated_connection_ends_both_sides() -> None:
    async def story(pair: Pair) -> None:
        assert pair.network.reset("b", "a") == 2
        await asyncio.sleep(1)
        assert pair.server.lost == pair.client.lost == ["ConnectionResetError"]

    Pair().run(story)


def test_a_killed_simulated_process_resets_its_connections_and_closes_its_port() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.kill(pair.b)
        await asyncio.sleep(1)
        assert pair.client.lost == ["ConnectionResetError"]
        with pytest.raises(ConnectionRefusedError):
            await pair.loop.spawn(pair.a, pair.network.of(pair.a).connect(Peer, "b", 9092))

    Pair().run(story)


def test_the_peer_of_a_powered_off_host_gets_a_reset_only_after_its_restart() -> None:
    async def story(pair: Pair) -> None:
        pair.network.power_off(pair.b)
        pair.client.transport.write(b"anyone?")
        await asyncio.sleep(100)
        assert pair.client.lost == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await pair.network.connect(pair.a, Peer, "b", 9092)
        pair.network.of(pair.loop.add_host("b"))
        await asyncio.sleep(100)
        assert pair.client.lost == []
        pair.client.transport.write(b"anyone now?")
        await asyncio.sleep(1)
        assert pair.client.lost == ["ConnectionResetError"]

    Pair().run(story)


def test_a_paused_simulated_host_receives_its_bytes_after_resume() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.pause(pair.b)
        pair.client.transport.write(bytes(100_000))
        await asyncio.sleep(100)
        assert (len(pair.server.got), pair.client.writable) == (0, False)
        pair.loop.resume(pair.b)
        await asyncio.sleep(1)
        assert (len(pair.server.got), pair.client.writable) == (100_000, True)

    Pair().run(story)


def test_a_simulated_writer_is_paused_while_its_peer_does_not_read() -> None:
    async def story(pair: Pair) -> None:
        pair.server.transport.pause_reading()
        pair.client.transport.write(bytes(70_000))
        await asyncio.sleep(1)
        assert (len(pair.server.got), pair.client.writable) == (0, False)
        pair.server.transport.resume_reading()
        await asyncio.sleep(1)
        assert (len(pair.server.got), pair.client.writable) == (70_000, True)

    Pair().run(story)


class SmallBuffer(Peer, asyncio.BufferedProtocol):
    """A protocol with room for few bytes, which pauses reading while it is full."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.transport.is_reading()
        self.buffer = bytearray(3)
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.buffer[:nbytes]
        self.transport.pause_reading()


def test_a_full_simulated_receive_buffer_gets_no_more_bytes_until_reading_resumes() -> None:
    async def story(pair: Pair) -> None:
        server = SmallBuffer()
        server.connection_made(pair.server.transport)
        pair.client.transport.write(b"12345")
        pair.client.transport.write(b"67")
        for got in (b"123", b"12345", b"1234567"):
            await asyncio.sleep(1)
            assert server.got == got
            pair.server.transport.resume_reading()

    Pair().run(story)


def test_the_transfer_time_of_a_simulated_link_depends_on_its_bandwidth() -> None:
    async def story(pair: Pair) -> None:
        pair.network.link("a", "b").bytes_per_s = 1_000
        pair.client.transport.write(bytes(5_000))
        await asyncio.sleep(4.9)
        assert pair.server.got == b""
        await asyncio.sleep(0.2)
        assert len(pair.server.got) == 5_000

    Pair().run(story)


def test_sending_on_a_half_open_simulated_connection_closes_the_connection() -> None:
    async def story(pair: Pair) -> None:
        pair.network.half_open("b", "a")
        await asyncio.sleep(100)
        assert (pair.server.lost, pair.client.lost) == (["ConnectionResetError"], [])
        pair.client.transport.write(b"anyone?")
        await asyncio.sleep(1)
        assert (pair.server.got, pair.client.lost) == (b"", ["ConnectionResetError"])

    Pair().run(story)


def test_healing_the_simulated_network_closes_half_open_connections() -> None:
    """Otherwise the peer waits for its request timeout, which is longer than the quiet period of a run."""

    async def story(pair: Pair) -> None:
        pair.network.half_open("b", "a")
        await asyncio.sleep(1)
        pair.network.heal()
        await asyncio.sleep(1)
        assert pair.client.lost == ["ConnectionResetError"]

    Pair().run(story)


def test_an_interrupted_message_arrives_partly_before_the_simulated_connection_is_lost() -> None:
    async def story(pair: Pair) -> None:
        pair.network.link("a", "b").torn_after = 0.5
        pair.client.transport.write(b"0123456789")
        await asyncio.sleep(1)
        assert pair.server.got == b"01234"
        assert pair.server.lost == pair.client.lost == ["ConnectionResetError"]

    Pair().run(story)


def test_a_simulated_host_without_file_descriptors_cannot_connect_or_accept() -> None:
    async def story(pair: Pair) -> None:
        pair.network.exhausted.add("b")
        with pytest.raises(ConnectionRefusedError):
            await pair.loop.spawn(pair.a, pair.network.of(pair.a).connect(Peer, "b", 9092))
        with pytest.raises(OSError, match="too many open files"):
            await pair.loop.spawn(pair.b, pair.network.of(pair.b).connect(Peer, "a", 9092))
        pair.network.heal()
        await pair.loop.spawn(pair.a, pair.network.of(pair.a).connect(Peer, "b", 9092))

    Pair().run(story)


def test_a_restored_simulated_link_has_its_original_latency_and_bandwidth() -> None:
    async def story(pair: Pair) -> None:
        link = pair.network.link("a", "b")
        link.latency_s = link.jitter_s = 50.0
        pair.network.restore("a", "b")
        pair.client.transport.write(b"1")
        await asyncio.sleep(1)
        assert pair.server.got == b"1"

    Pair().run(story)
