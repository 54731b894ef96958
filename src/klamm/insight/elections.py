"""Elections: who was elected, who was passed over and why, and which event caused it; refused elections, too."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from klamm.insight.facts import with_causes
from klamm.insight.journal import ORDER, at
from klamm.insight.timeline import PARTITION

REFUSED: Final = ("election", "rebalance")
"""What the journal calls refusals to elect a leader."""


def elections(steps: DataFrame, refusals: DataFrame, causes: DataFrame) -> DataFrame:
    """Each change of a partition's leader, and each refusal to elect one, with cause and candidates.

    Columns: topic, partition, at, election (the strategy), leader_before, leader (null where the election was refused,
    -1 where the last one was taken away), leader_epoch, unclean, rejected, refused (the reason), why, node,
    controller_epoch, seq.
    """
    held = steps.where("leader_to is not null and (leader_from is null or leader_from <> leader_to)").select(
        *PARTITION,
        at("ts_ms").alias("at"),
        sql.col("what").alias("election"),
        sql.col("leader_from").alias("leader_before"),
        sql.col("leader_to").alias("leader"),
        "leader_epoch",
        sql.coalesce("unclean", sql.lit(False)).alias("unclean"),
        "rejected",
        sql.lit(None).cast("string").alias("refused"),
        "node",
        *ORDER,
        "cause",
    )
    refused = (
        refusals.where(sql.col("what").isin(*REFUSED) & sql.col("partitions").isNotNull())
        .select("*", sql.explode("partitions").alias("topic", "numbers"))
        .select(
            "topic",
            sql.explode("numbers").alias("partition"),
            at("ts_ms").alias("at"),
            sql.col("what").alias("election"),
            "rejected",
            sql.col("why").alias("refused"),
            "node",
            *ORDER,
            "cause",
        )
    )
    return with_causes(held.unionByName(refused, allowMissingColumns=True), causes)
