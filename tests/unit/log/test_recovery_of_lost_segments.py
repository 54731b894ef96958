"""A power loss keeps the file of a segment and not its batches: where the recovered log ends."""

import os
from pathlib import Path

import pytest
from tests.unit.log.support import Partition, many_segments, reopened, values_of

from klamm.log.loader import CheckpointedState


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
