"""AlterReplicaLogDirs: move replicas between the log directories of this broker.

Source: KafkaApis.handleAlterReplicaLogDirsRequest (3.9).
"""

from typing import Final

from klamm.broker.by_topic import group_by_topic
from klamm.broker.dispatch import Offered, Request
from klamm.model.ids import TopicPartition
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

ALTER_REPLICA_LOG_DIRS: Final = Offered(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2)


class AlterReplicaLogDirs:
    """Serves AlterReplicaLogDirs."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def handle(self, request: Request, message: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        """Answer AlterReplicaLogDirs: begin to move the replicas to these log directories.

        For a replica that is listed twice the last log directory counts.
        """
        slices = request.slices
        directories = await slices.dict_of(
            (TopicPartition(topic.name, partition), directory.path)
            for directory in message.dirs
            for topic in directory.topics
            for partition in topic.partitions
        )
        errors = await self._replicas.alter_log_dirs(directories)
        topics = await group_by_topic(
            ((tp.topic, AlterReplicaLogDirPartitionResult(tp.partition, error)) for tp, error in errors.items()), slices
        )
        await slices.clear(directories)
        await slices.clear(errors)
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in topics.items()]
        )
