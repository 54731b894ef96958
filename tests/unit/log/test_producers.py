"""Idempotence: the table of ref. 3.8, and a state machine against a model that remembers everything."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.unit.log.support import NOW_MS, Partition, batch, values_of

from klamm.log.errors import AppendRefused, CorruptFile, ProducersRestoring
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.producers import Origin, Producers
from klamm.log.snapshots import parse_snapshot, snapshot_bytes
from klamm.model.errors import ErrorCode
from klamm.wire.records import ControlType, EndMarker, build_end_marker, header_at

MAX_SEQUENCE = 2**31 - 1
PID = 7


def send(log: Log, sequence: int, *values: str, epoch: int = 0, transactional: bool = False) -> int:
    """Append as producer 7; the offset it got."""
    content = batch(*(values or ("v",)), producer=(PID, epoch, sequence), transactional=transactional)
    return log.append_as_leader(content, 0).first_offset


def refusal(log: Log, sequence: int, epoch: int = 0, transactional: bool = False) -> ErrorCode:
    end = log.end_offset
    with pytest.raises(AppendRefused) as caught:
        send(log, sequence, epoch=epoch, transactional=transactional)
    assert log.end_offset == end
    return caught.value.code


def mark(log: Log, kind: ControlType, coordinator_epoch: int = 0, epoch: int = 0) -> int:
    content = build_end_marker(EndMarker(kind, coordinator_epoch), PID, epoch, NOW_MS)
    return log.append_as_leader(content, 0, Origin.COORDINATOR).first_offset


def test_duplicates_of_the_last_five_batches_are_recognized_and_older_ones_refused(orders: Partition) -> None:
    log = orders.open()
    offsets = [send(log, number) for number in range(6)]

    assert [send(log, number) for number in range(1, 6)] == offsets[1:]
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 6


def test_duplicate_is_recognized_after_a_segment_roll(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)
    log.roll()

    assert send(log, 0) == 0
    assert log.end_offset == 1


def test_batch_that_overlaps_earlier_sequences_gets_out_of_order_sequence_number(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, "a", "b")

    assert refusal(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_producer_epoch_is_fenced_and_a_newer_one_must_start_at_sequence_0(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, epoch=3)

    assert refusal(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=4) == 1
    assert refusal(log, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_newer_producer_epoch_starts_a_new_duplicate_history(orders: Partition) -> None:
    log = orders.open()
    for sequence in (0, 1):
        send(log, sequence)
    send(log, 0, epoch=1)

    assert send(log, 0, epoch=1) == 2
    assert send(log, 1, epoch=1) == 3


def test_unknown_producer_may_start_at_any_sequence(orders: Partition) -> None:
    assert send(orders.open(), 17) == 0


def test_producer_sequences_wrap_to_0_between_batches(orders: Partition) -> None:
    log = orders.open()
    send(log, MAX_SEQUENCE - 1, "a", "b")

    assert send(log, 0, "c") == 2
    assert send(log, MAX_SEQUENCE - 1, "a", "b") == 0
    assert send(log, 1) == 3


def test_producer_sequences_wrap_to_0_inside_a_batch(orders: Partition) -> None:
    log = orders.open()
    send(log, MAX_SEQUENCE, "a", "b", "c")

    assert send(log, MAX_SEQUENCE, "a", "b", "c") == 0
    assert send(log, 2) == 3


def test_coordinator_appends_are_not_checked_for_sequences(orders: Partition) -> None:
    log = orders.open()
    content = batch("a", producer=(PID, 0, 5))

    for _ in range(2):
        log.append_as_leader(content, 0, Origin.COORDINATOR)

    assert log.end_offset == 2


def test_follower_appends_duplicate_batches_of_the_leader(orders: Partition) -> None:
    log = orders.open()
    for offset in (0, 1):
        log.append_as_follower(batch("a", producer=(PID, 0, 0), base_offset=offset))

    assert (log.end_offset, log.producers.by_id[PID].last_offset) == (2, 1)


def test_only_the_last_batch_of_a_producer_is_recognized_after_a_restart(orders: Partition) -> None:
    log = orders.open()
    for number in range(3):
        send(log, number)
    log.close()

    back = orders.open(CheckpointedState(True, 3))

    assert send(back, 2) == 2
    assert refusal(back, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(back, 3) == 3


@pytest.mark.parametrize("roll_at", [None, 2, 4, 7])
def test_truncation_restores_the_producer_state_at_its_offset(orders: Partition, roll_at: int | None) -> None:
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


def test_truncation_that_removes_a_snapshot_keeps_earlier_producers(orders: Partition) -> None:
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


def test_full_truncation_removes_all_producers(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)
    log.roll()
    send(log, 1)

    log.truncate_fully_and_start_at(10)

    assert send(log, 33) == 10


def test_idle_producers_expire(orders: Partition) -> None:
    log = orders.open()
    send(log, 0)

    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert send(log, 40) == 1


# -- transactions ------------------------------------------------------------------------------------------------------


def test_last_stable_offset_stops_at_an_open_transaction(orders: Partition) -> None:
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


def test_aborted_transaction_is_indexed_in_the_segment_of_its_marker(orders: Partition) -> None:
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


def test_end_marker_without_data_adds_no_aborted_transaction(orders: Partition) -> None:
    log = orders.open()
    mark(log, ControlType.ABORT)
    log.update_high_watermark(1)

    assert (log.aborted_transactions(0, 1), log.last_stable_offset) == ([], 1)


def test_truncated_abort_marker_reopens_its_transaction(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.ABORT)

    log.truncate_to(1)

    assert log.aborted_transactions(0, 2) == []
    assert log.producers.first_unstable_offset == 0
    assert refusal(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_truncated_commit_marker_lowers_the_last_stable_offset(orders: Partition) -> None:
    """Also where the marker was replicated: an unclean election truncates below the high watermark."""
    log = orders.open()
    send(log, 0, transactional=True)
    mark(log, ControlType.COMMIT)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2

    log.truncate_to(1)
    log.update_high_watermark(1)

    assert log.last_stable_offset == 0, "the transaction is undecided again"


def test_commit_marker_truncated_after_a_restart_lowers_the_last_stable_offset(orders: Partition) -> None:
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


def test_read_committed_fetch_returns_aborted_transactions_of_its_offset_range(orders: Partition) -> None:
    log = aborted_log(orders)

    for offset in range(0, log.end_offset, 2):
        result = log.read(offset, 170, log.last_stable_offset)
        aborted = log.aborted_in(result, offset, log.last_stable_offset)
        assert aborted[0] == (PID, offset, offset + 1, offset + 2)
        assert len(aborted) <= 3, "not those up to the last stable offset"


def test_read_committed_fetch_reads_no_transaction_index_file(
    orders: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = aborted_log(orders)
    reads: list[str] = []
    monkeypatch.setattr(log._world.disk, "read", reads.append)

    log.aborted_transactions(0, log.end_offset)

    assert not reads


@pytest.mark.parametrize("content", [b"\0" * 33, b"\xff" * 34, b"\0" * 34])
@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_transaction_index_is_rebuilt_at_startup(orders: Partition, content: bytes, is_clean: bool) -> None:
    log = aborted_log(orders)
    before = log.aborted_transactions(0, log.end_offset)
    log.close()
    Path(log.segments.from_slot(2)[0].transaction_index.path).write_bytes(content)

    back = orders.open(CheckpointedState(is_clean, log.end_offset), segment_bytes=1000, index_interval_bytes=1)

    assert back.aborted_transactions(0, log.end_offset) == before
    assert any("txnindex" in note for note in back.notes)


def test_end_marker_of_an_old_coordinator_or_producer_epoch_is_fenced(orders: Partition) -> None:
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


def test_open_transaction_does_not_expire_and_survives_a_restart(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    assert log.producers.expire(NOW_MS * 2, 1) == 0
    log.close()

    back = orders.open(CheckpointedState(True, 1))

    assert back.producers.first_unstable_offset == 0
    assert refusal(back, 1) is ErrorCode.INVALID_TXN_STATE


def test_last_stable_offset_is_not_below_the_log_start(orders: Partition) -> None:
    log = orders.open()
    send(log, 0, transactional=True)
    log.append_as_leader(batch("b"), 0)
    log.update_high_watermark(2)

    log.advance_start_offset(2)

    assert log.last_stable_offset == 2


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_producer_snapshot_has_kafkas_layout() -> None:
    producers = Producers()
    producers.on_batch_written(header_at(batch("a", "b", producer=(5, 2, 40))), 10, 99)

    content = snapshot_bytes(producers.by_id)

    assert content[:2] == b"\0\1"
    assert content[6:10] == b"\0\0\0\1"
    assert content[10:].hex() == "0000000000000005" "0002" "00000029" "000000000000000b" "00000001" + (
        "0000000000000063" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    (back,) = parse_snapshot(content, "x")
    assert (back.epoch, back.last_sequence, back.last_offset, back.transaction_start) == (2, 41, 11, None)


@pytest.mark.parametrize("cut", range(56))
def test_torn_producer_snapshot_raises_corrupt_file(cut: int) -> None:
    producers = Producers()
    producers.on_batch_written(header_at(batch("a", producer=(5, 2, 40))), 10, 99)
    content = snapshot_bytes(producers.by_id)
    assert len(content) == 56

    with pytest.raises(CorruptFile):
        parse_snapshot(content[:cut], "x")


def test_producer_snapshot_of_another_version_raises_corrupt_file() -> None:
    with pytest.raises(CorruptFile, match="version 2"):
        parse_snapshot(b"\0\2" + bytes(8), "x")
    with pytest.raises(CorruptFile, match="CRC"):
        parse_snapshot(b"\0\1" + bytes(8), "x")


class ProducerMachine(RuleBasedStateMachine):
    """Three producers send what is next, what was, and what is wrong; over rolls, cuts, restarts and crashes."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        from tests.unit.log.support import ManualClock

        from klamm.runtime.disk import RealDisk
        from klamm.runtime.network import RealNetwork
        from klamm.runtime.randomness import RealRandomness
        from klamm.runtime.world import World

        self.place = tempfile.TemporaryDirectory()
        world = World(ManualClock(), RealNetwork(), RealDisk(), RealRandomness())
        self.partition = Partition(world, f"{self.place.name}/orders-0")
        self.log = self.partition.open(segment_bytes=600)
        self.sent: list[tuple[int, int, int, int]] = []  # (pid, epoch, first sequence, count), in order; pid 0: none
        self.remembered = 5

    def teardown(self) -> None:
        self.log.mark_failed()
        self.place.cleanup()

    def of(self, pid: int) -> list[tuple[int, int, int, int]]:
        return [entry for entry in self.sent if entry[0] == pid]

    def append(self, pid: int, epoch: int, sequence: int, count: int) -> ErrorCode | bool:
        """The refusal, or whether it was a duplicate."""
        content = batch(*["v"] * count, producer=(pid, epoch, sequence))
        try:
            return self.log.append_as_leader(content, 0).is_duplicate
        except AppendRefused as refused:
            return refused.code

    @rule(pid=st.integers(1, 3), count=st.integers(1, 3))
    def next_in_order(self, pid: int, count: int) -> None:
        last = self.of(pid)[-1:]
        epoch, sequence = (last[0][1], last[0][2] + last[0][3]) if last else (0, 0)
        assert self.append(pid, epoch, sequence, count) is False
        self.sent.append((pid, epoch, sequence, count))

    @rule(pid=st.integers(1, 3), count=st.integers(1, 3))
    def new_epoch(self, pid: int, count: int) -> None:
        last = self.of(pid)[-1:]
        epoch = last[0][1] + 1 if last else 0
        assert self.append(pid, epoch, 0, count) is False
        self.sent.append((pid, epoch, 0, count))

    @rule()
    def of_no_producer(self) -> None:
        self.log.append_as_leader(batch("v"), 0)
        self.sent.append((0, 0, 0, 1))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(pid=st.integers(1, 3))
    def the_last_again(self, pid: int) -> None:
        last = self.of(pid)[-1:]
        if last:
            assert self.append(*last[0]) is True

    @rule(pid=st.integers(1, 3), gap=st.integers(1, 4))
    def a_gap(self, pid: int, gap: int) -> None:
        last = self.of(pid)[-1:]
        if last:
            _, epoch, sequence, count = last[0]
            assert self.append(pid, epoch, sequence + count + gap, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(pid=st.integers(1, 3))
    def an_old_epoch(self, pid: int) -> None:
        last = self.of(pid)[-1:]
        if last and last[0][1] > 0:
            assert self.append(pid, last[0][1] - 1, 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        kept = int(len(self.sent) * share)
        self.log.truncate_to(sum(count for *_, count in self.sent[:kept]))
        del self.sent[kept:]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = self.partition.open(CheckpointedState(True, self.log.end_offset), segment_bytes=600)

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        if flushed:
            self.log.flush_now()
        self.log = self.partition.open(CheckpointedState(False, self.log.recovery_point), segment_bytes=600)

    @rule()
    def nothing_is_lost(self) -> None:
        assert self.log.end_offset == sum(count for *_, count in self.sent)


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=40, stateful_step_count=25)


# -- truncation over many batches --------------------------------------------------------------------------------------


async def test_truncation_replays_many_batches_in_a_thread_and_refuses_appends_meanwhile(orders: Partition) -> None:
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


async def test_log_closed_during_a_replay_writes_complete_producer_state(orders: Partition) -> None:
    log = orders.open()
    for number in range(3000):
        send(log, number)
    log.truncate_to(2500)

    log.close()

    back = orders.open(CheckpointedState(True, 2500))
    assert send(back, 2500) == 2500
    await asyncio.sleep(0)


async def restored(log: Log) -> None:
    task = log._producer_state._restoring
    assert task is not None
    await task
