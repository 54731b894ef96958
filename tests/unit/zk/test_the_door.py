"""The client in a simulated world: no socket, no clock, and a minute of failures passes in a moment."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests.support.scripted_zookeeper import Ensemble, Link
from tests.support.simulated_network import SimulatedNetwork, SimulatedTransport, simulated_world

from klamm.sim.loop import SimulatedLoop
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import AuthFailed, ConnectionLoss, NodeExists, SessionClosed, SessionExpired
from klamm.zk.operations import Check
from klamm.zk.states import SessionState
from klamm.zk.watches import EventType, WatchEvent

CONNECTED, DISCONNECTED, EXPIRED, AUTH_FAILED, CLOSED = SessionState
TIMEOUT_MS = 6_000
SERVERS = [("zk1", 2181), ("zk2", 2181), ("zk3", 2181)]


@dataclass
class Stage:
    """A client, an ensemble of three, the network between them, and what the client's owner was told when."""

    network: SimulatedNetwork = field(default_factory=SimulatedNetwork)
    ensemble: Ensemble = field(default_factory=Ensemble)
    told: list[tuple[float, SessionState | WatchEvent]] = field(default_factory=list)

    async def client(self, seed: int = 1, timeout_ms: int = TIMEOUT_MS, chroot: str = "") -> ZooKeeper:
        for host, port in SERVERS:
            self.serve(host, port)
        client = ZooKeeper(simulated_world(self.network, seed), "zk1,zk2,zk3" + chroot, timeout_ms)
        client.on_state = client.on_watch = lambda what: self.told.append((self.now(), what))
        await client.connect(10)
        return client

    def serve(self, host: str, port: int = 2181) -> None:
        self.network.listeners[(host, port)] = lambda: Link(self.ensemble, host)

    def stop(self, server: str) -> None:
        host, port = server.split(":")
        self.network.listeners.pop((host, int(port)), None)
        self.network.break_connections((host, int(port)))

    def stop_all(self) -> None:
        for host, port in SERVERS:
            self.stop(f"{host}:{port}")

    def start_all(self) -> None:
        for host, port in SERVERS:
            self.serve(host, port)

    @staticmethod
    def now() -> float:
        return round(asyncio.get_running_loop().time(), 3)

    @property
    def states(self) -> list[SessionState]:
        return [what for _, what in self.told if isinstance(what, SessionState)]

    @property
    def events(self) -> list[WatchEvent]:
        return [what for _, what in self.told if isinstance(what, WatchEvent)]


Scenario = Callable[[Stage], Awaitable[None]]


def simulate(scenario: Scenario) -> Stage:
    async def main() -> Stage:
        stage = Stage()
        await scenario(stage)
        return stage

    return SimulatedLoop().run(main())


def test_an_idle_session_pings_every_third_of_its_timeout() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.client()
        await asyncio.sleep(20.5)

    stage = simulate(scenario)

    pings = [time for time, what in stage.ensemble.log if what == "ping"]
    assert pings == pytest.approx([2.0 * i for i in range(1, 11)], abs=0.02)
    assert stage.states == [CONNECTED]


def test_traffic_takes_the_place_of_pings() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for _ in range(15):
            await client.exists("/")
            await asyncio.sleep(1)

    assert simulate(scenario).ensemble.count()["ping"] == 0


def test_a_session_cut_off_past_its_timeout_expires_once_it_reaches_the_ensemble_again() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.create("/e", b"", ephemeral=True)
        stage.network.silent.update(SERVERS)
        waiting = asyncio.create_task(client.get("/e"))
        await asyncio.sleep(30)
        assert stage.states == [CONNECTED, DISCONNECTED]

        stage.network.silent.clear()

        with pytest.raises(SessionExpired):
            await waiting
        assert not client.is_alive
        with pytest.raises(SessionExpired):
            await client.get("/e")
        assert "/e" not in stage.ensemble.tree

    assert simulate(scenario).states == [CONNECTED, DISCONNECTED, EXPIRED]


def test_silence_is_noticed_after_two_thirds_of_the_timeout() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        host, port = client.server.split(":")
        stage.network.silent.add((host, int(port)))
        await asyncio.sleep(5)

    stage = simulate(scenario)

    (_, connected), (lost_at, lost), (back_at, back) = stage.told
    assert (connected, lost, back) == (CONNECTED, DISCONNECTED, CONNECTED)
    assert lost_at == pytest.approx(4.0, abs=0.05)
    assert back_at - lost_at < 0.05  # another server takes the session over at once


MISSED = [WatchEvent(EventType.DATA_CHANGED, "/changed"), WatchEvent(EventType.DELETED, "/deleted")]


def test_connections_given_up_are_closed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for _ in range(3):
            host, port = client.server.split(":")
            stage.network.silent = {(host, int(port))}
            await asyncio.sleep(5)
        assert len(open_ends(stage)) == 1
        await client.close()
        await asyncio.sleep(0.1)
        assert open_ends(stage) == []

    def open_ends(stage: Stage) -> list[SimulatedTransport]:
        """Of the client's side."""
        return [end for end in stage.network.ends[1::2] if not end.is_closing()]

    simulate(scenario)


