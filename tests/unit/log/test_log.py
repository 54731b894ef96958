"""Append, read and cut, as a leader, a follower and a reader see them."""

import os
from typing import cast

import pytest
from tests.unit.log.support import SEGMENT_BYTES, Partition, batch, headers_of, read_bytes, values_of

from klamm.log.errors import AppendRefused, OffsetOutOfRange, UnexpectedOffset
from klamm.log.loader import CheckpointedState
from klamm.model.errors import ErrorCode
from klamm.wire.records import CorruptRecords, batches


def test_a_leader_append_assigns_offsets_and_the_leader_epoch(orders: Partition) -> None:
    log = orders.open()

    first = log.append_as_leader(batch("a", "b"), leader_epoch=3)
    second = log.append_as_leader(batch("c"), leader_epoch=3)

    assert (first.first_offset, first.last_offset, second.first_offset) == (0, 1, 2)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers_of(log)] == [(0, 3), (2, 3)]
    assert values_of(log) == ["a", "b", "c"]
    assert log.epochs.entries == ((3, 0),)


def test_a_log_read_starts_with_the_batch_that_contains_the_offset(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=1)
    for _ in range(50):
        log.append_as_leader(batch("a", "b", "c"), 0)

    for offset in range(log.end_offset):
        header = next(batches(read_bytes(log, offset, 1)))
        assert header.base_offset <= offset <= header.last_offset


def test_a_reopened_log_returns_the_same_records(orders: Partition) -> None:
    log = orders.open(segment_bytes=400, index_interval_bytes=1)
    for number in range(40):
        log.append_as_leader(batch(f"value {number}"), 0)
    before = values_of(log)
    log.close()

    clean = orders.open(CheckpointedState(is_clean=True, recovery_point=40), segment_bytes=400)
    assert (values_of(clean), len(clean.segments), clean.notes) == (before, len(log.segments), [])
    recovered = orders.open(segment_bytes=400)
    assert (values_of(recovered), recovered.notes) == (before, [])


def test_a_log_read_stops_at_the_upper_bound_offset(orders: Partition) -> None:
    log = orders.open()
    for value in "abc":
        log.append_as_leader(batch(value), 0)

    bounded = log.read(0, 1 << 20, upper_bound_offset=2)

    assert [h.base_offset for h in batches(cast(bytes, bounded.records))] == [0, 1]
    assert log.read(2, 1 << 20, upper_bound_offset=2).records == b""


