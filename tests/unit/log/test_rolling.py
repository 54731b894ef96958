"""When a segment ends, and what retention gives up."""

from pathlib import Path

import pytest
from tests.unit.log.support import NOW_MS, ManualClock, Partition, batch, values_of

from klamm.log.log import Log
from klamm.log.retention import RetentionLimits, SegmentFacts, expired_segment_count

HOUR_MS = 3_600_000


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_log_segment_rolls_at_segment_bytes(orders: Partition) -> None:
    size = len(batch("a"))
    log = orders.open(segment_bytes=3 * size)

    for _ in range(7):
        log.append_as_leader(batch("a"), 0)

    assert bases(log) == [0, 3, 6]


def test_a_log_segment_rolls_by_record_timestamps_and_not_by_the_clock(orders: Partition, clock: ManualClock) -> None:
    log = orders.open(segment_ms=HOUR_MS)
    log.append_as_leader(batch("a"), 0)
    clock.ms += 10 * HOUR_MS
    log.append_as_leader(batch("b", timestamp=NOW_MS + HOUR_MS), 0)
    assert bases(log) == [0]

    log.append_as_leader(batch("c", timestamp=NOW_MS + HOUR_MS + 1), 0)

    assert bases(log) == [0, 2]


def test_a_log_segment_without_record_timestamps_rolls_by_the_clock(orders: Partition, clock: ManualClock) -> None:
    log = orders.open(segment_ms=HOUR_MS)
    log.append_as_leader(batch("a", timestamp=-1), 0)
    clock.ms += HOUR_MS
    log.append_as_leader(batch("b", timestamp=-1), 0)
    clock.ms += 1
    log.append_as_leader(batch("c", timestamp=-1), 0)

    assert bases(log) == [0, 2]


def test_the_age_of_a_log_segment_that_was_truncated_to_nothing_begins_anew(orders: Partition) -> None:
    log = orders.open(segment_ms=HOUR_MS)
    log.append_as_leader(batch("gone"), 0)
    log.truncate_to(0)

    for later in (2 * HOUR_MS, 3 * HOUR_MS, 3 * HOUR_MS + 1):
        log.append_as_leader(batch("a", timestamp=NOW_MS + later), 0)

    assert bases(log) == [0, 2]


def test_segment_jitter_ms_shortens_the_roll_time_of_segments(orders: Partition) -> None:
    log = orders.open(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS * 5)

    assert 0 <= log.segments.active.roll_jitter_ms < HOUR_MS


def test_the_age_of_a_log_segment_is_restored_after_a_restart(orders: Partition) -> None:
    log = orders.open(segment_ms=HOUR_MS)
    log.append_as_leader(batch("a"), 0)
    log.close()

    back = orders.open(segment_ms=HOUR_MS)
    back.append_as_leader(batch("b", timestamp=NOW_MS + HOUR_MS + 1), 0)

    assert bases(back) == [0, 1]


def test_a_log_segment_rolls_when_its_index_is_full(orders: Partition) -> None:
    log = orders.open(segment_index_bytes=40, index_interval_bytes=0)

    for _ in range(14):
        log.append_as_leader(batch("a"), 0)

    assert bases(log) == [0, 6, 12]


def test_a_log_segment_rolls_when_a_relative_offset_exceeds_32_bits(orders: Partition) -> None:
    log = orders.open()
    log.append_as_follower(batch("a", base_offset=0))
    log.append_as_follower(batch("b", base_offset=2**31 - 1))
    log.append_as_follower(batch("c", base_offset=2**31))

    assert bases(log) == [0, 2**31]
    assert values_of(log) == ["a", "b", "c"]


def test_an_empty_active_segment_is_reset_instead_of_rolled(orders: Partition) -> None:
    log = orders.open(segment_index_bytes=4)

    log.append_as_leader(batch("a"), 0)
    log.append_as_leader(batch("b"), 0)

    assert (bases(log), values_of(log)) == ([0, 1], ["a", "b"])


def test_rolling_a_log_without_records_creates_no_segment(orders: Partition) -> None:
    log = orders.open()
    log.roll()
    log.append_as_leader(batch("a"), 0)
    log.roll()
    log.roll()

    assert bases(log) == [0, 1]
    assert (Path(log.directory) / "00000000000000000001.snapshot").exists()


# -- retention ---------------------------------------------------------------------------------------------------------


def limits(**given: int) -> RetentionLimits:
    return RetentionLimits(
        **{"log_start": 0, "high_watermark": 100, "now_ms": 1000, "retention_ms": -1, "retention_bytes": -1, **given}
    )


