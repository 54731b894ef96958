"""The model ZooKeeper server with klamm's client: sessions, watches, several servers, broken connections."""

import asyncio

import pytest
from tests.support.model_zookeeper import ModelZooKeeper

from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.zk.acl import Acl, Permission
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import BadVersion, InvalidAcl, NoAuth, NodeExists, NoNode, NotEmpty, SessionExpired, ZkCode
from klamm.zk.operations import Check, Create, Delete, Set
from klamm.zk.watches import WatchEvent


def heard_by(client: ZooKeeper) -> list[str]:
    """A list to which the client's watch events are added."""
    heard: list[str] = []

    def add_to_digest(event: WatchEvent) -> None:
        heard.append(f"{event.type.name} {event.path}")

    client.on_watch = add_to_digest
    return heard


def test_the_zookeeper_model_checks_znode_versions_and_returns_zookeepers_errors() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        path, stat = await client.create("/a", b"1")
        assert (path, stat.version, stat.data_length) == ("/a", 0, 1)
        assert (await client.set("/a", b"two", 0)).version == 1
        with pytest.raises(BadVersion):
            await client.set("/a", b"x", 0)
        with pytest.raises(NodeExists):
            await client.create("/a", b"")
        await client.create("/a/b", None)
        with pytest.raises(NotEmpty):
            await client.delete("/a")
        with pytest.raises(NoNode):
            await client.get("/c")
        assert [(await client.create("/a/s", b"", sequential=True))[0] for _ in range(2)] == [
            "/a/s0000000001",
            "/a/s0000000002",
        ]
        await client.delete("/a/b", 0)
        names, stat = await client.children("/a")
        assert (sorted(names), stat.num_children, stat.cversion) == (["s0000000001", "s0000000002"], 2, 4)

    ModelZooKeeper().run(story)


def test_a_refused_multi_in_the_zookeeper_model_changes_nothing() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/a", b"1")
        await client.create("/a/old", b"", ephemeral=True)
        before = await client.get("/a")
        results = await client.multi(
            [Set("/a", b"2"), Create("/a/new", b"", ephemeral=True), Delete("/a/old"), Check("/a", 5), Set("/a", b"3")]
        )
        assert [r.code.name for r in results] == ["OK", "OK", "OK", "BAD_VERSION", "RUNTIME_INCONSISTENCY"]
        assert await client.get("/a") == before
        assert (await client.children("/a"))[0] == ["old"]
        await client.close()
        assert model.ensemble.tree.get("/a/old") is None

    ModelZooKeeper().run(story)


def test_a_multi_read_of_the_zookeeper_model_returns_a_result_for_each_path() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/a", b"1")
        found = await client.get_many(["/a", "/b"])
        assert [(r.code, r.data) for r in found] == [(ZkCode.OK, b"1"), (ZkCode.NO_NODE, None)]
        children = await client.children_many(["/", "/b"])
        assert [(r.code, r.children) for r in children] == [(ZkCode.OK, ["zookeeper", "a"]), (ZkCode.NO_NODE, [])]

    ModelZooKeeper().run(story)


def test_watches_of_the_zookeeper_model_fire_once_and_before_a_response_with_the_change() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client, other = await model.client("a"), await model.client("b")
        heard = heard_by(client)
        await client.exists("/a", watch=True)
        await client.children("/", watch=True)
        await other.create("/a", b"")
        await client.get("/a")
        assert heard == ["CREATED /a", "CHILDREN_CHANGED /"]
        await client.get("/a", watch=True)
        await client.children("/a", watch=True)
        await client.delete("/a")
        assert heard[2:] == ["DELETED /a"]

    ModelZooKeeper().run(story)


def test_a_silent_clients_session_in_the_zookeeper_model_expires_with_its_ephemerals() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client, other = await model.client("a"), await model.client("b")
        heard = heard_by(other)
        await client.create("/e", b"", ephemeral=True)
        await other.exists("/e", watch=True)
        model.loop.pause(model.hosts[client])
        await asyncio.sleep(4)
        assert heard == []
        await asyncio.sleep(6)
        assert heard == ["DELETED /e"]
        model.loop.resume(model.hosts[client])
        with pytest.raises(SessionExpired):
            await model.loop.spawn(model.hosts[client], client.get("/"))

    ModelZooKeeper().run(story)


def test_pings_keep_a_session_of_the_zookeeper_model_alive() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/e", b"", ephemeral=True)
        await asyncio.sleep(1_000)
        assert await client.exists("/e") is not None

    ModelZooKeeper().run(story)


def test_a_recursive_watch_of_the_zookeeper_model_lasts_until_its_connection_is_lost() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client, other = await model.client("a"), await model.client("b")
        heard = heard_by(client)
        for path in ("/a", "/a/b"):
            await other.create(path, b"")
        await client.watch_subtree("/a")
        for _ in range(2):
            await other.create("/a/b/c", b"")
            await other.set("/a/b/c", b"1")
            await other.delete("/a/b/c")
        await other.create("/ab", b"")
        await client.sync("/")
        assert heard == ["CREATED /a/b/c", "DATA_CHANGED /a/b/c", "DELETED /a/b/c"] * 2

        model.servers[0].disconnect_clients()
        await model.settle()
        await other.set("/a/b", b"1")
        await client.sync("/")
        assert len(heard) == 6

    ModelZooKeeper().run(story)


