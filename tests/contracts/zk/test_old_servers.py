"""The oldest supported server: ZooKeeper 3.5 has no multiRead, and answers creates without a stat."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import apache_kafka

from klamm.runtime.java import find_java
from klamm.runtime.ports import ask, free_port
from klamm.runtime.processes import spawn, ticks
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import Unimplemented, ZkCode
from klamm.zk.operations import Check, Create, Set
from klamm.zk.states import SessionState
from klamm.zk.watches import EventType, WatchEvent

JARS = apache_kafka.Jars("zookeeper-3.5.10", ("org.apache.zookeeper:zookeeper:3.5.10",))


@pytest.fixture
def old_server(tmp_path: Path) -> Iterator[str]:
    if why := apache_kafka.why_missing(JARS):
        pytest.skip(why)
    port = free_port()
    java = [find_java(), "-Xmx128m", "-XX:+UseSerialGC", apache_kafka.QUICK_START]
    options = ["-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=*"]
    main = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(tmp_path / "data")]
    child = spawn("zookeeper", [*java, *options, "-cp", f"{JARS.directory}/*", *main], str(tmp_path / "zookeeper.log"))
    for _ in ticks(20):
        if b"Mode: standalone" in ask("127.0.0.1", port, b"srvr"):
            break
    yield f"127.0.0.1:{port}"
    child.kill()


async def test_the_zookeeper_client_works_with_zookeeper_3_5_which_lacks_multi_read(old_server: str) -> None:
    client = ZooKeeper(real_world(), old_server, 10_000)
    seen: list[WatchEvent] = []
    states: list[SessionState] = []
    client.on_watch = seen.append
    client.on_state = states.append
    await client.connect(10)

    _, created = await client.create("/a", b"1")
    results = await client.multi([Check("/a", 0), Create("/s-", b"", sequential=True), Set("/a", b"2", 0)])
    assert [r.code for r in results] == [ZkCode.OK] * 3
    assert (results[1].path, results[1].stat) == ("/s-0000000001", None)
    assert results[2].stat is not None
    assert results[2].stat.czxid == created.czxid
    assert [r.code for r in await client.multi([Check("/a", 1), Check("/a", 7)])] == [ZkCode.OK, ZkCode.BAD_VERSION]

    got = await client.get_many(["/a", "/none"] * 500, watch=False)
    assert [(r.code, r.data) for r in got] == [(ZkCode.OK, b"2"), (ZkCode.NO_NODE, None)] * 500
    assert [r.children for r in await client.children_many(["/a"])] == [[]]
    assert states.count(SessionState.DISCONNECTED) == 1  # the first multiRead shows what the server lacks
    await client.get("/a", watch=True)
    await client.set("/a", b"3")
    assert seen == [WatchEvent(EventType.DATA_CHANGED, "/a")]
    await client.close()


async def test_zookeeper_3_5_refuses_a_recursive_watch(old_server: str) -> None:
    client = ZooKeeper(real_world(), old_server, 10_000)
    await client.connect(10)

    with pytest.raises(Unimplemented, match="/"):
        await client.watch_subtree("/")
    await client.close()
