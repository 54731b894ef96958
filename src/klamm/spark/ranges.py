"""Offset ranges, packed into tasks of equal bytes: small ones together, large ones cut."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.client.leaders import NO_EPOCH
from klamm.log.replicas.directories import StoredReplica
from klamm.model.ids import TopicPartition
from klamm.spark.errors import LostRange
from klamm.spark.sizes import GUESSED_BYTES

MIN_TASK_OFFSETS: Final = 10_000  # a task costs some milliseconds, in which this many records are read
MAX_TASK_BYTES: Final = 64 << 20  # enough tasks for any cluster, also where its parallelism is not known


class OffsetRange(NamedTuple):
    """`start` inclusive, `end` exclusive. `topic_id` is that of the topic planned, None where brokers give no ids.

    `replica` is the one in whose files the range is read; None where it is fetched from brokers.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID | None = None
    replica: StoredReplica | None = None
    leader_epoch: int = NO_EPOCH
    """The epoch of a leader whose log had the whole range when it was planned."""

    @property
    def size(self) -> int:
        """The number of offsets in the range."""
        return self.end - self.start


class TaskRanges(NamedTuple):
    """What one task reads, and losses found in planning, of which it makes rows."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...] = ()


class TaskLimits(NamedTuple):
    """What decides into how many tasks a read is cut; None where the user leaves it to klamm."""

    parallelism: int
    """How many tasks Spark runs at once."""
    min_tasks: int | None = None
    max_records: int | None = None


def plan_tasks(
    ranges: Sequence[OffsetRange], bytes_per_offset: Mapping[TopicPartition, float], limits: TaskLimits
) -> list[TaskRanges]:
    """Cut the ranges into tasks of about equal bytes; empty ranges are left out."""
    weights = [bytes_per_offset.get(r.topic_partition, GUESSED_BYTES) for r in ranges]
    tasks = pack(ranges, weights, task_count(ranges, weights, limits))
    return tasks if limits.max_records is None else [t for task in tasks for t in _split(task, limits.max_records)]


def task_count(ranges: Sequence[OffsetRange], weights: Sequence[float], limits: TaskLimits) -> int:
    """Choose the number of tasks: twice the parallelism, fewer for little data, more for much or by options."""
    total = sum(r.size for r in ranges)
    size = sum(r.size * weight for r, weight in zip(ranges, weights, strict=True))
    count = max(1, min(2 * limits.parallelism, total // MIN_TASK_OFFSETS), -int(-size // MAX_TASK_BYTES))
    if limits.min_tasks is not None:
        count = max(count, limits.min_tasks)
    if limits.max_records is not None:
        count = max(count, -(-total // limits.max_records))
    return min(count, total)


def pack(ranges: Sequence[OffsetRange], weights: Sequence[float], task_count: int) -> list[TaskRanges]:
    """Cut the ranges into at most this many tasks of about equal bytes."""
    total = sum(r.size * weight for r, weight in zip(ranges, weights, strict=True))
    tasks: list[list[OffsetRange]] = [[] for _ in range(task_count)]
    for task, piece in _pieces(ranges, weights, total / max(1, task_count)):
        tasks[min(task, task_count - 1)].append(piece)
    return [TaskRanges(tuple(pieces)) for pieces in tasks if pieces]


def _pieces(ranges: Sequence[OffsetRange], weights: Sequence[float], share: float) -> Iterator[tuple[int, OffsetRange]]:
    """Cut the ranges where a task has its share of bytes; yield each part with its task number."""
    task, room = 0, share
    for whole, weight in zip(ranges, weights, strict=True):
        start = whole.start
        while start < whole.end:
            while room <= weight / 2:
                task, room = task + 1, room + share
            fitting = min(whole.end - start, max(1, round(room / weight)))
            yield task, whole._replace(start=start, end=start + fitting)
            start += fitting
            room -= fitting * weight


def _split(task: TaskRanges, max_records: int) -> Iterator[TaskRanges]:
    """Cut a task into tasks of at most `max_records` offsets."""
    pieces: list[OffsetRange] = []
    room = max_records
    for whole in task.ranges:
        start = whole.start
        while start < whole.end:
            stop = min(whole.end, start + room)
            pieces.append(whole._replace(start=start, end=stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield TaskRanges(tuple(pieces))
                pieces, room = [], max_records
    if pieces:
        yield TaskRanges(tuple(pieces))
