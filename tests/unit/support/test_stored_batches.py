"""The judge is judged: batches that a broker lost or changed below a high watermark are noticed, others are not."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.stored_batches import StoredLogs, batches_of, cleaned_up_to

from klamm.wire.records import NewRecord, build_batch

HIGH_WATERMARK = 4


def batch(base_offset: int, value: bytes = b"value", count: int = 2) -> bytes:
    return build_batch([NewRecord(value)] * count, base_offset=base_offset)


SEGMENTS = {0: [batch(0), batch(2)], 4: [batch(4), batch(6)]}


def write(log_dir: Path, segments: Mapping[int, Sequence[bytes]]) -> None:
    """Replace the partition `orders-0` by these segments."""
    directory = log_dir / "orders-0"
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for base_offset, batches in segments.items():
        (directory / f"{base_offset:020}.log").write_bytes(b"".join(batches))


def test_batches_are_read_from_all_segments_up_to_a_torn_one(tmp_path: Path) -> None:
    write(tmp_path, {0: SEGMENTS[0], 4: [batch(4), batch(6)[:-1]]})

    assert [found.next_offset for found in batches_of(tmp_path / "orders-0")] == [2, 4, 6]


def test_batches_are_read_up_to_preallocated_bytes(tmp_path: Path) -> None:
    write(tmp_path, {0: [batch(0), bytes(500)]})

    assert [found.next_offset for found in batches_of(tmp_path / "orders-0")] == [2]


UNCHANGED = {
    "the same": SEGMENTS,
    "more records": {**SEGMENTS, 8: [batch(8)]},
    "other records behind the high watermark": {0: SEGMENTS[0], 4: [batch(4, b"other")]},
    "none behind the high watermark": {0: SEGMENTS[0]},
    "segments rolled elsewhere": {0: [batch(0)], 2: [batch(2), batch(4)]},
}
CHANGED: dict[str, dict[int, list[bytes]]] = {
    "lost at the end": {0: [batch(0)]},
    "lost in the middle": {0: [batch(0)], 4: SEGMENTS[4]},
    "another value": {0: [batch(0), batch(2, b"other")]},
    "another batch with the same offsets": {0: [batch(0, count=4)]},
    "all gone": {},
}


@pytest.mark.parametrize("later", UNCHANGED.values(), ids=UNCHANGED)
def test_logs_with_the_same_batches_below_the_high_watermark_are_unchanged(
    tmp_path: Path, later: Mapping[int, Sequence[bytes]]
) -> None:
    write(tmp_path, SEGMENTS)
    stored = StoredLogs([str(tmp_path)], {"orders-0": HIGH_WATERMARK})
    write(tmp_path, later)

    assert (stored.short(), stored.changed()) == ([], [])


@pytest.mark.parametrize("later", CHANGED.values(), ids=CHANGED)
def test_the_comparison_of_logs_reports_a_batch_lost_or_changed_below_the_high_watermark(
    tmp_path: Path, later: Mapping[int, Sequence[bytes]]
) -> None:
    write(tmp_path, SEGMENTS)
    stored = StoredLogs([str(tmp_path)], {"orders-0": HIGH_WATERMARK})
    write(tmp_path, later)

    assert len(stored.changed()) == 1


def test_the_comparison_of_logs_reports_a_log_that_ends_before_its_high_watermark(tmp_path: Path) -> None:
    write(tmp_path, {0: [batch(0)]})

    assert len(StoredLogs([str(tmp_path)], {"orders-0": HIGH_WATERMARK}).short()) == 1


def test_the_offset_of_a_partition_is_read_from_the_cleaner_checkpoint(tmp_path: Path) -> None:
    assert cleaned_up_to(str(tmp_path), "keyed", 1) == -1
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nkeyed 0 5\nkeyed 1 70\n")

    assert cleaned_up_to(str(tmp_path), "keyed", 1) == 70
