"""The APIs of transactional producers in every version: errors that older clients know, all partitions or none."""

from typing import Any

import pytest
from tests.unit.broker.cluster_state import cache, partition, request, update

from klamm.broker.handlers.producer_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    LIST_TRANSACTIONS,
    ProducerTransactions,
)
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.admin import DescribedTransaction, ListedTransaction, ListedTransactions
from klamm.coordinator.transactions.states import ONGOING
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire import messages as m
from klamm.wire.api import ApiKey

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FENCED = ErrorCode.PRODUCER_FENCED


class Coordinator:
    """Answers with `error`, and remembers what it was asked."""

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.error = error
        self.asked: list[Any] = []

    async def add_partitions(self, *asked: Any) -> ErrorCode:
        self.asked.append(asked)
        return self.error

    def verify_partitions(self, *asked: Any) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("verify", *asked))
        return dict.fromkeys(asked[2], self.error)

    async def end_transaction(self, *asked: Any, is_commit: bool) -> ErrorCode:
        self.asked.append((*asked, is_commit))
        return self.error

    def describe_transaction(self, name: str) -> DescribedTransaction:
        if self.error:
            return DescribedTransaction(self.error, name)
        return DescribedTransaction(ErrorCode.NONE, name, "Ongoing", 60_000, 5, 7, 2, frozenset((P1, P0)))

    async def list_transactions(self, producer_ids: Any, states: Any, duration_ms: int) -> ListedTransactions:
        self.asked.append((set(producer_ids), list(states), duration_ms))
        return ListedTransactions(self.error, ("Nonsense",), (ListedTransaction("t", 7, ONGOING),))


class Groups:
    def partition_for(self, group_id: str) -> int:
        return {"g": 4}[group_id]


def handlers(coordinator: Coordinator) -> ProducerTransactions:
    known = cache(update({"orders": [partition(0, 1), partition(1, 1)]}))
    return ProducerTransactions(coordinator, Groups(), known)  # type: ignore[arg-type]


async def add(coordinator: Coordinator, version: int, *numbers: int, verify_only: bool = False) -> dict[int, int]:
    """Partition -> error."""
    topics = [m.AddPartitionsToTxnTopic("orders", numbers)]
    if version >= 4:
        asked = m.AddPartitionsToTxnRequest([m.AddPartitionsToTxnTransaction("t", 7, 2, verify_only, topics)])
    else:
        asked = m.AddPartitionsToTxnRequest((), "t", 7, 2, topics)  # type: ignore[arg-type]
    sent = m.AddPartitionsToTxnRequest.decode(asked.encode(version), version)
    response = await handlers(coordinator).add_partitions(request(ApiKey.ADD_PARTITIONS_TO_TXN, version), sent)
    read = m.AddPartitionsToTxnResponse.decode(response.encode(version), version)
    if version >= 4:
        [result] = read.results_by_transaction
        assert result.transactional_id == "t"
        topic_results = result.topic_results
    else:
        topic_results = read.results_by_topic_v3_and_below
    return {p.partition_index: p.partition_error_code for t in topic_results for p in t.results_by_partition}


ADD_VERSIONS = range(ADD_PARTITIONS_TO_TXN.min_version, ADD_PARTITIONS_TO_TXN.max_version + 1)


@pytest.mark.parametrize("version", ADD_VERSIONS)
async def test_add_partitions_to_txn_adds_all_partitions_of_a_request(version: int) -> None:
    coordinator = Coordinator()
    assert await add(coordinator, version, 0, 1) == {0: 0, 1: 0}
    assert coordinator.asked == [("t", ProducerIdAndEpoch(7, 2), frozenset((P0, P1)))]


@pytest.mark.parametrize("version", ADD_VERSIONS)
async def test_add_partitions_to_txn_with_an_unknown_partition_adds_no_partition(version: int) -> None:
    coordinator = Coordinator()
    expected = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await add(coordinator, version, 0, 9) == expected
    assert coordinator.asked == []


@pytest.mark.parametrize("version", ADD_VERSIONS)
async def test_old_versions_of_transaction_requests_get_invalid_producer_epoch_instead_of_producer_fenced(
    version: int,
) -> None:
    expected = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add(Coordinator(FENCED), version, 0) == {0: expected}


@pytest.mark.parametrize("version", [4, 5])
async def test_add_partitions_to_txn_with_verify_only_adds_no_partition(version: int) -> None:
    coordinator = Coordinator(ErrorCode.TRANSACTION_ABORTABLE)
    assert await add(coordinator, version, 0, verify_only=True) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    assert coordinator.asked == [("verify", "t", ProducerIdAndEpoch(7, 2), [P0])]


@pytest.mark.parametrize("version", range(ADD_OFFSETS_TO_TXN.max_version + 1))
async def test_add_offsets_to_txn_adds_the_groups_consumer_offsets_partition(version: int) -> None:
    coordinator = Coordinator(FENCED)
    message = m.AddOffsetsToTxnRequest("t", 7, 2, "g")

    response = await handlers(coordinator).add_offsets(request(ApiKey.ADD_OFFSETS_TO_TXN, version), message)

    response.encode(version)
    assert response.error_code == (FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)
    offsets = frozenset((TopicPartition("__consumer_offsets", 4),))
    assert coordinator.asked == [("t", ProducerIdAndEpoch(7, 2), offsets)]


@pytest.mark.parametrize("version", range(END_TXN.max_version + 1))
async def test_end_txn_is_answered_by_the_transaction_coordinator(version: int) -> None:
    coordinator = Coordinator(FENCED)

    response = await handlers(coordinator).end(request(ApiKey.END_TXN, version), m.EndTxnRequest("t", 7, 2, True))

    response.encode(version)
    assert response.error_code == (FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert coordinator.asked == [("t", ProducerIdAndEpoch(7, 2), True)]


def test_describe_transactions_returns_the_partitions_grouped_by_topic() -> None:
    message = m.DescribeTransactionsRequest(("t",))
    response = handlers(Coordinator()).describe(request(ApiKey.DESCRIBE_TRANSACTIONS, 0), message)
    [found] = m.DescribeTransactionsResponse.decode(response.encode(0), 0).transaction_states
    assert (found.transactional_id, found.transaction_state, found.producer_id) == ("t", "Ongoing", 7)
    assert [(t.topic, t.partitions) for t in found.topics] == [("orders", (0, 1))]


@pytest.mark.parametrize("version", range(LIST_TRANSACTIONS.max_version + 1))
async def test_list_transactions_version_0_has_no_duration_filter(version: int) -> None:
    coordinator = Coordinator()
    message = m.ListTransactionsRequest(("Ongoing",), (7,), 500)
    response = await handlers(coordinator).list(request(ApiKey.LIST_TRANSACTIONS, version), message)
    read = m.ListTransactionsResponse.decode(response.encode(version), version)
    assert read.unknown_state_filters == ("Nonsense",)
    assert [(t.transactional_id, t.transaction_state) for t in read.transaction_states] == [("t", "Ongoing")]
    assert coordinator.asked == [({7}, ["Ongoing"], 500 if version else -1)]
