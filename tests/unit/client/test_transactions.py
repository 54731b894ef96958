"""A transactional producer's requests to its coordinator, and what it does after each error."""

from typing import Any

import pytest
from tests.unit.client.test_routing import ONE, TWO, Brokers

from klamm.client.backoff import Backoff
from klamm.client.committed_offsets import Membership
from klamm.client.errors import ConnectionLost, RequestRefused, Unreachable
from klamm.client.steps import Steps
from klamm.client.transactions import ProducerFenced, Transactions
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBER = Membership(3, "m1", None)


class Room:
    """A transaction coordinator at `at` and a group coordinator at TWO; each answers the scripted errors first."""

    def __init__(self, **errors: list[int]) -> None:
        self.errors = errors
        self.at = ONE
        self.asked: list[Any] = []
        self.brokers = Brokers(self._answer)
        self.transactions = Transactions(self.brokers.cluster, "tx", 60_000)

    def run(self, steps: Steps[Any]) -> Any:
        return self.brokers.run(steps)

    def backoff(self) -> Backoff:
        return self.brokers.backoff(10.0)

    def init(self) -> None:
        self.run(self.transactions.init(self.backoff()))

    def _answer(self, address: Address, message: Any) -> Any:
        if isinstance(message, FindCoordinatorRequest):
            at = self.at if message.key_type == 1 else TWO
            return FindCoordinatorResponse(coordinators=[Coordinator(message.coordinator_keys[0], 1, *at, 0, None)])
        if address != (TWO if isinstance(message, TxnOffsetCommitRequest) else self.at):
            raise ConnectionLost(f"{address} is gone")
        self.asked.append(message)
        waiting = self.errors.get(type(message).__name__.removesuffix("Request"), [])
        code = waiting.pop(0) if waiting else 0
        match message:
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=code, producer_id=77, producer_epoch=4)
            case AddPartitionsToTxnRequest():
                codes = [code and ErrorCode.OPERATION_NOT_ATTEMPTED.value, code]
                found = [AddPartitionsToTxnPartitionResult(n, c) for n, c in enumerate(codes)]
                return AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("orders", found)]
                )
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                partition = TxnOffsetCommitResponsePartition(0, code)
                return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("orders", [partition])])
            case EndTxnRequest():
                return EndTxnResponse(error_code=code)
        raise AssertionError(message)


def test_all_requests_of_a_transaction_carry_the_producer_id_and_epoch_from_init_producer_id() -> None:
    room = Room()
    transactions = room.transactions
    room.init()
    room.run(transactions.add_partitions([P1, P0], room.backoff()))
    room.run(transactions.commit_offsets("copies", {P0: 12}, room.backoff(), MEMBER))
    room.run(transactions.end(True, room.backoff()))

    init, add, offsets, commit, end = room.asked
    assert (init.transactional_id, init.transaction_timeout_ms) == ("tx", 60_000)
    assert transactions.producer == (77, 4)
    assert (add.v3_and_below_transactional_id, add.v3_and_below_producer_id, add.v3_and_below_producer_epoch) == (
        "tx",
        77,
        4,
    )
    assert [(t.name, t.partitions) for t in add.v3_and_below_topics] == [("orders", (0, 1))]
    assert (offsets.transactional_id, offsets.producer_id, offsets.producer_epoch, offsets.group_id) == (
        "tx",
        77,
        4,
        "copies",
    )
    assert (commit.group_id, commit.producer_id, commit.generation_id, commit.member_id) == ("copies", 77, 3, "m1")
    assert commit.topics[0].partitions[0].committed_offset == 12
    assert (end.producer_id, end.producer_epoch, end.committed) == (77, 4, True)


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_transactional_request_is_sent_again_after_a_retriable_error(code: ErrorCode) -> None:
    room = Room(InitProducerId=[code, code], AddPartitionsToTxn=[code], EndTxn=[code], TxnOffsetCommit=[code])
    room.init()
    room.run(room.transactions.add_partitions([P0, P1], room.backoff()))
    room.run(room.transactions.commit_offsets("copies", {P0: 1}, room.backoff()))
    room.run(room.transactions.end(False, room.backoff()))

    assert [type(m).__name__ for m in room.asked].count("InitProducerIdRequest") == 3
    assert len(room.asked) == 3 + 2 + 1 + 2 + 2
    assert room.brokers.now_s > 0


def test_a_transactional_request_is_sent_to_the_new_coordinator_after_a_move() -> None:
    room = Room(EndTxn=[ErrorCode.NOT_COORDINATOR])
    room.init()
    room.at = TWO
    room.run(room.transactions.end(True, room.backoff()))

    assert room.brokers.asked[-1] == TWO


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_transactional_producer_raises_producer_fenced(code: ErrorCode) -> None:
    room = Room(AddPartitionsToTxn=[code])
    room.init()

    with pytest.raises(ProducerFenced, match="transactional id tx: this producer is fenced") as caught:
        room.run(room.transactions.add_partitions([P0, P1], room.backoff()))

    assert caught.value.code == code


def test_a_transactional_request_with_a_non_retriable_error_fails_at_once() -> None:
    room = Room(EndTxn=[ErrorCode.INVALID_TXN_STATE])
    room.init()

    with pytest.raises(RequestRefused, match="INVALID_TXN_STATE"):
        room.run(room.transactions.end(True, room.backoff()))

    assert room.brokers.now_s == 0


def test_a_transactional_request_fails_after_its_timeout() -> None:
    room = Room(InitProducerId=[ErrorCode.CONCURRENT_TRANSACTIONS] * 100)

    with pytest.raises(Unreachable, match="INIT_PRODUCER_ID of the transactional id tx"):
        room.init()
