"""OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-320). Source: KafkaApis.scala (3.9)."""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.model.ids import TopicPartition
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

OFFSET_FOR_LEADER_EPOCH: Final = Offered(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4)


class LeaderEpochs:
    """Serves OffsetForLeaderEpoch."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(self, request: Request, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Answer OffsetForLeaderEpoch: the end offset of the requested leader epoch for each partition."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic.topic, [self._epoch_end(topic.topic, p) for p in topic.partitions])
                for topic in message.topics
            ]
        )

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> OffsetForLeaderEpochResponseEpochEndOffset:
        """Return the end offset of the epoch that was asked for, for one partition, or the error."""
        error, end = self._replicas.end_of_epoch(
            TopicPartition(topic, asked.partition), asked.leader_epoch, asked.current_leader_epoch
        )
        return OffsetForLeaderEpochResponseEpochEndOffset(
            error_code=error, partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset
        )
