"""Windows in which partitions had no leader: from when to when, and why."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from klamm.insight.facts import DELETED, INITIAL
from klamm.insight.journal import ORDER, at
from klamm.insight.timeline import PARTITION, in_order_of_decisions
from klamm.model.ids import NO_BROKER

_AFTER_A_FAILURE: Final = ("offline", "unclean")
"""The elections that are held because the leader is gone."""


def unavailability(intervals: DataFrame, causes: DataFrame) -> DataFrame:
    """The windows without leader of all partitions, from a timeline and the events that caused it.

    Columns: topic, partition, since, until, ms, leader_before, leader_after, why, ended_by, rejected. `since` is when
    the controller noticed that the leader was gone: the time that ZooKeeper took to notice a crash is not in the
    journal. `until` is null where nobody leads now; `ms` counts until now then. `why` is the event that began the
    window, `ended_by` the one that ended it, `rejected` the replicas that could not lead instead, each with the reason.
    """
    windows = _windows(intervals)
    began = causes.select("cause", "why", "noticed_ms")
    ended = causes.select(sql.col("cause").alias("end_cause"), sql.col("why").alias("end_why"))
    known = windows.join(began, "cause", "left").join(ended, "end_cause", "left")
    noticed = sql.least(sql.coalesce("noticed_ms", sql.col("ts_ms")), sql.col("ts_ms"))
    rows = known.select(
        *PARTITION,
        at(sql.when(sql.col("leader_before") >= 0, noticed).otherwise(sql.col("ts_ms"))).alias("since"),
        "until",
        sql.lit(0).alias("ms"),  # for its place
        sql.nullif(sql.col("leader_before"), sql.lit(int(NO_BROKER))).alias("leader_before"),
        "leader_after",
        "why",
        sql.when(sql.col("leader_after").isNotNull(), sql.col("end_why"))
        .when(sql.col("until").isNotNull(), sql.lit(f"the topic was {DELETED}"))
        .alias("ended_by"),
        "rejected",
    )
    so_far = sql.coalesce("until", sql.current_timestamp())
    # clocks of nodes differ, and may be set back
    return rows.withColumn("ms", sql.greatest(sql.unix_millis(so_far) - sql.unix_millis("since"), sql.lit(0)))


def _windows(intervals: DataFrame) -> DataFrame:
    """The windows before their events are known: what began each (`cause`, `ts_ms`), and what ended it (`end_cause`).

    A window is one or several states without leader; or one state whose leader was elected in place of one that was
    gone, and that ends the window with the first decision.
    """
    ordered = in_order_of_decisions()
    is_led = sql.col("leader") >= 0
    following = {name: sql.lead(name).over(ordered) for name in ("leader", "cause", "decision")}
    states = intervals.select(
        "*",
        is_led.alias("is_led"),
        sql.sum(is_led.cast("int")).over(ordered.rowsBetween(Window.unboundedPreceding, 0)).alias("window"),
        *(column.alias(f"next_{name}") for name, column in following.items()),
    )
    is_elected_at_once = (
        sql.col("decision").isin(*_AFTER_A_FAILURE)
        & (sql.col("leader_before") >= 0)
        & (sql.col("leader_before") != sql.col("leader"))
    )
    # else the topic was deleted, and another one created
    next_leader = sql.when(sql.col("next_decision") != INITIAL, sql.col("next_leader"))
    first = sql.struct(*ORDER, "cause", "ts_ms", "leader_before", "rejected")
    last = sql.struct(
        *ORDER,
        sql.when(is_led, sql.col("valid_from")).otherwise(sql.col("valid_to")).alias("until"),
        sql.when(is_led, sql.col("leader")).otherwise(next_leader).alias("leader_after"),
        sql.when(is_led, sql.col("cause")).otherwise(sql.col("next_cause")).alias("end_cause"),
    )
    return (
        states.where(~is_led | is_elected_at_once)
        .groupBy(*PARTITION, "is_led", "window")
        .agg(sql.min(first).alias("first"), sql.max(last).alias("last"))
        .select(
            *PARTITION,
            *(f"first.{name}" for name in ("cause", "ts_ms", "leader_before", "rejected")),
            *(f"last.{name}" for name in ("until", "leader_after", "end_cause")),
        )
    )
