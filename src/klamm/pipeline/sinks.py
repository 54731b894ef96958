"""Where a pipeline writes: each micro-batch once, recognised by the id of its query and its number."""

import hashlib
import math
from collections.abc import Callable, Mapping
from posixpath import join
from typing import Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StructType, TimeType

from klamm.model.errors import KlammError, UsageError
from klamm.pipeline.spec import SinkKind, Spec, Upsert
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import Disk
from klamm.runtime.randomness import RealRandomness
from klamm.spark.errors import BadOption
from klamm.spark.sink_schema import sink_columns

_RANK: Final = "klamm_rank"
_MS_PER_HOUR: Final = 3_600_000
_MAX_REQUEST_BYTES: Final = 64 << 20
"""No pipeline sets a limit of its own for records: that of the topic, `max.message.bytes`, decides."""
_DIGEST_CHARS: Final = 12
_BATCH: Final = "batch="
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_PENDING: Final = "_pending-"
"""Readers of Parquet ignore directories that begin with an underscore."""
_LEFTOVER_MS: Final = 7 * 24 * _MS_PER_HOUR
"""No micro-batch takes so long: a directory that is pending for longer is left over, whichever pipeline made it."""
_MAX_KEPT_HOURS: Final = 24 * 366 * 1_000


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
        self._upsert = spec.upsert

    def check(self, schema: StructType) -> None:
        """Raise BadFile where the table exists with other columns, and where no table can have these."""
        if not schema.fields:
            raise BadFile(f"{self._spec.at('steps')}: the result has no column. Select at least one.")
        check_storable(self._spec, schema, "Delta table", is_storable_in_delta)
        if self._upsert is not None:
            for field, names in zip(("sink.keys", "sink.order"), self._upsert, strict=True):
                if absent := sorted(set(names) - set(schema.names)):
                    raise BadFile(
                        f"{self._spec.at(field)}: {field} names {absent[0]}, which the result lacks. It has: "
                        f"{', '.join(schema.names)}. Correct the name, or select the column."
                    )
        table = self._table()
        if table is not None:
            check_columns(self._spec, "sink.delta", _types_of(table), schema)

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows in one commit, unless the table has a commit of this micro-batch. Raises SinkFailed."""
        application = f"klamm-{self._spec.name}-{batch.query}"
        table = self._table()
        done = None if table is None else table.transaction_version(application)
        if done is not None and done >= batch.number:
            return
        found = (rows if self._upsert is None else newest_rows(rows, self._upsert)).toArrow()
        if not found.num_rows:
            return
        name = CommitProperties(app_transactions=[Transaction(application, batch.number)])
        try:
            if table is None or self._upsert is None:
                write_deltalake(self._spec.target, found, mode="append", commit_properties=name)
            else:
                merge_newer(table, found, self._upsert, name)
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


def check_storable(spec: Spec, schema: StructType, what: str, is_storable: Callable[[DataType], bool]) -> None:
    """Raise BadFile for columns with one name, and for a column of a type that the files of the sink cannot have."""
    names = [name.lower() for name in schema.names]
    if repeated := next((n for n in schema.names if names.count(n.lower()) > 1), None):
        raise BadFile(f"{spec.at('steps')}: the result has several columns {repeated}. Give each a name of its own.")
    for column in schema.fields:
        if not is_storable(column.dataType):
            raise BadFile(
                f"{spec.at('steps')}: the column {column.name} of the result is {column.dataType.simpleString()}, "
                f"which a {what} cannot have. Cast it to another type, for example STRING or DOUBLE."
            )


def is_storable_in_delta(kind: DataType) -> bool:
    """Whether a Delta table can have a column of this type: none of time intervals, for example."""
    try:
        DeltaSchema.from_arrow(pa.schema([("column", to_arrow_type(kind, timezone="UTC"))]))
    except Exception:  # noqa: BLE001  # deltalake raises this very class
        return False
    return kind != StructType([])


def is_storable_in_parquet(kind: DataType) -> bool:
    """Whether Spark writes a column of this type to Parquet files. Source: ParquetFileFormat.supportDataType."""
    match kind:
        case StructType():
            return bool(kind.fields) and all(is_storable_in_parquet(f.dataType) for f in kind.fields)
        case ArrayType():
            return is_storable_in_parquet(kind.elementType)
        case MapType():
            return is_storable_in_parquet(kind.keyType) and is_storable_in_parquet(kind.valueType)
    return not isinstance(kind, CalendarIntervalType | TimeType)


def check_columns(spec: Spec, field: str, stored: Mapping[str, str], schema: StructType) -> None:
    """Raise BadFile where the result has other columns than the table, or other types.

    A write of other types would round or cut values; readers of files with other columns see those of one file.
    """
    given = {f.name: f.dataType.simpleString() for f in schema.fields}
    if stored.keys() != given.keys():
        missing, more = sorted(stored.keys() - given.keys()), sorted(given.keys() - stored.keys())
        raise BadFile(
            f"{spec.at(field)}: the table {spec.target} has other columns than the pipeline: "
            f"it has also {missing}, it lacks {more}. Change the steps, or name another directory."
        )
    for name, kind in given.items():
        if kind != stored[name]:
            raise BadFile(
                f"{spec.at(field)}: the column {name} of the table {spec.target} is {stored[name]}, that of the result "
                f"is {kind}. In the steps, cast it to {stored[name]}, or name another directory."
            )


def _types_of(table: DeltaTable) -> dict[str, str]:
    """The types of the columns of a table, as Spark writes them; Delta stores a schema as Spark's JSON."""
    return _types_in(table.schema().to_json())


