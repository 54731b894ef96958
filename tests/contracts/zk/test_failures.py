"""Sessions of klamm's client while real servers stop, pause, restart or expire them."""

import asyncio
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from tests.support.waiting import eventually
from tests.support.zookeeper import Ensemble

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import BadVersion, ConnectionLoss, RequestTooLarge, SessionExpired
from klamm.zk.operations import Check, Set
from klamm.zk.states import SessionState
from klamm.zk.watches import EventType, WatchEvent

CONNECTED, DISCONNECTED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


class Owner:
    """A client that records its states and watch events."""

    def __init__(self, connect_string: str, session_timeout_ms: int, chroot: str = "") -> None:
        self.zk = ZooKeeper(real_world(), connect_string, session_timeout_ms, chroot)
        self.states: list[SessionState] = []
        self.events: list[WatchEvent] = []
        self.zk.on_state = self.states.append
        self.zk.on_watch = self.events.append

    async def __aenter__(self) -> "Owner":
        await self.zk.connect(10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.zk.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        await eventually(holds)


async def in_thread(call: Callable[[], object]) -> None:
    await asyncio.to_thread(call)


def server_of(owner: Owner, ensemble: Ensemble) -> ZooKeeperServer:
    return next(s for s in ensemble.servers if s.connect_string == owner.zk.server)


async def test_zookeeper_session_watches_and_waiting_requests_survive_a_server_restart(
    zookeeper: ZooKeeperServer,
) -> None:
    async with Owner(zookeeper.connect_string, 20_000) as owner:
        session_id = owner.zk.session_id
        await owner.zk.create("/e", b"1", ephemeral=True)
        await owner.zk.get("/e", watch=True)
        await in_thread(zookeeper.stop)
        await owner.until(lambda: DISCONNECTED in owner.states)
        waiting = [asyncio.create_task(owner.zk.create(f"/n-{i}", b"")) for i in range(500)]
        await in_thread(zookeeper.start)

        created = await asyncio.gather(*waiting)

        assert owner.zk.session_id == session_id
        assert [path for path, _ in created] == [f"/n-{i}" for i in range(500)]
        assert owner.states == [CONNECTED, DISCONNECTED, CONNECTED]
        await owner.zk.set("/e", b"2")
        assert owner.events == [WatchEvent(EventType.DATA_CHANGED, "/e")]


async def test_a_zookeeper_session_moves_to_another_server_and_keeps_its_watches(zookeeper_ensemble: Ensemble) -> None:
    witness = KazooClient(zookeeper_ensemble.connect_string)
    await in_thread(witness.start)
    async with Owner(zookeeper_ensemble.connect_string, 10_000) as owner:
        await owner.zk.create("/e", b"1", ephemeral=True)
        await owner.zk.get("/e", watch=True)
        await owner.zk.exists("/later", watch=True)
        await owner.zk.children("/", watch=True)
        session_id, first = owner.zk.session_id, server_of(owner, zookeeper_ensemble)
        await in_thread(first.kill)

        _, stat = await owner.zk.get("/e")

        assert (owner.zk.session_id, stat.ephemeral_owner) == (session_id, session_id)
        assert owner.zk.server != first.connect_string
        assert owner.events == []
        await in_thread(lambda: witness.retry(witness.create, "/later", b""))
        await owner.until(lambda: len(owner.events) == 2)
        assert owner.events == [
            WatchEvent(EventType.CREATED, "/later"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        ]
        await in_thread(witness.stop)


async def test_the_zookeeper_client_leaves_a_paused_server_for_another_server(zookeeper_ensemble: Ensemble) -> None:
    async with Owner(zookeeper_ensemble.connect_string, 3_000) as owner:
        await owner.zk.create("/e", b"", ephemeral=True)
        paused = server_of(owner, zookeeper_ensemble)
        paused.pause()
        try:
            assert await asyncio.wait_for(owner.zk.exists("/e"), 60) is not None

            assert owner.zk.server != paused.connect_string
            assert owner.states == [CONNECTED, DISCONNECTED, CONNECTED]
        finally:
            paused.resume()


async def test_a_server_pause_shorter_than_the_session_timeout_does_not_disconnect_the_client(
    zookeeper: ZooKeeperServer,
) -> None:
    async with Owner(zookeeper.connect_string, 30_000) as owner:
        zookeeper.pause()
        waiting = asyncio.create_task(owner.zk.create("/a", b""))
        await asyncio.sleep(1)
        zookeeper.resume()
        await waiting

        assert owner.states == [CONNECTED]


async def test_a_zookeeper_session_expires_after_a_network_outage_longer_than_its_timeout(
    zookeeper: ZooKeeperServer,
) -> None:
    """A relay that drops bytes is the network: the server expires the session, and the client learns it later."""
    relay = Relay(zookeeper.port)
    port = await relay.open()
    async with Owner(f"127.0.0.1:{port}", 3_000) as owner, Owner(zookeeper.connect_string, 10_000) as other:
        await owner.zk.create("/e", b"", ephemeral=True)
        await other.zk.exists("/e", watch=True)
        relay.swallows = True
        waiting = asyncio.create_task(owner.zk.set("/e", b"late"))
        await other.until(lambda: other.events == [WatchEvent(EventType.DELETED, "/e")])
        assert EXPIRED not in owner.states
        relay.swallows = False

        with pytest.raises(SessionExpired):
            await asyncio.wait_for(waiting, 60)
        assert owner.states[-1] is EXPIRED
        assert not owner.zk.is_alive
    await relay.close()


async def test_a_zookeeper_multi_with_a_stale_controller_epoch_check_fails_and_writes_nothing(
    zookeeper: ZooKeeperServer,
) -> None:
    async with Owner(zookeeper.connect_string, 10_000) as late, Owner(zookeeper.connect_string, 10_000) as new:
        await late.zk.create("/epoch", b"1")
        await late.zk.create("/state", b"old")
        await new.zk.set("/epoch", b"2")

        results = await late.zk.multi([Check("/epoch", 0), Set("/state", b"late")])

        assert results[0].code is BadVersion.code
        assert (await new.zk.get("/state"))[0] == b"old"


async def test_a_request_over_zookeepers_packet_limit_fails_with_request_too_large(zookeeper: ZooKeeperServer) -> None:
    async with Owner(zookeeper.connect_string, 10_000) as owner:
        with pytest.raises(RequestTooLarge, match="/large"):
            await asyncio.wait_for(owner.zk.create("/large", bytes(2 << 20)), 60)
        with pytest.raises(RequestTooLarge):
            await owner.zk.create("/larger", bytes(5 << 20))

        assert (await owner.zk.create("/fits", bytes(1 << 19)))[0] == "/fits"


async def test_a_bulk_read_of_znodes_over_the_reply_limit_is_split(zookeeper: ZooKeeperServer) -> None:
    async with Owner(zookeeper.connect_string, 10_000) as owner:
        for i in range(12):
            await owner.zk.create(f"/n-{i}", bytes([i]) * (500_000 if i % 2 else 10))
        narrow = ZooKeeper(real_world(), zookeeper.connect_string, 10_000, max_packet_bytes=700_000)
        await narrow.connect(10)
        paths = [f"/n-{i}" for i in range(12)]

        got = await narrow.get_many(paths)

        assert [len(r.data or b"") for r in got] == [10, 500_000] * 6
        assert narrow.session_id
        await narrow.close()


async def test_connecting_times_out_when_no_zookeeper_server_answers(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    client = ZooKeeper(real_world(), f"127.0.0.1:{unused_tcp_port_factory()}", 10_000)

    with pytest.raises(ConnectionLoss, match=r"within 0\.5 s"):
        await client.connect(0.5)


class Relay:
    """Passes bytes to the server and back, or swallows them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallows = False

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._pass_on(source, target)))

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if not self.swallows:
                target.write(data)
        target.close()
