"""Changes of ISRs, and how often each broker left and entered them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from klamm.insight.facts import with_causes
from klamm.insight.journal import ORDER, at
from klamm.insight.timeline import PARTITION


def isr_changes(steps: DataFrame, causes: DataFrame) -> DataFrame:
    """Each change of an ISR.

    Columns: topic, partition, at, decision, removed, added, isr, rejected, why, controller_epoch, seq.
    """
    removed, added = sql.array_except("isr_from", "isr"), sql.array_except("isr", "isr_from")
    changed = (
        steps.where("leader_to is not null and isr_from is not null")
        .withColumn("removed", removed)
        .withColumn("added", added)
        .where("size(removed) + size(added) > 0")
    )
    rows = changed.select(
        *PARTITION, at("ts_ms").alias("at"), sql.col("what").alias("decision"), "removed", "added", "isr", "rejected",
        *ORDER, "cause",
    )  # fmt: skip
    return with_causes(rows, causes)


def isr_churn(changes: DataFrame, interval: str = "1 hour") -> DataFrame:
    """How often each broker left and entered ISRs in each interval.

    Columns: since, broker, left, entered, partitions (how many different ones).
    """
    moved = changes.select(
        "at", *PARTITION, sql.explode("removed").alias("broker"), sql.lit(1).alias("left")
    ).unionByName(changes.select("at", *PARTITION, sql.explode("added").alias("broker"), sql.lit(0).alias("left")))
    return (
        moved.groupBy(sql.window("at", interval).start.alias("since"), "broker")
        .agg(
            sql.sum("left").alias("left"),
            sql.sum(sql.lit(1) - sql.col("left")).alias("entered"),
            sql.count_distinct(*(sql.col(name) for name in PARTITION)).alias("partitions"),
        )
        .orderBy("since", "broker")
    )
