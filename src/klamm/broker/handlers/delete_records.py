"""DeleteRecords: delete a partition's records before an offset. Source: KafkaApis.handleDeleteRecordsRequest (3.9)."""

from collections.abc import Iterator, Mapping
from typing import Final

from klamm.broker.by_topic import group_by_topic
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
        slices = request.slices
        offsets = await slices.dict_of(
            (TopicPartition(topic.name, partition.partition_index), partition.offset)
            for topic in message.topics
            for partition in topic.partitions
        )
        possible: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, DeletionResult] = {}
        await slices.run(self._sort_out(offsets, possible, refused))
        results = await self._replicas.delete_records(possible, message.timeout_ms) | refused
        topics = await group_by_topic(
            (
                (tp.topic, DeleteRecordsPartitionResult(tp.partition, results[tp].low_watermark, results[tp].error))
                for tp in offsets
            ),
            slices,
        )
        for done in (refused, results, offsets):
            await slices.clear(done)
        return DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name, partitions) for name, partitions in topics.items()]
        )

    def _sort_out(
        self,
        offsets: Mapping[TopicPartition, int],
        possible: dict[TopicPartition, int],
        refused: dict[TopicPartition, DeletionResult],
    ) -> Iterator[None]:
        """Put offsets that can be served into `possible`, errors into `refused`; pauses after each."""
        for topic_partition, offset in offsets.items():
            if error := self._refusal(topic_partition):
                refused[topic_partition] = DeletionResult(error)
            else:
                possible[topic_partition] = offset
            yield

    def _refusal(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error of a partition that cannot be served at all; NONE where its leader may be asked."""
        if not self._cache.contains(topic_partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_partition.topic in INTERNAL_TOPICS else ErrorCode.NONE
