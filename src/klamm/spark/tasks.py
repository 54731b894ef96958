"""What a Spark worker does with one task: read its ranges, apply the filter, and return Arrow record batches."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa

from klamm.runtime.blocking import BlockingWorld, RealBlockingWorld
from klamm.runtime.disk import RealDisk
from klamm.runtime.memory import freeze_objects, keep_large_buffers
from klamm.spark.columns import lost_rows
from klamm.spark.decoder import RecordSelection, decode
from klamm.spark.errors import LostRange
from klamm.spark.fetch import Fetched, RangeReader
from klamm.spark.filters import RowFilter
from klamm.spark.log_dirs import LogDirs
from klamm.spark.options import ReadOptions
from klamm.spark.pool import ClientPool
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.read_client import ReadClient, read_client
from klamm.spark.schema import Columns
from klamm.spark.stored_ranges import StoredRangeReader, read_stored_first
from klamm.spark.value_column import ValueColumn

POOL: Final = ClientPool()
"""For all reads of this process: a Spark worker lives through many tasks."""
READS_BEFORE_FREEZE: Final = 3  # modules are still imported during the first ones


class Job(NamedTuple):
    """What all tasks of a read have in common."""

    options: ReadOptions
    columns: Columns
    wanted: RowFilter = RowFilter()


def run_task(job: Job, task: object) -> Iterator[pa.RecordBatch]:
    """Read a task in a Spark worker; nothing is read for a task that klamm did not plan."""
    keep_large_buffers()
    if isinstance(task, TaskRanges):
        yield from read_task(RealBlockingWorld(), job, task, POOL)
    freeze_heap()


def read_task(
    world: BlockingWorld, job: Job, task: TaskRanges, pool: ClientPool | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task as record batches with the columns' labels; empty ones are left out."""
    names, labels, _ = job.columns
    for rows in _read_ranges(world, job, task, pool):
        if rows.num_rows:
            yield rows if names == labels else rows.rename_columns(list(labels))


def _read_ranges(world: BlockingWorld, job: Job, task: TaskRanges, pool: ClientPool | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's offset ranges, and rows for lost ranges if the options ask for them."""
    values = ValueColumn(job.options, job.columns)
    if job.options.reports_losses:
        for lost in task.lost:
            yield values.apply(job.wanted.apply(lost_rows(lost, values.read)), None)
    if not task.ranges:
        return
    with _brokers(world, job.options, pool) as brokers:
        for offset_range in task.ranges:
            partition = offset_range.topic_partition
            for found in _read_range(world, job.options, brokers, offset_range):
                if not isinstance(found, LostRange):
                    selection = RecordSelection(partition, found.start, found.end, values.read)
                    for rows in decode(found.run, selection, found.aborted, origin=found.origin):
                        yield values.apply(job.wanted.apply(rows), brokers)
                elif job.options.reports_losses:
                    yield values.apply(job.wanted.apply(lost_rows(found, values.read)), brokers)


@contextmanager
def _brokers(world: BlockingWorld, options: ReadOptions, pool: ClientPool | None) -> Iterator[ReadClient | None]:
    """Yield a client for the brokers that the options name; None where they name none."""
    if not options.bootstrap:
        yield None
        return
    with read_client(world, options, pool) as brokers:
        yield brokers


def _read_range(
    world: BlockingWorld, options: ReadOptions, brokers: ReadClient | None, offset_range: OffsetRange
) -> Iterable[Fetched | LostRange]:
    """Read one range from where its plan says: the files of a replica, brokers, or both."""
    if brokers is not None and offset_range.replica is None:
        return RangeReader(brokers, offset_range)
    stored = StoredRangeReader(RealDisk(), LogDirs(world, RealDisk(), options), offset_range)
    return stored if brokers is None else read_stored_first(stored, brokers, offset_range)


def freeze_heap() -> None:
    """Exclude the objects that exist now from garbage collection, since Spark's worker collects after each task.

    A collection over all modules takes 10-30 ms.
    """
    done = getattr(sys, "_klamm_reads", 0)
    if done < READS_BEFORE_FREEZE:
        freeze_objects()
        sys._klamm_reads = done + 1  # type: ignore[attr-defined]  # the module itself may be loaded again per task
