"""The journal's tables on disk, kept up to date batch by batch: `InsightStore`.

Below the directory of the store each table has one directory for each batch. A batch writes its own directories only,
and `commits` last: a batch that is repeated after a crash replaces what it wrote before, and readers see complete
batches only. Intervals are appended when they end. `last` keeps the last state of each partition, from which the next
batch continues, and the last deletion of each whole topic, which also ends partitions whose lines come later; its
directories are used in turn.

The journal topic may have lines late: a controller that lost its connection writes its last lines after the first ones
of the next controller. The intervals of such a partition are then computed again from all of its steps; `replaced` says
from which batch on they count.
"""

from collections.abc import Callable
from posixpath import join
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from klamm.insight.facts import REASSIGNMENT_STEP, event_lines, refusal_lines, request_lines, state_steps
from klamm.insight.journal import LINE_ID, ORDER, empty_lines, stream_topic
from klamm.insight.timeline import PARTITION, for_each_partition, timeline
from klamm.model.errors import KlammError
from klamm.telemetry.journal import JOURNAL_TOPIC

FACTS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "steps": state_steps,
    "events": event_lines,
    "requests": request_lines,
    "refusals": refusal_lines,
}
"""The tables that are taken from journal lines as they are, and the functions that take them."""
_SLOTS: Final = 3
"""Directories of `last`: what a batch writes, what it continues from, and what it continued from if it is repeated."""
_NONE: Final = -1
"""In place of a batch, where there is none yet."""


class WrongBatch(KlammError):
    """The store has later batches than the one that is added: its checkpoint is lost, or another query's."""


