"""The data source `klamm`: what Spark calls, in the driver to plan and in its Python workers to read."""

import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk
from klamm.spark.errors import BadOption, OptionOfOtherKind
from klamm.spark.filters import Condition, RowFilter, take_filters
from klamm.spark.option_set import Reads
from klamm.spark.option_table import READ_OPTIONS
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.parallelism import stored_parallelism
from klamm.spark.plan import plan_batch
from klamm.spark.schema import columns_of, source_schema
from klamm.spark.sink import KlammStreamWriter, KlammWriter, batch_job, stream_job
from klamm.spark.sink_options import WRITE_OPTIONS
from klamm.spark.stored_tables import TableTask, plan_table, read_table, table_columns, table_schema
from klamm.spark.stream import KlammStreamReader
from klamm.spark.tasks import POOL, Job, run_task
from klamm.spark.transports import open_transport
from klamm.spark.versions import SameVersion

_ONLY_FOR_READS: Final = frozenset(("subscribe", "subscribepattern", "assign", "logdirs"))
_TABLE_PROPERTIES: Final = frozenset(
    ("owner", "provider", "location", "comment", "collation", "external", "is_managed_location", "checkpointlocation")
)
"""What CREATE TABLE passes besides its options, and what writeStream passes for itself. Source: TableCatalog.java."""
_PUSHDOWN_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class KlammSource(DataSource):
    """`format("klamm")`: the rows of Spark's own Kafka source, without its jars."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = _without_table_properties(options)
        self._is_read = any(name.lower() in _ONLY_FOR_READS for name in self._given)
        if self._is_read:  # Spark does not say yet whether it reads or writes
            _options_of_either(self._given)
        (READ_OPTIONS if self._is_read else WRITE_OPTIONS).warn_without_effect(self._given)

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark finds the source: `klamm`."""
        return "klamm"

    def schema(self) -> StructType | str:
        """Return the Spark schema; some options add columns.

        Without options it is that of Spark's own source: CREATE TABLE passes none to Python sources.
        """
        options = _options_of_either(self._given) if self._given else None
        return source_schema(options) if options is None or options.table == "records" else table_schema(options.table)

    def reader(self, schema: StructType) -> "KlammReader | StoredTableReader":
        """Return the reader of a batch read for the columns that Spark needs. Raises BadOption."""
        options = read_options(self._given, Reads.BATCH)
        if options.table != "records":
            return StoredTableReader(options, schema)
        # Spark refuses a reader that takes filters where its configuration does not offer any
        kind = FilteringReader if _PUSHDOWN_PLANNER in sys.modules else KlammReader
        return kind(Job(options, columns_of(schema, options.values)))

    def streamReader(self, schema: StructType) -> KlammStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a streaming read. Raises BadOption."""
        options = read_options(self._given, Reads.STREAM)
        return KlammStreamReader(Job(options, columns_of(schema, options.values)))

    def writer(self, schema: StructType, overwrite: bool) -> KlammWriter:
        """Return the writer of a batch write. Raises BadOption, CommitsUnusable, Unreachable."""
        return KlammWriter(batch_job(self._given, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KlammStreamWriter:  # noqa: N802  # Spark's name
        """Return the writer of a micro-batch. Raises BadOption, CommitsUnusable, Unreachable."""
        return KlammStreamWriter(stream_job(self._given, schema))


def _without_table_properties(options: MutableMapping[str, str]) -> dict[str, str]:
    """The options of the read.

    CREATE TABLE passes them with the prefix `option.`, together with properties of the table.
    """
    of_table = {name.removeprefix("option."): value for name, value in options.items() if name.startswith("option.")}
    return of_table or {name: value for name, value in options.items() if name.lower() not in _TABLE_PROPERTIES}


def _options_of_either(given: MutableMapping[str, str]) -> ReadOptions:
    """Parse the options for a batch read or, where they are invalid for one, for a streaming read. Raises BadOption.

    Spark says only later which of the two it is. Where an option is only for streaming reads, it is one.
    """
    try:
        return read_options(given, Reads.BATCH)
    except BadOption as error:
        try:
            return read_options(given, Reads.STREAM)
        except BadOption as of_stream:
            raise (of_stream if isinstance(error, OptionOfOtherKind) else error) from None


class StoredTableReader(SameVersion, DataSourceReader):
    """A batch read of what log directories consist of."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = table_columns(options.table, schema)

    def partitions(self) -> list[InputPartition]:
        """Return a task for each replica."""
        return [InputPartition(task) for task in plan_table(RealBlockingWorld(), RealDisk(), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one replica. Yields nothing for a partition that this source did not plan."""
        if isinstance(partition.value, TableTask):
            yield from read_table(RealDisk(), self._options.table, self._columns, partition.value)


class KlammReader(SameVersion, DataSourceReader):
    """A batch read whose filters all stay with Spark."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the read, each with the offset ranges that it reads."""
        world = RealBlockingWorld()
        with open_transport(world, self._job.options, POOL) as transport:
            tasks = plan_batch(transport, self._job.wanted, stored_parallelism(world, RealDisk()))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Yields nothing for a partition that this source did not plan."""
        return run_task(self._job, partition.value)


class FilteringReader(KlammReader):
    """A batch read that itself applies conditions on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Take over the filters that the source applies; return those that Spark has to apply."""
        taken: list[Condition] = []
        left = list(take_filters(filters, taken))
        self._job = self._job._replace(wanted=RowFilter(tuple(taken)))
        return left
