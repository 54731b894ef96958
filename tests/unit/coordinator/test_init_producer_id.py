"""InitProducerId with a transactional id. The cases are those of TransactionCoordinatorTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.transactions_room import ID, P0, Room, play

from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.requests import InitResult
from klamm.coordinator.transactions.states import COMPLETE_ABORT, EMPTY
from klamm.model.errors import ErrorCode

LAST_EPOCH = 32_766


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_init_producer_id_with_a_transaction_timeout_above_the_maximum_is_refused(timeout_ms: int) -> None:
    async def body(room: Room) -> None:
        assert await room.init(timeout_ms=timeout_ms) == InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    play(body)


def test_init_producer_id_with_an_empty_transactional_id_is_refused() -> None:
    async def body(room: Room) -> None:
        assert (await room.coordinator.init_producer_id("", 1, None)).error == ErrorCode.INVALID_REQUEST

    play(body)


def test_a_new_transactional_id_gets_a_producer_id_with_epoch_0_and_later_epoch_1() -> None:
    async def body(room: Room) -> None:
        assert await room.init() == InitResult(ErrorCode.NONE, 1_000, 0)
        assert await room.init() == InitResult(ErrorCode.NONE, 1_000, 1)
        assert room.stored() == ["Empty 1000/0", "Empty 1000/1"]

    play(body)


def test_init_producer_id_of_a_new_transactional_id_waits_for_a_producer_id_block() -> None:
    async def body(room: Room) -> None:
        room.ids.is_refused = True
        assert (await room.init()).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(body)


def test_init_producer_id_aborts_an_open_transaction_and_makes_the_new_producer_retry() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)

        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        await settle()
        assert room.stored()[2:] == [f"PrepareAbort 1000/1 {P0}", "CompleteAbort 1000/1"]
        assert [(m.epoch, m.is_commit) for m in room.leaders.markers] == [(1, False)]
        assert await room.init() == InitResult(ErrorCode.NONE, 1_000, 2)
        assert await room.end(producer) == ErrorCode.PRODUCER_FENCED

    play(body)


def test_fencing_a_producer_that_cannot_be_stored_increments_the_epoch_only_once() -> None:
    async def body(room: Room) -> None:
        await room.ongoing(P0)
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS]
        for _ in range(2):
            assert (await room.init()).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (room.transaction.epoch, room.transaction.has_failed_fence) == (1, True)

        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        await settle()
        assert (room.transaction.epoch, room.transaction.has_failed_fence) == (1, False)
        assert (await room.init()).epoch == 2

    play(body)


def test_transaction_requests_during_a_state_transition_get_concurrent_transactions() -> None:
    async def body(room: Room) -> None:
        producer = await room.producer()
        room.log.held = []
        waiting = asyncio.ensure_future(room.add(producer, P0))
        await settle()

        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await room.add(producer, P0) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await room.end(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
        room.log.release()
        assert await waiting == ErrorCode.NONE

    play(body)


@pytest.mark.parametrize("commit", [True, False])
def test_init_producer_id_gets_concurrent_transactions_until_the_markers_are_written(commit: bool) -> None:
    async def body(room: Room) -> None:
        room.leaders.held = asyncio.Event()
        producer = await room.ongoing(P0)
        assert await room.end(producer, commit=commit) == ErrorCode.NONE

        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        room.leaders.held.set()
        await settle()
        assert (await room.init()).epoch == 1

    play(body)


def test_append_errors_of_init_producer_id_become_coordinator_errors_for_the_producer() -> None:
    async def body(room: Room) -> None:
        for refused, answered in (
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ):
            room.log.errors = [refused]
            assert (await room.init()).error == answered
            assert (room.transaction.state, room.transaction.pending) == (EMPTY, None)

    play(body)


# ---- a producer that continues (KIP-360)


def test_a_producer_gets_the_next_epoch_and_the_same_epoch_for_a_retry() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        assert await room.init((1_000, 0)) == InitResult(ErrorCode.NONE, 1_000, 1)
        assert await room.init((1_000, 0)) == InitResult(ErrorCode.NONE, 1_000, 1)

    play(body)


def test_a_retried_init_producer_id_is_fenced_after_another_producer_was_initialized() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        await room.init((1_000, 0))
        await room.init()
        assert (await room.init((1_000, 0))).error == ErrorCode.PRODUCER_FENCED
        assert (await room.init((1_000, 1))).error == ErrorCode.PRODUCER_FENCED

    play(body)


def test_a_retried_init_producer_id_is_fenced_after_a_later_transaction_was_fenced() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        await room.init((1_000, 0))
        await room.add(ProducerIdAndEpoch(1_000, 1), P0)
        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        await settle()
        assert (room.transaction.state, room.transaction.epoch) == (COMPLETE_ABORT, 2)
        assert (await room.init((1_000, 0))).error == ErrorCode.PRODUCER_FENCED
        assert (await room.init((1_000, 1))).error == ErrorCode.PRODUCER_FENCED

    play(body)


def test_a_late_init_producer_id_of_an_earlier_epoch_does_not_abort_the_open_transaction() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        await room.init((1_000, 0))
        current = ProducerIdAndEpoch(1_000, 1)
        await room.add(current, P0)

        assert await room.init((1_000, 0)) == InitResult(ErrorCode.PRODUCER_FENCED)  # the first of two that were sent

        assert await room.end(current) == ErrorCode.NONE

    play(body)


def test_a_late_init_producer_id_of_an_earlier_producer_id_does_not_abort_the_open_transaction() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.transaction.epoch = LAST_EPOCH
        await room.init((1_000, LAST_EPOCH))
        current = ProducerIdAndEpoch(1_001, 0)
        await room.add(current, P0)

        assert await room.init((1_000, LAST_EPOCH)) == InitResult(ErrorCode.PRODUCER_FENCED)

        assert await room.end(current) == ErrorCode.NONE

    play(body)


def test_a_producer_that_continues_aborts_its_own_open_transaction() -> None:
    async def body(room: Room) -> None:
        current = await room.ongoing()
        assert (await room.init(current)).error == ErrorCode.CONCURRENT_TRANSACTIONS
        await settle()
        assert (room.transaction.state, room.transaction.epoch) == (COMPLETE_ABORT, 1)

    play(body)


def test_init_producer_id_with_another_producer_id_is_fenced() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        assert (await room.init((999, 0))).error == ErrorCode.PRODUCER_FENCED

    play(body)


def test_a_producer_whose_transactional_id_expired_gets_a_new_producer_id() -> None:
    async def body(room: Room) -> None:
        assert await room.init((7, 12)) == InitResult(ErrorCode.NONE, 1_000, 0)

    play(body)


# ---- epochs that are used up


@pytest.mark.parametrize("continues", [True, False])
def test_a_new_producer_id_is_allocated_after_the_last_producer_epoch(continues: bool) -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.transaction.epoch = LAST_EPOCH
        expected = (1_000, LAST_EPOCH) if continues else None

        assert await room.init(expected) == InitResult(ErrorCode.NONE, 1_001, 0)
        retried = await room.init((1_000, LAST_EPOCH))
        assert retried == (InitResult(ErrorCode.NONE, 1_001, 0) if continues else InitResult(ErrorCode.PRODUCER_FENCED))

    play(body)


def test_a_new_producer_id_that_comes_after_the_transactions_were_loaded_again_is_not_stored() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.transaction.epoch = LAST_EPOCH
        room.ids.held = asyncio.Event()
        waiting = asyncio.ensure_future(room.init())
        await settle()
        room.resign(0)
        await room.elect(1)

        room.ids.held.set()

        assert await waiting == InitResult(ErrorCode.NOT_COORDINATOR)
        assert room.stored() == ["Empty 1000/0"]
        assert await room.init() == InitResult(ErrorCode.NONE, 1_000, 1)

    play(body)


def test_fencing_a_producer_with_the_last_epoch_uses_the_reserved_maximum_epoch() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.transaction.epoch = LAST_EPOCH
        assert await room.add(ProducerIdAndEpoch(1_000, LAST_EPOCH), P0) == ErrorCode.NONE

        assert (await room.init()).error == ErrorCode.CONCURRENT_TRANSACTIONS
        await settle()
        assert (room.transaction.state, room.transaction.epoch) == (COMPLETE_ABORT, LAST_EPOCH + 1)
        assert await room.init() == InitResult(ErrorCode.NONE, 1_001, 0)

    play(body)


def test_a_producer_that_uses_the_reserved_maximum_epoch_is_aborted_and_fenced() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.transaction.epoch = LAST_EPOCH + 1
        guessed = ProducerIdAndEpoch(1_000, LAST_EPOCH + 1)
        assert await room.add(guessed, P0) == ErrorCode.NONE
        await asyncio.sleep(80)
        assert room.transaction.state is COMPLETE_ABORT
        assert await room.init() == InitResult(ErrorCode.NONE, 1_001, 0)
        assert await room.add(guessed, P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    play(body)


def test_init_producer_id_at_a_broker_that_is_not_the_coordinator_is_refused() -> None:
    async def body(room: Room) -> None:
        room.resign()
        assert (await room.init()).error == ErrorCode.NOT_COORDINATOR
        assert room.coordinator.describe_transaction(ID).error == ErrorCode.NOT_COORDINATOR

    play(body)
