"""ListOffsets: the offset of a log's start, end, or a timestamp. Source: KafkaApis.handleListOffsetRequest (3.9)."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import Isolation
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LIST_OFFSETS: Final = Offered(ApiKey.LIST_OFFSETS, 0, 9)
_EARLIEST: Final = -2
_FIRST_VERSION_OF: Final = {-3: 7, -4: 8, -5: 9}
"""Special timestamps and the version that brought them: newest timestamp, earliest local, latest tiered."""
_FIRST_WITH_LEADER_EPOCH: Final = 4
_FIRST_WITH_OFFSET_NOT_AVAILABLE: Final = 5


class ListOffsets:
    """Serves ListOffsets."""

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager, make_slices: Callable[[], Slices]) -> None:
        self._cache = cache
        self._replicas = replicas
        self._make_slices = make_slices

    async def handle(self, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
        """Answer ListOffsets: the offset for the timestamp of each partition.

        A partition named twice gets INVALID_REQUEST.
        """
        if request.version == 0:
            return self._list_segment_offsets(message)
        times = Counter((t.name, p.partition_index) for t in message.topics for p in t.partitions)
        twice = {key for key, count in times.items() if count > 1}
        topics = []
        slices = self._make_slices()
        try:
            for topic in message.topics:
                partitions = []
                for asked in topic.partitions:
                    await slices.checkpoint()
                    if (topic.name, asked.partition_index) in twice:
                        partitions.append(_refusal(asked, ErrorCode.INVALID_REQUEST))
                    else:
                        topic_partition = TopicPartition(topic.name, asked.partition_index)
                        partitions.append(await self._look_up_offset(request, message, topic_partition, asked))
                topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        finally:
            slices.close()
        return ListOffsetsResponse(topics=topics)

    def _list_segment_offsets(self, message: ListOffsetsRequest) -> ListOffsetsResponse:
        """Answer version 0 of ListOffsets: the base offsets of several segments of each partition."""
        replica_id = BrokerId(message.replica_id)
        topics = []
        for topic in message.topics:
            partitions = []
            for asked in topic.partitions:
                topic_partition = TopicPartition(topic.name, asked.partition_index)
                error, offsets = self._replicas.segment_offsets_before(
                    topic_partition, asked.timestamp, asked.max_num_offsets, replica_id
                )
                partitions.append(ListOffsetsPartitionResponse(asked.partition_index, error, tuple(offsets)))
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponse(topics=topics)

    async def _look_up_offset(
        self,
        request: Request,
        message: ListOffsetsRequest,
        topic_partition: TopicPartition,
        asked: ListOffsetsPartition,
    ) -> ListOffsetsPartitionResponse:
        """Look up the offset for the timestamp of one partition, and return its response entry."""
        if asked.timestamp < _EARLIEST and request.version < _FIRST_VERSION_OF.get(asked.timestamp, 1 << 15):
            return _refusal(asked, ErrorCode.UNSUPPORTED_VERSION)
        found = await self._replicas.look_up_offset(
            topic_partition,
            asked.timestamp,
            replica_id=BrokerId(message.replica_id),
            isolation=Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED,
            current_leader_epoch=asked.current_leader_epoch,
        )
        if found.error:
            error = found.error
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            return _refusal(asked, error)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if request.version >= _FIRST_WITH_LEADER_EPOCH else -1,
        )


def _refusal(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    """The result of a partition with an error."""
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
