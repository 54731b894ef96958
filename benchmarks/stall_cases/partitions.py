"""Cases with many partitions: deletion, Metadata."""

from collections.abc import Callable, Coroutine

from tests.support.replica_cluster import ReplicaCluster, leader_and_isr
from tests.unit.broker.cluster_state import broker, cache, partition, request, update

from klamm.broker.handlers.metadata import Metadata
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    MetadataRequest,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)

TOPIC = "orders"
PARTITIONS_OF_A_TOPIC = 10


async def create_partitions(cluster: ReplicaCluster, count: int) -> None:
    """Make the broker lead so many partitions, with logs."""
    for number in range(count):
        made = leader_and_isr(1, (1,), (1,), 0, 1, TopicPartition(TOPIC, number))
        answer = await cluster.brokers[1].become_leader_or_follower(made, 7)
        assert not answer.error_code


async def delete_partitions(cluster: ReplicaCluster, count: int) -> str:
    """One StopReplica deletes all of them, as the controller sends it."""
    states = [StopReplicaPartitionState(number, leader_epoch=-2, delete_partition=True) for number in range(count)]
    stop = StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[StopReplicaTopicState(TOPIC, states)]
    )
    answer = await cluster.brokers[1].stop_replicas(stop, 3)
    assert not answer.error_code
    failed = [e for e in answer.partition_errors if e.error_code]
    assert not failed, failed[:3]
    return f"{len(answer.partition_errors):,} partitions, {len(cluster.logs[1].logs)} logs left"


def describe(topics: int, partitions: int) -> Callable[[ReplicaCluster], Coroutine[None, None, str]]:
    """A case in which a client asks for all topics."""
    states = [partition(number, 1 + number % 3) for number in range(partitions)]
    filled = cache(update({f"topic-{n}": states for n in range(topics)}, [broker(n) for n in (1, 2, 3)], ids={}))

    async def run(cluster: ReplicaCluster) -> str:
        handler = Metadata(filled, "cluster", None, False, cluster.world.make_slices)  # type: ignore[arg-type]
        asked = request(ApiKey.METADATA, 12)
        answer = await handler.handle(asked, MetadataRequest(topics=None))
        size = sum(len(piece) for piece in answer.encode_pieces(12))
        return f"{topics * partitions:,} partitions, {size:,} bytes"

    return run
