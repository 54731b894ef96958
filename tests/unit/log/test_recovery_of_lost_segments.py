"""A power loss keeps the file of a segment and not its batches: where the recovered log ends."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.log.support import Partition, many_segments, reopened, values_of

from klamm.log.loader import CheckpointedState
from klamm.log.log import Log


def test_log_recovery_truncates_the_log_at_an_unflushed_segment_without_batches(orders: Partition) -> None:
    """A power loss may keep the file and none of its bytes: a log that goes on behind it has a gap."""
    log = many_segments(orders)
    fifth, ninth = log.segments.from_slot(5)[0], log.segments.from_slot(9)[0]
    Path(fifth.log_path).write_bytes(b"")

    back = reopened(orders, CheckpointedState(recovery_point=fifth.base_offset))

    assert back.end_offset == fifth.base_offset
    assert not Path(ninth.log_path).exists()


def test_log_recovery_keeps_segments_after_an_empty_segment_of_a_compacted_log(orders: Partition) -> None:
    log = many_segments(orders)
    fifth = log.segments.from_slot(5)[0]
    Path(fifth.log_path).write_bytes(b"")

    back = reopened(orders, CheckpointedState(recovery_point=fifth.base_offset), policy="compact")

    assert back.end_offset == log.end_offset


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"torn"], ids=["empty", "zeros", "torn"])
def test_the_end_of_a_compacted_log_recovered_after_power_loss_is_the_offset_after_its_last_batch(
    orders: Partition, damage: bytes
) -> None:
    """Else no follower gets to the log end, and none is in sync: the leader has no batch that leads there."""
    log = many_segments(orders)
    slot = len(log.segments) - 3
    last, lost, active = log.segments.from_slot(slot)
    os.truncate(last.log_path, next(iter(last.headers(0))).header.size)  # its other batches were not synced
    Path(lost.log_path).write_bytes(b"")
    Path(active.log_path).write_bytes(damage)

    back = reopened(orders, CheckpointedState(recovery_point=last.base_offset), policy="compact")

    assert back.end_offset == last.base_offset + 1
    assert values_of(back) == [f"value {n}" for n in range(last.base_offset + 1)]
    assert any(f"removed {active.log_path}" in note for note in back.notes)


def test_log_recovery_keeps_an_empty_end_of_a_compacted_log_whose_offsets_before_it_were_flushed(
    orders: Partition,
) -> None:
    """Compaction may have removed what lies before the last segment."""
    log = many_segments(orders)
    removed, active = log.segments.from_slot(len(log.segments) - 2)
    for segment in (removed, active):
        Path(segment.log_path).write_bytes(b"")

    back = reopened(orders, CheckpointedState(recovery_point=active.base_offset - 1), policy="compact")

    assert back.end_offset == active.base_offset


# -- gaps in a compacted log -------------------------------------------------------------------------------------------


def cut_end_of_fifth(log: Log) -> tuple[int, int]:
    """Take the last batches of the fifth segment; the first offset that is missing, and the next segment's base."""
    fifth, sixth = log.segments.from_slot(5)[:2]
    os.truncate(fifth.log_path, next(iter(fifth.headers(0))).header.size)
    return fifth.base_offset + 1, sixth.base_offset


def test_an_unflushed_gap_before_a_segment_of_a_compacted_log_is_remembered_as_a_possible_loss(
    orders: Partition,
) -> None:
    """A leader's log goes on after it, as in Apache Kafka; a follower truncates its log there."""
    log = many_segments(orders)
    gap, following = cut_end_of_fifth(log)
    cut_later = log.segments.from_slot(8)[0]
    os.truncate(cut_later.log_path, next(iter(cut_later.headers(0))).header.size)

    back = reopened(orders, CheckpointedState(recovery_point=gap - 1, compacted_below=0), policy="compact")

    assert (back.possible_loss, back.end_offset) == (gap, log.end_offset)
    assert [note for note in back.notes if f"offsets {gap} to {following - 1} are missing" in note]


EXPLAINED = {
    "below the recovery point": lambda gap: CheckpointedState(recovery_point=gap + 1, compacted_below=0),
    "below the cleaner checkpoint": lambda gap: CheckpointedState(recovery_point=1, compacted_below=gap + 1),
    "no checkpoint to tell from": lambda gap: CheckpointedState(),
    "after a clean shutdown": lambda gap: CheckpointedState(is_clean=True, compacted_below=0),
    "below the log start": lambda gap: CheckpointedState(recovery_point=1, compacted_below=0, log_start=gap + 1),
}