def _types_in(schema: str | bytes) -> dict[str, str]:
    """The types of the columns in Spark's JSON of a schema."""
    stored = StructType.fromJson(msgspec.json.decode(schema))
    return {field.name: field.dataType.simpleString() for field in stored.fields}


class Compaction(NamedTuple):
    """What a compaction did, in numbers of files."""

    combined: int
    added: int
    removed: int


def compact_table(spec: Spec, keep_ms: int) -> Compaction:
    """Combine small files of a Delta table, and remove those that no version of the last `keep_ms` needs.

    Raises UsageError for other sinks, SinkFailed.
    """
    if spec.sink is not SinkKind.DELTA:
        raise UsageError(
            f"{spec.at(f'sink.{spec.sink}')}: only Delta tables can be compacted, and this is a {spec.sink}."
        )
    try:
        table = DeltaTable(spec.target)
        done = table.optimize.compact()
        hours = min(math.ceil(keep_ms / _MS_PER_HOUR), _MAX_KEPT_HOURS)  # deltalake ends the process at larger ones
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
    except TableNotFoundError as error:
        raise SinkFailed(f"There is no Delta table {spec.target} yet. Run the pipeline first.") from error
    except (DeltaError, OSError) as error:
        raise SinkFailed(
            f"Cannot compact the table {spec.target}: {error}. Try again when no run writes to it."
        ) from error
    return Compaction(done["numFilesRemoved"], done["numFilesAdded"], len(removed))


def newest_rows(rows: DataFrame, upsert: Upsert) -> DataFrame:
    """The newest row of each key."""
    newest = Window.partitionBy(*map(_quoted, upsert.keys)).orderBy(*(sql.col(_quoted(o)).desc() for o in upsert.order))
    return rows.withColumn(_RANK, sql.row_number().over(newest)).where(sql.col(_RANK) == 1).drop(_RANK)


def merge_newer(table: DeltaTable, rows: pa.Table, upsert: Upsert, name: CommitProperties) -> None:
    """Replace rows of the table by newer ones with the same keys, and add those of new keys, in one commit."""
    same = " AND ".join(f"(t.{_quoted(k)} IS NOT DISTINCT FROM s.{_quoted(k)})" for k in upsert.keys)
    newer = "true"
    for column in reversed(upsert.order):
        s, t = f"s.{_quoted(column)}", f"t.{_quoted(column)}"
        is_later = f"(({t} IS NULL) AND ({s} IS NOT NULL)) OR ({s} > {t})"
        newer = f"({is_later} OR (({s} IS NOT DISTINCT FROM {t}) AND {newer}))"
    merge = table.merge(rows, predicate=same, source_alias="s", target_alias="t", commit_properties=name)
    merge.when_matched_update_all(predicate=newer).when_not_matched_insert_all().execute()


def _quoted(name: str) -> str:
    """The name of a column for SQL."""
    return "`" + name.replace("`", "``") + "`"


