"""Ranges are packed into even tasks: no offset left out, none read twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model.ids import TopicPartition
from klamm.spark.ranges import MIN_TASK_OFFSETS, OffsetRange, TaskRanges, pack, task_count

ORDERS = TopicPartition("orders", 0)


def offset_range(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("orders", partition), start, end)


sizes = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 500)), min_size=1, max_size=8)


@given(sizes, st.integers(1, 20))
def test_every_offset_is_in_exactly_one_task_and_task_sizes_differ_by_one_at_most(
    given_sizes: list[tuple[int, int]], tasks: int
) -> None:
    ranges = [offset_range(i, start, start + size) for i, (start, size) in enumerate(given_sizes)]
    total = sum(r.size for r in ranges)

    packed = pack(ranges, tasks)

    offsets = [
        (piece.topic_partition, o) for task in packed for piece in task.ranges for o in range(piece.start, piece.end)
    ]
    assert offsets == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]
    assert len(packed) == min(tasks, total)
    loads = [sum(piece.size for piece in task.ranges) for task in packed]
    assert not loads or max(loads) - min(loads) <= 1


def test_small_ranges_share_a_task_and_a_large_one_is_cut() -> None:
    packed = pack([offset_range(0, 0, 10), offset_range(1, 5, 15), offset_range(2, 0, 40)], 3)

    assert packed == [
        TaskRanges((offset_range(0, 0, 10), offset_range(1, 5, 15))),
        TaskRanges((offset_range(2, 0, 20),)),
        TaskRanges((offset_range(2, 20, 40),)),
    ]


COUNTS = {
    "nothing to read": ((0, 2, None, None), 0),
    "little to read": ((500, 2, None, None), 1),
    "much to read": ((MIN_TASK_OFFSETS * 100, 2, None, None), 4),
    "records for three tasks": ((MIN_TASK_OFFSETS * 3, 8, None, None), 3),
    "minPartitions above the default": ((500, 2, 7, None), 7),
    "minPartitions below the default": ((MIN_TASK_OFFSETS * 100, 2, 3, None), 4),
    "never more tasks than offsets": ((5, 2, 7, None), 5),
    "maxRecordsPerPartition": ((1_001, 2, None, 100), 11),
}


@pytest.mark.parametrize(("given_facts", "expected"), COUNTS.values(), ids=COUNTS)
def test_task_count_follows_offsets_processors_and_options(
    given_facts: tuple[int, int, int | None, int | None], expected: int
) -> None:
    assert task_count(*given_facts) == expected


@given(st.integers(1, 10_000), st.integers(1, 300))
def test_no_task_exceeds_the_maximum_of_records(total: int, limit: int) -> None:
    packed = pack([OffsetRange(ORDERS, 0, total)], task_count(total, 2, None, limit))

    assert max(piece.size for task in packed for piece in task.ranges) <= limit
