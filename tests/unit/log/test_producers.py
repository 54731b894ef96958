"""Sequences and epochs of idempotent producers: what is recognized as a duplicate, what is refused, what survives."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.producing import MAX_SEQUENCE, PID, refusal, send
from tests.unit.log.support import NOW_MS, Partition, batch, values_of

from klamm.log.errors import ProducersRestoring
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode


def test_duplicates_of_a_producers_last_five_batches_are_recognized_and_older_duplicates_refused(
    orders: Partition,
) -> None:
    log = orders.open()
    offsets = [send(log, number) for number in range(6)]

    assert [send(log, number) for number in range(1, 6)] == offsets[1:]
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 6


def test_a_duplicate_batch_is_recognized_after_a_segment_roll(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)
    log.roll()

    assert send(log, 0) == 0
    assert log.end_offset == 1


def test_a_batch_that_overlaps_earlier_sequences_gets_out_of_order_sequence_number(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, "a", "b")

    assert refusal(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_producer_epoch_is_fenced_and_a_newer_epoch_must_start_at_sequence_0(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, epoch=3)

    assert refusal(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=4) == 1
    assert refusal(log, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_producer_epoch_starts_a_new_duplicate_history(orders: Partition) -> None:
    log = orders.open()
    for sequence in (0, 1):
        send(log, sequence)
    send(log, 0, epoch=1)

    assert send(log, 0, epoch=1) == 2
    assert send(log, 1, epoch=1) == 3


def test_an_unknown_producer_id_may_start_at_any_sequence(orders: Partition) -> None:
    assert send(orders.open(), 17) == 0


def test_producer_sequence_numbers_wrap_to_0_between_batches(orders: Partition) -> None:
    log = orders.open()
    send(log, MAX_SEQUENCE - 1, "a", "b")

    assert send(log, 0, "c") == 2
    assert send(log, MAX_SEQUENCE - 1, "a", "b") == 0
    assert send(log, 1) == 3


def test_producer_sequence_numbers_wrap_to_0_inside_a_batch(orders: Partition) -> None:
    log = orders.open()
    send(log, MAX_SEQUENCE, "a", "b", "c")

    assert send(log, MAX_SEQUENCE, "a", "b", "c") == 0
    assert send(log, 2) == 3


def test_batches_appended_by_coordinators_are_not_checked_for_sequences(orders: Partition) -> None:
    log = orders.open()
    content = batch("a", producer=(PID, 0, 5))

    for _ in range(2):
        log.append_as_leader(content, 0, Origin.COORDINATOR)

    assert log.end_offset == 2


def test_a_follower_appends_duplicate_batches_of_the_leader(orders: Partition) -> None:
    log = orders.open()
    for offset in (0, 1):
        log.append_as_follower(batch("a", producer=(PID, 0, 0), base_offset=offset))

    assert (log.end_offset, log.producers.by_id[PID].last_offset) == (2, 1)


def test_only_a_duplicate_of_a_producers_last_batch_is_recognized_after_a_restart(orders: Partition) -> None:
    log = orders.open()
    for number in range(3):
        send(log, number)
    log.close()

    back = orders.open(CheckpointedState(True, 3))

    assert send(back, 2) == 2
    assert refusal(back, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(back, 3) == 3


@pytest.mark.parametrize("roll_at", [None, 2, 4, 7])
def test_a_log_truncation_restores_the_producer_state_at_its_offset(orders: Partition, roll_at: int | None) -> None:
    log = orders.open()
    for number in range(8):
        if number == roll_at:
            log.roll()
        send(log, number)

    log.truncate_to(5)

    assert refusal(log, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4) == 4
    assert send(log, 5, "again") == 5
    assert values_of(log) == ["v"] * 5 + ["again"]


def test_a_log_truncation_that_removes_a_snapshot_keeps_earlier_producers(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)
    for _ in range(3):
        log.append_as_leader(batch("x"), 0)
    log.roll()
    log.truncate_to(3)
    log.close()

    back = orders.open(CheckpointedState(True, 3))

    assert send(back, 0) == 0
    assert back.end_offset == 3


def test_a_full_log_truncation_removes_all_producer_state(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)
    log.roll()
    send(log, 1)

    log.truncate_fully_and_start_at(10)

    assert send(log, 33) == 10


def test_idle_producer_ids_expire(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)

    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert send(log, 40) == 1


async def test_a_log_refuses_appends_while_a_truncation_rebuilds_producer_state_in_a_thread(orders: Partition) -> None:
    log = orders.open()
    for number in range(3000):
        send(log, number)

    log.truncate_to(2500)

    assert log.end_offset == 2500
    assert log.last_stable_offset == 0, "nothing is known of transactions yet"
    assert log.delete_old_segments() == 0
    assert refusal(log, 2500) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients try again
    with pytest.raises(ProducersRestoring):
        log.append_as_follower(batch("a", base_offset=2500))
    log.truncate_to(2400)  # while the thread replays
    await restored(log)

    assert (log.producers.by_id[PID].last_sequence, log.producers.end_offset) == (2399, 2400)
    assert send(log, 2400) == 2400


@pytest.mark.parametrize("offset", [500, 0])
async def test_a_truncation_may_remove_files_from_which_producer_state_is_rebuilt(
    orders: Partition, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """The thread may begin late, or wait for the device: what it is to read may be gone by then."""
    log = orders.open()
    for number in range(3000):
        if number == 1000:
            log.roll()
        send(log, number)
    began = orders.world.disk.in_thread

    async def truncate_before(call: Callable[..., Any], *args: Any) -> Any:
        monkeypatch.undo()
        log.truncate_to(offset)
        return await began(call, *args)

    monkeypatch.setattr(orders.world.disk, "in_thread", truncate_before)
    log.truncate_to(2500)
    await restored(log)

    assert not log.has_failed
    assert send(log, offset) == offset


async def test_a_log_closed_while_producer_state_is_rebuilt_writes_the_complete_state(orders: Partition) -> None:
    log = orders.open()
    for number in range(3000):
        send(log, number)
    log.truncate_to(2500)

    log.close()

    back = orders.open(CheckpointedState(True, 2500))
    assert send(back, 2500) == 2500
    await asyncio.sleep(0)


async def test_a_log_rolled_while_producer_state_is_rebuilt_writes_the_complete_state(orders: Partition) -> None:
    log = orders.open()
    for number in range(3000):
        send(log, number)
    log.truncate_to(2500)

    log.roll()

    assert (log.producers.by_id[PID].last_sequence, log.producers.snapshot_offset) == (2499, 2500)
    assert send(log, 2500) == 2500
    await asyncio.sleep(0)


async def restored(log: Log) -> None:
    task = log._producer_state._restoring
    assert task is not None
    await task