class ParquetSink:
    """A directory of Parquet files with a directory for each micro-batch, which appears with all of its rows."""

    def __init__(self, spec: Spec, disk: Disk) -> None:
        self._spec = spec
        self._disk = disk
        # a killed driver's Java process may still write for a moment: each run has a directory of its own
        self._pending = f"{_PENDING}{spec.name}-{RealRandomness().bytes(4).hex()}"
        self._removed_leftovers = False

    def check(self, schema: StructType) -> None:
        """Raise BadFile where the rows cannot be written, and change nothing: the pipeline may be running.

        That is so for a column `batch`, which the names of the directories add, and for other columns than those of the
        files that are there.
        """
        check_storable(self._spec, schema, "Parquet file", is_storable_in_parquet)
        if "batch" in (name.lower() for name in schema.names):
            raise BadFile(
                f"{self._spec.at('sink.parquet')}: the result has the column batch, which readers take from the names "
                "of the directories. Give the column another name."
            )
        if self._disk.exists(self._spec.target) and (stored := self._stored_types()) is not None:
            check_columns(self._spec, "sink.parquet", stored, schema)

    def _stored_types(self) -> dict[str, str] | None:
        """The types of the columns in a file of the newest micro-batch here; None where there is none.

        Raises BadFile for a file that cannot be read.
        """
        target, disk = self._spec.target, self._disk
        batches = [join(target, name) for name in disk.list_directory(target) if name.startswith(_BATCH)]
        newest = max(batches, key=disk.modified_ms, default=None)
        names = [] if newest is None else disk.list_directory(newest)
        path = next((f"{newest}/{name}" for name in names if name.endswith(".parquet")), None)
        if path is None:
            return None
        try:
            schema = (pq.read_schema(path).metadata or {}).get(_SPARK_SCHEMA)
        except (pa.ArrowInvalid, OSError) as error:
            raise BadFile(
                f"{self._spec.at('sink.parquet')}: cannot read {path}: {error}. Remove this file if it is not the "
                "pipeline's, or name another directory."
            ) from error
        return None if schema is None else _types_in(schema)

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows beside the table, then rename, unless the table has this micro-batch. Raises SinkFailed."""
        target, disk = self._spec.target, self._disk
        final = join(target, f"{_BATCH}{batch.query[:8]}-{batch.number:08}")
        if disk.exists(final):
            return
        pending = join(target, self._pending)
        try:
            self._remove_leftovers()
            rows.write.mode("overwrite").parquet(pending)
            disk.sync_filesystem(target)
            disk.rename(pending, final)
            disk.sync_directory(target)
        except OSError as error:
            raise SinkFailed(
                f"Cannot write micro-batch {batch.number} to {target}: {error.strerror}. Correct the cause and run the "
                "pipeline again; it continues with this micro-batch."
            ) from error

    def _remove_leftovers(self) -> None:
        """Once in a run, remove what killed runs of the pipeline left; others may write to the directory now.

        What others left, such as the pipeline under an earlier name, is removed when it is old.
        """
        if not self._removed_leftovers and self._disk.exists(self._spec.target):
            for name in self._disk.list_directory(self._spec.target):
                path = join(self._spec.target, name)
                is_own = name.rpartition("-")[0] == f"{_PENDING}{self._spec.name}"
                if name.startswith(_PENDING) and name != self._pending and (is_own or self._is_old(path)):
                    self._disk.remove_tree(path)
        self._removed_leftovers = True

    def _is_old(self, path: str) -> bool:
        """Whether a directory was last changed long ago; False for one that is renamed just now."""
        try:
            return RealClock().now_ms() - self._disk.modified_ms(path) > _LEFTOVER_MS
        except FileNotFoundError:
            return False


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
            "kafka.max.request.size": str(_MAX_REQUEST_BYTES),
        }
        rows.write.format("klamm").mode("append").options(**options).save()


def letters_of(spec: Spec) -> TopicSink | None:
    """The topic of dead letters; None where the file names none.

    Its writes have a name that changes with decoding and expectations. An interrupted micro-batch that runs again after
    such a change may have other dead letters, which would be lost if the earlier ones were taken for them.
    """
    if spec.dead_letter_topic is None:
        return None
    values = spec.reads.values
    expectations = [(e.name, e.condition) for e in spec.expectations]
    rules = (spec.dead_letter_topic, values.format, values.schema, values.registry, expectations)
    digest = hashlib.sha256(repr(rules).encode()).hexdigest()[:_DIGEST_CHARS]
    return TopicSink(spec, spec.dead_letter_topic, f"dead-letters.{digest}", "dead_letter.topic")


def sink_of(spec: Spec, disk: Disk) -> Sink:
    """Return the sink that the file names."""
    if spec.sink is SinkKind.DELTA:
        return DeltaSink(spec)
    if spec.sink is SinkKind.PARQUET:
        return ParquetSink(spec, disk)
    return TopicSink(spec, spec.target, "sink", "sink.topic")
