"""Which range of a log is dirty, when it is due, which segments become one."""

import pytest

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.selection import DirtyRange, LogFacts, SegmentFacts, find_dirty_range, group_segments

NOW_MS = 100_000


def config(**configs: str) -> TopicConfig:
    return TopicConfig.parse(
        {"cleanup.policy": "compact"} | {name.replace("_", "."): value for name, value in configs.items()}
    )


def facts(
    checkpoint: int | None = None, stable: int = 100, flushed: int = 100, start: int = 0, first_ms: int = NOW_MS
) -> LogFacts:
    """Four segments of ten offsets and 100 bytes each, then an empty active one; written one second apart."""
    segments = [SegmentFacts(n * 10, 100, NOW_MS - 4_000 + n * 1_000, first_ms + n) for n in range(4)]
    return LogFacts([*segments, SegmentFacts(40, 0, -1)], start, 40, stable, flushed, checkpoint)


CASES: dict[str, tuple[LogFacts, TopicConfig, tuple[int, int, int, int, bool]]] = {
    "never cleaned": (facts(), config(), (0, 40, 400, 400, False)),
    "from the checkpoint": (facts(20), config(), (20, 40, 200, 400, False)),
    "from within a segment": (facts(25), config(), (25, 40, 200, 500, False)),
    "all is clean": (facts(40), config(), (40, 40, 0, 400, False)),
    "up to the last stable offset": (facts(stable=29), config(), (0, 20, 200, 200, False)),
    "up to what is flushed": (facts(flushed=30), config(), (0, 30, 300, 300, False)),
    "nothing is stable": (facts(stable=0), config(), (0, 0, 0, 0, False)),
    "old enough": (facts(), config(min_compaction_lag_ms="3000"), (0, 20, 200, 200, False)),
    "as old as the lag exactly": (facts(), config(min_compaction_lag_ms="2000"), (0, 30, 300, 300, False)),
    "checkpoint before the log": (facts(5, start=10), config(), (10, 40, 300, 400, True)),
    "checkpoint behind the log": (facts(41), config(), (0, 40, 400, 400, True)),
}


@pytest.mark.parametrize(("given", "topic", "expected"), CASES.values(), ids=CASES)
def test_the_dirty_range_of_a_log_ends_before_the_first_uncleanable_segment(
    given: LogFacts, topic: TopicConfig, expected: tuple[int, int, int, int, bool]
) -> None:
    found = find_dirty_range(given, topic, NOW_MS)

    assert (found.start, found.end, found.cleanable_bytes, found.total_bytes, found.is_reset) == expected


DUE = {
    "at the ratio": (DirtyRange(0, 10, 50, 100), config(min_cleanable_dirty_ratio="0.5"), False),
    "above the ratio": (DirtyRange(0, 10, 51, 100), config(min_cleanable_dirty_ratio="0.5"), True),
    "overdue": (DirtyRange(0, 10, 1, 100, overdue_ms=1), config(), True),
    "overdue without a byte": (DirtyRange(0, 10, 0, 100, overdue_ms=1), config(), False),
    "empty": (DirtyRange(0, 0, 0, 0), config(min_cleanable_dirty_ratio="0"), False),
}


@pytest.mark.parametrize(("dirty", "topic", "expected"), DUE.values(), ids=DUE)
def test_a_log_is_compacted_above_its_dirty_ratio_or_after_max_compaction_lag(
    dirty: DirtyRange, topic: TopicConfig, expected: bool
) -> None:
    assert dirty.is_due(topic) is expected


@pytest.mark.parametrize(("first_ms", "overdue_ms"), [(NOW_MS - 70, 20), (NOW_MS - 50, 0), (NOW_MS, 0)])
def test_a_record_older_than_max_compaction_lag_ms_is_overdue_for_compaction(first_ms: int, overdue_ms: int) -> None:
    found = find_dirty_range(facts(first_ms=first_ms), config(max_compaction_lag_ms="50"), NOW_MS)

    assert found.overdue_ms == overdue_ms


def test_records_of_a_clean_segment_are_never_overdue_for_compaction() -> None:
    found = find_dirty_range(facts(40, first_ms=1), config(max_compaction_lag_ms="50"), NOW_MS)

    assert found.overdue_ms == 0


GROUPS = {
    "by size": ({"segment_bytes": "250"}, [10] * 4, 32, [[0, 10], [20, 30]]),
    "by index": ({"segment_index_bytes": "30"}, [10, 10, 20, 20], 32, [[0, 10], [20], [30]]),
    "by number": ({}, [10] * 4, 3, [[0, 10, 20], [30]]),
    "all": ({}, [10] * 4, 32, [[0, 10, 20, 30]]),
}


@pytest.mark.parametrize(("configs", "index_bytes", "most", "expected"), GROUPS.values(), ids=GROUPS)
def test_log_compaction_merges_adjacent_segments_within_the_size_limits(
    configs: dict[str, str], index_bytes: list[int], most: int, expected: list[list[int]]
) -> None:
    groups = group_segments(facts().segments[:4], index_bytes, 40, config(**configs), most)

    assert [[segment.base_offset for segment in group] for group in groups] == expected


def test_log_compaction_merges_no_segments_whose_offsets_span_more_than_31_bits() -> None:
    segments = [SegmentFacts(0, 1, 0), SegmentFacts(2**31 - 1, 1, 0), SegmentFacts(2**31 + 5, 1, 0)]
    groups = group_segments(segments, [8] * 3, 2**31 + 9, config(), 32)

    assert [[segment.base_offset for segment in group] for group in groups] == [[0], [2**31 - 1, 2**31 + 5]]
