"""What tests of fetches say often: a broker that leads alone, records in it, a fetch in one line."""

import asyncio
from typing import Any

from tests.support.memory_log import batch
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, leader_and_isr

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchData, FetchParams, FetchPartition
from klamm.replication.fetch_sessions import FetchRequested

MAX = 1 << 20
SIZE = len(batch(filler=b"xxxx"))


def now() -> float:
    return asyncio.get_running_loop().time()


async def alone(cluster: ReplicaCluster, partitions: int = 1) -> None:
    """Broker 1 leads everything by itself."""
    for number in range(partitions):
        request = leader_and_isr(1, (1,), (1,), 0, 1, TopicPartition("orders", number))
        await cluster.brokers[1].become_leader_or_follower(request, 7)


async def put(cluster: ReplicaCluster, filler: bytes = b"xxxx", number: int = 0, count: int = 1) -> None:
    """Append a batch to a partition led by broker 1."""
    await cluster.brokers[1].append(1, 0, {TopicPartition("orders", number): batch(count, filler=filler)})


def at(offset: int, number: int = 0, max_bytes: int = MAX, topic: str | None = "orders", **more: Any) -> FetchPartition:
    """A fetch request for a partition at this offset."""
    return FetchPartition(topic, more.pop("topic_id", TOPIC_ID), number, offset, max_bytes, **more)


async def fetch(
    cluster: ReplicaCluster, *partitions: FetchPartition, broker: int = 1, **params: Any
) -> list[FetchData]:
    """Fetch partitions from a broker; the result of each."""
    replica_id = BrokerId(params.get("replica_id", -1))
    session = {k: params.pop(k) for k in ("session_id", "session_epoch", "forgotten") if k in params}
    requested = FetchRequested(partitions, replica_id=replica_id, **session)
    answer = await cluster.brokers[broker].fetch(FetchParams(**params), requested)
    return [data for _, data in answer.partitions]


async def one(cluster: ReplicaCluster, partition: FetchPartition, **params: Any) -> FetchData:
    """Fetch one partition; its result."""
    (data,) = await fetch(cluster, partition, **params)
    return data
