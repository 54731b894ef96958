"""How many partitions each broker led over time, and how many of those that prefer it others led."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from klamm.insight.facts import DELETED, INITIAL
from klamm.insight.journal import at
from klamm.insight.timeline import PARTITION, for_each_partition, in_order_of_decisions
from klamm.model.ids import NO_BROKER

_NOBODY: Final = int(NO_BROKER)


def leader_balance(steps: DataFrame) -> DataFrame:
    """The number of partitions that each broker led, from each change to the next.

    Columns: broker, since, until (null: now), led, preferred (partitions whose preferred leader it is), led_elsewhere
    (those of them that it does not lead), imbalance (led_elsewhere / preferred, as leader.imbalance.per.broker
    .percentage counts it). Brokers are known from their first partition on; preferred leaders from creations and
    reassignments of partitions that this journal has.
    """
    changes = _states(steps)
    ordered = in_order_of_decisions()
    before = {name: sql.lag(name, 1, _NOBODY).over(ordered) for name in ("leader", "preferred")}
    changed = changes.select("*", *(column.alias(f"{name}_before") for name, column in before.items()))
    deltas = (
        changed.select("ts_ms", sql.explode(_deltas()).alias("delta")).select("ts_ms", "delta.*").where("broker >= 0")
    )
    sums = ("led", "preferred", "led_elsewhere")
    by_time = (
        deltas.groupBy("broker", "ts_ms")
        .agg(*(sql.sum(name).alias(name) for name in sums))
        .where(" or ".join(f"{name} <> 0" for name in sums))
    )
    of_broker = Window.partitionBy("broker").orderBy("ts_ms")
    counted = by_time.select(
        "broker",
        at("ts_ms").alias("since"),
        at(sql.lead("ts_ms").over(of_broker)).alias("until"),
        *(sql.sum(name).over(of_broker).alias(name) for name in sums),
    )
    share = sql.when(sql.col("preferred") > 0, sql.col("led_elsewhere") / sql.col("preferred")).otherwise(sql.lit(0.0))
    return counted.withColumn("imbalance", share)


def _states(steps: DataFrame) -> DataFrame:
    """Leader and preferred leader of each partition after each of its steps; -1 where there is none or none known."""
    ordered = in_order_of_decisions().rowsBetween(Window.unboundedPreceding, 0)
    is_begin = sql.col("what").isin(INITIAL, DELETED).cast("int")
    lives = for_each_partition(steps).withColumn("life", sql.sum(is_begin).over(ordered))
    so_far = (
        Window.partitionBy(*PARTITION, "life")
        .orderBy("controller_epoch", "seq")
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    # clocks of nodes differ: a step never counts before one that was decided earlier
    not_before = sql.max("ts_ms").over(ordered)
    leader = sql.last("leader_to", ignorenulls=True).over(so_far)
    preferred = sql.last(sql.try_element_at("replicas", sql.lit(1)), ignorenulls=True).over(so_far)
    is_there = sql.col("what") != DELETED
    return lives.select(
        *PARTITION,
        "controller_epoch",
        "seq",
        not_before.alias("ts_ms"),
        sql.when(is_there, sql.coalesce(leader, sql.lit(_NOBODY))).otherwise(_NOBODY).alias("leader"),
        sql.when(is_there, sql.coalesce(preferred, sql.lit(_NOBODY))).otherwise(_NOBODY).alias("preferred"),
    )


def _deltas() -> Column:
    """What one step adds to the counts of up to four brokers, as an array of structs."""

    def counted(broker: str, led: int, preferred: int, elsewhere: Column | int) -> Column:
        """What the step adds to the counts of the broker in this column."""
        return sql.struct(
            sql.col(broker).alias("broker"),
            sql.lit(led).alias("led"),
            sql.lit(preferred).alias("preferred"),
            (elsewhere if isinstance(elsewhere, Column) else sql.lit(elsewhere)).alias("led_elsewhere"),
        )

    is_elsewhere = (sql.col("leader") != sql.col("preferred")).cast("int")
    was_elsewhere = -(sql.col("leader_before") != sql.col("preferred_before")).cast("int")
    return sql.array(
        counted("leader", 1, 0, 0),
        counted("leader_before", -1, 0, 0),
        counted("preferred", 0, 1, is_elsewhere),
        counted("preferred_before", 0, -1, was_elsewhere),
    )
