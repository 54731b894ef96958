"""How this broker asks others about transactions: markers to the leaders, verification to the coordinators.

Source: TransactionMarkerChannelManager.scala, AddPartitionsToTxnManager.scala (3.9).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.broker.metadata_cache import MetadataCache
from klamm.client.asynchronous import AsyncClient
from klamm.client.batching import RequestBatches
from klamm.client.versions import Request
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.topic_partitions import TRANSACTIONS_TOPIC, partition_for
from klamm.coordinator.transactions.ports import Marker, NoLeader
from klamm.coordinator.transactions.transaction import Partitions
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_FIRST_WITH_VERIFICATION: Final = 4

Errors = dict[TopicPartition, ErrorCode]
FindDeleted = Callable[[Partitions], Awaitable[Partitions]]


class TransactionMarkers:
    """Implements `MarkerChannel`."""

    def __init__(self, cache: MetadataCache, client: AsyncClient, deleted: FindDeleted) -> None:
        """`deleted` asks ZooKeeper which partitions are deleted; it raises KlammError where it cannot."""
        self._cache = cache
        self._client = client
        self._deleted = deleted
        self._batches: RequestBatches[Marker, WriteTxnMarkersResponse] = RequestBatches(
            self._send, lambda marker: marker.producer_id
        )

    def close(self) -> None:
        """Stop sending markers; requests that wait for an answer are cancelled."""
        self._batches.close()

    def leader_of(self, partition: TopicPartition) -> Address | NoLeader:
        """Return the address of the partition's leader, or why there is none."""
        state = self._cache.state(partition)
        if state is None:
            return NoLeader.UNKNOWN
        endpoint = self._cache.endpoint(BrokerId(state.leader))
        return NoLeader.UNAVAILABLE if endpoint is None else Address(*endpoint)

    async def deleted(self, partitions: Partitions) -> Partitions:
        """Those of the partitions that ZooKeeper says are deleted. Raises KlammError where it does not answer."""
        return await self._deleted(partitions)

    async def write_marker(self, leader: Address, marker: Marker) -> Mapping[TopicPartition, ErrorCode]:
        """Send the marker to the leader of its partitions; return an error code for each partition."""
        answer = await self._batches.ask(leader, marker)
        return {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for result in answer.markers
            if result.producer_id == marker.producer_id
            for topic in result.topics
            for partition in topic.partitions
        }

    async def _send(self, leader: Address, markers: Sequence[Marker]) -> WriteTxnMarkersResponse:
        """Send the markers to the broker in one WriteTxnMarkers request and return its response."""
        message = WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    marker.producer_id,
                    marker.epoch,
                    marker.is_commit,
                    [WritableTxnMarkerTopic(topic, numbers) for topic, numbers in _by_topic(marker.partitions)],
                    marker.coordinator_epoch,
                )
                for marker in markers
            ]
        )
        answer: WriteTxnMarkersResponse = await self._client.ask(leader, Request(ApiKey.WRITE_TXN_MARKERS, message))
        return answer


class _Question(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]


class VerificationChannel:
    """Asks the coordinator of a transactional id which partitions are in its open transaction."""

    def __init__(self, cache: MetadataCache, client: AsyncClient) -> None:
        self._cache = cache
        self._client = client
        self._batches: RequestBatches[_Question, AddPartitionsToTxnResponse] = RequestBatches(
            self._send, lambda question: question.transactional_id
        )

    def close(self) -> None:
        """Stop verifying; requests that wait for an answer are cancelled."""
        self._batches.close()

    async def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
    ) -> Errors:
        """The coordinator's error for each partition. Raises ConnectionLost, UnsupportedVersion."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = await self._batches.ask(coordinator, _Question(transactional_id, producer, tuple(partitions)))
        if answer.error_code:
            return dict.fromkeys(partitions, ErrorCode(answer.error_code))
        found = {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in answer.results_by_transaction
            if result.transactional_id == transactional_id
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        return {partition: found.get(partition, ErrorCode.INVALID_TXN_STATE) for partition in partitions}

    def _coordinator_of(self, transactional_id: str) -> Address | None:
        """Return the address of the broker that coordinates the transactional id; None where it is not known."""
        count = len(self._cache.partitions(TRANSACTIONS_TOPIC))
        if not count:
            return None
        state = self._cache.state(TopicPartition(TRANSACTIONS_TOPIC, partition_for(transactional_id, count)))
        endpoint = None if state is None else self._cache.endpoint(BrokerId(state.leader))
        return None if endpoint is None else Address(*endpoint)

    async def _send(self, coordinator: Address, questions: Sequence[_Question]) -> AddPartitionsToTxnResponse:
        """Ask the coordinator in one AddPartitionsToTxn request whether the partitions are in the transactions."""
        message = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id,
                    *producer,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in _by_topic(partitions)],
                )
                for transactional_id, producer, partitions in questions
            ]
        )
        request = Request(ApiKey.ADD_PARTITIONS_TO_TXN, message, oldest=_FIRST_WITH_VERIFICATION)
        answer: AddPartitionsToTxnResponse = await self._client.ask(coordinator, request)
        return answer


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Return each topic with its sorted partition numbers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [(topic, tuple(numbers)) for topic, numbers in topics.items()]
