"""ZooKeeper's transaction log, read back."""

import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.differential.transaction_log import TransactionLog, Write

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode
from klamm.zk.operations import Check, Create, Delete, Set


@asynccontextmanager
async def _client(server: ZooKeeperServer) -> AsyncIterator[ZooKeeper]:
    """A ZooKeeper client of the server."""
    client = ZooKeeper(real_world(), server.connect_string, 10_000)
    await client.connect(10)
    yield client
    await client.close()


def written_by(client: ZooKeeper, log: TransactionLog) -> list[Write]:
    """The new writes of this session: other tests of the process have sessions on the server, which end at any time."""
    return [w for w in log.read() if w.session == client.session_id]


async def test_the_reader_of_zookeepers_transaction_log_returns_writes_in_order_with_their_sessions(
    shared_zookeeper: ZooKeeperServer,
) -> None:
    log = TransactionLog(shared_zookeeper.directory)
    async with _client(shared_zookeeper) as client:
        _, made = await client.create("/written", b"one")
        changed = await client.set("/written", b"two")
        _, _, emptied = await client.multi(
            [Check("/written", 1), Create("/written/a", None, ephemeral=True), Set("/written", b"")]
        )
        await client.delete("/written/a")
        deleted = client.seen_zxid

        writes = written_by(client, log)

        assert [w[2:] for w in writes] == [
            ("create", "/written", b"one"),
            ("set", "/written", b"two"),
            ("create", "/written/a", None),
            ("set", "/written", b""),
            ("delete", "/written/a", None),
        ]
        assert emptied.stat is not None
        assert [w.zxid for w in writes] == [
            made.czxid, changed.mzxid, emptied.stat.mzxid, emptied.stat.mzxid, deleted
        ]  # fmt: skip
        assert written_by(client, log) == []


def test_the_reader_of_zookeepers_transaction_log_leaves_a_half_written_entry_for_later(tmp_path: Path) -> None:
    """The file is made of zeros before, and the server writes 8 KiB at a time, wherever an entry ends."""
    content = struct.pack(">qiqqi", 7, 1, 9, 0, 2) + struct.pack(">i", 2) + b"/a"
    entry = struct.pack(">qi", zlib.adler32(content), len(content)) + content + b"B"
    file = tmp_path / "data" / "version-2" / "log.1"
    file.parent.mkdir(parents=True)
    for written in range(len(entry)):
        file.write_bytes(bytes(16) + entry[:written] + bytes(100 - written))
        log = TransactionLog(str(tmp_path))
        assert list(log.read()) == []

        file.write_bytes(bytes(16) + entry + bytes(100))
        assert list(log.read()) == [Write(9, 7, "delete", "/a", None)]


async def test_the_reader_of_zookeepers_transaction_log_shows_ephemerals_deleted_with_their_session(
    shared_zookeeper: ZooKeeperServer,
) -> None:
    async with _client(shared_zookeeper) as client:
        await client.create("/fleeting", None, ephemeral=True)
        log = TransactionLog(shared_zookeeper.directory)

    assert [w[2:] for w in written_by(client, log)] == [("delete", "/fleeting", None)]


async def test_the_reader_of_zookeepers_transaction_log_lists_a_refused_write_without_its_path(
    shared_zookeeper: ZooKeeperServer,
) -> None:
    async with _client(shared_zookeeper) as client:
        await client.create("/refused", b"one")
        log = TransactionLog(shared_zookeeper.directory)

        await client.multi([Set("/refused", b"two"), Delete("/refused", 7)])
        await client.multi([Check("/refused", 7), Delete("/refused")])
        with pytest.raises(NoNode):
            await client.delete("/never-there")

        assert [w[2:] for w in written_by(client, log)] == [
            ("refused", "", b"BAD_VERSION of a later one"),
            ("refused", "", b"BAD_VERSION of the first"),
            ("refused", "", b"NO_NODE"),
        ]
