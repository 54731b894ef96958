"""Transactions as the commands read and abort them."""

from typing import Any

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run
from tests.unit.cli.admin.test_groups import found, with_topic

from klamm.cli.admin import transactions
from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.transactions import ListedTransaction, Transaction
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire import messages as m
from klamm.wire.api import ApiKey

P0 = TopicPartition("t", 0)


def test_transactions_list_covers_all_coordinators_and_reports_those_that_are_loading() -> None:
    brokers = Brokers(1, 2)
    answers = iter(
        [
            m.ListTransactionsResponse(
                transaction_states=[m.ListTransactionsResponseTransactionState("b", 7, "Ongoing")]
            ),
            m.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ]
    )
    asked: list[Any] = []

    def answer(_version: int, message: m.ListTransactionsRequest) -> m.ListTransactionsResponse:
        asked.append((message.state_filters, message.producer_id_filters, message.duration_filter))
        return next(answers)

    brokers.answers[ApiKey.LIST_TRANSACTIONS] = answer

    listed, refused = run(brokers, lambda admin: transactions.list_transactions(admin, ["Ongoing"], [7], 50))

    assert listed == [ListedTransaction("b", BrokerId(1), 7, "Ongoing")]
    assert [r.code for r in refused] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert asked == [(("Ongoing",), (7,), 50)] * 2


def test_transactions_list_reports_a_broker_that_does_not_support_the_duration_filter() -> None:
    brokers = Brokers(1)
    brokers.newest[ApiKey.LIST_TRANSACTIONS] = 0
    brokers.answers[ApiKey.LIST_TRANSACTIONS] = lambda _v, _m: m.ListTransactionsResponse()

    assert run(brokers, transactions.list_transactions) == ([], [])
    listed, [refused] = run(brokers, lambda admin: transactions.list_transactions(admin, duration_ms=5))

    assert listed == []
    assert "--duration-filter" in str(refused)


def describing(brokers: Brokers, **fields: Any) -> None:
    brokers.answers[ApiKey.FIND_COORDINATOR] = found("b2", 2)
    state = m.DescribeTransactionsResponseTransactionState(transactional_id="copy", **fields)
    brokers.answers[ApiKey.DESCRIBE_TRANSACTIONS] = lambda _v, _m: m.DescribeTransactionsResponse(
        transaction_states=[state]
    )


def test_transactions_describe_queries_the_coordinator_of_the_transactional_id() -> None:
    brokers = Brokers(1, 2)
    describing(
        brokers,
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=5,
        producer_id=7,
        producer_epoch=2,
        topics=[m.DescribeTransactionsResponseTopicData("t", (1, 0))],
    )

    described = run(brokers, lambda admin: transactions.describe_transaction(admin, "copy"))

    assert described == Transaction("copy", "Ongoing", 7, 2, 60_000, 5, (P0, TopicPartition("t", 1)))
    assert brokers.asked[-1][:2] == ("b2", "DESCRIBE_TRANSACTIONS")


def test_transactions_describe_fails_for_an_unknown_transactional_id() -> None:
    brokers = Brokers(1, 2)
    describing(brokers, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    with pytest.raises(
        CannotAsk, match=r"There is no transactional id copy .TRANSACTIONAL_ID_NOT_FOUND.*klamm transactions list"
    ):
        run(brokers, lambda admin: transactions.describe_transaction(admin, "copy"))


def with_open_transaction(brokers: Brokers, marker_error: ErrorCode = ErrorCode.NONE) -> list[m.WritableTxnMarker]:
    """Producer 7 has a transaction open from offset 41; the markers that are written."""
    with_topic(brokers)
    producer = m.ProducerState(7, 2, 5, 0, 3, 41)
    partition = m.PartitionResponse(0, ErrorCode.NONE, active_producers=[producer])
    brokers.answers[ApiKey.DESCRIBE_PRODUCERS] = lambda _v, _m: m.DescribeProducersResponse(
        topics=[m.TopicResponse("t", [partition])]
    )
    written: list[m.WritableTxnMarker] = []

    def answer(_version: int, message: m.WriteTxnMarkersRequest) -> m.WriteTxnMarkersResponse:
        written.extend(message.markers)
        result = m.WritableTxnMarkerPartitionResult(0, marker_error)
        return m.WriteTxnMarkersResponse(
            [m.WritableTxnMarkerResult(7, [m.WritableTxnMarkerTopicResult("t", [result])])]
        )

    brokers.answers[ApiKey.WRITE_TXN_MARKERS] = answer
    return written


def test_transactions_abort_sends_the_epochs_of_the_producer_at_the_given_offset() -> None:
    brokers = Brokers(1)
    written = with_open_transaction(brokers)

    assert run(brokers, lambda admin: transactions.abort_transaction(admin, P0, 41)) is None

    [marker] = written
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 3)
    assert not marker.transaction_result
    assert [(t.name, t.partition_indexes) for t in marker.topics] == [("t", (0,))]


def test_transactions_abort_at_a_wrong_offset_fails_and_lists_the_open_transactions_offsets() -> None:
    brokers = Brokers(1)
    written = with_open_transaction(brokers)
    with pytest.raises(CannotAsk, match="no transaction is open from offset 40; they are open from 41"):
        run(brokers, lambda admin: transactions.abort_transaction(admin, P0, 40))
    assert written == []


def test_transactions_abort_reports_a_marker_refused_by_the_leader() -> None:
    brokers = Brokers(1)
    with_open_transaction(brokers, ErrorCode.INVALID_PRODUCER_EPOCH)
    refused = run(brokers, lambda admin: transactions.abort_transaction(admin, P0, 41))
    assert refused is not None
    assert (refused.subject, refused.code) == ("t-0", ErrorCode.INVALID_PRODUCER_EPOCH)
    assert refused.message is not None
    assert "for producer 7, whose transaction stays open" in refused.message
