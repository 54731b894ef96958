"""What the clock does to transactions: timeouts, idle transactional ids. The cases are TransactionCoordinatorTest's."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.support.failing import fail_once
from tests.support.waiting import settle
from tests.unit.coordinator.transactions_room import ID, P0, Room, play

from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions import expiry
from klamm.coordinator.transactions.states import COMPLETE_COMMIT
from klamm.model.errors import ErrorCode


def test_a_transaction_is_aborted_after_its_timeout_and_its_producer_is_fenced() -> None:
    async def body(room: Room) -> None:
        await room.init(timeout_ms=15_000)
        producer = ProducerIdAndEpoch(1_000, 0)
        await room.add(producer, P0)
        await asyncio.sleep(14)
        assert room.transaction.state == "Ongoing"
        await asyncio.sleep(7)
        assert room.stored()[2:] == [f"PrepareAbort 1000/1 {P0}", "CompleteAbort 1000/1"]
        assert await room.end(producer) == ErrorCode.PRODUCER_FENCED

    play(body)


def test_the_timeout_of_a_transaction_begins_with_it_and_not_with_the_one_before() -> None:
    async def body(room: Room) -> None:
        await room.init(timeout_ms=15_000)
        producer = ProducerIdAndEpoch(1_000, 0)
        await room.add(producer, P0)
        assert await room.end(producer) == ErrorCode.NONE
        await asyncio.sleep(60)

        await room.add(producer, P0)
        await asyncio.sleep(14)
        assert room.transaction.state == "Ongoing"
        assert await room.end(producer) == ErrorCode.NONE

    play(body)


def test_timed_out_transactions_are_aborted_also_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(room: Room) -> None:
        await room.ongoing()
        fail_once(monkeypatch, expiry, "has_timed_out")
        with capture_logs() as lines:
            await asyncio.sleep(100)
        assert room.transaction.state == "CompleteAbort"
        assert [line for line in lines if line["event"].startswith("unexpected error")]

    play(body)


def test_a_transaction_that_ends_before_its_timeout_is_acted_on_is_not_aborted() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        await asyncio.sleep(61)
        with capture_logs() as lines:
            await expiry.abort_timed_out(room.coordinator._context)
            assert await room.end(producer) == ErrorCode.NONE
            await settle()

        assert room.transaction.state is COMPLETE_COMMIT
        assert not [line for line in lines if line["log_level"] == "error"]

    play(body, transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000_000)


@pytest.mark.parametrize("ends", [True, False])
def test_an_idle_transactional_id_is_removed_unless_its_transaction_is_open(ends: bool) -> None:
    async def body(room: Room) -> None:
        await room.init(timeout_ms=900_000)
        producer = ProducerIdAndEpoch(1_000, 0)
        await room.add(producer, P0)
        if ends:
            await room.end(producer)
        await asyncio.sleep(121)

        known = room.coordinator.describe_transaction(ID).error
        assert known == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if ends else ErrorCode.NONE)
        assert (room.stored()[-1] == "removed") is ends

    play(
        body,
        transactional_id_expiration_ms=60_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=60_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000_000,
    )


def test_expiring_a_transactional_id_is_retried_if_the_removal_cannot_be_stored() -> None:
    async def body(room: Room) -> None:
        await room.producer()
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        await asyncio.sleep(61)
        assert room.transaction.pending is None
        await asyncio.sleep(61)
        assert room.coordinator.describe_transaction(ID).error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    play(
        body,
        transactional_id_expiration_ms=50_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=60_000,
    )


def test_a_transactional_id_that_is_used_again_while_others_are_removed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "TOMBSTONES_IN_BATCH", 1)

    async def body(room: Room) -> None:
        await room.producer()
        await room.coordinator.init_producer_id("other", 60_000, None)
        room.log.held = []
        await asyncio.sleep(60)  # the removal of the first id waits for its replicas
        again = asyncio.ensure_future(room.coordinator.init_producer_id("other", 60_000, None))
        await settle()
        room.log.release(1)
        assert (await again).epoch == 1
        room.log.release(0)
        await settle()

        assert room.coordinator.describe_transaction(ID).error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert room.coordinator.describe_transaction("other").error == ErrorCode.NONE
        assert room.stored() == ["Empty 1000/0", "Empty 1001/0", "removed", "Empty 1001/1"]

    play(
        body,
        transactional_id_expiration_ms=50_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=60_000,
    )
