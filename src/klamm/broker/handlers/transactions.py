"""Transactions on replicas: active producers, and the markers that end transactions.

Markers come from a transaction coordinator on another broker, or from an operator (kafka-transactions.sh abort).
Source: KafkaApis.handleWriteTxnMarkersRequest, handleDescribeProducersRequest (3.9).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.topic_names import name_error
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.log.producers import Origin, Producer
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.ports import PartitionRefused
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.clock import Clock
from klamm.runtime.disk import Buffer
from klamm.runtime.eager import Rest, first_step
from klamm.runtime.time_slices import Slices
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
    """Do nothing: the default without a listener for transaction markers in `__consumer_offsets`."""


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
        slices = request.slices
        # all are appended before the first is awaited, so that they are replicated together
        begun = await slices.list_of(self._begin_marker(marker, slices) for marker in message.markers)
        by_producer: dict[int, Errors] = {}
        async for marker, appended in slices.each(zip(message.markers, begun, strict=True)):
            errors = await appended if isinstance(appended, asyncio.Future | Rest) else appended
            by_producer.setdefault(marker.producer_id, {}).update(errors)
        results: list[WritableTxnMarkerResult] = []
        await slices.run(_describe_results(by_producer, results))
        await slices.clear(begun)
        await slices.clear(by_producer)
        return WriteTxnMarkersResponse(results)

    def _begin_marker(
        self, marker: WritableTxnMarker, slices: Slices
    ) -> "Errors | Rest[Errors] | asyncio.Future[Errors]":
        """Append the marker at once; a task waits for the replication of one for committed offsets, and reports it.

        It does not wait for the other markers of the request: their replicas may be slow, and in the meantime the next
        coordinator may end this transaction, and the producer commit the offsets of another one.
        """
        appended = first_step(self._append_marker(marker, slices))
        if isinstance(appended, Rest) and any(topic.name == OFFSETS_TOPIC for topic in marker.topics):
            return asyncio.ensure_future(appended)
        return appended

    async def _append_marker(self, marker: WritableTxnMarker, slices: Slices) -> Errors:
        """Append the marker to the partitions that this broker hosts; returns the error of each partition."""
        # of a replica that is not here a coordinator asks another broker then
        errors = await slices.dict_of(
            (tp, ErrorCode.NONE if self._replicas.partition(tp) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for topic in marker.topics
            for tp in map(partial(TopicPartition, topic.name), topic.partition_indexes)
        )
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            # Kafka fails as it builds the marker: a log must not have one that ends nobody's transaction
            return await slices.dict_of((tp, error or ErrorCode.UNKNOWN_SERVER_ERROR) for tp, error in errors.items())
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        end = EndMarker(kind, marker.coordinator_epoch)
        batch = build_end_marker(end, marker.producer_id, marker.producer_epoch, self._clock.now_ms())
        hosted = await slices.list_of(None if error else (tp, batch) for tp, error in errors.items())
        hosted_here: dict[TopicPartition, Buffer] = dict(filter(None, hosted))
        results = await self._replicas.append(_ALL_REPLICAS, self._timeout_ms, hosted_here, Origin.COORDINATOR)
        errors |= await slices.dict_of((topic_partition, result.error) for topic_partition, result in results.items())
        if ended := [tp.partition for tp in results if tp.topic == OFFSETS_TOPIC and not errors[tp]]:
            self._on_offsets_marked(marker.producer_id, ended, kind is ControlType.COMMIT)
        return errors

    async def describe_producers(
        self, request: Request, message: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Answer DescribeProducers: the active producers of each partition, as this broker's replica knows them.

        A follower answers, too: operators look for hanging transactions on each broker.
        """
        slices = request.slices
        topics: list[TopicResponse] = []
        for topic in message.topics:
            described = TopicResponse(topic.name)
            topics.append(described)
            problem = name_error(topic.name)
            for number in topic.partition_indexes:
                await slices.checkpoint()
                if problem is None:
                    partition = await self._describe_partition(TopicPartition(topic.name, number), slices)
                else:
                    partition = PartitionResponse(number, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
                described.partitions.append(partition)
        return DescribeProducersResponse(topics=topics)

    async def _describe_partition(self, topic_partition: TopicPartition, slices: Slices) -> PartitionResponse:
        """The active producers of one partition, or the error why they cannot be read."""
        try:
            producers = self._replicas.producers_of(topic_partition)
        except PartitionRefused as refusal:
            return PartitionResponse(topic_partition.partition, refusal.code, str(refusal))
        return PartitionResponse(
            topic_partition.partition,
            ErrorCode.NONE,
            active_producers=await slices.list_of(map(_producer_state, producers)),
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


def _describe_results(by_producer: dict[int, Errors], results: list[WritableTxnMarkerResult]) -> Iterator[None]:
    """Put the errors of each producer's partitions, grouped by topic, into `results`; pauses after each partition."""
    for producer_id, errors in by_producer.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for topic_partition, error in errors.items():
            topic = topics.get(topic_partition.topic)
            if topic is None:
                topic = topics[topic_partition.topic] = WritableTxnMarkerTopicResult(topic_partition.topic)
            topic.partitions.append(WritableTxnMarkerPartitionResult(topic_partition.partition, error))
            yield
        results.append(WritableTxnMarkerResult(producer_id, list(topics.values())))
        yield
