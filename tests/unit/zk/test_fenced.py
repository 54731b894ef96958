"""Fenced writes: split into multis, repeated without refused operations, and ended by a newer epoch."""

from collections.abc import Sequence

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.zk.errors import NoAuth, NoNode, RequestTooLarge, ZkCode
from klamm.zk.fenced import MAX_OPS, ControllerMoved, chunks, write_fenced
from klamm.zk.operations import Check, Create, Delete, Op, Result, Set
from klamm.zk.session import SERVER_PACKET_BYTES


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    made = MemoryEnsemble()
    made.apply([Create("/controller_epoch", b"1")])
    return made


class Counting:
    """Counts the multis that reach the server."""

    def __init__(self, client: MemoryZooKeeper) -> None:
        self._client = client
        self.sizes: list[int] = []

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        self.sizes.append(len(operations))
        return await self._client.multi(operations)


async def test_every_controller_write_to_zookeeper_starts_with_a_controller_epoch_check(
    ensemble: MemoryEnsemble,
) -> None:
    await write_fenced(ensemble.client(), 0, [Create("/a"), Create("/b")])

    assert ensemble.multis == [[Check("/controller_epoch", 0), Create("/a"), Create("/b")]]


async def test_controller_writes_to_zookeeper_are_split_by_operation_count_and_by_bytes(
    ensemble: MemoryEnsemble,
) -> None:
    client = Counting(ensemble.client())

    await write_fenced(client, 0, [Create(f"/n{n}") for n in range(MAX_OPS + 1)])
    assert client.sizes == [MAX_OPS + 1, 2]

    client.sizes.clear()
    await write_fenced(client, 0, [Create(f"/b{n}", b"x" * 150_000) for n in range(5)])
    assert client.sizes == [3, 3, 2]


async def test_a_refused_controller_write_does_not_fail_other_writes_of_its_batch(
    ensemble: MemoryEnsemble,
) -> None:
    client = Counting(ensemble.client())
    ensemble.apply([Create(f"/{n}") for n in range(0, 100, 10)])

    results = await write_fenced(client, 0, [Create(f"/{n}") for n in range(100)])

    assert [r.code is ZkCode.NODE_EXISTS for r in results] == [n % 10 == 0 for n in range(100)]
    assert all(f"/{n}" in ensemble.nodes for n in range(100))
    assert len(client.sizes) < 60  # narrowed quickly: far fewer attempts than writes


class RefusingChecks:
    """A client whose multis with this path may not check the controller epoch."""

    def __init__(self, client: MemoryZooKeeper, path: str) -> None:
        self._client = client
        self._path = path

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        if any(op.path == self._path for op in operations):
            return [Result(ZkCode.NO_AUTH), *[Result(ZkCode.RUNTIME_INCONSISTENCY)] * (len(operations) - 1)]
        return await self._client.multi(operations)


async def test_controller_writes_are_reported_although_the_epoch_could_not_be_checked_for_others(
    ensemble: MemoryEnsemble,
) -> None:
    others: list[Op] = [Create(f"/{n}") for n in range(MAX_OPS)]

    results = await write_fenced(RefusingChecks(ensemble.client(), "/a"), 0, [*others, Create("/a")])

    assert [r.code for r in results] == [ZkCode.OK] * MAX_OPS + [ZkCode.NO_AUTH]
    assert "/0" in ensemble.nodes


async def test_a_controller_write_whose_epoch_cannot_be_checked_raises_that_error(ensemble: MemoryEnsemble) -> None:
    with pytest.raises(NoAuth, match="/controller_epoch"):
        await write_fenced(RefusingChecks(ensemble.client(), "/a"), 0, [Create("/a")])


async def test_a_controller_write_over_zookeepers_packet_limit_does_not_fail_other_writes(
    ensemble: MemoryEnsemble,
) -> None:
    """As the znode of a topic with very many partitions, of which all are to move."""

    def limit_packets(ops: Sequence[Op]) -> None:
        if sum(len(op.data or b"") for op in ops if isinstance(op, Create)) > SERVER_PACKET_BYTES:
            raise RequestTooLarge(ops[0].path)

    ensemble.before_multi = limit_packets

    results = await write_fenced(
        ensemble.client(), 0, [Create("/a"), Create("/large", bytes(SERVER_PACKET_BYTES + 1)), Create("/b")]
    )

    assert [r.code for r in results] == [ZkCode.OK, ZkCode.REQUEST_TOO_LARGE, ZkCode.OK]
    assert {"/a", "/b"} <= ensemble.nodes.keys()


async def test_a_batch_of_only_refused_controller_writes_returns_their_errors(ensemble: MemoryEnsemble) -> None:
    results = await write_fenced(ensemble.client(), 0, [Delete(f"/{n}") for n in range(50)])

    assert {r.code for r in results} == {ZkCode.NO_NODE}


async def test_a_controller_write_raises_controller_moved_after_a_newer_controller_epoch(
    ensemble: MemoryEnsemble,
) -> None:
    ensemble.apply([Set("/controller_epoch", b"2")])

    with pytest.raises(ControllerMoved):
        await write_fenced(ensemble.client(), 0, [Create("/a")])
    with pytest.raises(ControllerMoved):
        await write_fenced(ensemble.client(), 0, [Create(f"/n{n}") for n in range(MAX_OPS + 1)])
    assert not [p for p in ensemble.nodes if p.startswith("/n")]


async def test_a_controller_write_without_a_controller_epoch_znode_raises_its_own_error() -> None:
    with pytest.raises(NoNode, match="/controller_epoch"):
        await write_fenced(MemoryEnsemble().client(), 0, [Create("/a")])


async def test_controller_writes_without_a_won_election_are_refused(ensemble: MemoryEnsemble) -> None:
    with pytest.raises(AssertionError):
        await write_fenced(ensemble.client(), -1, [Create("/a")])


def test_splitting_a_sequence_of_writes_into_chunks_keeps_their_order() -> None:
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks([], 2)) == []
