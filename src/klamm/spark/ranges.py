"""Offset ranges, packed into as many tasks as the machine can use: small ones together, large ones cut."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.model.ids import TopicPartition

WORTH_A_TASK: Final = 10_000  # offsets; a task costs some milliseconds, in which this many records are read


class OffsetRange(NamedTuple):
    """`start` inclusive, `end` exclusive. `topic_id` is that of the topic planned, None where brokers give no ids."""

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def task_count(total: int, processors: int, min_tasks: int | None, max_records: int | None) -> int:
    """Two tasks per processor, fewer where there is little to read, more where the options want it."""
    count = max(1, min(2 * processors, total // WORTH_A_TASK))
    if min_tasks is not None:
        count = max(count, min_tasks)
    if max_records is not None:
        count = max(count, -(-total // max_records))
    return min(count, total)


def pack(ranges: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Cut the ranges, laid end to end, into `tasks` lots that differ by one offset at most. Empty ranges vanish."""
    total = sum(r.size for r in ranges)
    cuts = [total * (i + 1) // tasks for i in range(tasks)]
    lots: list[list[OffsetRange]] = [[] for _ in cuts]
    for number, piece in _pieces(ranges, cuts):
        lots[number].append(piece)
    return [tuple(lot) for lot in lots if lot]


def _pieces(ranges: Sequence[OffsetRange], cuts: Sequence[int]) -> Iterator[tuple[int, OffsetRange]]:
    done = lot = 0
    for whole in ranges:
        start, end = whole.start, whole.end
        while start < end:
            if cuts[lot] <= done:
                lot += 1
                continue
            stop = min(end, start + cuts[lot] - done)
            yield lot, whole._replace(start=start, end=stop)
            done += stop - start
            start = stop
