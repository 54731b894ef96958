"""DeleteRecords: delete a partition's records before an offset. Source: KafkaApis.handleDeleteRecordsRequest (3.9)."""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_names import INTERNAL_TOPICS
from klamm.replication.record_deletion import DeletionResult
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

DELETE_RECORDS: Final = Offered(ApiKey.DELETE_RECORDS, 0, 2)


class DeleteRecords:
    """Serves DeleteRecords; the partition's leader does."""

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager) -> None:
        self._cache = cache
        self._replicas = replicas

    async def handle(self, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Answer DeleteRecords: raise log start offsets, and wait for the live replicas.

        For a partition that is listed twice the last offset counts.
        """
        offsets = {
            TopicPartition(topic.name, partition.partition_index): partition.offset
            for topic in message.topics
            for partition in topic.partitions
        }
        refused = {tp: DeletionResult(error) for tp in offsets if (error := self._refusal(tp))}
        possible = {tp: offset for tp, offset in offsets.items() if tp not in refused}
        results = {**await self._replicas.delete_records(possible, message.timeout_ms), **refused}
        topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
        for topic, number in offsets:
            error, low_watermark = results[TopicPartition(topic, number)]
            topics.setdefault(topic, []).append(DeleteRecordsPartitionResult(number, low_watermark, error))
        return DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name, partitions) for name, partitions in topics.items()]
        )

    def _refusal(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error of a partition that cannot be served at all; NONE where its leader may be asked."""
        if not self._cache.contains(topic_partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_partition.topic in INTERNAL_TOPICS else ErrorCode.NONE
