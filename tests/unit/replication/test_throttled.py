"""Replication under a throttle: who has to wait, who never does, and when it goes on (KIP-73)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchData, FetchParams, FetchPartition
from klamm.replication.fetch_sessions import FetchRequested
from klamm.replication.quota import ALL, ReplicationQuota
from klamm.replication.replica_manager import ReplicationSettings

P1 = TopicPartition("orders", 1)
SIZE = len(batch(filler=b"xxxx"))


def now() -> float:
    return asyncio.get_running_loop().time()


def throttle(
    cluster: ReplicaCluster, broker: int, side: str, rate: int, partitions: frozenset[int] | None = ALL
) -> ReplicationQuota:
    quota: ReplicationQuota = getattr(cluster.brokers[broker].quotas, side)
    quota.throttle("orders", partitions)
    quota.set_limit(rate)
    return quota


async def put(cluster: ReplicaCluster, count: int = 1, partition: TopicPartition = P0) -> None:
    """Append batches to a partition."""
    for _ in range(count):
        await cluster.brokers[1].append(1, 0, {partition: batch(filler=b"xxxx")})


async def fetch(
    cluster: ReplicaCluster, offsets: Mapping[TopicPartition, int], replica: int, **params: Any
) -> dict[TopicPartition, FetchData]:
    wanted = [FetchPartition(tp.topic, TOPIC_ID, tp.partition, offset, SIZE) for tp, offset in offsets.items()]
    requested = FetchRequested(wanted, replica_id=BrokerId(replica))
    answer = await cluster.brokers[1].fetch(FetchParams(BrokerId(replica), **params), requested)
    return {TopicPartition(w.request.topic or "", w.request.partition): data for w, data in answer.partitions}


async def led_by_one(cluster: ReplicaCluster, isr: tuple[int, ...] = (1,), partition: TopicPartition = P0) -> None:
    """Make broker 1 the leader."""
    await cluster.elect(1, isr, tell=[1], partition=partition)
    await put(cluster, 3, partition)


# ---- the leader


@pytest.mark.parametrize(
    ("replica", "isr", "partitions", "rate", "is_held"),
    [
        (3, (1,), ALL, SIZE - 1, True),
        (3, (1,), frozenset([0]), SIZE - 1, True),
        (2, (1, 2), ALL, SIZE - 1, False),
        (3, (1,), ALL, SIZE, False),
        (3, (1,), frozenset([1]), SIZE - 1, False),
        (-1, (1,), ALL, SIZE - 1, False),
    ],
    ids=["out of sync", "listed", "in sync", "below the quota", "not listed", "consumer"],
)
def test_the_leader_replication_quota_throttles_only_listed_out_of_sync_replicas(
    run: Run, replica: int, isr: tuple[int, ...], partitions: frozenset[int] | None, rate: int, is_held: bool
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster, isr)
        throttle(cluster, 1, "leader", rate, partitions).record(SIZE)
        found = (await fetch(cluster, {P0: 0}, replica))[P0]
        assert (found.error, len(found.records)) == (ErrorCode.NONE, 0 if is_held else SIZE)
        assert found.held is is_held

    run(scenario)


def test_a_throttled_follower_fetch_still_updates_the_followers_log_end(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", 0).record(1)
        await fetch(cluster, {P0: 2}, 3)
        assert cluster.partition(1).replicas[BrokerId(3)].log_end_offset == 2

    run(scenario)


def test_a_throttled_partition_leaves_the_first_batch_of_a_fetch_to_another_partition(run: Run) -> None:
    """The one batch that always goes out is another's, however small the request's limit."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        await led_by_one(cluster, (1,), P1)
        throttle(cluster, 1, "leader", 0, frozenset([0])).record(1)
        found = await fetch(cluster, {P0: 0, P1: 0}, 3, max_bytes=1, max_wait_ms=500)
        assert [len(found[p].records) for p in (P0, P1)] == [0, SIZE]
        assert now() == 0

    run(scenario)