def test_nothing_is_written_while_the_connection_takes_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        (link,) = (end.protocol for end in stage.network.ends[1::2])
        link.pause_writing()
        waiting = asyncio.create_task(client.create("/a", b""))
        await asyncio.sleep(1)
        assert "/a" not in stage.ensemble.tree
        link.resume_writing()
        await waiting
        link.pause_writing()
        await asyncio.sleep(10)

    stage = simulate(scenario)

    assert stage.states == [CONNECTED, DISCONNECTED, CONNECTED]
    assert stage.told[1][0] == pytest.approx(5.0, abs=0.1)


def test_under_a_chroot_all_paths_are_relative_to_it() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(chroot="/kafka/one")
        await client.ensure_chroot()
        created, _ = await client.create("/a", b"")
        assert created == "/a"
        await client.exists("/a", watch=True)
        await client.children("/", watch=True)
        assert (await client.children("/"))[0] == ["a"]
        stage.ensemble.set("/kafka/one/a", b"1")
        stage.ensemble.create("/kafka/one/b", b"")
        await asyncio.sleep(0.1)
        assert stage.events == [
            WatchEvent(EventType.DATA_CHANGED, "/a"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        ]
        with pytest.raises(NodeExists, match="/a"):
            await client.create("/a", b"")

    simulate(scenario)


def test_watches_are_set_again_on_the_next_server_and_tell_what_was_missed() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        for name in ("changed", "deleted", "same"):
            await client.create(f"/{name}", b"")
            await client.get(f"/{name}", watch=True)
        await client.exists("/absent", watch=True)
        await client.children("/", watch=True)
        stage.stop_all()
        await asyncio.sleep(0.5)
        stage.ensemble.set("/changed", b"1")
        stage.ensemble.delete("/deleted")
        stage.start_all()
        await asyncio.sleep(2)
        assert stage.events == [
            WatchEvent(EventType.DATA_CHANGED, "/changed"),
            WatchEvent(EventType.DELETED, "/deleted"),
        ]

        stage.ensemble.create("/absent", b"")
        stage.ensemble.set("/same", b"1")
        stage.ensemble.set("/changed", b"2")
        await asyncio.sleep(1)

    stage = simulate(scenario)

    assert stage.states == [CONNECTED, DISCONNECTED, CONNECTED]
    assert stage.events[2:] == [
        WatchEvent(EventType.CREATED, "/absent"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/"),
        WatchEvent(EventType.DATA_CHANGED, "/same"),
    ]


def test_a_request_whose_answer_was_lost_is_asked_again() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        stage.ensemble.drops_replies = True
        creating = asyncio.create_task(client.create("/a", b"x"))
        reading = asyncio.create_task(client.get("/a"))
        await asyncio.sleep(1)
        stage.ensemble.drops_replies = False
        stage.stop(client.server)
        with pytest.raises(NodeExists, match="/a"):
            await creating
        assert (await reading)[0] == b"x"

    stage = simulate(scenario)

    assert [what for _, what in stage.ensemble.log if "/a" in what] == ["create /a", "get /a"] * 2


def test_attempts_slow_down_while_no_server_answers() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.client()
        stage.stop_all()
        stage.network.attempts.clear()
        await asyncio.sleep(10)

    stage = simulate(scenario)

    times = [time for time, _ in stage.network.attempts]
    assert times[2] < 0.1  # each server once, at once
    gaps = [b - a for a, b in pairwise(times)]
    assert all(0.5 <= gap <= 1.01 for gap in gaps[-5:])
    assert {a for _, a in stage.network.attempts[-3:]} == set(SERVERS)


def test_a_server_that_lags_behind_is_passed_over() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.create("/a", b"")
        behind = Ensemble()
        first = client.server
        laggard = next(host for host, _ in SERVERS if not first.startswith(host))
        stage.network.listeners[(laggard, 2181)] = lambda: Link(behind, laggard)
        stage.stop(first)
        await client.get("/a")
        assert not client.server.startswith(laggard)

    simulate(scenario)


def test_no_server_within_the_time_given() -> None:
    async def scenario(stage: Stage) -> None:
        client = ZooKeeper(simulated_world(stage.network), "zk1:2181,zk2:2181", TIMEOUT_MS)
        with pytest.raises(ConnectionLoss, match=r"with zk1:2181,zk2:2181 within 3 s \(zk.*refused"):
            await client.connect(3)
        assert stage.now() == 3.0
        with pytest.raises(SessionClosed):
            await client.get("/")

    simulate(scenario)


def test_a_connect_that_is_cancelled_leaves_nothing_running() -> None:
    async def scenario(stage: Stage) -> None:
        client = ZooKeeper(simulated_world(stage.network), "zk1", TIMEOUT_MS)
        connecting = asyncio.create_task(client.connect(60))
        await asyncio.sleep(3)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        assert not client.is_alive
        tried = len(stage.network.attempts)
        await asyncio.sleep(60)
        assert len(stage.network.attempts) == tried

    simulate(scenario)


def test_a_client_closed_before_it_was_connected() -> None:
    async def scenario(stage: Stage) -> None:
        client = ZooKeeper(simulated_world(stage.network), "zk1", TIMEOUT_MS)
        await client.close()
        with pytest.raises(SessionClosed):
            await client.connect(5)
        with pytest.raises(SessionClosed):
            await client.multi([Check("/", 0)])
        assert await client.multi([]) == []
        assert stage.network.attempts == []

    simulate(scenario)


def test_the_timeout_is_the_one_that_the_ensemble_grants() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ensemble.max_timeout_ms = 3_000
        client = await stage.client()
        await asyncio.sleep(10)
        assert client.session_timeout_ms == 3_000

    assert simulate(scenario).ensemble.count()["ping"] == 10


def test_refused_credentials_end_the_session() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        stage.ensemble.refuses_auth = True
        with pytest.raises(AuthFailed):
            await client.add_auth("digest", b"a:b")
        assert not client.is_alive

    assert simulate(scenario).states == [CONNECTED, AUTH_FAILED]


def test_credentials_are_shown_to_every_server() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.add_auth("digest", b"a:b")
        await client.get("/", watch=True)
        stage.stop(client.server)
        await client.get("/")

    stage = simulate(scenario)

    assert [what.split()[0] for _, what in stage.ensemble.log] == [
        "connect", "auth", "get", "connect", "auth", "set-watches", "get",
    ]  # fmt: skip


def test_closing_ends_the_session_for_the_ensemble_too() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.create("/e", b"", ephemeral=True)
        await client.close()
        assert "/e" not in stage.ensemble.tree

    assert simulate(scenario).states == [CONNECTED, CLOSED]


def test_closing_refuses_what_waits_when_nobody_can_be_reached() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        stage.stop_all()
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(client.get("/"))
        await asyncio.sleep(1)
        await client.close()
        with pytest.raises(SessionClosed):
            await waiting

    assert simulate(scenario).states == [CONNECTED, DISCONNECTED, CLOSED]


def test_closing_does_not_wait_for_ever_for_a_silent_server() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(timeout_ms=60_000)
        stage.network.silent.update(SERVERS)
        await client.close()
        assert stage.now() == pytest.approx(5.0, abs=0.1)

    simulate(scenario)


def test_what_was_given_up_is_not_sent_later() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        stage.stop_all()
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.create("/late", b"")
        stage.start_all()
        assert await client.exists("/late") is None

    assert simulate(scenario).ensemble.count()["create"] == 0


def test_more_callers_than_room_wait_their_turn() -> None:
    async def scenario(stage: Stage) -> None:
        stage.start_all()
        client = ZooKeeper(simulated_world(stage.network), "zk1", TIMEOUT_MS, max_in_flight=2)
        await client.connect(5)
        await asyncio.gather(*(client.create(f"/n{i}", b"") for i in range(20)))

    created = [what for _, what in simulate(scenario).ensemble.log if what.startswith("create")]

    assert created == [f"create /n{i}" for i in range(20)]


def test_an_owner_that_fails_on_an_event_is_reported_and_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        stage = Stage()
        client = await stage.client()
        client.on_watch = lambda _: 1 / 0  # type: ignore[assignment, return-value]
        await client.exists("/a", watch=True)
        await client.create("/a", b"")

    with pytest.raises(AssertionError, match=r"the owner failed on WatchEvent.*division by zero"):
        SimulatedLoop().run(scenario())


def test_a_host_name_that_cannot_be_looked_up_is_a_server_that_cannot_be_reached() -> None:
    async def scenario(stage: Stage) -> None:
        async def fails(*_: object) -> None:
            raise UnicodeError("label too long")

        stage.network.connect = fails  # type: ignore[method-assign, assignment]
        client = ZooKeeper(simulated_world(stage.network), "a..b", TIMEOUT_MS)
        with pytest.raises(ConnectionLoss, match="label too long"):
            await client.connect(1)

    simulate(scenario)


def test_a_connection_made_too_late_is_dropped() -> None:
    async def scenario(stage: Stage) -> None:
        stage.start_all()
        stage.network.delay_s = 2.4  # the connection stands after 4.8 s, the first attempts are over by then
        client = ZooKeeper(simulated_world(stage.network), "zk1,zk2,zk3", 60_000)
        connecting = asyncio.create_task(client.connect(60))
        await asyncio.sleep(20)
        stage.network.delay_s = 0.001
        await connecting
        await asyncio.sleep(1)
        assert len([end for end in stage.network.ends[1::2] if not end.is_closing()]) == 1

    simulate(scenario)


def test_one_seed_gives_one_run() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(seed=5)
        stage.stop_all()
        await asyncio.sleep(3)
        stage.start_all()
        await client.exists("/")

    first, second = simulate(scenario), simulate(scenario)

    assert first.network.attempts == second.network.attempts
    assert first.ensemble.log == second.ensemble.log
