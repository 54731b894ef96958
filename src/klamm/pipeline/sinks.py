"""Where a pipeline writes: each micro-batch once, recognised by the id of its query and its number."""

from posixpath import join
from typing import Final, NamedTuple, Protocol

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from klamm.model.errors import KlammError
from klamm.pipeline.spec import SinkKind, Spec
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.disk import Disk
from klamm.runtime.randomness import RealRandomness
from klamm.spark.errors import BadOption
from klamm.spark.sink_schema import sink_columns

_PENDING: Final = "_pending-"
"""Readers of Parquet ignore directories that begin with an underscore."""


class SinkFailed(KlammError):
    """A micro-batch could not be written to a table."""


class BatchName(NamedTuple):
    """A micro-batch: the id of the query, which a reset changes, and the number in it."""

    query: str
    number: int


class Sink(Protocol):
    """One place to write to."""

    def check(self, schema: StructType) -> None:
        """Raise BadFile where rows of the schema cannot be written."""

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows of a micro-batch, unless an earlier run has done it. Raises SinkFailed."""


class DeltaSink:
    """A Delta table. The commit of a micro-batch has its name, so that it is recognised."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def check(self, schema: StructType) -> None:
        """Raise BadFile where the table exists with other columns."""
        if not schema.fields:
            raise BadFile(f"{self._spec.at('steps')}: the result has no column. Select at least one.")
        table = self._table()
        if table is None:
            return
        stored, given = {f.name for f in table.schema().fields}, set(schema.names)
        if stored != given:
            missing, more = sorted(stored - given), sorted(given - stored)
            raise BadFile(
                f"{self._spec.at('sink.delta')}: the table {self._spec.target} has other columns than the pipeline: "
                f"it has also {missing}, it lacks {more}. Change the steps, or name another directory."
            )

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Append the rows in one commit, unless the table has a commit of this micro-batch. Raises SinkFailed."""
        application = f"klamm-{self._spec.name}-{batch.query}"
        table = self._table()
        done = None if table is None else table.transaction_version(application)
        if done is not None and done >= batch.number:
            return
        found = rows.toArrow()
        if not found.num_rows:
            return
        name = CommitProperties(app_transactions=[Transaction(application, batch.number)])
        try:
            write_deltalake(self._spec.target, found, mode="append", commit_properties=name)
        except (DeltaError, OSError) as error:
            raise SinkFailed(
                f"Cannot write micro-batch {batch.number} to the table {self._spec.target}: {error}. Correct the cause "
                "and run the pipeline again; it continues with this micro-batch."
            ) from error

    def _table(self) -> DeltaTable | None:
        """The table; None where it does not exist yet."""
        try:
            return DeltaTable(self._spec.target)
        except TableNotFoundError:
            return None


class ParquetSink:
    """A directory of Parquet files with a directory for each micro-batch, which appears with all of its rows."""

    def __init__(self, spec: Spec, disk: Disk) -> None:
        self._spec = spec
        self._disk = disk
        # a killed driver's Java process may still write for a moment: each run has a directory of its own
        self._pending = f"{_PENDING}{RealRandomness().bytes(4).hex()}"

    def check(self, schema: StructType) -> None:
        """Remove what killed runs left. Raises BadFile for a column `batch`, which the names of the directories add."""
        if "batch" in (name.lower() for name in schema.names):
            raise BadFile(
                f"{self._spec.at('sink.parquet')}: the result has the column batch, which readers take from the names "
                "of the directories. Give the column another name."
            )
        if self._disk.exists(self._spec.target):
            for name in self._disk.list_directory(self._spec.target):
                if name.startswith(_PENDING) and name != self._pending:
                    self._disk.remove_tree(join(self._spec.target, name))

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows beside the table, then rename, unless the table has this micro-batch. Raises SinkFailed."""
        target, disk = self._spec.target, self._disk
        final = join(target, f"batch={batch.query[:8]}-{batch.number:08}")
        if disk.exists(final):
            return
        pending = join(target, self._pending)
        try:
            rows.write.mode("overwrite").parquet(pending)
            disk.sync_filesystem(target)
            disk.rename(pending, final)
            disk.sync_directory(target)
        except OSError as error:
            raise SinkFailed(
                f"Cannot write micro-batch {batch.number} to {target}: {error.strerror}. Correct the cause and run the "
                "pipeline again; it continues with this micro-batch."
            ) from error


class TopicSink:
    """A topic, in transactions. The write id of a micro-batch is recognised by the commit topic."""

    def __init__(self, spec: Spec, topic: str, purpose: str, field: str) -> None:
        self._spec = spec
        self._topic = topic
        self._purpose = purpose
        self._field = field

    def check(self, schema: StructType) -> None:
        """Raise BadFile unless the rows have the columns of a record."""
        try:
            sink_columns(schema, self._topic)
        except BadOption as error:
            raise BadFile(f"{self._spec.at(self._field)}: {self._field}: {error}.") from error

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows in transactions. Raises what a write with Spark raises."""
        options = {
            "kafka.bootstrap.servers": self._spec.sink_bootstrap,
            "topic": self._topic,
            "delivery": "exactly-once",
            "writeId": f"{self._spec.name}.{batch.query}.{self._purpose}",
            "writeBatch": str(batch.number),
        }
        rows.write.format("klamm").mode("append").options(**options).save()


def sink_of(spec: Spec, disk: Disk) -> Sink:
    """Return the sink that the file names."""
    if spec.sink is SinkKind.DELTA:
        return DeltaSink(spec)
    if spec.sink is SinkKind.PARQUET:
        return ParquetSink(spec, disk)
    return TopicSink(spec, spec.target, "sink", "sink.topic")