def test_watches_of_the_zookeeper_model_restored_after_reconnection_miss_no_change() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client, other = await model.client("a"), await model.client("b")
        heard = heard_by(client)
        await client.create("/a", b"")
        await client.get("/a", watch=True)
        await client.exists("/new", watch=True)
        await client.children("/a", watch=True)
        model.network.cut("a", "zk-1")
        model.network.cut("zk-1", "a")
        await asyncio.sleep(0.1)
        await other.set("/a", b"changed")
        await other.create("/new", b"")
        model.network.reset("a", "zk-1")
        model.network.end_all_cuts()
        await asyncio.sleep(3)
        assert heard == ["DATA_CHANGED /a", "CREATED /new"]
        await other.create("/a/b", b"")
        await asyncio.sleep(1)
        assert heard[2:] == ["CHILDREN_CHANGED /a"]

    ModelZooKeeper().run(story)


@pytest.mark.parametrize(("loss", "outcome"), [(InjectedFailure.BEFORE, "created"), (InjectedFailure.AFTER, "exists")])
def test_a_connection_lost_before_or_after_a_model_write_leaves_the_write_undone_or_done(
    loss: InjectedFailure, outcome: str
) -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        faults = [loss]
        model.ensemble.on_write = lambda session, ops: faults.pop() if faults else None
        try:
            await client.create("/a", b"")
            found = "created"
        except NodeExists:
            found = "exists"
        assert found == outcome

    ModelZooKeeper().run(story)


def test_a_lagging_server_of_the_zookeeper_model_serves_stale_reads_until_sync() -> None:
    async def story(model: ModelZooKeeper) -> None:
        near, far = await model.client("a", "zk-1:2181"), await model.client("b", "zk-2:2181")
        model.servers[1].lag_s = lambda: 2.0
        await near.create("/a", b"")
        assert await far.exists("/a") is None
        await far.sync("/")
        assert await far.exists("/a") is not None
        started = asyncio.get_running_loop().time()
        await far.create("/b", b"")  # answered only once its server has it
        assert asyncio.get_running_loop().time() >= started + 2

    ModelZooKeeper(servers=2).run(story)


def test_a_write_made_just_before_its_client_dies_reaches_a_lagging_model_server() -> None:
    async def story(model: ModelZooKeeper) -> None:
        reader = await model.client("reader", "zk-1:2181")
        model.servers[0].lag_s = lambda: 1.0
        doomed, _ = model.universe.start("doomed")

        async def write() -> None:
            model.ensemble.write(0, [Create("/a", b"")], [])

        await model.loop.spawn(doomed, write())
        model.loop.kill(doomed)
        await model.settle(2.0)

        assert await reader.exists("/a") is not None

    ModelZooKeeper().run(story)


def test_a_session_moves_only_to_a_model_server_that_has_seen_its_last_zxid() -> None:
    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        await client.create("/e", b"", ephemeral=True)
        session = client.session_id
        away = next(i for i, s in enumerate(model.servers) if not s.connections)
        model.servers[away].lag_s = lambda: 3.0
        await client.create("/later", b"")
        for server in model.servers:
            server.disconnect_clients()
        assert await client.exists("/later") is not None
        assert client.session_id == session

    ModelZooKeeper(servers=2).run(story)


def test_a_late_connect_attempt_does_not_move_watches_from_the_current_connection() -> None:
    """The session counts as moved to a connection that its client gave up; the client reads on where it is."""

    class GivenUp:
        def session_ended(self) -> None: ...

        def send_invalid_frame(self, frame: bytes) -> None: ...

    async def story(model: ModelZooKeeper) -> None:
        client = await model.client("a")
        record = model.ensemble.sessions[client.session_id]
        model.ensemble.resume(record.id, record.password, GivenUp())

        await client.exists("/new", watch=True)

        [connection] = [c for s in model.servers if (c := s.connection_of(client.session_id)) is not None]
        assert connection.watches == (["/new"], [])

    ModelZooKeeper(servers=3, seed=2).run(story)


def test_the_zookeeper_model_enforces_acls() -> None:
    async def story(model: ModelZooKeeper) -> None:
        owner, other = await model.client("a"), await model.client("b")
        with pytest.raises(InvalidAcl):
            await owner.create("/mine", b"", acl=[Acl(Permission.ALL, "auth", "")])
        await owner.add_auth("digest", b"me:secret")
        await owner.create("/mine", b"1", acl=[Acl(Permission.ALL, "auth", "")])
        assert (await owner.get("/mine"))[0] == b"1"
        with pytest.raises(NoAuth):
            await other.get("/mine")
        await owner.set_acl("/mine", [Acl(Permission.READ, "world", "anyone")], 0)
        assert (await other.get("/mine"))[0] == b"1"
        with pytest.raises(NoAuth):
            await other.set("/mine", b"2")

    ModelZooKeeper().run(story)