def test_a_log_read_below_the_batch_size_returns_the_whole_first_batch_or_nothing(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(batch("a" * 100), 0)
    log.append_as_leader(batch("b"), 0)

    assert len(list(batches(read_bytes(log, 0, 10)))) == 1
    refused = log.read(0, 10, min_one_message=False)
    assert (refused.records, refused.is_incomplete) == (b"", True)


def test_a_read_outside_the_log_raises_offset_out_of_range(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(batch("a"), 0)

    assert log.read(1, 100).records == b""
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100)
    log.update_high_watermark(1)
    log.advance_start_offset(1)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_a_follower_append_keeps_bytes_offsets_and_epochs_of_the_leader(orders: Partition) -> None:
    log = orders.open()
    fetched = batch("a", "b", base_offset=10, epoch=4) + batch("c", base_offset=12, epoch=5)

    info = log.append_as_follower(fetched + fetched[:30])

    assert info is not None
    assert (info.first_offset, info.last_offset, log.end_offset) == (10, 12, 13)
    assert read_bytes(log, 10, 1 << 20) == fetched
    assert log.epochs.entries == ((4, 10), (5, 12))


def test_a_follower_append_below_the_log_end_raises_unexpected_offset(orders: Partition) -> None:
    log = orders.open()
    log.append_as_follower(batch("a", "b"))

    with pytest.raises(UnexpectedOffset) as caught:
        log.append_as_follower(batch("b", base_offset=1))

    assert (caught.value.first_offset, log.end_offset) == (1, 2)


def test_a_log_truncation_removes_the_batch_that_contains_the_offset(orders: Partition) -> None:
    log = orders.open(segment_bytes=400, index_interval_bytes=1)
    for number in range(30):
        log.append_as_leader(batch(f"{number}", "x"), number // 10)
    log.update_high_watermark(60)

    assert log.truncate_to(25)

    assert (log.end_offset, log.high_watermark) == (24, 24)
    assert [h.base_offset for h in headers_of(log)] == list(range(0, 24, 2))
    assert log.epochs.entries == ((0, 0), (1, 20))
    log.append_as_leader(batch("after"), 9)
    assert values_of(log)[-1] == "after"
    assert values_of(orders.open(segment_bytes=400)) == values_of(log)


def test_a_log_truncation_at_its_end_removes_a_leader_epoch_without_records(orders: Partition) -> None:
    """The next leader may begin another epoch there: two logs with the epoch would differ in where it ends."""
    log = orders.open()
    log.append_as_leader(batch("a", "b"), 4)
    log.epochs.assign(6, 2)

    assert not log.truncate_to(2)

    assert (log.epochs.entries, log.end_offset) == (((4, 0),), 2)


def test_a_truncation_into_a_damaged_segment_changes_nothing(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    for _ in range(20):
        log.append_as_leader(batch("x"), 0)
    damaged = log.segments.from_slot(1)[0]
    second = [found.position for found in damaged.headers(0)][1]
    with open(damaged.log_path, "r+b") as file:
        file.seek(second)
        file.write(bytes(12))
    before = log.end_offset, [segment.base_offset for segment in log.segments]

    with pytest.raises(CorruptRecords):
        log.truncate_to(log.segments.from_slot(2)[0].base_offset - 1)

    assert (log.end_offset, [segment.base_offset for segment in log.segments]) == before


def test_a_truncation_behind_damage_in_the_active_segment_changes_nothing(orders: Partition) -> None:
    """Where an offset begins is known without a look at the batches before it, which the truncation reads later."""
    log = orders.open()
    for _ in range(5):
        log.append_as_leader(batch("x"), 0)
    active = log.segments.active
    with open(active.log_path, "r+b") as file:
        file.seek(next(active.headers(0)).header.size)
        file.write(bytes(12))

    with pytest.raises(CorruptRecords):
        log.truncate_to(4)

    assert (log.end_offset, active.size) == (5, os.path.getsize(active.log_path))
    assert active.find(4) is not None


def test_a_fully_truncated_log_continues_at_the_given_offset(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(batch("a", "b"), 0)

    log.truncate_fully_and_start_at(70)

    assert (log.start_offset, log.end_offset, log.high_watermark) == (70, 70, 70)
    assert log.append_as_leader(batch("c"), 1).first_offset == 70
    assert log.epochs.entries == ((1, 70),)


def test_a_duplicate_batch_returns_its_original_offset_and_a_sequence_gap_is_refused(orders: Partition) -> None:
    log = orders.open()
    first = log.append_as_leader(batch("a", "b", producer=(7, 0, 0)), 0)

    again = log.append_as_leader(batch("a", "b", producer=(7, 0, 0)), 0)
    with pytest.raises(AppendRefused) as gap:
        log.append_as_leader(batch("d", producer=(7, 0, 3)), 0)

    assert (again.first_offset, again.last_offset, again.is_duplicate) == (first.first_offset, first.last_offset, True)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 2


def test_batches_appended_after_a_truncation_are_found_at_every_offset(orders: Partition) -> None:
    log = orders.open()
    for number in range(10):
        log.append_as_leader(batch(f"{number}"), 0)

    log.truncate_to(3)
    log.append_as_leader(batch("a", "b", "c", "d", "e"), 1)

    for offset in range(3, 8):
        assert next(batches(read_bytes(log, offset, 1))).base_offset == 3


def test_a_read_in_an_offset_gap_returns_records_of_the_next_segment(orders: Partition) -> None:
    removed = batch(*["removed by compaction"] * 14)
    log = orders.open(segment_bytes=len(batch("a")) + len(removed))
    for content in (batch("a"), removed, batch("b")):
        log.append_as_leader(content, 0)
    log.close()
    os.truncate(log.segments.first.log_path, len(batch("a")))
    log = orders.open(CheckpointedState(is_clean=True))

    assert [segment.base_offset for segment in log.segments] == [0, 15]
    assert next(batches(read_bytes(log, 12, 1))).base_offset == 15
    assert log.read(12, 100, upper_bound_offset=14).records == b""
    log.advance_start_offset(0)
    assert [h.base_offset for h in batches(read_bytes(log, 0, 1))] == [0]
