"""Transactions as producers and tools ask for them; their coordinator answers. Source: KafkaApis.scala (3.9).

AddPartitionsToTxn from version 4 on comes from brokers, for many transactions at once.
"""

from collections.abc import Iterable
from typing import Final

from klamm.broker.by_topic import group_by_topic
from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.coordinator.transactions.admin import DescribedTransaction
from klamm.coordinator.transactions.coordinator import TransactionCoordinator
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)

ADD_PARTITIONS_TO_TXN: Final = Offered(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5)
ADD_OFFSETS_TO_TXN: Final = Offered(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4)
END_TXN: Final = Offered(ApiKey.END_TXN, 0, 4)
DESCRIBE_TRANSACTIONS: Final = Offered(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
LIST_TRANSACTIONS: Final = Offered(ApiKey.LIST_TRANSACTIONS, 0, 1)

_OF_BROKERS: Final = 4
_KNOWS_PRODUCER_FENCED: Final = 2
_NO_DURATION_FILTER: Final = -1

Errors = dict[TopicPartition, ErrorCode]


class ProducerTransactions:
    def __init__(self, coordinator: TransactionCoordinator, groups: GroupCoordinator, cache: MetadataCache) -> None:
        self._coordinator = coordinator
        self._groups = groups
        self._cache = cache

    # ---- producers

    async def add_partitions(self, request: Request, message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Answer AddPartitionsToTxn: add the partitions to each transaction.

        With `verify_only`, which brokers send, only check that they are in it.
        """
        slices = request.slices
        if request.version >= _OF_BROKERS:
            results = [
                AddPartitionsToTxnResult(
                    transaction.transactional_id, await _results_by_topic(await self._add(request, transaction), slices)
                )
                for transaction in message.transactions
            ]
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        transaction = AddPartitionsToTxnTransaction(
            message.v3_and_below_transactional_id,
            message.v3_and_below_producer_id,
            message.v3_and_below_producer_epoch,
            topics=message.v3_and_below_topics,
        )
        errors = await self._add(request, transaction)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results_by_topic(errors, slices))

    async def _add(self, request: Request, transaction: AddPartitionsToTxnTransaction) -> Errors:
        """Add the partitions to the transaction; returns the error of each. Where one is unknown, none is added."""
        slices = request.slices
        partitions = await slices.list_of(
            TopicPartition(t.name, number) for t in transaction.topics for number in t.partitions
        )
        errors = await slices.dict_of((p, self._error_beside_unknown(p)) for p in partitions)
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in errors.values():
            return errors
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            return self._coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
        error = await self._coordinator.add_partitions(transaction.transactional_id, producer, frozenset(partitions))
        return dict.fromkeys(partitions, _for_version(request, error))

    def _error_beside_unknown(self, partition: TopicPartition) -> ErrorCode:
        """The error of a partition where at least one of the request is unknown: this one, or another."""
        is_known = self._cache.contains(partition)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def add_offsets(self, request: Request, message: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        """Answer AddOffsetsToTxn: add the partition of `__consumer_offsets` that has the group to the transaction."""
        partition = TopicPartition(OFFSETS_TOPIC, self._groups.partition_for(message.group_id))
        producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
        error = await self._coordinator.add_partitions(message.transactional_id, producer, frozenset((partition,)))
        return AddOffsetsToTxnResponse(error_code=_for_version(request, error))

    async def end(self, request: Request, message: EndTxnRequest) -> EndTxnResponse:
        """Answer EndTxn: commit or abort the producer's transaction."""
        producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
        error = await self._coordinator.end_transaction(message.transactional_id, producer, is_commit=message.committed)
        return EndTxnResponse(error_code=_for_version(request, error))

    # ---- tools

    def describe(self, request: Request, message: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        """Answer DescribeTransactions: state, producer and partitions of each transactional id."""
        described = map(self._coordinator.describe_transaction, message.transactional_ids)
        return DescribeTransactionsResponse(transaction_states=[_described(found) for found in described])

    async def list(self, request: Request, message: ListTransactionsRequest) -> ListTransactionsResponse:
        """Answer ListTransactions: the transactions this broker coordinates that pass the filters."""
        duration_ms = message.duration_filter if request.version else _NO_DURATION_FILTER
        listed = await self._coordinator.list_transactions(
            frozenset(message.producer_id_filters), dict.fromkeys(message.state_filters), duration_ms
        )
        return ListTransactionsResponse(
            error_code=listed.error,
            unknown_state_filters=tuple(listed.unknown_states),
            transaction_states=await request.slices.list_of(
                ListTransactionsResponseTransactionState(*transaction) for transaction in listed.transactions
            ),
        )


def _for_version(request: Request, error: ErrorCode) -> ErrorCode:
    """Return the error code that the request's version knows: INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED."""
    is_unknown = error is ErrorCode.PRODUCER_FENCED and request.version < _KNOWS_PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


async def _results_by_topic(errors: Errors, slices: Slices) -> list[AddPartitionsToTxnTopicResult]:
    """Return the error of each partition, grouped by topic, in the form of the response."""
    results = ((p.topic, AddPartitionsToTxnPartitionResult(p.partition, error)) for p, error in errors.items())
    topics = await group_by_topic(results, slices)
    await slices.clear(errors)
    return [AddPartitionsToTxnTopicResult(topic, results) for topic, results in topics.items()]


def _described(found: DescribedTransaction) -> DescribeTransactionsResponseTransactionState:
    """Return the transaction in the form of the response."""
    return DescribeTransactionsResponseTransactionState(
        found.error,
        found.transactional_id,
        found.state,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.epoch,
        [DescribeTransactionsResponseTopicData(topic, numbers) for topic, numbers in _by_topic(found.partitions)],
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Return each topic with its sorted partition numbers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [(topic, tuple(numbers)) for topic, numbers in topics.items()]
