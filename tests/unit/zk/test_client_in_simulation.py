"""The ZooKeeper client in a simulation with network failures, without sockets and real time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.zookeeper_stage import SERVERS, SETTINGS, Stage

from klamm.zk.acl import Acl, Permission
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import AuthFailed, ConnectionLoss, NoAuth, NodeExists, SessionClosed, SessionExpired
from klamm.zk.operations import Check
from klamm.zk.states import SessionState
from klamm.zk.watches import EventType, WatchEvent

CONNECTED, DISCONNECTED, EXPIRED, AUTH_FAILED, CLOSED = SessionState
TIMEOUT_MS = 6_000


class Told(Stage):
    """A simulated ensemble that records when the client's owner was notified of what."""

    told: list[tuple[float, SessionState | WatchEvent]]

    async def client(self, timeout_ms: int = TIMEOUT_MS, chroot: str = "") -> ZooKeeper:
        client = self.make_client("zk1,zk2,zk3" + chroot, timeout_ms)
        self.told = []
        client.on_state = client.on_watch = self._record
        await client.connect(10)
        return client

    def _record(self, what: SessionState | WatchEvent) -> None:
        self.told.append((self.now(), what))

    @property
    def states(self) -> list[SessionState]:
        return [what for _, what in self.told if isinstance(what, SessionState)]

    @property
    def events(self) -> list[WatchEvent]:
        return [what for _, what in self.told if isinstance(what, WatchEvent)]


def simulate(scenario: Callable[[Told], Coroutine[Any, Any, None]], **options: Any) -> Told:
    stage = Told(**options)
    stage.run(scenario)
    return stage


def test_an_idle_zookeeper_session_pings_every_third_of_its_timeout() -> None:
    async def scenario(stage: Told) -> None:
        await stage.client()
        await asyncio.sleep(20.5)

    stage = simulate(scenario)

    pings = [time for time, what in stage.log if what == "ping"]
    assert pings == pytest.approx([2.0 * i for i in range(1, 11)], abs=0.02)
    assert stage.states == [CONNECTED]


def test_a_busy_zookeeper_session_sends_no_pings() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        for _ in range(15):
            await client.exists("/")
            await asyncio.sleep(1)

    assert simulate(scenario).count()["ping"] == 0


def test_a_session_cut_off_longer_than_its_timeout_expires_on_reconnection() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await client.create("/e", b"", ephemeral=True)
        stage.drop_traffic()
        waiting = asyncio.create_task(client.get("/e"))
        await asyncio.sleep(30)
        assert stage.states == [CONNECTED, DISCONNECTED]

        stage.network.end_all_cuts()

        with pytest.raises(SessionExpired):
            await waiting
        assert not client.is_alive
        with pytest.raises(SessionExpired):
            await client.get("/e")
        assert "/e" not in stage.tree.nodes

    assert simulate(scenario).states == [CONNECTED, DISCONNECTED, EXPIRED]


def test_the_client_leaves_a_silent_zookeeper_server_after_two_thirds_of_the_session_timeout() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        stage.drop_traffic(client.server)
        await asyncio.sleep(5)

    stage = simulate(scenario)

    (_, connected), (lost_at, lost), (back_at, back) = stage.told
    assert (connected, lost, back) == (CONNECTED, DISCONNECTED, CONNECTED)
    assert lost_at == pytest.approx(4.0, abs=0.05)
    assert back_at - lost_at < 0.05  # another server takes the session over at once


MISSED = [WatchEvent(EventType.DATA_CHANGED, "/changed"), WatchEvent(EventType.DELETED, "/deleted")]


def test_abandoned_connection_attempts_to_zookeeper_are_closed() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        for _ in range(3):
            stage.network.end_all_cuts()
            stage.drop_traffic(client.server)
            await asyncio.sleep(5)
        assert len(stage.open_ends()) == 1
        await client.close()
        await asyncio.sleep(0.1)
        assert stage.open_ends() == []

    simulate(scenario)


def test_the_zookeeper_client_writes_nothing_while_the_transport_is_paused() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        (link,) = (end.get_protocol() for end in stage.open_ends())
        link.pause_writing()
        waiting = asyncio.create_task(client.create("/a", b""))
        await asyncio.sleep(1)
        assert "/a" not in stage.tree.nodes
        link.resume_writing()
        await waiting
        link.pause_writing()
        await asyncio.sleep(10)

    stage = simulate(scenario)

    assert stage.states == [CONNECTED, DISCONNECTED, CONNECTED]
    assert stage.told[1][0] == pytest.approx(5.0, abs=0.1)


