"""LeaderAndIsr and StopReplica to broker 1, in one line each."""

from typing import Any

from tests.support.replica_cluster import P0, ReplicaCluster, leader_and_isr

from klamm.model.ids import TopicPartition
from klamm.wire.messages import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)


async def order(
    cluster: ReplicaCluster, leader: int, leader_epoch: int, *, partition_epoch: int = 1, **more: Any
) -> tuple[int, int | None]:
    """Send LeaderAndIsr to broker 1; the top-level error, and that of its partition or None."""
    isr, replicas = more.pop("isr", (1, 2, 3)), more.pop("replicas", (1, 2, 3))
    request = leader_and_isr(leader, isr, replicas, leader_epoch, partition_epoch, **more)
    response = await cluster.brokers[1].become_leader_or_follower(request, 7)
    errors = [p.error_code for t in response.topics for p in t.partition_errors]
    return response.error_code, errors[0] if errors else None


async def stop(
    cluster: ReplicaCluster, leader_epoch: int, *, deletes: bool, partition: TopicPartition = P0, **more: Any
) -> tuple[int, list[int]]:
    """Send StopReplica to broker 1; the top-level error, and those of its partitions."""
    state = StopReplicaPartitionState(partition.partition, leader_epoch, deletes)
    request = StopReplicaRequest(
        controller_epoch=more.pop("controller_epoch", 1),
        topic_states=[StopReplicaTopicState(partition.topic, [state])],
        **more,
    )
    response = await cluster.brokers[1].stop_replicas(request, 4)
    return response.error_code, [p.error_code for p in response.partition_errors]
