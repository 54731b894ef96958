"""Writes a batch read to Parquet files in the workers: rows do not pass through Spark, which only distributes tasks."""

from collections.abc import Iterator
from functools import partial
from posixpath import dirname, join
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import Disk, RealDisk
from klamm.spark.options import ReadOptions
from klamm.spark.parallelism import parallelism_of
from klamm.spark.plan import plan_batch
from klamm.spark.ranges import TaskRanges
from klamm.spark.schema import columns_of, source_schema
from klamm.spark.tasks import POOL, Job, run_task
from klamm.spark.transports import open_transport

COMPRESSION: Final = "zstd"


class ExportedRange(msgspec.Struct, frozen=True):
    """The offsets of a partition that a file has: `start` inclusive, `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int


class ExportedFile(msgspec.Struct, frozen=True):
    """One Parquet file. `rows` may be less than its ranges have offsets: compaction and transactions leave gaps."""

    name: str
    rows: int
    bytes: int
    ranges: list[ExportedRange]


def export_records(spark: SparkSession, options: ReadOptions, directory: str) -> list[ExportedFile]:
    """Write the records that the options select to files in the directory, which driver and workers see.

    `rawValue` is null where the value was decoded. Raises what planning a batch read raises, and Spark's errors.
    """
    schema = source_schema(options)
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(parsed, StructType), "rows have columns"
    job = Job(options, columns_of(parsed, options.values))
    world = RealBlockingWorld()
    with open_transport(world, options, POOL) as transport:
        tasks = plan_batch(transport, job.wanted, parallelism_of(world, spark.sparkContext))
    if not tasks:
        return []
    numbered = spark.sparkContext.parallelize(list(enumerate(tasks)), len(tasks))
    return [file for file in numbered.map(partial(_write_task, job, directory)).collect() if file.rows]


def _write_task(job: Job, directory: str, numbered: tuple[int, TaskRanges]) -> ExportedFile:
    """Write the rows of one task, in a worker; a task that runs again replaces its file. No file without rows."""
    number, task = numbered
    name = f"part-{number:05}.parquet"
    disk, path = RealDisk(), join(directory, name)
    temporary = disk.temporary_name(path)
    try:
        rows = _write_rows(temporary, (_without_decoded(batch) for batch in run_task(job, task)))
        if rows:
            _place(disk, temporary, path)
    finally:
        _remove(disk, temporary)
    places = [(*r.topic_partition, r.start, r.end) for r in task.ranges]
    return ExportedFile(name, rows, disk.size(path) if rows else 0, [ExportedRange(*place) for place in places])


def _place(disk: Disk, temporary: str, path: str) -> None:
    """Give a complete file its name once it is durable: the manifest, which is written later, relies on it."""
    file = disk.open(temporary)
    try:
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(dirname(path))


def _write_rows(path: str, batches: Iterator[pa.RecordBatch]) -> int:
    """Write the batches to a Parquet file; returns the number of rows. Without any batch there is no file."""
    first = next(batches, None)
    if first is None:
        return 0
    with pq.ParquetWriter(path, first.schema, compression=COMPRESSION) as writer:
        writer.write_batch(first)
        rows: int = first.num_rows
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _without_decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with `rawValue` only of those records whose value could not be decoded."""
    if not {"rawValue", "decodeError"} <= set(batch.schema.names):
        return batch
    raw = pc.if_else(pc.is_null(batch["decodeError"]), pa.scalar(None, pa.binary()), batch["rawValue"])
    return batch.set_column(batch.schema.get_field_index("rawValue"), "rawValue", raw)


def _remove(disk: Disk, path: str) -> None:
    """Remove a file, if it is there."""
    if disk.exists(path):
        disk.remove(path)
