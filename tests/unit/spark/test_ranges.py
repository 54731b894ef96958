"""Ranges are packed into tasks of equal bytes: no offset left out, none read twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model.ids import TopicPartition
from klamm.spark.ranges import (
    MAX_TASK_BYTES,
    MIN_TASK_OFFSETS,
    OffsetRange,
    TaskLimits,
    TaskRanges,
    pack,
    plan_tasks,
    task_count,
)

ORDERS = TopicPartition("orders", 0)


def offset_range(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("orders", partition), start, end)


def offsets_of(tasks: list[TaskRanges]) -> list[tuple[TopicPartition, int]]:
    return [(piece.topic_partition, o) for t in tasks for piece in t.ranges for o in range(piece.start, piece.end)]


sizes = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 500), st.floats(1, 5_000)), min_size=1, max_size=8)


@given(sizes, st.integers(1, 20))
def test_spark_tasks_cover_every_offset_exactly_once_with_equal_bytes(
    given_sizes: list[tuple[int, int, float]], tasks: int
) -> None:
    ranges = [offset_range(i, start, start + size) for i, (start, size, _) in enumerate(given_sizes)]
    weights = [weight for _, _, weight in given_sizes]
    total = sum(r.size * weight for r, weight in zip(ranges, weights, strict=True))

    packed = pack(ranges, weights, tasks)

    assert offsets_of(packed) == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]
    assert len(packed) <= tasks
    loads = [sum(piece.size * weights[piece.topic_partition.partition] for piece in task.ranges) for task in packed]
    assert all(load <= total / tasks + 1.001 * max(weights) for load in loads)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(1, 20))
def test_spark_tasks_over_records_of_equal_size_differ_by_at_most_one_offset(counts: list[int], tasks: int) -> None:
    ranges = [offset_range(i, 0, count) for i, count in enumerate(counts)]

    packed = pack(ranges, [1.0] * len(ranges), tasks)

    loads = [sum(piece.size for piece in task.ranges) for task in packed]
    assert len(packed) == min(tasks, sum(counts))
    assert not loads or max(loads) - min(loads) <= 1


def test_small_offset_ranges_share_a_task_and_a_large_range_is_split() -> None:
    packed = pack([offset_range(0, 0, 10), offset_range(1, 5, 15), offset_range(2, 0, 40)], [1.0] * 3, 3)

    assert packed == [
        TaskRanges((offset_range(0, 0, 10), offset_range(1, 5, 15))),
        TaskRanges((offset_range(2, 0, 20),)),
        TaskRanges((offset_range(2, 20, 40),)),
    ]


def test_a_partition_of_large_records_gets_more_tasks_than_a_partition_of_small_records() -> None:
    packed = pack([offset_range(0, 0, 900), offset_range(1, 0, 100)], [1.0, 21.0], 3)

    assert packed == [
        TaskRanges((offset_range(0, 0, 900), offset_range(1, 0, 5))),
        TaskRanges((offset_range(1, 5, 52),)),
        TaskRanges((offset_range(1, 52, 100),)),
    ]


MUCH = MIN_TASK_OFFSETS * 100
COUNTS = {
    "nothing to read": (0, 1.0, TaskLimits(2), 0),
    "little to read": (500, 1.0, TaskLimits(2), 1),
    "much to read": (MUCH, 1.0, TaskLimits(2), 4),
    "records for three tasks": (MIN_TASK_OFFSETS * 3, 1.0, TaskLimits(8), 3),
    "more bytes than this parallelism needs": (MUCH, MAX_TASK_BYTES / MIN_TASK_OFFSETS, TaskLimits(2), 100),
    "few large records": (30, MAX_TASK_BYTES / 10, TaskLimits(2), 3),
    "minPartitions above the default": (500, 1.0, TaskLimits(2, 7), 7),
    "minPartitions below the default": (MUCH, 1.0, TaskLimits(2, 3), 4),
    "never more tasks than offsets": (5, 1.0, TaskLimits(2, 7), 5),
    "maxRecordsPerPartition": (1_001, 1.0, TaskLimits(2, None, 100), 11),
}


@pytest.mark.parametrize(("total", "weight", "limits", "expected"), COUNTS.values(), ids=COUNTS)
def test_the_number_of_spark_tasks_depends_on_offsets_bytes_parallelism_and_options(
    total: int, weight: float, limits: TaskLimits, expected: int
) -> None:
    assert task_count([OffsetRange(ORDERS, 0, total)], [weight], limits) == expected


@given(sizes, st.integers(1, 300))
def test_no_spark_task_exceeds_its_maximum_number_of_records(
    given_sizes: list[tuple[int, int, float]], limit: int
) -> None:
    ranges = [offset_range(i, start, start + size) for i, (start, size, _) in enumerate(given_sizes)]
    weights = {r.topic_partition: given_sizes[i][2] for i, r in enumerate(ranges)}

    tasks = plan_tasks(ranges, weights, TaskLimits(2, None, limit))

    assert offsets_of(tasks) == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]
    assert all(sum(piece.size for piece in task.ranges) <= limit for task in tasks)
