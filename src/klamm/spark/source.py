"""The data source `klamm`: what Spark calls, in the driver to plan and in its Python workers to read."""

import sys
from collections.abc import Iterator, MutableMapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm.runtime.blocking import BlockingWorld, RealBlockingWorld
from klamm.runtime.memory import freeze_objects
from klamm.spark.decoder import RecordSelection, decode
from klamm.spark.errors import BadOption
from klamm.spark.fetch import RangeReader
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.plan import plan_ranges
from klamm.spark.pool import ClientPool
from klamm.spark.ranges import TaskRanges, pack, task_count
from klamm.spark.read_client import read_client

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
FIELDS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_POOL: Final = ClientPool()
"""For all reads of this process: a Spark worker lives through many tasks."""
READS_BEFORE_FREEZE: Final = 3  # modules are still imported during the first ones


class KlammSource(DataSource):
    """`spark.read.format("klamm")`: the rows of Spark's own Kafka source, without its jars."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark finds the source: `klamm`."""
        return "klamm"

    def schema(self) -> StructType:
        """Return the Spark schema; with the option includeHeaders it has the column `headers`."""
        return StructType([*FIELDS, HEADERS] if self._read_options.include_headers else list(FIELDS))

    def reader(self, schema: StructType) -> "KlammReader":
        """Return the reader for the columns that Spark needs."""
        return KlammReader(self._read_options, columns_of(schema))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that the user's schema selects, in its order. Raises BadOption for any other column or type."""
    known = {field.name: field for field in (*FIELDS, HEADERS)}
    for field in schema.fields:
        if field.name not in known or field.dataType != known[field.name].dataType:
            raise BadOption(
                f"the schema has the column {field.name} {field.dataType.simpleString()}, which klamm does not have. "
                "Use some of: " + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in known.values())
            )
    return tuple(field.name for field in schema.fields)


class KlammReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the read, each with the offset ranges that it reads."""
        world = RealBlockingWorld()
        with read_client(world, self._options, _POOL) as brokers:
            ranges = plan_ranges(brokers)
        total = sum(r.size for r in ranges)
        options = self._options
        tasks = task_count(total, world.processors(), options.min_partitions, options.max_records_per_partition)
        return [InputPartition(task) for task in pack(ranges, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Yields nothing for a partition that this source did not plan."""
        if isinstance(partition.value, TaskRanges):
            yield from read_ranges(RealBlockingWorld(), self._options, self._columns, partition.value, _POOL)
        freeze_heap()


def read_ranges(
    world: BlockingWorld,
    options: ReadOptions,
    columns: tuple[str, ...],
    task: TaskRanges,
    pool: ClientPool | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's offset ranges as Arrow record batches."""
    with read_client(world, options, pool) as brokers:
        for offset_range in task.ranges:
            selection = RecordSelection(*offset_range[:3], columns)
            for run, aborted in RangeReader(brokers, offset_range):
                yield from decode(run, selection, aborted)


def freeze_heap() -> None:
    """Exclude the objects that exist now from garbage collection, since Spark's worker collects after each task.

    A collection over all modules takes 10-30 ms.
    """
    done = getattr(sys, "_klamm_reads", 0)
    if done < READS_BEFORE_FREEZE:
        freeze_objects()
        sys._klamm_reads = done + 1  # type: ignore[attr-defined]  # the module itself may be loaded anew per task
