"""Bulk reads: how they are split; old servers, answers that are too large, sessions that end."""

import asyncio
from typing import Any

import pytest
from tests.support.zookeeper_stage import SETTINGS, Stage

from klamm.zk.bulk import UNSUPPORTED_BACKOFF_S
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired, ZkCode
from klamm.zk.states import SessionState


class Full(Stage):
    """A simulated ensemble with znodes /n0, /n1..., and a client of one server."""

    def __init__(self, count: int, size: int = 80) -> None:
        super().__init__(settings=SETTINGS)
        self._count = count
        self._size = size

    async def client(self, hosts: str = "zk1", **options: Any) -> ZooKeeper:
        for i in range(self._count):
            self.create(f"/n{i}", b"%06d" % i * (self._size // 6))
        client = self.make_client(hosts, **options)
        await client.connect(5)
        return client

    @property
    def multi_reads(self) -> list[int]:
        return [int(what.split()[1]) for _, what in self.log if what.startswith("multi-read")]


def test_a_bulk_read_of_many_small_znodes_uses_few_multi_reads() -> None:
    stage = Full(5000)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        got = await client.get_many([f"/n{i}" for i in range(5001)])
        assert [r.data for r in got[:5000]] == [b"%06d" % i * 13 for i in range(5000)]
        assert got[5000] == ("/n5000", ZkCode.NO_NODE, None, None)

    stage.run(scenario)

    assert stage.multi_reads == [64, 64, 64, 64, 256, 1000, 1000, 1000, 1000, 489]


def test_a_bulk_read_of_large_znodes_uses_fewer_paths_per_request() -> None:
    stage = Full(300, size=60_000)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        got = await client.get_many([f"/n{i}" for i in range(300)])
        assert [r.data for r in got] == [b"%06d" % i * 10_000 for i in range(300)]

    stage.run(scenario)

    assert stage.count()["get"] == 0
    assert set(stage.multi_reads[4:-1]) == {8}


@pytest.mark.parametrize("code", [-6, 0], ids=["unimplemented", "empty"])
def test_a_bulk_read_from_a_server_without_multi_read_reads_znodes_one_by_one(code: int) -> None:
    stage = Full(600)
    stage.knows_multi_read = False
    stage.answers_unknown_with = ZkCode(code)

    async def scenario(stage: Full) -> None:
        client = await stage.client("zk1/n0")
        paths = ["/", "/absent"]
        assert [r.data for r in await client.get_many(paths)] == [b"000000" * 13, None]
        assert [r.code for r in await client.children_many(paths)] == [ZkCode.OK, ZkCode.NO_NODE]

    stage.run(scenario)

    assert stage.multi_reads == [2]
    assert stage.count()["get"] == stage.count()["children"] == 2
    assert len(stage.attempts) == (2 if code else 1)


def test_a_server_without_multi_read_is_sent_one_again_when_it_may_have_been_upgraded() -> None:
    stage = Full(1)
    stage.knows_multi_read = False

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        await client.get_many(["/n0"])
        stage.knows_multi_read = True
        await asyncio.sleep(UNSUPPORTED_BACKOFF_S - 60)
        await client.get_many(["/n0"])
        assert stage.multi_reads == [1]
        await asyncio.sleep(61)
        assert [r.data for r in await client.get_many(["/n0"])] == [b"000000" * 13]

    stage.run(scenario)

    assert stage.multi_reads == [1, 1]


def test_a_bulk_read_uses_multi_read_with_the_servers_that_support_it() -> None:
    """As during a rolling upgrade of the ensemble from ZooKeeper 3.5."""
    stage = Full(1)
    stage.knows_multi_read = False

    async def scenario(stage: Full) -> None:
        client = await stage.client("zk1,zk2")
        await client.get_many(["/n0"])
        stage.knows_multi_read = True
        await client.get_many(["/n0"])

    stage.run(scenario)

    assert [server for _, server in stage.attempts] == ["zk1", "zk2"]
    assert stage.multi_reads == [1, 1]


def test_a_bulk_read_continues_znode_by_znode_on_a_server_without_multi_read() -> None:
    """A rolling upgrade: the answer of the old server comes after answers of the new one."""
    stage = Full(3000)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        stage.multi_reads_until_old = 3
        got = await client.get_many([f"/n{i}" for i in range(3000)])
        assert [r.data for r in got] == [b"%06d" % i * 13 for i in range(3000)]

    stage.run(scenario)

    assert 0 < stage.count()["get"] < 3000


def test_a_multi_read_whose_reply_exceeds_the_size_limit_is_retried_in_halves() -> None:
    stage = Full(64, size=600)

    async def scenario(stage: Full) -> None:
        client = await stage.client(max_packet_bytes=10_000)
        stage.set("/n5", bytes(20_000))
        got = await client.get_many([f"/n{i}" for i in range(64)])
        assert [r.path for r in got if r.code is not ZkCode.OK] == ["/n5"]
        assert got[5].code is ZkCode.REPLY_TOO_LARGE
        assert got[63].data == b"000063" * 100
        assert client.is_alive

    stage.run(scenario)


def test_a_bulk_read_with_watches_reads_each_znode_in_its_own_request() -> None:
    stage = Full(3)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        assert [r.code for r in await client.get_many(["/n0", "/n1"], watch=True)] == [ZkCode.OK, ZkCode.OK]
        assert [r.children for r in await client.children_many(["/"], watch=True)] == [["zookeeper", "n0", "n1", "n2"]]
        assert [s is None for s in await client.exists_many(["/n2", "/absent"], watch=True)] == [False, True]
        assert not await client.get_many([])
        assert not await client.children_many([])
        assert not await client.exists_many([])

    stage.run(scenario)

    assert stage.count() == {"connect": 1, "get": 2, "children": 1, "exists": 2}


@pytest.mark.parametrize("watch", [False, True])
def test_a_bulk_read_of_znodes_fails_when_the_zookeeper_session_expires(watch: bool) -> None:
    stage = Full(3000)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        stage.drops_replies = True
        reading = asyncio.create_task(client.get_many([f"/n{i}" for i in range(3000)], watch))
        await asyncio.sleep(1)
        stage.ensemble.end_session(client.session_id)
        with pytest.raises(SessionExpired):
            await reading

    stage.run(scenario)


@pytest.mark.parametrize("watch", [False, True])
def test_a_cancelled_bulk_read_of_znodes_leaves_no_request_in_flight(watch: bool) -> None:
    stage = Full(3000)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        states: list[SessionState] = []
        client.on_state = states.append
        stage.drops_replies = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get_many([f"/n{i}" for i in range(3000)], watch), 1)
        stage.drops_replies = False
        stage.log.clear()
        stage.servers["zk1"].disconnect_clients()
        assert (await client.get("/n1"))[0] == b"000001" * 13
        assert states == [SessionState.DISCONNECTED, SessionState.CONNECTED]

    stage.run(scenario)

    assert stage.count() == {"connect": 1, "get": 1}


def test_ensure_paths_does_not_try_to_create_existing_znodes() -> None:
    stage = Full(0)

    async def scenario(stage: Full) -> None:
        client = await stage.client()
        await client.ensure_path("/brokers/ids")
        written = stage.ensemble.tree.zxid
        await client.ensure_paths(["/brokers/ids", "/brokers/topics", "/config/topics"])
        assert stage.ensemble.tree.zxid == written + 3
        assert sorted((await client.children("/brokers"))[0]) == ["ids", "topics"]
        assert await client.exists("/config/topics") is not None
        await client.ensure_paths(["/config/topics", "/brokers/topics"])
        assert stage.ensemble.tree.zxid == written + 3

    stage.run(scenario)
