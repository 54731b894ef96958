"""The crash guard closes sessions of a real ZooKeeper; kazoo sees what is left."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from tests.support.kazoo_clients import kazoo_client

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.ids import BrokerId
from klamm.runtime import guard_process
from klamm.runtime.crash_guard import GuardedSession, GuardProcesses
from klamm.runtime.guard_process import Session, close_session
from klamm.runtime.ports import free_port
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.process_ends import begin_process_record, process_end_path, read_process_ends

_chroots = count(1)
RECORD = guard_process.record_of(9)


@pytest.fixture
def kazoo(shared_zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    with kazoo_client(shared_zookeeper.connect_string) as client:
        yield client


def session_of(owner: KazooClient, server: ZooKeeperServer, record: str = "", dead_port: int | None = None) -> Session:
    """The kazoo client's session, as the guard gets it."""
    number, password = owner.client_id
    servers = [("127.0.0.1", port) for port in (dead_port, server.port) if port]
    return Session(struct.unpack("Q", struct.pack("q", number))[0], password, 10_000, servers, record)


@contextmanager
def owner_with(path: str, server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client whose session owns an ephemeral znode; without an end it would open another one during later tests."""
    with kazoo_client(server.connect_string) as owner:
        owner.create(path, ephemeral=True, makepath=True)
        yield owner


def test_the_crash_guard_closes_the_zookeeper_session_and_writes_a_process_end_record(
    shared_zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    base = f"/guard-{next(_chroots)}"
    with owner_with(f"{base}/here", shared_zookeeper) as owner:
        session = session_of(owner, shared_zookeeper, f"{base}/end", free_port())

        assert close_session(session, RECORD) == "closed"
        assert kazoo.exists(f"{base}/here") is None
        assert kazoo.get(f"{base}/end")[0] == RECORD
        assert close_session(session, RECORD) == "had ended before"


def test_the_crash_guard_replaces_an_older_record_and_closes_the_session_even_if_writing_fails(
    shared_zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    base = f"/guard-{next(_chroots)}"
    for record in (b"first", RECORD):
        with owner_with(f"{base}/here", shared_zookeeper) as owner:
            assert close_session(session_of(owner, shared_zookeeper, f"{base}/end"), record) == "closed"
            assert kazoo.get(f"{base}/end")[0] == record

    with owner_with(f"{base}/here", shared_zookeeper) as owner:
        assert close_session(session_of(owner, shared_zookeeper, f"{base}/no/parent"), RECORD) == "closed"
        assert kazoo.exists(f"{base}/here") is None


def test_the_crash_guard_closes_a_zookeeper_session_whose_znodes_only_its_digest_user_may_use(
    shared_zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    path = f"/guard-{next(_chroots)}"
    with owner_with(f"{path}/open", shared_zookeeper) as owner:
        owner.add_auth("digest", "klamm:secret")
        private = [make_digest_acl("klamm", "secret", all=True)]
        owner.create(f"{path}/end", b"earlier", acl=private)
        owner.create(f"{path}/here", ephemeral=True, acl=private)

        assert close_session(session_of(owner, shared_zookeeper, f"{path}/end"), RECORD) == "closed"
        assert kazoo.get_children(path) == ["end"]
    kazoo.add_auth("digest", "klamm:secret")
    assert kazoo.get(f"{path}/end")[0] == b"earlier"  # without its credentials the guard may not replace the record


def test_the_crash_guard_cannot_close_a_zookeeper_session_with_a_wrong_password(
    shared_zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    path = f"/guard-{next(_chroots)}/here"
    with owner_with(path, shared_zookeeper) as owner:
        session = session_of(owner, shared_zookeeper)
        session.password = bytes(16)

        assert close_session(session, RECORD) == "had ended before"
        assert kazoo.exists(path) is not None


@pytest.mark.parametrize("timeout_ms", [0, 50], ids=["over at once", "50 ms"])
def test_the_crash_guard_without_a_zookeeper_server_gives_up_after_the_session_timeout(timeout_ms: int) -> None:
    """A guard that is scheduled late tries each server nevertheless: the ensemble may be as late as it is."""
    port = free_port()

    outcome = close_session(Session(1, bytes(16), timeout_ms, [("127.0.0.1", port)], ""), RECORD)

    assert outcome.startswith(f"could not be closed within its timeout of {timeout_ms} ms (127.0.0.1:{port}:")


async def test_process_end_records_are_read_per_broker_and_deleted_by_the_starting_broker(
    shared_zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    chroot = f"/guard-{next(_chroots)}"
    client = ZooKeeper(real_world(), shared_zookeeper.connect_string + chroot, 10_000)
    await client.connect(10)
    await client.ensure_chroot()
    broker, other, strange = BrokerId(1), BrokerId(2), BrokerId(3)
    await begin_process_record(client, broker)
    for number, content in ((broker, RECORD), (other, guard_process.record_of(1 << 8)), (strange, b"{")):
        await asyncio.to_thread(kazoo.create, chroot + process_end_path(number), content)

    assert await read_process_ends(client, dict.fromkeys((broker, other, strange, BrokerId(4)), 0)) == {
        broker: "its process ended (signal 9); its crash guard reported it",
        other: "its process ended (exit status 1); its crash guard reported it",
    }
    registered_later = client.seen_zxid + 1
    assert set(await read_process_ends(client, {broker: 0, other: registered_later})) == {broker}
    await begin_process_record(client, broker)
    assert set(await read_process_ends(client, {broker: 0, other: 0})) == {other}
    await client.create(process_end_path(other) + "/foreign", None)
    await begin_process_record(client, other)
    assert await read_process_ends(client, {other: 0}) == {}
    await client.close()


async def test_a_crash_guard_without_a_session_ends_as_soon_as_its_pipe_closes() -> None:
    guard = await GuardProcesses().start()
    guard.watch(GuardedSession(-5, bytes(16), 1000, [("::1", 2181)]))
    guard.forget(-5)

    await guard.close()

    await asyncio.wait_for(guard.wait_for_end(), 60)
