"""Where a pipeline writes: each micro-batch once, recognised by the id of its query and its number."""

import hashlib
import math
from collections.abc import Callable, Mapping
from posixpath import join
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, CalendarIntervalType, DataType, MapType, StructType, TimeType

from klamm.model.errors import KlammError, UsageError
from klamm.pipeline.rows import free_name
from klamm.pipeline.spec import SinkKind, Spec, Upsert
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import Disk
from klamm.runtime.randomness import RealRandomness
from klamm.spark.errors import BadOption
from klamm.spark.option_set import Reads
from klamm.spark.read_client import read_client
from klamm.spark.sink_commits import CommitTopic
from klamm.spark.sink_options import WriteOptions, write_options
from klamm.spark.sink_schema import sink_columns

_RANK: Final = "klamm_rank"
_MS_PER_HOUR: Final = 3_600_000
_DIGEST_CHARS: Final = 12
_BATCH: Final = "batch="
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_PENDING: Final = "_pending-"
"""Readers of Parquet ignore directories that begin with an underscore."""
_LEFTOVER_MS: Final = 7 * 24 * _MS_PER_HOUR
"""No micro-batch takes so long: a directory that is pending for longer is left over, whichever pipeline made it."""
_MAX_KEPT_HOURS: Final = 24 * 366 * 1_000

T = TypeVar("T")
TableT = TypeVar("TableT", DeltaTable, DeltaTable | None)

MAX_COMMIT_ATTEMPTS: Final = 20
"""Tries of a commit that conflicts with others: a compaction is one commit, and the upserts of a run are one by one."""


class SinkFailed(KlammError):
    """A micro-batch could not be written to a table."""


class BatchName(NamedTuple):
    """A micro-batch: the id of the query, which a reset changes, and the number in it.

    `is_new` says that its offsets were planned in this run, so that no earlier run can have written it.
    """

    query: str
    number: int
    is_new: bool = False


class Sink(Protocol):
    """One place to write to."""

    def check(self, schema: StructType) -> None:
        """Raise BadFile where rows of the schema cannot be written."""

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows of a micro-batch, unless an earlier run has done it. Raises SinkFailed."""


class DeltaSink:
    """A Delta table. The commit of a micro-batch has its name, so that it is recognised."""

    def __init__(self, spec: Spec, disk: Disk) -> None:
        self._spec = spec
        self._disk = disk
        self._upsert = spec.upsert

    def check(self, schema: StructType) -> None:
        """Raise BadFile where the table exists with other columns, and where no table can have these."""
        if not schema.fields:
            raise BadFile(f"{self._spec.at('steps')}: the result has no column. Select at least one.")
        if self._upsert is not None:
            check_upsert(self._spec, self._upsert, schema)
            schema = StructType([f for f in schema.fields if f.name != self._upsert.delete])
        check_storable(self._spec, schema, "Delta table", is_storable_in_delta)
        table = self._table()
        if table is not None:
            check_columns(self._spec, "sink.delta", _types_of(table), schema)

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows in one durable commit, unless the table has one of this micro-batch. Raises SinkFailed."""
        application = f"klamm-{self._spec.name}-{batch.query}"
        table = self._table()
        done = None if table is None else table.transaction_version(application)
        if done is not None and done >= batch.number:
            check_not_set_back(self._spec, f"delta {self._spec.target}", done, batch)
            return
        found = (rows if self._upsert is None else newest_rows(rows, self._upsert)).toArrow()
        if table is None and self._upsert is not None and self._upsert.delete is not None:
            found = without_deletes(found, self._upsert.delete)
        if not found.num_rows:
            return
        try:
            self._commit(table, found, Transaction(application, batch.number))
            self._disk.sync_filesystem(self._spec.target)
        except (DeltaError, OSError) as error:
            raise SinkFailed(
                f"Cannot write micro-batch {batch.number} to the table {self._spec.target}: {error}. Correct the cause "
                "and run the pipeline again; it continues with this micro-batch."
            ) from error

    def _commit(self, table: DeltaTable | None, rows: pa.Table, name: Transaction) -> None:
        """Write the rows in one commit; again where the table changes meanwhile, as by a compaction.

        Raises DeltaError, OSError.
        """
        properties = CommitProperties(app_transactions=[name])

        def write(table: DeltaTable | None) -> None:
            """Write the rows, unless an attempt that seemed to fail has written them."""
            if table is not None and table.transaction_version(name.app_id) == name.version:
                return
            if table is None or self._upsert is None:
                write_deltalake(self._spec.target, rows, mode="append", commit_properties=properties)
            else:
                merge_newer(table, rows, self._upsert, properties)

        commit_again(table, write, self._table)

    def _table(self) -> DeltaTable | None:
        """The table; None where it does not exist yet."""
        try:
            return DeltaTable(self._spec.target)
        except TableNotFoundError:
            return None


