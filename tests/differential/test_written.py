"""ZooKeeper's transaction log, read back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.differential.written import writes

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Check, Create, Delete, Set


@asynccontextmanager
async def _client(server: ZooKeeperServer) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(real_world(), server.connect_string, 10_000)
    await client.connect(10)
    yield client
    await client.close()


async def test_every_write_is_told_in_order_with_its_session(shared_zookeeper: ZooKeeperServer) -> None:
    async with _client(shared_zookeeper) as client:
        _, made = await client.create("/written", b"one")
        await client.set("/written", b"two")
        await client.multi([Check("/written", 1), Create("/written/a", None, ephemeral=True), Set("/written", b"")])
        await client.delete("/written/a")

        told = [w for w in writes(shared_zookeeper.directory, made.czxid - 1) if w.path.startswith("/written")]

        assert [w[2:] for w in told] == [
            ("create", "/written", b"one"),
            ("set", "/written", b"two"),
            ("create", "/written/a", None),
            ("set", "/written", b""),
            ("delete", "/written/a", None),
        ]
        assert {w.session for w in told} == {client.session_id}
        assert [w.zxid - made.czxid for w in told] == [0, 1, 2, 2, 3]
        assert list(writes(shared_zookeeper.directory, told[-1].zxid)) == []


async def test_what_was_refused_is_not_told(shared_zookeeper: ZooKeeperServer) -> None:
    async with _client(shared_zookeeper) as client:
        _, made = await client.create("/refused", b"one")

        results = await client.multi([Set("/refused", b"two"), Delete("/refused", 7)])

        assert results[1].code is ZkCode.BAD_VERSION
        assert [w.kind for w in writes(shared_zookeeper.directory, made.czxid)] == []