@pytest.mark.parametrize("known", EXPLAINED.values(), ids=EXPLAINED)
def test_a_gap_of_a_compacted_log_that_may_be_compactions_is_no_possible_loss(
    orders: Partition, known: Callable[[int], CheckpointedState]
) -> None:
    log = many_segments(orders)
    gap, _ = cut_end_of_fifth(log)

    back = reopened(orders, known(gap), policy="compact")

    assert (back.possible_loss, back.end_offset) == (None, log.end_offset)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_possible_loss_that_is_not_settled_is_found_again_at_the_next_start(
    orders: Partition, is_clean: bool
) -> None:
    """The leader of this follower is away; the records that the follower lacks are still to be copied."""
    log = many_segments(orders)
    gap, _ = cut_end_of_fifth(log)
    back = reopened(orders, CheckpointedState(recovery_point=1, compacted_below=0), policy="compact")
    if is_clean:
        back.close()
    else:
        back.flush_now()  # as flush.ms demands
    known = CheckpointedState(is_clean, back.recovery_point, compacted_below=0)

    again = reopened(orders, known, policy="compact")

    assert (again.possible_loss, again.end_offset) == (gap, log.end_offset)
    again.possible_loss = None
    assert again.recovery_point == (log.end_offset if is_clean else gap)


def test_a_gap_at_which_the_recovered_log_ends_is_no_possible_loss(orders: Partition) -> None:
    log = many_segments(orders)
    gap, _ = cut_end_of_fifth(log)
    for segment in log.segments.from_slot(6):
        Path(segment.log_path).write_bytes(b"")

    back = reopened(orders, CheckpointedState(recovery_point=1, compacted_below=0), policy="compact")

    assert (back.possible_loss, back.end_offset) == (None, gap)


def test_a_truncation_at_or_before_a_possible_loss_ends_it(orders: Partition) -> None:
    log = many_segments(orders)
    gap, _ = cut_end_of_fifth(log)
    back = reopened(orders, CheckpointedState(recovery_point=1, compacted_below=0), policy="compact")

    back.truncate_to(log.end_offset - 1)
    assert back.possible_loss == gap
    back.truncate_to(gap)
    assert not back.possible_loss
    assert back.end_offset == gap


def test_a_log_start_above_a_possible_loss_ends_it(orders: Partition) -> None:
    log = many_segments(orders)
    gap, _ = cut_end_of_fifth(log)
    back = reopened(orders, CheckpointedState(recovery_point=1, compacted_below=0), policy="compact")
    back.update_high_watermark(back.end_offset)

    back.advance_start_offset(gap)
    assert back.possible_loss == gap
    back.advance_start_offset(gap + 1)
    assert not back.possible_loss


def test_a_restart_of_the_log_at_another_offset_ends_a_possible_loss(orders: Partition) -> None:
    log = many_segments(orders)
    cut_end_of_fifth(log)
    back = reopened(orders, CheckpointedState(recovery_point=1, compacted_below=0), policy="compact")

    back.truncate_fully_and_start_at(5000)

    assert back.possible_loss is None


LOWEST_ENDS = {
    "recovery point": lambda base: CheckpointedState(recovery_point=base - 1),
    "cleaner checkpoint": lambda base: CheckpointedState(recovery_point=1, compacted_below=base),
    "cleaner checkpoint within the gap": lambda base: CheckpointedState(recovery_point=1, compacted_below=base - 1),
}


@pytest.mark.parametrize("known", LOWEST_ENDS.values(), ids=LOWEST_ENDS)
def test_the_end_of_a_recovered_compacted_log_is_not_moved_below_recovery_point_and_cleaner_checkpoint(
    orders: Partition, known: Callable[[int], CheckpointedState]
) -> None:
    """Compaction removed what was before that segment, a power loss the batches of the segment."""
    log = many_segments(orders)
    removed, lost, active = log.segments.from_slot(len(log.segments) - 3)
    for segment in (removed, lost, active):
        Path(segment.log_path).write_bytes(b"")

    back = reopened(orders, known(lost.base_offset), policy="compact")

    assert back.end_offset == lost.base_offset
    assert not Path(active.log_path).exists()
