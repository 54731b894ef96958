"""Partition timelines: who led a partition from when to when, with which ISR, and which decision made it so.

Intervals are in the order of the controllers' decisions. `valid_from` is when the controller journalled the state,
directly after ZooKeeper stored it; `valid_to` is the next one's `valid_from`, and null for the state of now.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sql

from klamm.insight.facts import DELETED, INITIAL, REASSIGNMENT_STEP
from klamm.insight.journal import ORDER, at

PARTITION: Final = ("topic", "partition")
INTERVAL: Final = (
    *PARTITION, "valid_from", "valid_to", "leader", "leader_epoch", "partition_epoch", "isr", "decision",
    "unclean", "leader_before", "isr_before", "rejected", "changed_unseen", "node", *ORDER, "cause", "ts_ms",
)  # fmt: skip
"""The columns of a timeline."""


def in_order_of_decisions() -> WindowSpec:
    """The window over one partition's rows, in the order in which controllers decided them."""
    return Window.partitionBy(*PARTITION).orderBy(*ORDER)


def laid_out(steps: DataFrame) -> DataFrame:
    """The steps in memory, by partition and in order of decisions: windows over them neither move nor sort them."""
    return steps.repartition(*PARTITION).sortWithinPartitions(*PARTITION, *ORDER).cache()


def timeline(steps: DataFrame) -> DataFrame:
    """The intervals of all partitions from their state steps, columns `INTERVAL`.

    `leader` is -1 while there is no leader. `changed_unseen` says that the state changed within or at the end of the
    interval without a line in this journal: a leader wrote its ISR itself (protocols before 2.7), Apache Kafka was
    controller meanwhile, or a controller was killed before it wrote its lines; `valid_to` may be too late then.
    """
    states = for_each_partition(steps).where(sql.col("what") != REASSIGNMENT_STEP)
    ordered = in_order_of_decisions()
    following = {name: sql.lead(name).over(ordered) for name in ("what", "ts_ms", "leader_from", "isr_from")}
    closed = states.select(
        "*",
        *(column.alias(f"next_{name}") for name, column in following.items()),
    ).where(sql.col("what") != DELETED)
    named = {
        "valid_from": at("ts_ms"),
        "valid_to": at("next_ts_ms"),
        "leader": sql.col("leader_to"),
        "decision": sql.col("what"),
        "unclean": sql.coalesce("unclean", sql.lit(False)),
        "leader_before": sql.col("leader_from"),
        "isr_before": sql.col("isr_from"),
        "changed_unseen": _is_changed_unseen(),
    }
    return closed.withColumns(named).select(*INTERVAL)


def for_each_partition(steps: DataFrame) -> DataFrame:
    """The steps, where one that deletes a whole topic becomes one for each partition that the steps know of it.

    Steps that are in memory, see `laid_out`, are computed now, and returned as they are where no such topic is known.
    """
    whole = steps.where("partition is null").drop("partition")
    if steps.is_cached and whole.isEmpty():
        return steps
    own = steps.where("partition is not null")
    of_whole = own.join(sql.broadcast(whole.select("topic").distinct()), "topic", "left_semi")
    known = of_whole.select(*PARTITION).distinct()
    return own.unionByName(whole.join(known, "topic").select(*steps.columns))


def _is_changed_unseen() -> Column:
    """Whether the next decision was made on another state than the one that this decision wrote."""
    is_new = sql.col("next_what").isin(DELETED, INITIAL) | sql.col("next_what").isNull()
    is_same = (sql.col("next_leader_from") == sql.col("leader_to")) & (sql.col("next_isr_from") == sql.col("isr"))
    return ~is_new & ~sql.coalesce(is_same, sql.lit(False))