class InsightStore:
    """The tables in one directory. One process may write at a time; others may read meanwhile."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory

    # ---- reading

    def has_batches(self) -> bool:
        """Whether the directory has tables: a batch was added and is complete."""
        return bool(self._commits())

    def facts(self, table: str) -> DataFrame:
        """The rows of one of the tables `FACTS`, each once, though the journal topic may have it several times."""
        rows = self._read(table, max(self._commits(), default=_NONE)).drop("batch")
        return rows.dropDuplicates([*LINE_ID, *(name for name in PARTITION if name in rows.columns)])

    def timeline(self) -> DataFrame:
        """The intervals of `timeline.timeline`, as they were computed batch by batch."""
        newest = max(self._commits(), default=_NONE)
        since = self._read("replaced", newest).groupBy(*PARTITION).agg(sql.max("batch").alias("since"))
        valid = self._read("intervals", newest).join(since, list(PARTITION), "left")
        ended = valid.where("since is null or batch >= since").drop("batch", "since")
        return ended.unionByName(timeline(self._last(newest)).where("valid_to is null"))

    # ---- writing

    def follow(
        self, bootstrap_servers: str, topic: str = JOURNAL_TOPIC, *, on_data_loss: str = "fail", **trigger: Any
    ) -> StreamingQuery:
        """Add the lines of the journal topic as a stream; `trigger` has the arguments of DataStreamWriter.trigger.

        `on_data_loss`: what happens where the topic has deleted lines that were not read: `fail`, or `skip` them.
        """
        lines = stream_topic(self._spark, bootstrap_servers, topic, on_data_loss)
        query = lines.writeStream.foreachBatch(self.add_batch).queryName(f"klamm insight of {topic}")
        return query.option("checkpointLocation", join(self._directory, "checkpoint")).trigger(**trigger).start()

    def add_batch(self, lines: DataFrame, batch: int) -> None:
        """Add journal lines. A batch that was added before, wholly or in part, is replaced. Raises WrongBatch."""
        commits = self._commits()
        if (newest := max(commits, default=_NONE)) > batch:
            raise WrongBatch(
                f"{self._directory} has batches up to {newest}, and batch {batch} comes again: the checkpoint of its "
                "query is lost, or belongs to another query. Remove the directory, and begin anew."
            )
        once = lines.distinct().persist()
        for table, taken_from in FACTS.items():
            self._write(taken_from(once), table, batch)
        once.unpersist()
        self._add_intervals(max((n for n in commits if n != batch), default=_NONE), batch)
        self._write(self._spark.createDataFrame([(batch,)], "number int"), "commits", batch)

    def _add_intervals(self, before: int, batch: int) -> None:
        """Write the intervals that the batch ends, and the last state of each partition, continuing from `before`."""
        last = self._last(before)
        steps = self._spark.read.schema(last.schema).parquet(self._path("steps", batch))
        known = last.withColumn("is_new", sql.lit(False))
        every = known.unionByName(_states(steps).withColumn("is_new", sql.lit(True)))
        # the deletion of a whole topic may be in `last` twice: as it is, and as the end of a partition
        rows = for_each_partition(every).dropDuplicates([*LINE_ID, *PARTITION, "is_new"]).persist()
        late = _late(rows).persist()
        states = rows.drop("is_new")
        if not late.isEmpty():
            all_steps = self._read("steps", before).drop("batch").unionByName(steps)
            again = for_each_partition(_states(all_steps)).dropDuplicates([*LINE_ID, *PARTITION])
            states = states.join(late, list(PARTITION), "left_anti").unionByName(
                again.join(late, list(PARTITION), "left_semi")
            )
        states.persist()
        ends = every.where("partition is null").drop("is_new")
        age = sql.row_number().over(Window.partitionBy(*PARTITION).orderBy(*(sql.desc(name) for name in ORDER)))
        self._write(timeline(states).where("valid_to is not null"), "intervals", batch)
        newest = states.unionByName(ends).withColumn("age", age).where("age = 1").drop("age")
        self._write(newest, "last", batch % _SLOTS)
        self._write(late, "replaced", batch)
        for kept in (rows, late, states):
            kept.unpersist()

    # ---- directories

    def _commits(self) -> list[int]:
        """The numbers of all complete batches."""
        try:
            # with a schema, since a run that was killed at its first commit leaves a directory without files
            commits = self._spark.read.schema("number int, batch int").parquet(join(self._directory, "commits"))
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return []
            raise
        return [row.batch for row in commits.select("batch").collect()]

    def _read(self, table: str, newest: int) -> DataFrame:
        """The rows of a table up to this batch, with the column `batch`."""
        if newest == _NONE:
            return self._empty(table).withColumn("batch", sql.lit(0))
        return self._spark.read.parquet(join(self._directory, table)).where(sql.col("batch") <= newest)

    def _last(self, batch: int) -> DataFrame:
        """The last state of each partition after this batch."""
        if batch == _NONE:
            return self._empty("steps")
        return self._spark.read.schema(self._empty("steps").schema).parquet(self._path("last", batch % _SLOTS))

    def _empty(self, table: str) -> DataFrame:
        """A table without rows."""
        lines = empty_lines(self._spark)
        if table in FACTS:
            return FACTS[table](lines)
        intervals = timeline(state_steps(lines))
        return intervals if table == "intervals" else intervals.select(*PARTITION)

    def _write(self, rows: DataFrame, table: str, batch: int) -> None:
        """Write one batch of a table, in place of what there was of it."""
        rows.coalesce(1).write.mode("overwrite").parquet(self._path(table, batch))

    def _path(self, table: str, batch: int) -> str:
        """The directory of one batch of a table."""
        return join(self._directory, table, f"batch={batch}")


def _states(steps: DataFrame) -> DataFrame:
    """The steps that change leader or ISR, or end a partition."""
    return steps.where(sql.col("what") != REASSIGNMENT_STEP)


def _late(rows: DataFrame) -> DataFrame:
    """The partitions with new steps that are older than the last one known, or the same."""
    known = rows.where("not is_new").groupBy(*PARTITION).agg(sql.max(sql.struct(*ORDER)).alias("known"))
    new = rows.where("is_new").join(known, list(PARTITION))
    return new.where(sql.struct(*ORDER) <= sql.col("known")).select(*PARTITION).distinct()
