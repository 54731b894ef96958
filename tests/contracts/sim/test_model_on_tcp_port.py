"""The model on a real port works with kazoo, klamm's client and ZooKeeper's command line."""

import asyncio
import queue
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from klamm.embedded.zookeeper import find_jars
from klamm.runtime.disk import RealDisk
from klamm.runtime.java import find_java
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Check, Create


@pytest.fixture
def model() -> Iterator[str]:
    """Three model servers in a process of their own; the text that names them."""
    command = [sys.executable, "-m", "klamm.sim.zookeeper", "--port", "0", "0", "0", "--tick-ms", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield ",".join(process.stdout.readline().strip() for _ in range(3))
        process.kill()


def test_kazoo_works_with_the_zookeeper_model_on_a_tcp_port(model: str) -> None:
    one, other = KazooClient(model), KazooClient(model)
    one.start()
    other.start()
    heard: queue.Queue[str] = queue.Queue()
    other.ensure_path("/app")
    other.get_children("/app", watch=lambda event: heard.put(f"{event.type} {event.path}"))
    assert one.create("/app/job-", b"1", ephemeral=True, sequence=True) == "/app/job-0000000000"
    other.sync("/app")
    assert other.get("/app/job-0000000000")[0] == b"1"
    assert heard.get(timeout=60) == "CHILD /app"
    transaction = one.transaction()
    transaction.create("/app/x", b"")
    transaction.check("/app", 7)
    assert [type(r).__name__ for r in transaction.commit()] == ["RolledBackError", "BadVersionError"]
    with pytest.raises(NodeExistsError):
        one.create("/app")
    with one.Lock("/lock", "one"):
        assert not other.Lock("/lock", "other").acquire(blocking=False)
    one.stop()
    one.close()
    other.sync("/app")
    assert other.get_children("/app") == []
    other.stop()
    other.close()


async def test_klamms_zookeeper_client_works_with_the_zookeeper_model_on_a_tcp_port(model: str) -> None:
    one, other = ZooKeeper(real_world(), model, 30_000, "/app"), ZooKeeper(real_world(), model, 3_000, "/app")
    await one.connect(10)
    await one.ensure_chroot()
    await other.connect(10)
    gone = asyncio.Event()
    one.on_watch = lambda event: gone.set()
    await other.create("/e", b"", ephemeral=True)
    await one.sync("/")
    assert await one.exists("/e", watch=True) is not None
    other._abort_session()  # as a process that dies: nobody says goodbye
    await gone.wait()
    results = await one.multi([Create("/a", b"1"), Check("/a", 1)])
    assert [r.code.name for r in results] == ["OK", "BAD_VERSION"]
    assert [r.code.name for r in await one.get_many(["/a", "/"])] == ["NO_NODE", "OK"]
    await one.close()


def test_zookeepers_command_line_works_with_the_zookeeper_model_on_a_tcp_port(model: str) -> None:
    asked = ["create /app hello", "create -s -e /app/job", "get -s /app", "ls /app", "stat /none", "getAcl /app",
             "set -v 3 /app x", "deleteall /app", "ls /", "quit"]  # fmt: skip
    jars = ":".join(find_jars(RealDisk(), with_log4j=False))
    command = [find_java(), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", jars]
    told = subprocess.run(
        [*command, "org.apache.zookeeper.ZooKeeperMain", "-server", model],
        input="\n".join([*asked, ""]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = told.stdout + told.stderr
    for expected in (
        "Created /app", "Created /app/job0000000000", "hello", "numChildren = 1", "[job0000000000]",
        "Node does not exist: /none", "'world,'anyone", ": cdrwa", "version No is not valid : /app", "[zookeeper]",
    ):  # fmt: skip
        assert expected in said, said