SEGMENTS = [SegmentFacts(0, 50, 100), SegmentFacts(10, 50, 500), SegmentFacts(20, 50, 900), SegmentFacts(30, 20, 950)]
END = 40
CASES = {
    "nothing to do": ({}, 0),
    "older than allowed": ({"retention_ms": 600}, 1),
    "exactly as old as allowed": ({"retention_ms": 900}, 0),
    "all too old": ({"retention_ms": 10}, 4),
    "larger than allowed": ({"retention_bytes": 120}, 1),
    "never below the size": ({"retention_bytes": 121}, 0),
    "size of 0": ({"retention_bytes": 0}, 4),
    "before the start": ({"log_start": 29}, 2),
    "the start is the end": ({"log_start": 40}, 3),
    "not above the high watermark": ({"retention_ms": 10, "high_watermark": 29}, 2),
    "not at all replicated": ({"retention_ms": 10, "high_watermark": 0}, 0),
    "for different reasons": ({"retention_ms": 600, "retention_bytes": 80}, 1),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES)
def test_log_retention_deletes_the_oldest_expired_segments(given: dict[str, int], expected: int) -> None:
    assert expired_segment_count(SEGMENTS, END, limits(**given)) == expected


def test_log_retention_stops_at_the_first_segment_that_is_not_expired() -> None:
    mixed = [SegmentFacts(0, 50, 2000), SegmentFacts(10, 50, 1)]

    assert expired_segment_count(mixed, 20, limits(retention_ms=10)) == 0


def test_log_retention_keeps_an_empty_active_segment() -> None:
    assert expired_segment_count([SegmentFacts(0, 50, 1), SegmentFacts(10, 0, -1)], 10, limits(retention_ms=10)) == 1


def filled(orders: Partition, **configs: object) -> Log:
    log = orders.open(segment_bytes=len(batch("0")), file_delete_delay_ms=0, **configs)
    for number in range(5):
        log.append_as_leader(batch(f"{number}", timestamp=NOW_MS + number), number)
    log.update_high_watermark(5)
    return log


def test_log_retention_of_all_segments_leaves_an_empty_log_at_the_same_end_offset(
    orders: Partition, clock: ManualClock
) -> None:
    log = filled(orders, retention_ms=HOUR_MS)
    clock.ms += 2 * HOUR_MS

    assert log.delete_old_segments() == 5

    assert (bases(log), log.start_offset, log.end_offset, log.high_watermark) == ([5], 5, 5, 5)
    assert log.epochs.entries == ((4, 5),) or log.epochs.entries == ()
    assert sorted(p.suffix for p in Path(log.directory).iterdir() if p.name.startswith("0" * 19 + "0")) == []
    log.append_as_leader(batch("5"), 9)
    assert values_of(log) == ["5"]


def test_log_retention_advances_the_log_start_offset_and_removes_old_leader_epochs(orders: Partition) -> None:
    log = filled(orders, retention_bytes=3 * len(batch("0")))

    assert log.delete_old_segments() == 2

    assert (log.start_offset, values_of(log)) == (2, ["2", "3", "4"])
    assert log.epochs.entries == ((2, 2), (3, 3), (4, 4))


def test_retention_of_a_compacted_log_deletes_only_segments_below_the_log_start(
    orders: Partition, clock: ManualClock
) -> None:
    log = orders.open(segment_bytes=len(batch("0", key=b"k")), cleanup_policy="compact", retention_ms=1)
    for _ in range(3):
        log.append_as_leader(batch("0", key=b"k"), 0)
    log.update_high_watermark(3)
    clock.ms += HOUR_MS

    assert log.delete_old_segments() == 0
    log.advance_start_offset(2)
    assert log.delete_old_segments() == 2


def test_segments_without_record_timestamps_expire_by_file_modification_time(
    orders: Partition, clock: ManualClock
) -> None:
    log = orders.open(retention_ms=HOUR_MS)
    log.append_as_leader(batch("a", timestamp=-1), 0)
    log.update_high_watermark(1)
    clock.ms = Path(log.segments.active.log_path).stat().st_mtime_ns // 1_000_000 + HOUR_MS

    assert log.delete_old_segments() == 0
    clock.ms += 1000
    assert log.delete_old_segments() == 1


def test_a_topic_config_update_applies_to_the_next_log_retention_run(orders: Partition, clock: ManualClock) -> None:
    log = filled(orders)
    clock.ms += 2 * HOUR_MS
    assert log.delete_old_segments() == 0

    log.update_config(orders.open(retention_ms=HOUR_MS).config)

    assert log.delete_old_segments() == 5


def test_a_change_of_the_log_start_offset_calls_its_listener_once(orders: Partition, clock: ManualClock) -> None:
    log = orders.open(segment_bytes=len(batch("0")), retention_ms=1000)
    starts: list[int] = []
    log.on_start_moved = lambda: starts.append(log.start_offset)
    for number in range(4):
        log.append_as_leader(batch(f"{number}"), 0)
    log.update_high_watermark(4)

    log.advance_start_offset(1)
    log.advance_start_offset(1)
    clock.ms += 2000
    log.delete_old_segments()

    assert starts == [1, 4]
