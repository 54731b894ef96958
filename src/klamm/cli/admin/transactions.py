"""Read transactions from their coordinators; abort one in a partition. Source: TransactionsCommand.java (3.9)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import ask_every_broker
from klamm.cli.admin.refusals import Refusal
from klamm.client.errors import code_name
from klamm.client.routing import CoordinatorType
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_FILTERS_DURATION: Final = 1


class ListedTransaction(NamedTuple):
    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class Transaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    """None while no transaction has begun."""
    partitions: tuple[TopicPartition, ...]


async def list_transactions(
    admin: Admin, states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = -1
) -> tuple[list[ListedTransaction], list[Refusal]]:
    """The transactional ids of all coordinators, sorted, and the errors of brokers that could not list theirs.

    `duration_ms`: only those whose transaction began earlier than that.
    """

    def request(version: int) -> ListTransactionsRequest:
        """Build the ListTransactions request for this version. Raises CannotAsk where it cannot filter by duration."""
        if version < _FILTERS_DURATION and duration_ms >= 0:
            raise CannotAsk("this broker cannot filter by duration. Omit --duration-filter, or upgrade the broker.")
        return ListTransactionsRequest(tuple(states), tuple(producer_ids), duration_ms)

    answers, refused = await ask_every_broker(admin, ApiKey.LIST_TRANSACTIONS, request, "transactions")
    found = [
        ListedTransaction(t.transactional_id, broker, t.producer_id, t.transaction_state)
        for broker, answer in answers.items()
        for t in answer.transaction_states
    ]
    for broker, answer in answers.items():
        refused += [_unknown_state(broker, state) for state in answer.unknown_state_filters]
    return sorted(found), refused


def _unknown_state(broker: BrokerId, state: str) -> Refusal:
    """Return the refusal of a broker that does not know the transaction state."""
    problem = f"there is no transaction state {state!r}. Give for example Ongoing."
    return Refusal(f"broker {broker}", ErrorCode.INVALID_REQUEST, problem)


async def describe_transaction(admin: Admin, transactional_id: str) -> Transaction:
    """Ask the coordinator of the transactional id and return its transaction. Raises CannotAsk."""
    found = await find_transaction(admin, transactional_id)
    if found is None:
        raise CannotAsk(
            f"There is no transactional id {transactional_id} ({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name}). "
            "`klamm transactions list` shows those that exist."
        )
    return found


async def find_transaction(admin: Admin, transactional_id: str) -> Transaction | None:
    """As `describe_transaction`; None for a transactional id that its coordinator does not know. Raises CannotAsk."""
    request = Request(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest((transactional_id,)))
    answer = await admin.ask_coordinator(
        transactional_id, request, lambda a: a.transaction_states[0].error_code, CoordinatorType.TRANSACTION
    )
    found = answer.transaction_states[0]
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if found.error_code:
        raise CannotAsk(
            f"Cannot describe transactional id {transactional_id}: {code_name(found.error_code)}. Check its name."
        )
    return Transaction(
        transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(t.topic, number) for t in found.topics for number in t.partitions)),
    )


async def abort_transaction(admin: Admin, partition: TopicPartition, start_offset: int) -> Refusal | None:
    """Write an abort marker for the transaction that is open from this offset. Raises CannotAsk."""
    producer = await _producer_from(admin, partition, start_offset)
    return await abort_producer(admin, partition, producer)


async def abort_producer(admin: Admin, partition: TopicPartition, producer: ProducerState) -> Refusal | None:
    """Write an abort marker for a producer's open transaction in a partition. Raises CannotAsk."""
    marker = WritableTxnMarker(
        producer.producer_id,
        producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(partition.topic, (partition.partition,))],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    request = Request(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]))
    answer = await admin.ask_leader(partition, request, _marker_error)
    error = _marker_error(answer)
    return (
        Refusal(
            str(partition),
            error,
            f"the leader refused the abort marker for producer {producer.producer_id}, whose transaction stays open",
        )
        if error
        else None
    )


def _marker_error(answer: Any) -> int:
    """Return the error code of the only partition of a WriteTxnMarkers response."""
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


async def _producer_from(admin: Admin, partition: TopicPartition, start_offset: int) -> ProducerState:
    """The producer whose transaction is open from this offset. Raises CannotAsk."""
    message = DescribeProducersRequest([TopicRequest(partition.topic, (partition.partition,))])
    answer = await admin.ask_leader(partition, Request(ApiKey.DESCRIBE_PRODUCERS, message), _described_error)
    described = _described(answer)
    if described.error_code:
        raise CannotAsk(
            f"Cannot describe the producers of {partition}: {code_name(described.error_code)}. Check topic and "
            "partition."
        )
    for producer in described.active_producers:
        if producer.current_txn_start_offset == start_offset >= 0:
            return producer
    starts = sorted(p.current_txn_start_offset for p in described.active_producers if p.current_txn_start_offset >= 0)
    listed = f"they are open from {', '.join(map(str, starts))}" if starts else "none is open"
    raise CannotAsk(f"{partition}: no transaction is open from offset {start_offset}; {listed}.")


def _described(answer: Any) -> PartitionResponse:
    """Return the only partition of a DescribeProducers response."""
    partition: PartitionResponse = answer.topics[0].partitions[0]
    return partition


def _described_error(answer: Any) -> int:
    """Return the error code of the only partition of a DescribeProducers response."""
    return _described(answer).error_code
