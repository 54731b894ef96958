"""Consumers in another rack than the leader are sent to an in-sync follower of their rack (KIP-392)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.replica_cluster import ReplicaCluster, ids
from tests.unit.replication.fetching import at, fetch, now, one, put
from tests.unit.replication.runs import Run

from klamm.model.ids import NO_BROKER
from klamm.replication.fetch_data import FetchData, FetchParams
from klamm.replication.fetch_sessions import FetchRequested
from klamm.replication.isr import Committed

FOLLOWERS = ids(2, 3)


async def replicated(cluster: ReplicaCluster, count: int = 3) -> None:
    """Broker 1 leads; its followers have all records."""
    await cluster.elect(1)
    await asyncio.sleep(1)
    await cluster.produce(1, count=count)
    await asyncio.sleep(1)


def test_a_consumer_is_sent_to_a_follower_of_its_rack_at_once_and_gets_no_records(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        began = now()
        found = await one(cluster, at(1), near_brokers=ids(2), max_wait_ms=1000, min_bytes=1000)
        to_broker_2 = FetchData(
            high_watermark=3, last_stable_offset=3, log_start_offset=0, preferred_replica=FOLLOWERS[0]
        )
        assert (found, now()) == (to_broker_2, began)

    run(scenario)


def test_the_follower_that_is_furthest_is_preferred_then_the_one_that_caught_up_last_then_the_greater_id(
    run: Run,
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        second, third = (cluster.partition(1).replicas[b] for b in FOLLOWERS)
        second.last_caught_up_ms = third.last_caught_up_ms = 5.0
        assert (await one(cluster, at(1), near_brokers=FOLLOWERS)).preferred_replica == 3
        second.last_caught_up_ms = 6.0
        assert (await one(cluster, at(1), near_brokers=FOLLOWERS)).preferred_replica == 2
        third.log_end_offset += 1
        assert (await one(cluster, at(1), near_brokers=FOLLOWERS)).preferred_replica == 3

    run(scenario)


async def out_of_sync(cluster: ReplicaCluster) -> None:
    cluster.partition(1).isr_state = Committed(ids(1, 3))


async def behind(cluster: ReplicaCluster) -> None:
    cluster.partition(1).replicas[FOLLOWERS[0]].log_end_offset = 1


async def ahead(cluster: ReplicaCluster) -> None:
    cluster.partition(1).replicas[FOLLOWERS[0]].log_start_offset = 3


@pytest.mark.parametrize("spoil", [out_of_sync, behind, ahead])
def test_a_follower_that_is_out_of_sync_or_lacks_the_offset_is_not_preferred(
    run: Run, spoil: Callable[[ReplicaCluster], Awaitable[None]]
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        await spoil(cluster)
        found = await one(cluster, at(2), near_brokers=ids(2))
        assert found.preferred_replica == NO_BROKER
        assert found.records

    run(scenario)


def test_no_preferred_replica_is_named_when_the_leader_is_in_the_consumers_rack(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        found = await one(cluster, at(0), near_brokers=ids(1, 2))
        assert found.preferred_replica == NO_BROKER
        assert found.records

    run(scenario)


def test_no_preferred_replica_is_named_to_followers_or_to_consumers_that_read_from_a_follower(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        replicating = await one(cluster, at(3), replica_id=3, near_brokers=ids(2))
        assert replicating.preferred_replica == NO_BROKER
        (reading,) = await fetch(cluster, at(0), broker=2, leader_only=False, near_brokers=ids(3))
        assert reading.preferred_replica == NO_BROKER
        assert reading.records

    run(scenario)


def test_a_fetch_session_names_the_preferred_follower_in_each_answer(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        params = FetchParams(near_brokers=ids(2))
        first = await cluster.brokers[1].fetch(params, FetchRequested([at(0)], 0, 0))
        second = await cluster.brokers[1].fetch(params, FetchRequested([], first.session_id, 1))
        assert [data.preferred_replica for _, data in second.partitions] == [2]

    run(scenario)


def test_a_waiting_fetch_is_answered_when_a_follower_gets_the_offset(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await replicated(cluster)
        cluster.cut.update({(2, 1), (1, 2)})
        await put(cluster)
        waiting = asyncio.ensure_future(one(cluster, at(4), near_brokers=ids(2), max_wait_ms=5000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        cluster.cut.clear()
        assert (await waiting).preferred_replica == 2

    run(scenario)