def commit_again(table: TableT, commit: Callable[[TableT], T], reopen: Callable[[], TableT]) -> T:
    """Commit to the table; again, up to a limit, to the one from `reopen` where it has changed meanwhile.

    Returns what `commit` returns. Raises its last DeltaError or OSError.
    """
    for left in reversed(range(MAX_COMMIT_ATTEMPTS)):
        version = None if table is None else table.version()  # a commit moves the table on
        try:
            return commit(table)
        except (DeltaError, OSError):
            table = reopen()
            if not left or table is None or table.version() == version:
                raise
    raise AssertionError("the last attempt returns or raises")


def check_not_set_back(spec: Spec, target: str, last: int, batch: BatchName) -> None:
    """Raise SinkFailed where `target` has a micro-batch of the query that the checkpoint knows nothing of.

    It may have been written with other offsets then, so that records of this micro-batch would be missing.
    """
    if last > batch.number or (last == batch.number and batch.is_new):
        raise SinkFailed(
            f"The {target} has micro-batch {last} of the pipeline, but its checkpoint continues with micro-batch "
            f"{batch.number}{', newly planned' if last == batch.number else ''}: the checkpoint was set back, for "
            f"example from a backup. Restore the newer checkpoint in {spec.state}, or let klamm pipeline reset say "
            "where to begin."
        )


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

    def open_table() -> DeltaTable:
        """The newest version of the table. Raises TableNotFoundError."""
        return DeltaTable(spec.target)

    try:
        table, done = commit_again(open_table(), lambda table: (table, table.optimize.compact()), open_table)
        hours = min(math.ceil(keep_ms / _MS_PER_HOUR), _MAX_KEPT_HOURS)  # deltalake ends the process at larger ones
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
    except TableNotFoundError as error:
        raise SinkFailed(f"There is no Delta table {spec.target} yet. Run the pipeline first.") from error
    except (DeltaError, OSError) as error:
        raise SinkFailed(
            f"Cannot compact the table {spec.target}: {error}. Try again when no run writes to it."
        ) from error
    return Compaction(done["numFilesRemoved"], done["numFilesAdded"], len(removed))


def check_upsert(spec: Spec, upsert: Upsert, schema: StructType) -> None:
    """Raise BadFile where the result lacks a column that the upsert names, or has one that cannot serve for it."""
    named = {"sink.keys": upsert.keys, "sink.order": upsert.order}
    if upsert.delete is not None:
        named["sink.delete"] = (upsert.delete,)
    for field, names in named.items():
        if absent := sorted(set(names) - set(schema.names)):
            raise BadFile(
                f"{spec.at(field)}: {field} names {absent[0]}, which the result lacks. It has: "
                f"{', '.join(schema.names)}. Correct the name, or select the column."
            )
        if quoted := next((name for name in names if "`" in name), None):
            raise BadFile(f"{spec.at(field)}: {field} names {quoted}. In the steps, give it a name without backticks.")
    if upsert.delete is None:
        return
    if (kind := schema[upsert.delete].dataType) != BooleanType():
        raise BadFile(
            f"{spec.at('sink.delete')}: the column {upsert.delete} of the result is {kind.simpleString()}. In the "
            "steps, make it BOOLEAN: true where the row of the keys is to be deleted."
        )
    if upsert.delete in (*upsert.keys, *upsert.order):
        raise BadFile(
            f"{spec.at('sink.delete')}: the column {upsert.delete} is in sink.keys or sink.order, too. Name another."
        )


