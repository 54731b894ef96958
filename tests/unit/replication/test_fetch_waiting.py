"""When a fetch that waits is answered."""

import asyncio

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import SIZE, alone, at, fetch, now, one, put

from klamm.model.errors import ErrorCode


def test_a_consumer_at_the_tail_is_woken_by_the_high_watermark(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await asyncio.sleep(1)
        start = now()
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        await cluster.produce(1)
        found = await waiting
        assert len(found.records) > 0
        assert found.high_watermark == 1
        assert now() - start < 1.01

    run(scenario)


def test_a_follower_is_woken_by_an_append(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        found = await waiting
        assert (len(found.records), found.high_watermark, now()) == (SIZE, 0, 1)

    run(scenario)


def test_the_time_runs_out(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        found = await fetch(cluster, at(0), at(0, 1), max_wait_ms=700)
        assert ([d.error for d in found], now()) == ([0, 0], 0.7)

    run(scenario)


def test_too_few_bytes_go_on_waiting(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, min_bytes=2 * SIZE))
        for _ in range(2):
            await asyncio.sleep(1)
            assert not waiting.done()
            await put(cluster)
        assert len((await waiting).records) == 2 * SIZE
        assert now() == 2
        found = await one(cluster, at(0), max_wait_ms=1_000, min_bytes=9 * SIZE)
        assert (len(found.records), now()) == (2 * SIZE, 3)

    run(scenario)


def test_an_error_beside_good_partitions_is_answered_at_once(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        found = await fetch(cluster, at(0), at(0, 9), max_wait_ms=1_000)
        assert ([d.error for d in found], now()) == ([0, ErrorCode.NOT_LEADER_OR_FOLLOWER], 0)

    run(scenario)


def test_a_fetch_of_nothing_does_not_wait(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await fetch(cluster, max_wait_ms=1_000) == []
        assert now() == 0

    run(scenario)


@pytest.mark.parametrize(
    ("partition", "leader_only", "error"),
    [
        (at(0), True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (at(0, current_leader_epoch=0), False, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_who_waits_on_a_leader_that_steps_down_is_told(run, partition, leader_only: bool, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        waiting = asyncio.create_task(one(cluster, partition, max_wait_ms=5_000, leader_only=leader_only))
        await asyncio.sleep(1)
        await cluster.elect(2)
        assert (await waiting).error is error
        assert now() == 1

    run(scenario)


def test_who_waits_on_a_failed_directory_is_told(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        cluster.brokers[1].set_offline([P0])
        assert (await waiting).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_fetch_that_waits_below_a_moved_log_start_fails_at_once(run_on_disk) -> None:
    """Retention and DeleteRecords move it; nothing else happens in the partition."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        for _ in range(2):
            await cluster.produce(1, b"a", acks=1)
        waiting = asyncio.create_task(one(cluster, at(1), max_wait_ms=5_000, min_bytes=10_000))
        await asyncio.sleep(1)
        cluster.partition(1).hosted_log.advance_start_offset(2)
        assert (await waiting).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert now() < 2

    run_on_disk(scenario)


def test_who_goes_away_leaves_no_watcher_behind(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        assert len(cluster.partition(1)._consumers) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not cluster.partition(1)._consumers
        await one(cluster, at(0))
        assert not cluster.partition(1)._consumers

    run(scenario)


def test_the_answer_has_the_offsets_from_before_the_fetch(run) -> None:
    """The fetch that lets the high watermark rise is answered with the old one; the next one has the new."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        await put(cluster)
        await one(cluster, at(0), replica_id=2)
        assert cluster.log(1).high_watermark == 0
        found = await one(cluster, at(1), replica_id=2)
        assert (found.high_watermark, cluster.log(1).high_watermark) == (0, 1)
        assert (await one(cluster, at(1), replica_id=2)).high_watermark == 1

    run(scenario)


def test_a_look_after_waiting_is_no_second_fetch(run) -> None:
    """KAFKA-8400: what is read from purgatory does not count as the follower having fetched at that time."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        await waiting
        replica = cluster.partition(1).replicas[2]
        assert (replica.last_fetch_ms, replica.last_fetch_leader_end) == (0, 0)

    run(scenario)
