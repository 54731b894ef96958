"""Transactions in the log: last stable offset, aborted transactions and their index, end markers."""

from pathlib import Path

import pytest
from tests.unit.log.producing import PID, mark, refusal, send
from tests.unit.log.support import NOW_MS, Partition, batch

from klamm.log.errors import AppendRefused
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.wire.records import ControlType


def test_the_last_stable_offset_stops_at_an_open_transaction(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(batch("a"), 0)
    send(log, 0, transactional=True)
    log.append_as_leader(batch("b"), 0)
    log.update_high_watermark(3)
    stable = [log.last_stable_offset]

    mark(log, ControlType.COMMIT)
    stable.append(log.last_stable_offset)  # the marker is not replicated yet
    log.update_high_watermark(4)
    stable.append(log.last_stable_offset)

    assert stable == [1, 1, 4]
    assert log.aborted_transactions(0, 4) == []


def test_the_oldest_open_transaction_of_a_log_tells_when_it_had_its_last_batch(orders: Partition) -> None:
    log = orders.open()
    times = [log.producers.oldest_transaction_ms]
    log.append_as_leader(batch("a", producer=(8, 0, 0), transactional=True, timestamp=NOW_MS - 5_000), 0)
    send(log, 0, transactional=True)
    times.append(log.producers.oldest_transaction_ms)

    mark(log, ControlType.ABORT, producer_id=8)
    times.append(log.producers.oldest_transaction_ms)
    mark(log, ControlType.COMMIT)
    times.append(log.producers.oldest_transaction_ms)

    assert times == [None, NOW_MS - 5_000, NOW_MS, None]


def test_an_aborted_transaction_is_indexed_in_the_segment_of_its_marker(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    log.roll()
    log.append_as_leader(batch("b"), 0)
    log.roll()
    mark(log, ControlType.ABORT)
    log.update_high_watermark(3)

    found = log.aborted_transactions(0, 3)

    assert found == [(PID, 0, 2, 3)]
    assert log.aborted_transactions(0, 0) == []
    assert log.last_stable_offset == 3
    log.flush_now()
    assert orders.open().aborted_transactions(1, 3) == found  # recovery wrote the entry again


def test_log_recovery_keeps_an_aborted_transaction_that_was_open_when_another_was_aborted(orders: Partition) -> None:
    """A reader stops at the entry whose last stable offset is behind what it reads: with a later one it stops early."""
    log = orders.open()
    log.append_as_leader(batch("open for long", producer=(8, 0, 0), transactional=True), 0)
    send(log, 0, transactional=True)
    mark(log, ControlType.ABORT)
    mark(log, ControlType.ABORT, producer_id=8)

    recovered = orders.open()

    for each in (log, recovered):
        assert each.aborted_transactions(0, 3) == [(PID, 1, 2, 0), (8, 0, 3, 4)]


def test_an_abort_marker_of_a_transaction_without_data_adds_no_aborted_transaction(orders: Partition) -> None:
    log = orders.open()
    mark(log, ControlType.ABORT)
    log.update_high_watermark(1)

    assert (log.aborted_transactions(0, 1), log.last_stable_offset) == ([], 1)


def test_truncating_an_abort_marker_reopens_its_transaction(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.ABORT)

    log.truncate_to(1)

    assert log.aborted_transactions(0, 2) == []
    assert log.producers.first_unstable_offset == 0
    assert refusal(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_truncating_unreplicated_records_keeps_the_last_stable_offset(orders: Partition) -> None:
    """The high watermark does not move: nothing else would tell that the earlier transaction is replicated."""
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.COMMIT)
    log.append_as_leader(batch("b"), 0)
    log.update_high_watermark(3)
    send(log, 1, transactional=True)

    log.truncate_to(3)

    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_truncating_a_commit_marker_lowers_the_last_stable_offset(orders: Partition) -> None:
    """Also where the marker was replicated: an unclean election truncates below the high watermark."""
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.COMMIT)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2

    log.truncate_to(1)
    log.update_high_watermark(1)

    assert log.last_stable_offset == 0, "the transaction is undecided again"


def test_truncating_a_commit_marker_after_a_restart_lowers_the_last_stable_offset(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.COMMIT)
    log.update_high_watermark(2)
    log.close()

    back = orders.open(CheckpointedState(True, 2))
    back.truncate_to(1)
    back.update_high_watermark(1)

    assert back.last_stable_offset == 0


def aborted_log(orders: Partition, count: int = 40) -> Log:
    """Transactions of two batches, each aborted, over several segments."""
    log = orders.open(segment_bytes=1000, index_interval_bytes=1)
    for number in range(count):
        send(log, number, transactional=True)
        mark(log, ControlType.ABORT)
    log.update_high_watermark(log.end_offset)
    assert len(log.segments) > 4
    return log


def test_a_read_committed_fetch_returns_aborted_transactions_of_its_offset_range(orders: Partition) -> None:
    log = aborted_log(orders)

    for offset in range(0, log.end_offset, 2):
        result = log.read(offset, 170, log.last_stable_offset)
        aborted = log.aborted_in(result, offset, log.last_stable_offset)
        assert aborted[0] == (PID, offset, offset + 1, offset + 2)
        assert len(aborted) <= 3, "not those up to the last stable offset"


def test_a_read_committed_fetch_does_not_read_the_transaction_index_file(
    orders: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = aborted_log(orders)
    reads: list[str] = []
    monkeypatch.setattr(log._world.disk, "read", reads.append)

    log.aborted_transactions(0, log.end_offset)

    assert not reads


@pytest.mark.parametrize("content", [b"\0" * 33, b"\xff" * 34, b"\0" * 34])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_corrupt_transaction_index_is_rebuilt_at_startup(orders: Partition, content: bytes, is_clean: bool) -> None:
    log = aborted_log(orders)
    before = log.aborted_transactions(0, log.end_offset)
    log.close()
    Path(log.segments.from_slot(2)[0].transaction_index.path).write_bytes(content)

    back = orders.open(CheckpointedState(is_clean, log.end_offset), segment_bytes=1000, index_interval_bytes=1)

    assert back.aborted_transactions(0, log.end_offset) == before
    assert any("txnindex" in note for note in back.notes)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_rebuilt_transaction_index_has_a_transaction_that_began_in_an_earlier_segment(
    orders: Partition, is_clean: bool
) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    log.roll()
    mark(log, ControlType.ABORT)
    index = Path(log.segments.active.transaction_index.path)
    log.roll()
    before = log.aborted_transactions(0, log.end_offset)
    assert [(aborted.first_offset, aborted.last_offset) for aborted in before] == [(0, 1)]
    log.close()
    index.write_bytes(b"\xff")

    back = orders.open(CheckpointedState(is_clean, log.end_offset))

    assert back.aborted_transactions(0, log.end_offset) == before


def test_a_transaction_marker_with_an_old_coordinator_or_producer_epoch_is_fenced(orders: Partition) -> None:
    log = orders.open()
    mark(log, ControlType.ABORT, coordinator_epoch=2, epoch=5)

    with pytest.raises(AppendRefused) as zombie:
        mark(log, ControlType.ABORT, coordinator_epoch=1, epoch=5)
    with pytest.raises(AppendRefused) as old:
        mark(log, ControlType.ABORT, coordinator_epoch=2, epoch=4)

    assert zombie.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert old.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 0, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 3, epoch=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=5) == 1


def test_an_open_transactions_producer_state_does_not_expire_and_survives_a_restart(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    assert log.producers.expire(NOW_MS * 2, 1) == 0
    log.close()

    back = orders.open(CheckpointedState(True, 1))

    assert back.producers.first_unstable_offset == 0
    assert refusal(back, 1) is ErrorCode.INVALID_TXN_STATE


def test_the_last_stable_offset_is_not_below_the_log_start(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    log.append_as_leader(batch("b"), 0)
    log.update_high_watermark(2)

    log.advance_start_offset(2)

    assert log.last_stable_offset == 2


def test_a_transaction_whose_end_was_lost_with_the_log_does_not_hold_the_last_stable_offset(orders: Partition) -> None:
    """A power loss took its marker, and all up to the checkpointed log start: the copy of the log begins there."""
    log = orders.open()
    send(log, 0, transactional=True)
    log.flush_now()

    back = orders.open(CheckpointedState(recovery_point=0, log_start=5))
    back.append_as_leader(batch("a"), 1)
    back.update_high_watermark(6)

    assert (back.start_offset, back.end_offset, back.last_stable_offset) == (5, 6, 6)
    assert len(back.producers) == 0
