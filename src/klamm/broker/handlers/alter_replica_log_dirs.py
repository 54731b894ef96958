"""AlterReplicaLogDirs: move replicas between the log directories of this broker.

Source: KafkaApis.handleAlterReplicaLogDirsRequest (3.9).
"""

from typing import Final

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
        directories = {
            TopicPartition(topic.name, partition): directory.path
            for directory in message.dirs
            for topic in directory.topics
            for partition in topic.partitions
        }
        topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for (topic_name, number), error in (await self._replicas.alter_log_dirs(directories)).items():
            topics.setdefault(topic_name, []).append(AlterReplicaLogDirPartitionResult(number, error))
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in topics.items()]
        )
