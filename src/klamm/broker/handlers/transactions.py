"""Transactions on partition leaders: active producers, and the markers that end transactions.

Markers come from a transaction coordinator on another broker, or from an operator (kafka-transactions.sh abort).
Source: KafkaApis.handleWriteTxnMarkersRequest, handleDescribeProducersRequest (3.9).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.log.producers import Origin, Producer
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.ports import PartitionRefused
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.clock import Clock
from klamm.runtime.disk import Buffer
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from klamm.wire.records import ControlType, EndMarker, build_end_marker

WRITE_TXN_MARKERS: Final = Offered(ApiKey.WRITE_TXN_MARKERS, 0, 1)
DESCRIBE_PRODUCERS: Final = Offered(ApiKey.DESCRIBE_PRODUCERS, 0, 0)
_ALL_REPLICAS: Final = -1

Errors = dict[TopicPartition, ErrorCode]
OnOffsetsMarked = Callable[[int, Sequence[int], bool], None]
"""(producer id, partitions, whether the transaction commits)."""


def _ignore(producer_id: int, partitions: Sequence[int], is_commit: bool) -> None:
    """Do nothing: the default where nobody is notified of transaction markers in `__consumer_offsets`."""


class Transactions:
    """Serves WriteTxnMarkers and DescribeProducers; `timeout_ms` limits the replication of a marker."""

    def __init__(
        self, replicas: ReplicaManager, clock: Clock, timeout_ms: int, on_offsets_marked: OnOffsetsMarked = _ignore
    ) -> None:
        """`on_offsets_marked` hears of each marker in the topic that keeps the groups' offsets; it must not raise."""
        self._replicas = replicas
        self._on_offsets_marked = on_offsets_marked
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def write_markers(self, request: Request, message: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Answer WriteTxnMarkers: append each marker to its partitions, and wait until all in-sync replicas have it."""
        results = await asyncio.gather(*(self._append_marker(marker) for marker in message.markers))
        by_producer: dict[int, Errors] = {}
        for marker, errors in zip(message.markers, results, strict=True):
            by_producer.setdefault(marker.producer_id, {}).update(errors)
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(producer_id, _results_by_topic(errors))
                for producer_id, errors in by_producer.items()
            ]
        )

    async def _append_marker(self, marker: WritableTxnMarker) -> Errors:
        """Append the marker to the partitions that this broker hosts; returns the error of each partition."""
        partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        errors: Errors = {}
        for topic_partition in partitions:
            # a coordinator asks another broker then, as it does where the replica is not here at all
            hosted = self._replicas.partition(topic_partition)
            errors[topic_partition] = ErrorCode.NONE if hosted else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            # Kafka fails as it builds the marker: a log must not have one that ends nobody's transaction
            return {tp: error or ErrorCode.UNKNOWN_SERVER_ERROR for tp, error in errors.items()}
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        end = EndMarker(kind, marker.coordinator_epoch)
        batch = build_end_marker(end, marker.producer_id, marker.producer_epoch, self._clock.now_ms())
        hosted_here: dict[TopicPartition, Buffer] = {tp: batch for tp, error in errors.items() if not error}
        results = await self._replicas.append(_ALL_REPLICAS, self._timeout_ms, hosted_here, Origin.COORDINATOR)
        errors |= {topic_partition: result.error for topic_partition, result in results.items()}
        if ended := [tp.partition for tp, error in errors.items() if tp.topic == OFFSETS_TOPIC and not error]:
            self._on_offsets_marked(marker.producer_id, ended, kind is ControlType.COMMIT)
        return errors

    def describe_producers(self, request: Request, message: DescribeProducersRequest) -> DescribeProducersResponse:
        """Answer DescribeProducers: the active producers of each partition."""
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    topic.name,
                    [self._describe_partition(TopicPartition(topic.name, i)) for i in topic.partition_indexes],
                )
                for topic in message.topics
            ]
        )

    def _describe_partition(self, topic_partition: TopicPartition) -> PartitionResponse:
        """The active producers of one partition, or the error why they cannot be read."""
        try:
            producers = self._replicas.producers_of(topic_partition)
        except PartitionRefused as refusal:
            return PartitionResponse(topic_partition.partition, refusal.code, str(refusal))
        return PartitionResponse(
            topic_partition.partition,
            ErrorCode.NONE,
            active_producers=[_producer_state(producer) for producer in producers],
        )


def _producer_state(producer: Producer) -> ProducerState:
    """Return the producer in the form of the response; a transaction start of -1 means none is open."""
    start = producer.transaction_start
    return ProducerState(
        producer.producer_id,
        producer.epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        -1 if start is None else start,
    )


def _results_by_topic(errors: Errors) -> list[WritableTxnMarkerTopicResult]:
    """Return the error of each partition, grouped by topic, in the form of the response."""
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for topic_partition, error in errors.items():
        result = WritableTxnMarkerPartitionResult(topic_partition.partition, error)
        topics.setdefault(topic_partition.topic, []).append(result)
    return [WritableTxnMarkerTopicResult(name, results) for name, results in topics.items()]
