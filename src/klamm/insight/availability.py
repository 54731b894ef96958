"""Windows in which partitions had no leader: from when to when, and why."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from klamm.insight.facts import DELETED, INITIAL, with_causes
from klamm.insight.journal import ORDER, at
from klamm.insight.timeline import PARTITION, in_order_of_decisions
from klamm.model.ids import NO_BROKER

_AFTER_A_FAILURE: Final = ("offline", "unclean")
"""The elections that are held because the leader is gone."""


def unavailability(intervals: DataFrame, causes: DataFrame) -> DataFrame:
    """The windows without leader of all partitions, from a timeline and the events that caused it.

    Columns: topic, partition, since, until, ms, leader_before, leader_after, why, ended_by, rejected. `since` is when
    the controller noticed that the leader was gone: the time that ZooKeeper took to notice a crash is not in the
    journal. `until` is null where nobody leads now. `why` is the event that began the window, `ended_by` the one that
    ended it, `rejected` the replicas that could not lead instead, each with the reason.
    """
    known = with_causes(intervals, causes, "why", "noticed_ms")
    noticed = sql.least(sql.coalesce("noticed_ms", sql.col("ts_ms")), sql.col("ts_ms"))
    rows = known.withColumn("noticed", at(noticed))
    return _elected_at_once(rows).unionByName(_without_leader(rows)).withColumn("ms", _ms_between("since", "until"))


def _elected_at_once(rows: DataFrame) -> DataFrame:
    """The windows that end with the first decision: another replica was elected in place of a leader that was gone."""
    replaced = rows.where(
        sql.col("decision").isin(*_AFTER_A_FAILURE)
        & (sql.col("leader_before") >= 0)
        & (sql.col("leader") >= 0)
        & (sql.col("leader_before") != sql.col("leader"))
    )
    return replaced.select(
        *PARTITION,
        sql.col("noticed").alias("since"),
        sql.col("valid_from").alias("until"),
        "leader_before",
        sql.col("leader").alias("leader_after"),
        "why",
        sql.col("why").alias("ended_by"),
        "rejected",
    )


def _without_leader(rows: DataFrame) -> DataFrame:
    """The windows over one or several states without leader."""
    ordered = in_order_of_decisions()
    is_led = sql.col("leader") >= 0
    numbered = rows.select(
        "*",
        sql.sum(is_led.cast("int")).over(ordered.rowsBetween(Window.unboundedPreceding, 0)).alias("window"),
        sql.lead("leader").over(ordered).alias("next_leader"),
        sql.lead("why").over(ordered).alias("next_why"),
        sql.lead("decision").over(ordered).alias("next_decision"),
    )
    first = sql.struct(*ORDER, "noticed", "valid_from", "leader_before", "why", "rejected")
    last = sql.struct(*ORDER, "valid_to", "next_leader", "next_why", "next_decision")
    windows = (
        numbered.where(~is_led)
        .groupBy(*PARTITION, "window")
        .agg(sql.min(first).alias("first"), sql.max(last).alias("last"))
    )
    is_led_again = sql.col("last.next_decision") != INITIAL  # else the topic was deleted, and another one created
    return windows.select(
        *PARTITION,
        sql.when(sql.col("first.leader_before") >= 0, sql.col("first.noticed"))
        .otherwise(sql.col("first.valid_from"))
        .alias("since"),
        sql.col("last.valid_to").alias("until"),
        sql.nullif(sql.col("first.leader_before"), sql.lit(int(NO_BROKER))).alias("leader_before"),
        sql.when(is_led_again, sql.col("last.next_leader")).alias("leader_after"),
        sql.col("first.why").alias("why"),
        sql.when(is_led_again, sql.col("last.next_why"))
        .when(sql.col("last.valid_to").isNotNull(), sql.lit(f"the topic was {DELETED}"))
        .alias("ended_by"),
        sql.col("first.rejected").alias("rejected"),
    )


def _ms_between(since: str, until: str) -> Column:
    """The ms between two timestamps; null where one of them is."""
    return sql.unix_millis(sql.col(until)) - sql.unix_millis(sql.col(since))
