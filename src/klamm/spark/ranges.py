"""Offset ranges, packed into as many tasks as the machine can use: small ones together, large ones cut."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.model.ids import TopicPartition

MIN_TASK_OFFSETS: Final = 10_000  # a task costs some milliseconds, in which this many records are read


class OffsetRange(NamedTuple):
    """`start` inclusive, `end` exclusive. `topic_id` is that of the topic planned, None where brokers give no ids."""

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID | None = None

    @property
    def size(self) -> int:
        """The number of offsets in the range."""
        return self.end - self.start


def task_count(total: int, processors: int, min_tasks: int | None, max_records: int | None) -> int:
    """Choose the number of tasks: two per processor, fewer for little data, more if the options require it."""
    count = max(1, min(2 * processors, total // MIN_TASK_OFFSETS))
    if min_tasks is not None:
        count = max(count, min_tasks)
    if max_records is not None:
        count = max(count, -(-total // max_records))
    return min(count, total)


class TaskRanges(NamedTuple):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]


def pack(ranges: Sequence[OffsetRange], task_count: int) -> list[TaskRanges]:
    """Cut the ranges into this many tasks, whose sizes differ by one offset at most; empty ranges are left out."""
    total = sum(r.size for r in ranges)
    ends = [total * (i + 1) // task_count for i in range(task_count)]
    tasks: list[list[OffsetRange]] = [[] for _ in ends]
    for task, piece in _pieces(ranges, ends):
        tasks[task].append(piece)
    return [TaskRanges(tuple(pieces)) for pieces in tasks if pieces]


def _pieces(ranges: Sequence[OffsetRange], ends: Sequence[int]) -> Iterator[tuple[int, OffsetRange]]:
    """Split the ranges at the ends of tasks; yield each part with its task number.

    `ends` has the count of offsets up to the end of each task.
    """
    done = task = 0
    for whole in ranges:
        start, end = whole.start, whole.end
        while start < end:
            if ends[task] <= done:
                task += 1
                continue
            stop = min(end, start + ends[task] - done)
            yield task, whole._replace(start=start, end=stop)
            done += stop - start
            start = stop