def test_bytes_sent_to_in_sync_replicas_count_against_the_leader_replication_quota(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        await led_by_one(cluster, (1,), P1)
        quota = throttle(cluster, 1, "leader", 10 * SIZE, frozenset([0]))
        counted = []
        for replica in (3, 2, -1):
            await fetch(cluster, {P0: 0, P1: 0}, replica)
            counted.append(quota.byte_rate())
        assert counted == [SIZE, 2 * SIZE, 2 * SIZE]

    run(scenario)


def test_a_throttled_follower_fetch_completes_when_the_quota_allows_bytes(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", SIZE).record(2 * SIZE)
        found = await fetch(cluster, {P0: 0}, 3, max_wait_ms=5_000)
        assert len(found[P0].records) == SIZE
        assert now() == 2

    run(scenario)


def test_a_throttled_follower_fetch_is_answered_empty_after_max_wait_ms(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", SIZE).record(2 * SIZE)
        found = await fetch(cluster, {P0: 0}, 3, max_wait_ms=500)
        assert (found[P0].error, found[P0].records) == (ErrorCode.NONE, b"")
        assert now() == 0.5

    run(scenario)


def test_two_throttled_follower_fetches_complete_one_after_the_other(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", SIZE).record(2 * SIZE)
        times = []

        async def one(replica: int) -> None:
            found = await fetch(cluster, {P0: 0}, replica, max_wait_ms=5_000)
            times.append((now(), len(found[P0].records)))

        await asyncio.gather(one(2), one(3))
        assert times == [(2, SIZE), (3, SIZE)]

    run(scenario)


def test_a_follower_fetch_at_the_log_end_is_not_throttled(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster, (1, 2))
        throttle(cluster, 1, "leader", 0).record(1)
        assert not (await fetch(cluster, {P0: 3}, 3))[P0].held

    run(scenario)


def test_an_append_does_not_end_the_wait_of_a_throttled_follower_fetch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", SIZE).record(2 * SIZE)
        waiting = asyncio.create_task(fetch(cluster, {P0: 0}, 3, max_wait_ms=5_000))
        await asyncio.sleep(1)
        await put(cluster)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert len((await waiting)[P0].records) == SIZE
        assert now() == 2

    run(scenario)


def test_a_throttled_fetch_with_a_partition_error_is_answered_at_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led_by_one(cluster)
        throttle(cluster, 1, "leader", 0).record(1)
        found = await fetch(cluster, {P0: 99}, 3, max_wait_ms=5_000)
        assert (found[P0].error, now()) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)

    run(scenario)


# ---- the follower, and both together

ONE_BATCH = ReplicationSettings(replica_fetch_max_bytes=1, replica_fetch_response_max_bytes=1)


@pytest.mark.parametrize(("side", "rate"), [("leader", 2 * SIZE), ("follower", SIZE)])
def test_a_new_replica_copies_at_the_quota_rate_and_then_joins_the_isr(run: Run, side: str, rate: int) -> None:
    """A batch per second, and for the leader the one that it sends to the other follower.

    Producers with acks=all go on meanwhile, for the ISR is untouched.
    """

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), tell=[1, 2])
        for _ in range(10):
            assert await cluster.produce(1, b"xxxx") is ErrorCode.NONE
        quota = throttle(cluster, 1 if side == "leader" else 3, side, rate)
        start = now() + 20
        await asyncio.sleep(20)  # what the replica in sync was sent is past
        await cluster.elect(1, (1, 2))
        ends = []
        for _ in range(12):
            ends.append(cluster.log(3).end_offset)
            assert quota.byte_rate() <= rate + SIZE
            before = now()
            assert await cluster.produce(1, b"yyyy") is ErrorCode.NONE
            assert now() - before < 0.1
            await asyncio.sleep(start + len(ends) - now())
        assert all(ends[n] <= n + 2 for n in range(10)), ends
        assert cluster.isr(1) == (1, 2)

        quota.set_limit(10**9)  # raised: what is left comes within the back-off time
        await asyncio.sleep(2)
        assert cluster.log(3).end_offset == cluster.log(1).end_offset
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario, settings=ONE_BATCH)


def test_an_exceeded_follower_quota_skips_throttled_partitions_and_fetches_the_others(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for p in (P0, P1):
            await cluster.elect(1, (1, 2), partition=p, tell=[1, 2])
            await put(cluster, 3, p)
        quota = throttle(cluster, 3, "follower", 0, frozenset([0]))
        quota.record(1)
        for p in (P0, P1):
            await cluster.elect(1, (1, 2), partition=p)
        await asyncio.sleep(3)
        assert cluster.log(3, P1).end_offset == 3
        assert cluster.log(3, P0).end_offset == 0
        asked = [p.partition for s, _, m, _ in cluster.sent if s == 3 for t in m.topics for p in t.partitions]
        assert 0 not in asked

        quota.throttle("orders", frozenset())  # removed
        await asyncio.sleep(1)
        assert cluster.log(3, P0).end_offset == 3

    run(scenario)


def test_a_caught_up_follower_is_not_throttled(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(1, b"xxxx") is ErrorCode.NONE
        await asyncio.sleep(1)
        for broker, side in ((1, "leader"), (2, "follower"), (3, "follower")):
            throttle(cluster, broker, side, 0).record(10**6)
        for _ in range(20):
            before = now()
            assert await cluster.produce(1, b"yyyy") is ErrorCode.NONE
            assert now() - before <= 4 * cluster.delay_s
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)