def newest_rows(rows: DataFrame, upsert: Upsert) -> DataFrame:
    """The newest row of each key."""
    rank = free_name(_RANK, {name.lower() for name in rows.columns})
    newest = Window.partitionBy(*map(_quoted, upsert.keys)).orderBy(*(sql.col(_quoted(o)).desc() for o in upsert.order))
    return rows.withColumn(rank, sql.row_number().over(newest)).where(sql.col(rank) == 1).drop(rank)


def without_deletes(rows: pa.Table, delete: str) -> pa.Table:
    """The rows that a new table begins with: none that delete one, and not the column that says so."""
    deletes = pc.fill_null(rows.column(delete), False)
    return rows.filter(pc.invert(deletes)).drop_columns([delete])


def merge_newer(table: DeltaTable, rows: pa.Table, upsert: Upsert, name: CommitProperties) -> None:
    """Replace rows of the table by newer ones with the same keys, and add those of new keys, in one commit.

    A newer row whose column `delete` is true removes that of its keys instead.
    """
    same = " AND ".join(f"(t.{_quoted(k)} IS NOT DISTINCT FROM s.{_quoted(k)})" for k in upsert.keys)
    newer = "true"
    for column in reversed(upsert.order):
        s, t = f"s.{_quoted(column)}", f"t.{_quoted(column)}"
        is_later = f"(({t} IS NULL) AND ({s} IS NOT NULL)) OR ({s} > {t})"
        newer = f"({is_later} OR (({s} IS NOT DISTINCT FROM {t}) AND {newer}))"
    merge = table.merge(rows, predicate=same, source_alias="s", target_alias="t", commit_properties=name)
    if upsert.delete is None:
        merge.when_matched_update_all(predicate=newer).when_not_matched_insert_all().execute()
        return
    delete = f"(s.{_quoted(upsert.delete)} IS TRUE)"
    (
        merge.when_matched_delete(predicate=f"{newer} AND {delete}")
        .when_matched_update_all(predicate=f"{newer} AND NOT {delete}", except_cols=[upsert.delete])
        .when_not_matched_insert_all(predicate=f"NOT {delete}", except_cols=[upsert.delete])
        .execute()
    )


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
        begin = f"{_BATCH}{batch.query[:8]}-"
        final = join(target, f"{begin}{batch.number:08}")
        is_written = disk.exists(final)
        if not self._removed_leftovers and disk.exists(target):
            numbers = [name.removeprefix(begin) for name in disk.list_directory(target) if name.startswith(begin)]
            last = max((int(n) for n in numbers if n.isdecimal()), default=-1)
            check_not_set_back(self._spec, f"parquet {target}", last, batch)
        if is_written:
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
        self._checked = False

    def check(self, schema: StructType) -> None:
        """Raise BadFile unless the rows have the columns of a record."""
        try:
            sink_columns(schema, self._topic)
        except BadOption as error:
            raise BadFile(f"{self._spec.at(self._field)}: {self._field}: {error}.") from error

    def write(self, rows: DataFrame, batch: BatchName) -> None:
        """Write the rows in transactions. Raises SinkFailed and what a write with Spark raises."""
        write_id = f"{self._spec.name}.{batch.query}.{self._purpose}"
        options = self._spec.write_to(self._topic, write_id, batch.number)
        if batch.is_new and not self._checked:
            last = last_written(write_options(options, Reads.BATCH), write_id)
            check_not_set_back(self._spec, f"topic {self._topic}", -1 if last is None else last, batch)
        self._checked = True  # from here on this run writes one micro-batch after the other
        rows.write.format("klamm").mode("append").options(**options).save()


def last_written(options: WriteOptions, write_id: str) -> int | None:
    """The last batch that a write with exactly-once committed; None where it did none.

    Raises CommitsUnusable, Unreachable.
    """
    with read_client(RealBlockingWorld(), options.reads) as brokers:
        if not brokers.topics([options.commit_topic])[options.commit_topic].partitions:
            return None
        last = CommitTopic(brokers, options, RealClock().now_ms).last(write_id)
        return None if last is None else last.batch


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
        return DeltaSink(spec, disk)
    if spec.sink is SinkKind.PARQUET:
        return ParquetSink(spec, disk)
    return TopicSink(spec, spec.target, "sink", "sink.topic")