def test_a_zookeeper_client_with_a_chroot_uses_paths_relative_to_the_chroot() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client(chroot="/kafka/one")
        await client.ensure_chroot()
        created, _ = await client.create("/a", b"")
        assert created == "/a"
        await client.exists("/a", watch=True)
        await client.children("/", watch=True)
        assert (await client.children("/"))[0] == ["a"]
        stage.set("/kafka/one/a", b"1")
        stage.create("/kafka/one/b", b"")
        await asyncio.sleep(0.1)
        assert stage.events == [
            WatchEvent(EventType.DATA_CHANGED, "/a"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        ]
        with pytest.raises(NodeExists, match="/a"):
            await client.create("/a", b"")

    simulate(scenario)


def test_an_existing_chroot_is_used_where_an_acl_forbids_to_create_it() -> None:
    """ZooKeeper refuses the creation before it looks whether the znode exists (KAFKA-12866)."""

    async def scenario(stage: Told) -> None:
        await (await stage.client(chroot="/kafka")).ensure_chroot()
        await (await stage.client()).set_acl("/", [Acl(Permission.READ, "world", "anyone")])
        client = await stage.client(chroot="/kafka")

        await client.ensure_chroot()

        assert (await client.create("/a", b""))[0] == "/a"
        with pytest.raises(NoAuth):
            await (await stage.client(chroot="/another")).ensure_chroot()

    simulate(scenario)


def test_zookeeper_watches_restored_on_the_next_server_report_missed_changes() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        for name in ("changed", "deleted", "same"):
            await client.create(f"/{name}", b"")
            await client.get(f"/{name}", watch=True)
        await client.exists("/absent", watch=True)
        await client.children("/", watch=True)
        await stage.stop_all()
        await asyncio.sleep(0.5)
        stage.set("/changed", b"1")
        stage.delete("/deleted")
        await stage.start_all()
        await asyncio.sleep(2)
        assert stage.events == [
            WatchEvent(EventType.DATA_CHANGED, "/changed"),
            WatchEvent(EventType.DELETED, "/deleted"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        ]
        await client.children("/", watch=True)
        stage.create("/absent", b"")
        stage.set("/same", b"1")
        stage.set("/changed", b"2")
        await asyncio.sleep(1)

    stage = simulate(scenario)

    assert stage.states == [CONNECTED, DISCONNECTED, CONNECTED]
    assert stage.events[3:] == [
        WatchEvent(EventType.CREATED, "/absent"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        WatchEvent(EventType.DATA_CHANGED, "/same"),
    ]


def test_a_zookeeper_request_whose_reply_was_lost_is_resent() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        stage.drops_replies = True
        creating = asyncio.create_task(client.create("/a", b"x"))
        reading = asyncio.create_task(client.get("/a"))
        await asyncio.sleep(1)
        stage.drops_replies = False
        await stage.stop(client.server)
        with pytest.raises(NodeExists, match="/a"):
            await creating
        assert (await reading)[0] == b"x"

    stage = simulate(scenario)

    assert [what for _, what in stage.log if "/a" in what] == ["create /a", "get /a"] * 2


def test_connection_attempts_back_off_while_no_zookeeper_server_is_reachable() -> None:
    async def scenario(stage: Told) -> None:
        await stage.client()
        await stage.stop_all()
        stage.attempts.clear()
        await asyncio.sleep(10)

    stage = simulate(scenario)

    times = [time for time, _ in stage.attempts]
    assert times[2] < 0.1  # each server once, at once
    gaps = [b - a for a, b in pairwise(times)]
    assert all(0.5 <= gap <= 1.01 for gap in gaps[-5:])
    assert {a for _, a in stage.attempts[-3:]} == set(SERVERS)


def test_a_zookeeper_server_behind_the_last_seen_zxid_is_skipped() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await client.create("/a", b"")
        first = client.server
        laggard = next(name for name in SERVERS if not first.startswith(name))
        stage.servers[laggard].is_cut_off = True
        await client.create("/b", b"")
        await stage.stop(first)
        await client.get("/a")
        assert not client.server.startswith(laggard)

    simulate(scenario)


def test_connecting_to_zookeeper_fails_if_no_server_is_reachable_in_time() -> None:
    async def scenario(stage: Told) -> None:
        await stage.stop_all()
        client = stage.make_client("zk1:2181,zk2:2181", TIMEOUT_MS)
        with pytest.raises(ConnectionLoss, match=r"with zk1:2181,zk2:2181 within 3 s \(zk.*refused"):
            await client.connect(3)
        assert stage.now() == 3.0
        with pytest.raises(SessionClosed):
            await client.get("/")

    simulate(scenario)


def test_a_cancelled_zookeeper_connect_leaves_no_running_task() -> None:
    async def scenario(stage: Told) -> None:
        await stage.stop_all()
        client = stage.make_client("zk1", TIMEOUT_MS)
        connecting = asyncio.create_task(client.connect(60))
        await asyncio.sleep(3)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        assert not client.is_alive
        tried = len(stage.attempts)
        await asyncio.sleep(60)
        assert len(stage.attempts) == tried

    simulate(scenario)


def test_closing_a_zookeeper_client_before_its_connection_ends_all_attempts() -> None:
    async def scenario(stage: Told) -> None:
        client = stage.make_client("zk1", TIMEOUT_MS)
        await client.close()
        with pytest.raises(SessionClosed):
            await client.connect(5)
        with pytest.raises(SessionClosed):
            await client.multi([Check("/", 0)])
        assert await client.multi([]) == []
        assert stage.attempts == []

    simulate(scenario)


def test_the_zookeeper_session_timeout_is_the_value_negotiated_with_the_ensemble() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await asyncio.sleep(10)
        assert client.session_timeout_ms == 3_000

    granting = replace(SETTINGS, max_session_ms=3_000)
    assert simulate(scenario, settings=granting).count()["ping"] == 10


def test_zookeeper_credentials_that_the_server_refuses_end_the_session() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        with pytest.raises(AuthFailed):
            await client.add_auth("unheard-of", b"a:b")
        assert not client.is_alive

    assert simulate(scenario).states == [CONNECTED, AUTH_FAILED]


def test_zookeeper_credentials_are_sent_to_every_server_on_connect() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await client.add_auth("digest", b"a:b")
        await client.get("/", watch=True)
        await stage.stop(client.server)
        await client.get("/")

    stage = simulate(scenario)

    assert [what.split()[0] for _, what in stage.log] == [
        "connect", "auth", "get", "connect", "auth", "set-watches", "get",
    ]  # fmt: skip


def test_closing_the_zookeeper_client_ends_its_session_in_the_ensemble() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await client.create("/e", b"", ephemeral=True)
        await client.close()
        assert "/e" not in stage.tree.nodes

    assert simulate(scenario).states == [CONNECTED, CLOSED]


def test_closing_the_zookeeper_client_without_a_reachable_server_fails_waiting_requests() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await stage.stop_all()
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(client.get("/"))
        await asyncio.sleep(1)
        await client.close()
        with pytest.raises(SessionClosed):
            await waiting

    assert simulate(scenario).states == [CONNECTED, DISCONNECTED, CLOSED]


def test_closing_the_zookeeper_client_waits_for_a_silent_server_only_until_a_timeout() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client(timeout_ms=60_000)
        stage.drop_traffic()
        await client.close()
        assert stage.now() == pytest.approx(5.0, abs=0.1)

    simulate(scenario)


def test_a_cancelled_zookeeper_request_is_not_sent_later() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await stage.stop_all()
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.create("/late", b"")
        await stage.start_all()
        assert await client.exists("/late") is None

    assert simulate(scenario).count()["create"] == 0


def test_callers_beyond_the_limit_of_waiting_zookeeper_requests_wait() -> None:
    async def scenario(stage: Told) -> None:
        client = stage.make_client("zk1", TIMEOUT_MS, max_in_flight=2)
        await client.connect(5)
        await asyncio.gather(*(client.create(f"/n{i}", b"") for i in range(20)))

    created = [what for _, what in simulate(scenario).log if what.startswith("create")]

    assert created == [f"create /n{i}" for i in range(20)]


def test_cancelled_zookeeper_requests_leave_room_for_later_ones() -> None:
    async def scenario(stage: Told) -> None:
        client = stage.make_client("zk1,zk2,zk3", TIMEOUT_MS, max_in_flight=2)
        await client.connect(5)
        for _ in range(3):
            await stage.stop_all()
            await asyncio.sleep(0.1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.gather(*(client.exists(f"/n{i}") for i in range(4)))
            await stage.start_all()
            async with asyncio.timeout(10):
                assert await client.exists("/other") is None

    simulate(scenario)


def test_an_exception_in_a_watch_callback_is_logged_and_blocks_no_request() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        client.on_watch = lambda _: 1 / 0  # type: ignore[assignment]
        await client.exists("/a", watch=True)
        await client.create("/a", b"")

    with pytest.raises(
        AssertionError, match=r"a callback of the ZooKeeper session failed on WatchEvent.*division by zero"
    ):
        simulate(scenario)


def test_an_unresolvable_zookeeper_host_name_counts_as_an_unreachable_server() -> None:
    async def scenario(stage: Told) -> None:
        async def fails(*_: object) -> None:
            raise UnicodeError("label too long")

        stage.client_world.network.connect = fails  # type: ignore[method-assign, assignment]
        client = stage.make_client("a..b", TIMEOUT_MS)
        with pytest.raises(ConnectionLoss, match="label too long"):
            await client.connect(1)

    simulate(scenario)


def test_a_zookeeper_connection_made_after_its_attempt_timed_out_is_closed() -> None:
    async def scenario(stage: Told) -> None:
        for name in SERVERS:
            stage.network.link("client", name).latency_s = stage.network.link(name, "client").latency_s = 2.4
        # the connection stands after 4.8 s, the first attempts are over by then
        client = stage.make_client("zk1,zk2,zk3", 60_000)
        connecting = asyncio.create_task(client.connect(60))
        await asyncio.sleep(20)
        stage.network.heal()
        await connecting
        await asyncio.sleep(1)
        assert len(stage.open_ends()) == 1

    simulate(scenario)


def test_the_same_seed_gives_the_same_simulated_run_of_the_zookeeper_client() -> None:
    async def scenario(stage: Told) -> None:
        client = await stage.client()
        await stage.stop_all()
        await asyncio.sleep(3)
        await stage.start_all()
        await client.exists("/")

    first, second = simulate(scenario, seed=5), simulate(scenario, seed=5)

    assert first.attempts == second.attempts
    assert first.log == second.log
