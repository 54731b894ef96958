"""The oldest supported server: ZooKeeper 3.5 has no multiRead, and answers creates without a stat."""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.runtime.java import NoJava, find_java
from klamm.runtime.ports import ask, free_port
from klamm.runtime.processes import spawn, ticks
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import Unimplemented, ZkCode
from klamm.zk.operations import Check, Create, Set
from klamm.zk.states import SessionState
from klamm.zk.watches import EventType, WatchEvent

VERSION = "3.5.10"
CACHE = Path(__file__).parents[3] / ".cache" / "zookeeper"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klamm</groupId><artifactId>old-zookeeper</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>
"""


def jars() -> Path:
    """Maven's copy of the old server, fetched once; skips the test where there is none."""
    target = CACHE / VERSION
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("Maven is not installed: the test against ZooKeeper 3.5 is left out")
        (CACHE / "pom.xml").write_text(POM)
        unfinished = CACHE / f"{VERSION}.unfinished"
        copy = ["-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
        done = subprocess.run([maven, *copy], cwd=CACHE, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode:
            pytest.skip(f"Maven cannot fetch ZooKeeper {VERSION}: {done.stdout[-300:]}")
        unfinished.rename(target)
    return target


@pytest.fixture
def old_server(tmp_path: Path) -> Iterator[str]:
    try:
        java = find_java()
    except NoJava as error:
        pytest.skip(str(error))
    port = free_port()
    options = ["-Xmx128m", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=*"]
    main = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(tmp_path / "data")]
    child = spawn("zookeeper", [java, *options, "-cp", f"{jars()}/*", *main], str(tmp_path / "zookeeper.log"))
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
