"""What the tables are made of: the lines of a journal, taken apart by what they tell.

Each function takes journal lines as `klamm.insight.journal` reads them, and returns a narrow DataFrame that can be
stored; the tables are computed from those.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType

from klamm.insight.journal import LINE_ID, parsed
from klamm.telemetry.journal_reader import describe_event, parse_lines

DELETED: Final = "deleted"
"""The value of `what` where a topic's deletion ends the timeline of its partitions."""
INITIAL: Final = "initial"
REASSIGNMENT_STEP: Final = "reassignment step"
"""The value of `what` where only the assigned replicas change."""

_COMMON: Final = (*LINE_ID, "controller_epoch", "cause")
_STATE: Final = (
    "leader_from", "leader_to", "leader_epoch", "partition_epoch", "isr_from", "isr", "unclean", "replicas",
)  # fmt: skip
_TOLD: Final = ("event", "found")
"""The kinds of lines from whose text events are described."""


def state_steps(lines: DataFrame) -> DataFrame:
    """What happened to partitions, in rows: decisions about leader and ISR, steps of reassignments, deletions.

    `what` is the kind of decision, `REASSIGNMENT_STEP`, or `DELETED`. A topic whose znodes were deleted by hand has one
    row without `partition`.
    """
    own = parsed(lines, ("decision", "reassignment"), ("decision", "topic", "partition", *_STATE, "rejected"))
    is_decision = sql.col("kind") == "decision"
    changed = own.where(
        sql.when(is_decision, sql.col("leader_to").isNotNull()).otherwise(sql.expr("replicas is not null"))
    )
    steps = changed.select(
        *_COMMON,
        sql.when(is_decision, sql.col("decision")).otherwise(REASSIGNMENT_STEP).alias("what"),
        "topic",
        "partition",
        *_STATE,
        sql.when(is_decision, sql.col("rejected")).alias("rejected"),
    )
    return steps.unionByName(_ends(lines), allowMissingColumns=True)


def _ends(lines: DataFrame) -> DataFrame:
    """The deletions of partitions, and of whole topics by hand."""
    ended = parsed(lines, ("deletion", "found"), ("step", "partitions", "deleted"))
    completed = (
        ended.where("kind = 'deletion' and step = 'completed'")
        .select(*_COMMON, sql.explode("partitions").alias("topic", "numbers"))
        .select(*_COMMON, "topic", sql.explode("numbers").alias("partition"))
    )
    by_hand = ended.where("kind = 'found' and deleted is not null").select(
        *_COMMON, sql.explode("deleted").alias("topic"), sql.lit(None).cast("int").alias("partition")
    )
    return completed.unionByName(by_hand).withColumn("what", sql.lit(DELETED))


def event_lines(lines: DataFrame) -> DataFrame:
    """Controller events, with what they found and when they were done; `line` is the text of the first two."""
    described = parsed(lines, (*_TOLD, "done"), ("event", "waited_ms", "ms"))
    text = sql.when(sql.col("kind").isin(*_TOLD), sql.col("line"))
    return described.select(*_COMMON, "event", "waited_ms", "ms", text.alias("line"))


def request_lines(lines: DataFrame) -> DataFrame:
    """Control requests to brokers, and their responses."""
    fields = ("broker", "api", "count", "ms", "failures", "failed", "error")
    exchanged = parsed(lines, ("request", "response"), fields).where("broker is not null")
    return exchanged.select(*_COMMON, *fields)


def refusal_lines(lines: DataFrame) -> DataFrame:
    """What controllers refused, with the reason: elections among it, with the candidates passed over."""
    fields = ("what", "why", "error", "partitions", "rejected")
    return parsed(lines, ("refused",), fields).select(*_COMMON, *fields)


def causes(events: DataFrame) -> DataFrame:
    """A row for each controller event: `cause`, `event`, `noticed_ms`, `waited_ms`, `handled_ms` and `why`.

    `noticed_ms` is when the event was put into the controller's queue, in ms since 1970. `why` is the event with what
    it found, in the words of `klamm explain`.
    """
    first = sql.struct("seq", "event", "ts_ms", "waited_ms")
    begun = sql.min(sql.when(sql.col("kind") == "event", first))
    described = sql.array_sort(sql.collect_list(sql.when(sql.col("line").isNotNull(), sql.struct("seq", "line"))))
    grouped = events.groupBy("cause").agg(
        begun.alias("begun"),
        described.alias("told"),
        sql.max(sql.when(sql.col("kind") == "done", sql.col("ms"))).alias("ms"),
    )
    waited = sql.coalesce("begun.waited_ms", sql.lit(0.0))
    return grouped.where("begun is not null").select(
        "cause",
        sql.col("begun.event").alias("event"),
        (sql.col("begun.ts_ms") - sql.round(waited)).cast("long").alias("noticed_ms"),
        sql.col("begun.waited_ms").alias("waited_ms"),
        sql.col("ms").alias("handled_ms"),
        _describe(sql.col("told.line")).alias("why"),
    )


def _describe(lines: Column) -> Column:
    """The column of descriptions of events, each from an array of its journal lines."""
    return sql.udf(_description, StringType(), useArrow=True)(lines)


def _description(lines: Sequence[str]) -> str:
    """Return an event in words from its own line and the lines of what it found; runs in Spark's Python workers."""
    entries = list(parse_lines("\n".join(lines).encode()))
    event = next(e for e in entries if e.kind == "event")
    found: dict[str, object] = {}
    for entry in entries:
        found |= entry.facts
    return describe_event(event._replace(facts=found))


def with_causes(rows: DataFrame, known: DataFrame, *columns: str) -> DataFrame:
    """The rows with columns of their cause, `why` by default; null where the event is not in the journal."""
    return rows.join(known.select("cause", *(columns or ("why",))), "cause", "left")
