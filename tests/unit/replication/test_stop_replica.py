"""Each row of the StopReplica table."""

import asyncio
import uuid

import pytest
from tests.support.memory_log import MemoryLog
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.control_requests import order, stop
from tests.unit.replication.runs import Run

from klamm.log.errors import StorageFailed
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.leadership import LeadershipChange
from klamm.wire.messages import (
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)

P1 = TopicPartition("orders", 1)
NONE = ErrorCode.NONE


def test_a_stop_replica_with_an_older_broker_epoch_is_rejected(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert await stop(cluster, 4, deletes=True, broker_epoch=99) == (ErrorCode.STALE_BROKER_EPOCH, [])
        assert cluster.partition(1).is_leader

    run(scenario)


def test_a_stop_replica_of_an_older_controller_epoch_is_rejected(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4, controller_epoch=3)
        stale = ErrorCode.STALE_CONTROLLER_EPOCH
        assert await stop(cluster, 4, deletes=True, controller_epoch=2) == (stale, [])

    run(scenario)


def test_a_stop_replica_for_an_offline_partition_gets_kafka_storage_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.brokers[1].set_offline([P0])
        assert await stop(cluster, 4, deletes=True) == (NONE, [ErrorCode.KAFKA_STORAGE_ERROR])

    run(scenario)


@pytest.mark.parametrize(("epoch", "stops"), [(-2, True), (-1, True), (3, False), (4, True), (5, True)])
def test_a_stop_replica_with_an_older_leader_epoch_gets_fenced_leader_epoch(run: Run, epoch: int, stops: bool) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        error = NONE if stops else ErrorCode.FENCED_LEADER_EPOCH
        assert await stop(cluster, epoch, deletes=True) == (NONE, [error])
        assert (cluster.brokers[1].partition(P0) is None) is stops
        assert (P0 not in cluster.logs[1].logs) is stops

    run(scenario)


def test_a_stop_replica_without_delete_keeps_the_log_and_stops_fetching(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 2, 4)
        assert cluster.brokers[1].fetchers.leader_of(P0) == 2
        assert await stop(cluster, 4, deletes=False) == (NONE, [NONE])
        assert cluster.brokers[1].fetchers.leader_of(P0) is None
        assert len(cluster.brokers[1].fetchers) == 0
        assert not cluster.partition(1).is_leader
        assert P0 in cluster.logs[1].logs

    run(scenario)


@pytest.mark.parametrize("deletes", [True, False])
def test_a_stop_replica_for_a_partition_not_hosted_deletes_only_a_leftover_log(run: Run, deletes: bool) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.logs[1].logs[P1] = MemoryLog()
        assert await stop(cluster, 4, deletes=deletes, partition=P1) == (NONE, [NONE])
        assert (P1 in cluster.logs[1].logs) is not deletes

    run(scenario)


def test_a_storage_error_during_replica_deletion_takes_the_partition_offline(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        cluster.logs[1].refused[P0] = StorageFailed("I/O error")
        assert await stop(cluster, 4, deletes=True) == (NONE, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert cluster.brokers[1].offline_partitions == {P0}

    run(scenario)


def test_a_replica_deletion_is_fsynced_before_stop_replica_is_answered(run: Run) -> None:
    """The controller forgets a deleted replica: a power loss must not bring its log back."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert await stop(cluster, 4, deletes=False) == (NONE, [NONE])
        assert cluster.logs[1].synced == []
        assert await stop(cluster, 4, deletes=True) == (NONE, [NONE])
        assert cluster.logs[1].synced == [P0]

    run(scenario)


def test_a_replica_deletion_that_cannot_be_fsynced_takes_the_partition_offline(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        changes: list[LeadershipChange] = []
        cluster.brokers[1].on_leadership_change = changes.append
        await order(cluster, 1, 4)
        cluster.logs[1].fails_to_sync = True
        assert await stop(cluster, 4, deletes=True) == (NONE, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert cluster.brokers[1].offline_partitions == {P0}
        assert changes[-1].deleted == ()

    run(scenario)


def test_a_waiting_produce_gets_not_leader_or_follower_when_the_partition_is_deleted(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        produced = asyncio.create_task(cluster.produce(1))
        await asyncio.sleep(1)
        await stop(cluster, -2, deletes=True)
        assert await produced is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.metadata.topics.clear()
        assert await cluster.produce(1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_deleted_partition_can_be_created_again_with_an_older_leader_epoch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        await stop(cluster, -2, deletes=True)
        assert await order(cluster, 1, 0, topic_id=uuid.UUID(int=9)) == (NONE, NONE)

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_stop_replica_below_version_3_has_one_delete_flag_for_all_partitions(run: Run, version: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        request = StopReplicaRequest(controller_epoch=1, delete_partitions=True)
        if version == 0:
            request.ungrouped_partitions = [StopReplicaPartitionV0("orders", 0)]
        else:
            request.topics = [StopReplicaTopicV1("orders", (0,))]
        response = await cluster.brokers[1].stop_replicas(request, version)
        assert [(p.topic_name, p.error_code) for p in response.partition_errors] == [("orders", 0)]
        assert cluster.logs[1].deleted == [P0]

    run(scenario)
