"""Several model ZooKeeper servers: writes, sessions and watches while servers stop, restart or are cut off."""

import asyncio

import pytest
from tests.support.model_zookeeper import ModelZooKeeper

from klamm.sim.zookeeper.ensemble import EnsembleSettings
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired
from klamm.zk.watches import WatchEvent

SETTINGS = EnsembleSettings(tick_ms=500, min_session_ms=1_000)


def now() -> float:
    return asyncio.get_running_loop().time()


def three() -> ModelZooKeeper:
    """A model of three servers."""
    return ModelZooKeeper(servers=3, settings=SETTINGS)


async def ends_within(seconds: float, client: ZooKeeper, path: str) -> bool:
    """Whether the ephemeral znode is gone within this time."""
    try:
        async with asyncio.timeout(seconds):
            await client.create(path, b"")
    except TimeoutError:
        return False
    return True


def test_a_simulated_ensemble_with_a_stopped_server_still_serves_writes() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/e", b"", ephemeral=True)
        model.servers[2].stop()
        model.servers[0].stop()
        assert not await ends_within(5, client, "/alone")
        model.servers[0].start()
        await client.create("/together", b"")
        assert await client.exists("/e") is not None

    three().run(story)


def test_stopping_the_simulated_ensembles_leader_disconnects_all_clients_until_an_election() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a", "zk-2:2181")
        lost = []
        client.on_state = lambda state: lost.append(state.name)
        model.servers[0].stop()
        started = now()
        await client.create("/a", b"")
        assert now() >= started + SETTINGS.election_ms / 1000
        assert lost == ["DISCONNECTED", "CONNECTED"]
        assert model.servers[1].mode == "leader"

    three().run(story)


def test_simulated_zookeeper_sessions_do_not_expire_without_a_leader() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a", timeout_ms=3_000)
        await client.create("/e", b"", ephemeral=True)
        for server in model.servers:
            server.stop()
        model.loop.pause(model.hosts[client])
        await asyncio.sleep(100)
        for server in model.servers:
            server.start()
        await asyncio.sleep(3)
        assert model.ensemble.tree.get("/e") is not None
        await asyncio.sleep(2)
        assert model.ensemble.tree.get("/e") is None

    three().run(story)


def test_simulated_zookeeper_sessions_survive_a_restart_of_the_whole_ensemble() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/e", b"1", ephemeral=True)
        await client.get("/e", watch=True)
        heard: list[WatchEvent] = []
        client.on_watch = heard.append
        session = client.session_id
        for server in model.servers:
            server.stop()
        await asyncio.sleep(2)
        for server in model.servers:
            server.start()
        await client.set("/e", b"2")
        assert (client.session_id, [e.type.name for e in heard]) == (session, ["DATA_CHANGED"])

    three().run(story)


def test_a_simulated_server_without_quorum_serves_stale_reads_and_then_drops_clients() -> None:
    async def story(model: ModelZooKeeper) -> None:
        far, near = await model.client("a", "zk-3:2181"), await model.client("b", "zk-1:2181")
        model.servers[2].cut_off()
        await near.create("/new", b"")
        assert await far.exists("/new") is None
        writing = asyncio.ensure_future(far.create("/far", b""))
        await asyncio.sleep(0.9)
        assert model.servers[2].connections
        await asyncio.sleep(0.2)
        assert not model.servers[2].connections
        assert not writing.done()
        model.servers[2].reconnect()
        await writing
        assert await far.exists("/new") is not None

    three().run(story)


def test_writes_to_a_simulated_ensemble_with_a_cut_off_leader_wait_for_an_election() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a", "zk-2:2181")
        model.servers[0].cut_off()
        started = now()
        await client.create("/a", b"")
        assert 1.5 <= now() - started < 4
        assert model.ensemble.leader is model.servers[1]

    three().run(story)


def test_the_former_connection_of_a_moved_session_may_read_and_is_dropped_on_write() -> None:
    """Two connections of one session: as after a partition, with a client that has two lives."""

    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a", "zk-2:2181")
        [connection] = model.servers[1].connections
        session = model.ensemble.sessions[client.session_id]
        other = await model.client("b", "zk-3:2181")
        [elsewhere] = model.servers[2].connections
        assert model.ensemble.resume(session.id, session.password, elsewhere) is session
        assert await client.exists("/") is not None
        assert connection in model.servers[1].connections
        await client.create("/a", b"")  # dropped, and resumed
        assert connection not in model.servers[1].connections
        assert await other.exists("/a") is not None

    three().run(story)


def test_an_injected_delay_keeps_an_ephemeral_znode_after_its_session() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client, other = await model.client("a"), await model.client("b")
        await client.create("/e", b"", ephemeral=True)
        model.ensemble.ephemerals_outlive_session_s = lambda: 5.0
        await client.close()
        await asyncio.sleep(4)
        assert await other.exists("/e") is not None
        await asyncio.sleep(2)
        assert await other.exists("/e") is None

    three().run(story)


def test_a_simulated_session_whose_connect_response_is_lost_exists_on_the_server() -> None:
    async def story(model: ModelZooKeeper) -> None:
        unlearned: list[int] = []

        def greets(session: int) -> bool:
            if not unlearned:
                unlearned.append(session)
                return False
            return True

        model.ensemble.may_answer_connect = greets
        client = await model.client("a")
        assert [s for s in model.ensemble.sessions if s != client.session_id] == unlearned
        await asyncio.sleep(20)
        assert list(model.ensemble.sessions) == [client.session_id]

    three().run(story)


def test_a_client_whose_session_ended_during_a_server_outage_gets_session_expired() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        for server in model.servers:
            server.stop()
        await asyncio.sleep(1)
        for server in model.servers:
            server.start()
        model.ensemble.end_session(client.session_id)
        with pytest.raises(SessionExpired):
            await client.create("/a", b"")

    three().run(story)
