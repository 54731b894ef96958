"""DeleteRecords: the log start of the leader, of its followers, and who waits for whom.

Facts: ReplicaManagerTest, PartitionTest, PlaintextAdminIntegrationTest (3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.record_deletion import DeletionResult
from klamm.replication.replica_manager import ReplicationSettings

NONE = ErrorCode.NONE


def now() -> float:
    return asyncio.get_running_loop().time()


async def with_records(cluster: ReplicaCluster, count: int = 5) -> None:
    """Broker 1 leads with 2 and 3 in sync, and all have `count` records."""
    await cluster.elect(1)
    for _ in range(count):
        assert await cluster.produce(1) is NONE
    await asyncio.sleep(0.8)  # now the fetches wait for more


async def delete(
    cluster: ReplicaCluster, offset: int, broker: int = 1, timeout_ms: int = 5_000, partition: TopicPartition = P0
) -> DeletionResult:
    """Delete the records of a partition before `offset`."""
    return (await cluster.brokers[broker].delete_records({partition: offset}, timeout_ms))[partition]


def starts(cluster: ReplicaCluster) -> list[int]:
    return [cluster.log(b).start_offset for b in cluster.brokers]


@pytest.mark.parametrize(("offset", "expected"), [(3, 3), (-1, 5), (5, 5), (0, 0)])
def test_delete_records_raises_the_log_start_of_all_live_replicas_before_its_response(
    run_on: Run, offset: int, expected: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        assert await delete(cluster, offset) == DeletionResult(NONE, expected)
        assert starts(cluster) == [expected] * 3

    run_on(scenario)


def test_delete_records_completes_where_retention_deleted_the_records_of_the_followers_before(run_on: Run) -> None:
    """Each replica runs retention by its own clock: a follower may have nothing left to delete."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        for follower in (2, 3):
            cluster.log(follower).advance_start_offset(4)

        assert await delete(cluster, 3) == DeletionResult(NONE, 3)
        assert starts(cluster) == [3, 4, 4]

    run_on(scenario)


def test_delete_records_of_a_partition_without_followers_completes_at_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, isr=(1,), replicas=(1,))
        for _ in range(5):
            assert await cluster.produce(1) is NONE

        assert await delete(cluster, 4) == DeletionResult(NONE, 4)

    run(scenario)


def test_delete_records_completes_after_one_round_of_fetches_without_a_timer(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        began = now()
        await delete(cluster, 3)
        assert now() - began <= 4 * cluster.delay_s

    run(scenario)


def test_delete_records_below_the_log_start_changes_nothing(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await delete(cluster, 3)
        assert await delete(cluster, 1) == DeletionResult(NONE, 3)
        assert starts(cluster) == [3, 3, 3]

    run(scenario)


@pytest.mark.parametrize("offset", [6, -2])
def test_delete_records_beyond_the_high_watermark_or_below_minus_1_gets_offset_out_of_range(
    run: Run, offset: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        assert await delete(cluster, offset) == DeletionResult(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert starts(cluster) == [0, 0, 0]

    run(scenario)


def test_delete_records_of_a_topic_that_is_only_compacted_gets_policy_violation(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.log(1).config.is_deleted = False
        assert await delete(cluster, 3) == DeletionResult(ErrorCode.POLICY_VIOLATION, -1)

    run(scenario)


def test_delete_records_at_a_follower_or_of_an_unhosted_partition_is_refused(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        other = TopicPartition("orders", 7)
        assert (await delete(cluster, 3, broker=2)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await delete(cluster, 3, partition=other)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.brokers[1].set_offline([P0])
        assert (await delete(cluster, 3)).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_delete_records_waits_until_the_timeout_for_a_live_follower_that_does_not_fetch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.cut.add((1, 3))
        began = now()
        assert await delete(cluster, 3, timeout_ms=2_000) == DeletionResult(ErrorCode.REQUEST_TIMED_OUT, 0)
        assert now() - began == pytest.approx(2)
        assert starts(cluster) == [3, 3, 0]

        cluster.cut.clear()
        assert await delete(cluster, 3, timeout_ms=60_000) == DeletionResult(NONE, 3)

    run(scenario)


def test_delete_records_does_not_wait_for_a_follower_that_is_dead_or_dies(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.cut.add((1, 3))
        waiting = asyncio.create_task(delete(cluster, 3, timeout_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()

        cluster.metadata.alive.discard(BrokerId(3))
        cluster.brokers[1].on_live_brokers_changed()

        assert await waiting == DeletionResult(NONE, 3)
        assert await delete(cluster, 4) == DeletionResult(NONE, 4)

    run(scenario)


async def lose_leadership(cluster: ReplicaCluster) -> None:
    await cluster.elect(2)


async def lose_log_directory(cluster: ReplicaCluster) -> None:
    cluster.brokers[1].set_offline([P0])


LOST: dict[str, tuple[Callable[[ReplicaCluster], Awaitable[None]], ErrorCode]] = {
    "leadership": (lose_leadership, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "its log directory": (lose_log_directory, ErrorCode.KAFKA_STORAGE_ERROR),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_waiting_delete_records_is_answered_when_the_leader_loses_leadership(run: Run, lost: str) -> None:
    lose, error = LOST[lost]

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.cut.add((1, 3))
        waiting = asyncio.create_task(delete(cluster, 3, timeout_ms=60_000))
        await asyncio.sleep(1)
        began = now()
        await lose(cluster)
        assert await waiting == DeletionResult(error, -1)
        assert now() - began < 1

    run(scenario)


def test_delete_records_above_the_limit_of_waiting_requests_gets_request_timed_out_at_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.cut.add((1, 3))
        waiting = asyncio.create_task(delete(cluster, 3, timeout_ms=60_000))
        await asyncio.sleep(0)
        assert (await delete(cluster, 3, timeout_ms=60_000)).error is ErrorCode.REQUEST_TIMED_OUT
        waiting.cancel()

    run(scenario, settings=ReplicationSettings(max_waiting_requests=1))


def test_a_new_leader_keeps_the_log_start_offset_set_by_delete_records(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await delete(cluster, 3)
        await cluster.elect(2)
        await asyncio.sleep(1)
        assert starts(cluster) == [3, 3, 3]
        assert await delete(cluster, 4, broker=2) == DeletionResult(NONE, 4)

    run_on(scenario)
