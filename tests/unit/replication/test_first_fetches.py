"""How soon acks=all goes on after an election, when a follower learns of it while its fetch waits at the leader."""

import asyncio

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import at, now, one
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

P1 = TopicPartition("orders", 1)
LEARNS_LATER_S = 0.01
"""So much later than the first broker, the second gets LeaderAndIsr."""


async def elect_first(cluster: ReplicaCluster, leader: int) -> None:
    """Let a broker lead orders-0 and broker 1 orders-1; return in the middle of the followers' waits of 0.5 s."""
    await cluster.elect(leader)
    await cluster.elect(1, partition=P1)
    await asyncio.sleep(5.2)


async def seconds_until_acknowledged(cluster: ReplicaCluster) -> float:
    start = now()
    assert await cluster.produce(1) is ErrorCode.NONE
    return now() - start


@pytest.mark.parametrize("first", [1, 2], ids=["leader first", "follower first"])
@pytest.mark.parametrize("leader_before", [1, 3], ids=["same leader, new epoch", "new leader"])
def test_acks_all_does_not_wait_for_a_fetch_without_the_newly_led_partition(
    run: Run, leader_before: int, first: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await elect_first(cluster, leader_before)

        await cluster.elect(1, (1, 2), tell=[first])
        await asyncio.sleep(LEARNS_LATER_S)
        await cluster.elect(1, (1, 2), tell=[3 - first], epoch=1)

        assert await seconds_until_acknowledged(cluster) < 0.05

    run(scenario)


def test_fetches_wait_as_usual_once_the_follower_has_fetched_the_newly_led_partition(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        await one(cluster, at(0), replica_id=2)
        start = now()

        await one(cluster, at(0), replica_id=2, max_wait_ms=300)

        assert now() - start == pytest.approx(0.3)

    run(scenario)


def test_the_fetches_of_a_follower_that_does_not_fetch_a_newly_led_partition_wait_as_usual_after_a_second(
    run: Run,
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1], partition=P1)
        await one(cluster, at(0, 1), replica_id=2)
        await cluster.elect(1, tell=[1], partition=P0)
        waits = []
        for pause in (0.0, 0.5, 1.5):
            await asyncio.sleep(pause)
            start = now()
            await one(cluster, at(0, 1), replica_id=2, max_wait_ms=300)
            waits.append(now() - start)

        assert waits == pytest.approx([0.02, 0.02, 0.3])

    run(scenario)


def test_the_fetches_of_consumers_and_of_other_followers_wait_as_usual_after_an_election(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, replicas=(1, 3), isr=(1, 3), tell=[1])
        await cluster.elect(1, tell=[1], partition=P1)
        await one(cluster, at(0, 1), replica_id=2)
        for replica_id in (-1, 2):
            start = now()
            await one(cluster, at(0, 1), replica_id=replica_id, max_wait_ms=100)
            assert now() - start == pytest.approx(0.1)

    run(scenario)
