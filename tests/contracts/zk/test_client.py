"""klamm's client against a real server; kazoo reads and writes the same znodes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl_credential
from tests.support.kazoo_clients import kazoo_client

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.runtime.world import real_world
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.client import ZooKeeper
from klamm.zk.configs import ConfigStore, change_number
from klamm.zk.errors import BadVersion, ConnectionLoss, NoAuth, NodeExists, NoNode, NotEmpty, ZkCode
from klamm.zk.operations import Check, Create, Delete, Set
from klamm.zk.watches import EventType, WatchEvent
from klamm.zk.znodes import CONFIG_CHANGES

KAFKA_ACL = Acl(Permission.ALL, "digest", make_digest_acl_credential("kafka", "secret"))

_chroots = count(1)


@pytest.fixture
def chroot() -> str:
    return f"/client-{next(_chroots)}"


@pytest.fixture
async def zk(shared_zookeeper: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(real_world(), shared_zookeeper.connect_string + chroot, 10_000)
    await client.connect(10)
    await client.ensure_chroot()
    yield client
    await client.close()


@pytest.fixture
def kazoo(shared_zookeeper: ZooKeeperServer, chroot: str) -> Iterator[KazooClient]:
    with kazoo_client(shared_zookeeper.connect_string + chroot) as witness:
        yield witness


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff" * 500, None], ids=["empty", "byte", "binary", "null"])
async def test_kazoo_reads_a_znode_written_by_klamms_client_with_the_same_stat(
    zk: ZooKeeper, kazoo: KazooClient, data: bytes | None
) -> None:
    path, created = await zk.create("/a", data)
    assert (await asyncio.to_thread(kazoo.get, "/a")) == (data, tuple(created))

    changed = await zk.set("/a", b"new", created.version)

    assert (path, changed.version) == ("/a", 1)
    assert (await asyncio.to_thread(kazoo.get, "/a")) == (b"new", tuple(changed))
    assert await zk.get("/a") == (b"new", changed)


async def test_failed_zookeeper_operations_raise_the_error_named_like_zookeepers(zk: ZooKeeper) -> None:
    await zk.create("/a", b"")
    await zk.create("/a/b", b"")

    with pytest.raises(NodeExists, match="/a"):
        await zk.create("/a", b"")
    with pytest.raises(NotEmpty):
        await zk.delete("/a")
    with pytest.raises(BadVersion):
        await zk.delete("/a/b", 7)
    with pytest.raises(BadVersion):
        await zk.set("/a/b", b"", 7)
    with pytest.raises(NoNode):
        await zk.get("/x")
    assert await zk.exists("/x") is None


async def test_zookeeper_watches_fire_once_and_before_a_response_that_shows_the_change(
    zk: ZooKeeper, kazoo: KazooClient
) -> None:
    seen: list[WatchEvent] = []
    zk.on_watch = seen.append
    await zk.create("/a", b"")
    await zk.get("/a", watch=True)
    await zk.children("/a", watch=True)
    await zk.exists("/absent", watch=True)

    await zk.set("/a", b"1")
    assert seen == [WatchEvent(EventType.DATA_CHANGED, "/a")]
    await zk.set("/a", b"2")
    await zk.create("/a/b", b"")
    await zk.create("/absent", b"")

    assert seen[1:] == [WatchEvent(EventType.CHILDREN_CHANGED, "/a"), WatchEvent(EventType.CREATED, "/absent")]


async def test_a_recursive_zookeeper_watch_reports_every_change_below_its_path(
    zk: ZooKeeper, kazoo: KazooClient
) -> None:
    seen: list[WatchEvent] = []
    zk.on_watch = seen.append
    await zk.create("/a", b"")
    await zk.watch_subtree("/a")
    await zk.get("/a", watch=True)
    await zk.children("/a", watch=True)

    for n in range(2):
        await asyncio.to_thread(kazoo.create, "/a/b", b"")
        await asyncio.to_thread(kazoo.create, "/a/b/c", b"%d" % n)
        await asyncio.to_thread(kazoo.set, "/a/b/c", b"2")
        await asyncio.to_thread(kazoo.set, "/a", b"3")
        await asyncio.to_thread(kazoo.create, "/beside", b"")
        await asyncio.to_thread(kazoo.delete, "/beside")
        await asyncio.to_thread(kazoo.delete, "/a/b", recursive=True)
    await zk.sync("/a")

    once = [("CREATED", "/a/b"), ("CREATED", "/a/b/c"), ("DATA_CHANGED", "/a/b/c"), ("DATA_CHANGED", "/a")]
    gone = [("DELETED", "/a/b/c"), ("DELETED", "/a/b")]
    told = [(e.type.name, e.path) for e in seen if e.type is not EventType.CHILDREN_CHANGED]
    assert told == (once + gone) * 2
    assert [e.path for e in seen if e.type is EventType.CHILDREN_CHANGED] == ["/a"], "the one-shot watch of the list"


async def test_watch_notifications_of_many_changes_arrive_before_the_response_to_sync(
    zk: ZooKeeper, kazoo: KazooClient
) -> None:
    seen: list[str] = []
    zk.on_watch = lambda event: seen.append(event.path)
    await zk.create("/a", b"")
    names = [f"/a/{n}" for n in range(2_000)]
    for name in names:
        kazoo.create_async(name, b"")
    await asyncio.to_thread(kazoo.get, names[-1])
    await zk.watch_subtree("/a")

    for name in names:
        kazoo.set_async(name, b"x")
    await asyncio.to_thread(kazoo.get, names[-1])
    await zk.sync("/a")

    assert seen == names


async def test_all_operations_of_a_zookeeper_multi_are_applied(zk: ZooKeeper, kazoo: KazooClient) -> None:
    await zk.create("/a", b"")
    await zk.create("/gone", b"")

    results = await zk.multi(
        [Check("/a", 0), Set("/a", b"1", 0), Create("/s-", b"", sequential=True), Delete("/gone"), Create("/n", None)]
    )

    assert [r.code for r in results] == [ZkCode.OK] * 5
    assert results[2].path == "/s-0000000002"
    assert results[1].stat == (await zk.get("/a"))[1]
    assert sorted(await asyncio.to_thread(kazoo.get_children, "/")) == ["a", "n", "s-0000000002"]


async def test_zookeeper_counts_the_number_of_the_next_config_change_notification_across_deletions(
    zk: ZooKeeper,
) -> None:
    await zk.ensure_path(CONFIG_CHANGES)
    store = ConfigStore(zk)
    for entity in ("topics/a", "topics/b", "topics/c"):
        await store.announce(entity)
    names, following = await store.list_changes()
    assert ([change_number(n) for n in names], following) == ([0, 1, 2], 3)

    await store.delete_changes([names[0], names[2]])

    assert await store.list_changes() == ([names[1]], 3)
    await store.announce("topics/d")
    assert await store.list_changes() == ([names[1], "config_change_0000000003"], 4)


async def test_the_error_of_a_failed_zookeeper_multi_names_the_failed_operation(zk: ZooKeeper) -> None:
    await zk.create("/a", b"")

    results = await zk.multi([Check("/a", 0), Set("/a", b"1", 5), Create("/b", b"")])

    assert [r.code for r in results] == [ZkCode.OK, ZkCode.BAD_VERSION, ZkCode.RUNTIME_INCONSISTENCY]
    assert await zk.exists("/b") is None


async def test_bulk_reads_of_znodes_keep_their_order_and_report_missing_znodes(zk: ZooKeeper) -> None:
    await zk.multi([Create(f"/n-{i}", b"%d" % i * (i % 50)) for i in range(0, 3000, 2)])
    paths = [f"/n-{i}" for i in range(3000)]

    for watch in (False, True):
        got = await zk.get_many(paths, watch)

        assert [r.path for r in got] == paths
        assert {r.code for r in got[1::2]} == {ZkCode.NO_NODE}
        assert [r.data for r in got[::2]] == [b"%d" % i * (i % 50) for i in range(0, 3000, 2)]
        assert got[4].stat == (await zk.get("/n-4"))[1]
    assert [s and s.version for s in await zk.exists_many(["/n-0", "/n-1"])] == [0, None]
    await zk.create("/n-0/x", None)
    assert [r.children for r in await zk.children_many(["/n-0", "/n-1", "/n-2"])] == [["x"], [], []]
    assert [r.children for r in await zk.children_many(["/n-0", "/n-1", "/n-2"], watch=True)] == [["x"], [], []]


async def test_ephemeral_znodes_are_deleted_when_the_session_closes(
    shared_zookeeper: ZooKeeperServer, zk: ZooKeeper, chroot: str
) -> None:
    other = ZooKeeper(real_world(), shared_zookeeper.connect_string + chroot, 10_000)
    await other.connect(10)
    _, stat = await other.create("/e", b"", ephemeral=True)
    assert stat.ephemeral_owner == other.session_id
    assert await zk.exists("/e") is not None

    await other.close()

    assert await zk.exists("/e") is None


async def test_a_zookeeper_client_with_credentials_reads_znodes_protected_by_an_acl(
    zk: ZooKeeper, kazoo: KazooClient
) -> None:
    await zk.add_auth("digest", b"kafka:secret")
    await zk.create("/mine", b"x", acl=[Acl(Permission.ALL, "auth", "")])
    acl, _ = await zk.get_acl("/mine")

    assert acl == [KAFKA_ACL]
    with pytest.raises(NoAuthError):
        await asyncio.to_thread(kazoo.get, "/mine")
    await asyncio.to_thread(kazoo.add_auth, "digest", "kafka:secret")
    assert (await asyncio.to_thread(kazoo.get, "/mine"))[0] == b"x"
    assert (await zk.set_acl("/mine", OPEN_ACL)).aversion == 1


async def test_a_zookeeper_client_without_credentials_gets_no_auth_for_protected_znodes(zk: ZooKeeper) -> None:
    await zk.create("/closed", b"x", acl=[KAFKA_ACL])

    with pytest.raises(NoAuth):
        await zk.get("/closed")
    assert [r.code for r in await zk.get_many(["/closed"])] == [ZkCode.NO_AUTH]


async def test_an_existing_chroot_needs_no_right_to_create_znodes_above_it(
    zk: ZooKeeper, shared_zookeeper: ZooKeeperServer, chroot: str
) -> None:
    await zk.create("/cluster", None)
    above = ZooKeeper(real_world(), shared_zookeeper.connect_string, 10_000)
    await above.connect(10)
    await above.set_acl(chroot, [Acl(Permission.READ, "world", "anyone")])
    client = ZooKeeper(real_world(), f"{shared_zookeeper.connect_string}{chroot}/cluster", 10_000)
    await client.connect(10)

    await client.ensure_chroot()

    assert await client.create("/a", b"") is not None
    await client.close()
    await above.close()


async def test_ensure_path_creates_missing_parent_znodes(zk: ZooKeeper) -> None:
    await zk.ensure_path("/a/b/c")
    await zk.ensure_path("/a/b/c")

    assert (await zk.get("/a/b/c"))[0] is None
    await zk.sync("/a")


def test_the_zookeeper_client_works_on_uvloop(shared_zookeeper: ZooKeeperServer, chroot: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> int:
        client = ZooKeeper(real_world(), shared_zookeeper.connect_string + chroot, 10_000)
        await client.connect(10)
        await client.ensure_chroot()
        await client.multi([Create(f"/{i}", b"x" * 10_000) for i in range(80)])
        got = await client.get_many([f"/{i}" for i in range(80)] * 40)
        with pytest.raises(ConnectionLoss):
            await ZooKeeper(real_world(), "127.0.0.1:1", 10_000).connect(0.1)
        await client.close()
        return sum(len(r.data or b"") for r in got)

    assert uvloop.run(main()) == 80 * 40 * 10_000
