"""Bulk reads: how they are split; old servers, answers that are too large, sessions that end."""

import asyncio

import pytest
from tests.support.scripted_zookeeper import Ensemble, Link
from tests.support.simulated_network import SimulatedNetwork, simulated_world

from klamm.sim.loop import SimulatedLoop
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired, ZkCode
from klamm.zk.states import SessionState


def client_of(ensemble: Ensemble, hosts: str = "zk1", max_packet_bytes: int = 4 << 20) -> ZooKeeper:
    network = SimulatedNetwork()
    network.listeners[("zk1", 2181)] = lambda: Link(ensemble, "zk1")
    return ZooKeeper(simulated_world(network), hosts, 6_000, max_packet_bytes=max_packet_bytes)


def ensemble_with(count: int, size: int = 80) -> Ensemble:
    ensemble = Ensemble()
    for i in range(count):
        ensemble.create(f"/n{i}", b"%06d" % i * (size // 6))
    ensemble.log = []
    return ensemble


def multi_reads(ensemble: Ensemble) -> list[int]:
    return [int(what.split()[1]) for _, what in ensemble.log if what.startswith("multi-read")]


def test_many_small_znodes_need_few_requests() -> None:
    ensemble = ensemble_with(5000)

    async def main() -> None:
        client = client_of(ensemble)
        await client.connect(5)
        got = await client.get_many([f"/n{i}" for i in range(5001)])
        assert [r.data for r in got[:5000]] == [b"%06d" % i * 13 for i in range(5000)]
        assert got[5000] == ("/n5000", ZkCode.NO_NODE, None, None)

    SimulatedLoop().run(main())

    assert multi_reads(ensemble) == [64, 64, 64, 64, 256, 1000, 1000, 1000, 1000, 489]


def test_large_znodes_go_in_short_requests() -> None:
    ensemble = ensemble_with(300, size=60_000)

    async def main() -> None:
        client = client_of(ensemble)
        await client.connect(5)
        got = await client.get_many([f"/n{i}" for i in range(300)])
        assert [r.data for r in got] == [b"%06d" % i * 10_000 for i in range(300)]

    SimulatedLoop().run(main())

    assert ensemble.count()["get"] == 0
    assert set(multi_reads(ensemble)[4:-1]) == {8}


@pytest.mark.parametrize("code", [-6, 0], ids=["unimplemented", "empty"])
def test_a_server_without_multi_read_is_read_singly_and_not_asked_again(code: int) -> None:
    ensemble = ensemble_with(600)
    ensemble.knows_multi_read = False
    ensemble.answers_unknown_with = code

    async def main() -> None:
        client = client_of(ensemble, "zk1/n0")
        await client.connect(5)
        paths = ["/", "/absent"]
        assert [r.data for r in await client.get_many(paths)] == [b"000000" * 13, None]
        assert [r.code for r in await client.children_many(paths)] == [ZkCode.OK, ZkCode.NO_NODE]

    SimulatedLoop().run(main())

    assert multi_reads(ensemble) == [2]
    assert ensemble.count()["get"] == ensemble.count()["children"] == 2


def test_the_rest_is_read_singly_where_another_server_takes_over_in_between() -> None:
    """A rolling upgrade: the answer of the old server comes after answers of the new one."""
    ensemble = ensemble_with(3000)

    async def main() -> None:
        client = client_of(ensemble)
        await client.connect(5)
        ensemble.multi_reads_until_old = 3
        got = await client.get_many([f"/n{i}" for i in range(3000)])
        assert [r.data for r in got] == [b"%06d" % i * 13 for i in range(3000)]

    SimulatedLoop().run(main())

    assert 0 < ensemble.count()["get"] < 3000


def test_an_answer_beyond_the_limit_is_asked_for_in_halves_and_at_last_alone() -> None:
    ensemble = ensemble_with(64, size=600)
    ensemble.set("/n5", bytes(20_000))

    async def main() -> None:
        client = client_of(ensemble, max_packet_bytes=10_000)
        await client.connect(5)
        got = await client.get_many([f"/n{i}" for i in range(64)])
        assert [r.path for r in got if r.code is not ZkCode.OK] == ["/n5"]
        assert got[5].code is ZkCode.REPLY_TOO_LARGE
        assert got[63].data == b"000063" * 100
        assert client.is_alive

    SimulatedLoop().run(main())


def test_watches_are_asked_for_singly() -> None:
    ensemble = ensemble_with(3)

    async def main() -> None:
        client = client_of(ensemble)
        await client.connect(5)
        assert [r.code for r in await client.get_many(["/n0", "/n1"], watch=True)] == [ZkCode.OK, ZkCode.OK]
        assert [r.children for r in await client.children_many(["/"], watch=True)] == [["n0", "n1", "n2"]]
        assert [s is None for s in await client.exists_many(["/n2", "/absent"], watch=True)] == [False, True]
        assert await client.get_many([]) == await client.children_many([]) == await client.exists_many([]) == []

    SimulatedLoop().run(main())

    assert ensemble.count() == {"connect": 1, "get": 2, "children": 1, "exists": 2}


@pytest.mark.parametrize("watch", [False, True])
def test_expiry_ends_a_bulk_read(watch: bool) -> None:
    ensemble = ensemble_with(3000)

    async def main() -> None:
        client = client_of(ensemble)
        await client.connect(5)
        ensemble.drops_replies = True
        reading = asyncio.create_task(client.get_many([f"/n{i}" for i in range(3000)], watch))
        await asyncio.sleep(1)
        ensemble.end(client.session_id)
        for link in list(ensemble.links):
            link.transport.close()
        with pytest.raises(SessionExpired):
            await reading

    SimulatedLoop().run(main())


@pytest.mark.parametrize("watch", [False, True])
def test_a_bulk_read_that_is_cancelled_leaves_nothing_behind(watch: bool) -> None:
    ensemble = ensemble_with(3000)

    async def main() -> None:
        client = client_of(ensemble)
        states: list[SessionState] = []
        client.on_state = states.append
        await client.connect(5)
        ensemble.drops_replies = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get_many([f"/n{i}" for i in range(3000)], watch), 1)
        ensemble.drops_replies = False
        ensemble.log.clear()
        for link in list(ensemble.links):
            link.transport.close()
        assert (await client.get("/n1"))[0] == b"000001" * 13
        assert states == [SessionState.CONNECTED, SessionState.DISCONNECTED, SessionState.CONNECTED]

    SimulatedLoop().run(main())

    assert ensemble.count() == {"connect": 1, "get": 1}
