"""When a fetch that waits is answered."""

import asyncio

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import SIZE, alone, at, fetch, now, one, put
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.replication.fetch_data import FetchPartition
from klamm.runtime.time_slices import PIECE


def test_a_waiting_consumer_fetch_completes_when_the_high_watermark_advances(run: Run) -> None:
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


def test_records_appended_while_a_fetch_reads_other_partitions_do_not_wait_for_its_timeout(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        async def append_to_the_first(slices: object, size: int = 1) -> None:
            if cluster.partition(1)._consumers:  # it was read
                monkeypatch.undo()
                await put(cluster)

        await alone(cluster, PIECE)
        monkeypatch.setattr(type(cluster.world.request_slices), "checkpoint", append_to_the_first)

        found = await fetch(cluster, *(at(0, number) for number in range(PIECE)), max_wait_ms=500)

        assert (sum(len(data.records) for data in found), now()) == (SIZE, 0)

    run(scenario)


def test_a_waiting_follower_fetch_completes_when_the_leader_appends(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        found = await waiting
        assert (len(found.records), found.high_watermark, now()) == (SIZE, 0, 1)

    run(scenario)


def test_a_fetch_without_data_is_answered_after_max_wait_ms(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        found = await fetch(cluster, at(0), at(0, 1), max_wait_ms=700)
        assert ([d.error for d in found], now()) == ([0, 0], 0.7)

    run(scenario)


def test_a_fetch_waits_until_min_bytes_are_available(run: Run) -> None:
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


def test_a_fetch_with_a_failed_partition_is_answered_at_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        found = await fetch(cluster, at(0), at(0, 9), max_wait_ms=1_000)
        assert ([d.error for d in found], now()) == ([0, ErrorCode.NOT_LEADER_OR_FOLLOWER], 0)

    run(scenario)


def test_a_fetch_without_partitions_is_answered_at_once(run: Run) -> None:
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
def test_a_waiting_fetch_fails_when_the_leader_becomes_a_follower(
    run: Run, partition: FetchPartition, leader_only: bool, error: ErrorCode
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        waiting = asyncio.create_task(one(cluster, partition, max_wait_ms=5_000, leader_only=leader_only))
        await asyncio.sleep(1)
        await cluster.elect(2)
        assert (await waiting).error is error
        assert now() == 1

    run(scenario)


def test_a_waiting_fetch_gets_kafka_storage_error_when_the_log_directory_fails(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        cluster.brokers[1].set_offline([P0])
        assert (await waiting).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_waiting_fetch_gets_offset_out_of_range_when_the_log_start_passes_its_offset(run_on_disk: Run) -> None:
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


def test_a_cancelled_fetch_removes_its_watcher_of_the_partition(run: Run) -> None:
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


def test_a_follower_fetch_response_has_the_high_watermark_from_before_that_fetch(run: Run) -> None:
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


def test_the_read_after_a_waiting_fetch_does_not_count_as_a_second_follower_fetch(run: Run) -> None:
    """KAFKA-8400: what is read from purgatory does not count as the follower having fetched at that time."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        await waiting
        replica = cluster.partition(1).replicas[BrokerId(2)]
        assert (replica.last_fetch_ms, replica.last_fetch_leader_end) == (0, 0)

    run(scenario)
