"""The current leader in errors of Produce and Fetch (KIP-951) between LeaderAndIsr and UpdateMetadata."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.broker.cluster_state import ORDERS_ID, broker, cache, partition, request, update

from klamm.broker.current_leaders import CurrentLeader, current_leader
from klamm.broker.handlers.fetch import Fetch
from klamm.broker.handlers.produce import Produce
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from klamm.wire.records import NewRecord, build_batch

BATCH = build_batch([NewRecord(None, b"v", 1)])
NOT_ASKED: Any = None
Ask = Callable[[ReplicaCluster, MetadataCache], Awaitable[tuple[Any, Any]]]


def before_the_move() -> MetadataCache:
    """The metadata cache of a broker that still believes in broker 1, in leader epoch 0."""
    return cache(update({"orders": [partition(0, 1, epoch=0)]}, [broker(1), broker(2), broker(3, rack="r3")]))


async def produce(cluster: ReplicaCluster, known: MetadataCache) -> tuple[Any, Any]:
    """Produce to broker 1; its result for the partition and its response."""
    handler = Produce(known, cluster.brokers[1], NOT_ASKED)
    message = ProduceRequest(None, -1, 100, [TopicProduceData("orders", [PartitionProduceData(0, BATCH)])])
    response = await handler.handle(request(ApiKey.PRODUCE, 10), message)
    assert response is not None
    return response.responses[0].partition_responses[0], response


async def fetch(cluster: ReplicaCluster, known: MetadataCache) -> tuple[Any, Any]:
    """Fetch from broker 1 with the leader epoch before the move; its result for the partition and its response."""
    asked = FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0, partition_max_bytes=1000)
    message = FetchRequest(max_wait_ms=0, topics=[FetchTopic("", ORDERS_ID, [asked])])
    response = await Fetch(known, cluster.brokers[1], 1000, NOT_ASKED).handle(request(ApiKey.FETCH, 16), message)
    return response.responses[0].partitions[0], response


def run(scenario: Callable[[ReplicaCluster], Awaitable[None]]) -> None:
    async def with_cluster() -> None:
        cluster = ReplicaCluster()
        await scenario(cluster)
        await cluster.close()

    SimulatedLoop().run(with_cluster())


@pytest.mark.parametrize("ask", [produce, fetch])
def test_a_broker_that_ceased_to_lead_names_the_new_leader_before_update_metadata(ask: Ask) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.elect(3)

        answer, response = await ask(cluster, before_the_move())

        expected = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
        assert answer.error_code in expected
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (3, 1)
        found = [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]
        assert found == [(3, "h3", 9092, "r3")]

    run(scenario)


@pytest.mark.parametrize("ask", [produce, fetch])
def test_a_partition_without_a_leader_is_answered_with_leader_minus_1_and_no_endpoint(ask: Ask) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.elect(-1)

        answer, response = await ask(cluster, before_the_move())

        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, 1)
        assert response.node_endpoints == []

    run(scenario)


def test_the_current_leader_of_a_partition_without_a_replica_here_is_that_of_the_metadata_cache() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        manager = cluster.brokers[1]

        assert current_leader(manager, before_the_move(), P0) == CurrentLeader(1, 0)  # type: ignore[arg-type]
        assert current_leader(manager, before_the_move(), TopicPartition("nowhere", 0)) is None

    run(scenario)
