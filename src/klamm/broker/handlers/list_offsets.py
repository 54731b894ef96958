"""ListOffsets: the offset of a log's start, end, or a timestamp. Source: KafkaApis.handleListOffsetRequest (3.9)."""

from collections.abc import Iterator
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

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager) -> None:
        self._cache = cache
        self._replicas = replicas

    async def handle(self, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
        """Answer ListOffsets: the offset for the timestamp of each partition.

        A partition named twice gets INVALID_REQUEST.
        """
        if request.version == 0:
            return await self._list_segment_offsets(message, request.slices)
        slices = request.slices
        seen: dict[tuple[str, int], None] = {}
        twice: set[tuple[str, int]] = set()
        await slices.run(_find_repeated(message, seen, twice))
        await slices.clear(seen)
        topics = []
        for topic in message.topics:
            partitions = []
            for requested in topic.partitions:
                await slices.checkpoint()
                if (topic.name, requested.partition_index) in twice:
                    partitions.append(_refusal(requested, ErrorCode.INVALID_REQUEST))
                else:
                    topic_partition = TopicPartition(topic.name, requested.partition_index)
                    partitions.append(await self._look_up_offset(request, message, topic_partition, requested))
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponse(topics=topics)

    async def _list_segment_offsets(self, message: ListOffsetsRequest, slices: Slices) -> ListOffsetsResponse:
        """Answer version 0 of ListOffsets: the base offsets of several segments of each partition."""
        replica_id = BrokerId(message.replica_id)
        topics = []
        for topic in message.topics:
            partitions = []
            for requested in topic.partitions:
                await slices.checkpoint()
                if requested.timestamp < _EARLIEST:
                    partitions.append(_refusal(requested, ErrorCode.UNSUPPORTED_VERSION))
                    continue
                topic_partition = TopicPartition(topic.name, requested.partition_index)
                error, offsets = self._replicas.segment_offsets_before(
                    topic_partition, requested.timestamp, requested.max_num_offsets, replica_id
                )
                partitions.append(ListOffsetsPartitionResponse(requested.partition_index, error, tuple(offsets)))
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponse(topics=topics)

    async def _look_up_offset(
        self,
        request: Request,
        message: ListOffsetsRequest,
        topic_partition: TopicPartition,
        requested: ListOffsetsPartition,
    ) -> ListOffsetsPartitionResponse:
        """Look up the offset for the timestamp of one partition, and return its response entry."""
        if requested.timestamp < _EARLIEST and request.version < _FIRST_VERSION_OF.get(requested.timestamp, 1 << 15):
            return _refusal(requested, ErrorCode.UNSUPPORTED_VERSION)
        found = await self._replicas.look_up_offset(
            topic_partition,
            requested.timestamp,
            replica_id=BrokerId(message.replica_id),
            isolation=Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED,
            current_leader_epoch=requested.current_leader_epoch,
        )
        if found.error:
            error = found.error
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            return _refusal(requested, error)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if request.version >= _FIRST_WITH_LEADER_EPOCH else -1,
        )


def _find_repeated(
    message: ListOffsetsRequest, seen: dict[tuple[str, int], None], twice: set[tuple[str, int]]
) -> Iterator[None]:
    """Put the partitions of the request into `seen`, and those named more than once into `twice`; pauses after each."""
    for topic in message.topics:
        for requested in topic.partitions:
            key = (topic.name, requested.partition_index)
            if key in seen:
                twice.add(key)
            seen[key] = None
            yield


def _refusal(requested: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    """The result of a partition with an error."""
    return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=error)
