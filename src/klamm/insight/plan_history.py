"""What a plan takes from a journal: which brokers failed or fell behind, and which partitions had no leader.

Time counts from `since_ms` to `until_ms`, and of a replica from its first appearance in the ISR on.
"""

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from klamm.insight.availability import unavailability
from klamm.insight.journal import ORDER, at
from klamm.insight.tables import JournalFacts
from klamm.insight.timeline import PARTITION
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.history import BrokerHistory, History, PartitionHistory

_PLANNED: Final = "ControlledShutdown"
_LEAST_SHARE: Final = 1e-4
"""Partitions that were behind or without leader for a smaller share of time are left out."""


class _Time(NamedTuple):
    since_ms: int
    until_ms: int

    def ms_of(self, begin: str, end: str) -> Column:
        """How many ms of the time lie between two timestamp columns; null as end is now."""
        last = sql.coalesce(sql.unix_millis(end), sql.lit(self.until_ms))
        clipped = sql.least(last, sql.lit(self.until_ms)) - sql.greatest(sql.unix_millis(begin), sql.lit(self.since_ms))
        return sql.greatest(clipped, sql.lit(0))


def plan_history(journal: JournalFacts, since_ms: int, until_ms: int) -> History:
    """The history of all brokers and partitions between two times, ms since 1970."""
    time = _Time(since_ms, until_ms)
    windows = unavailability(journal.intervals, journal.causes).where(
        (sql.col("until").isNull() | (sql.col("until") > at(sql.lit(since_ms))))
        & (sql.col("since") < at(sql.lit(until_ms)))
    )
    windows = windows.cache()
    failures = count_failures(windows)
    replicas = replica_times(journal, time).cache()
    of_brokers = replicas.groupBy("broker").agg((sql.sum("out_ms") / sql.sum("known_ms")).alias("share")).cache()
    behind = _behind(replicas, of_brokers)
    lost = windows.groupBy(*PARTITION).agg(
        (sql.sum(time.ms_of("since", "until")) / (until_ms - since_ms)).alias("lost")
    )
    history = History(
        _brokers(_rows(failures), _rows(of_brokers)),
        _partitions(_rows(behind), _rows(lost.where(sql.col("lost") > _LEAST_SHARE))),
    )
    for cached in (windows, replicas, of_brokers):
        cached.unpersist()
    return history


def count_failures(windows: DataFrame) -> DataFrame:
    """How often each broker lost its leaders: windows that began at the same time count once."""
    unplanned = ~sql.coalesce(sql.col("why"), sql.lit("")).startswith(_PLANNED)
    lost = windows.where(sql.col("leader_before").isNotNull() & unplanned)
    return lost.groupBy(sql.col("leader_before").alias("broker")).agg(sql.count_distinct("since").alias("failures"))


def replica_times(journal: JournalFacts, time: _Time) -> DataFrame:
    """How long each replica could be in the ISR, and how long it was not, of those that are assigned now.

    Columns: topic, partition, broker, known_ms, out_ms. The assigned replicas are known from creations and
    reassignments in the journal; without them, all that were ever in the ISR count.
    """
    rest = Window.partitionBy(*PARTITION).orderBy(*ORDER).rowsBetween(0, Window.unboundedFollowing)
    timed = journal.intervals.withColumn("ms", time.ms_of("valid_from", "valid_to"))
    from_here = timed.withColumn("rest_ms", sql.sum("ms").over(rest))
    members = from_here.select(*PARTITION, "ms", "rest_ms", sql.explode("isr").alias("broker"))
    times = members.groupBy(*PARTITION, "broker").agg(
        sql.max("rest_ms").alias("known_ms"), (sql.max("rest_ms") - sql.sum("ms")).alias("out_ms")
    )
    assigned = (
        journal.steps.where("replicas is not null")
        .groupBy(*PARTITION)
        .agg(sql.max_by("replicas", sql.struct(*ORDER)).alias("replicas"))
    )
    is_assigned = sql.col("replicas").isNull() | sql.array_contains("replicas", sql.col("broker"))
    known = times.join(assigned, list(PARTITION), "left").where(is_assigned & (sql.col("known_ms") > 0))
    return known.drop("replicas")


def _behind(replicas: DataFrame, of_brokers: DataFrame) -> DataFrame:
    """The partitions whose replicas were out of the ISR longer than others of their brokers: column `behind`."""
    compared = replicas.join(sql.broadcast(of_brokers), "broker")
    longer = sql.greatest(sql.col("out_ms") / sql.col("known_ms") - sql.col("share"), sql.lit(0.0))
    return compared.groupBy(*PARTITION).agg(sql.avg(longer).alias("behind")).where(sql.col("behind") > _LEAST_SHARE)


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    """The rows of a small table."""
    return list(table.toArrow().to_pylist())


def _brokers(failures: list[dict[str, Any]], shares: list[dict[str, Any]]) -> dict[BrokerId, BrokerHistory]:
    """The history of each broker that has one."""
    found = {BrokerId(row["broker"]): BrokerHistory(out_of_isr=row["share"]) for row in shares}
    for row in failures:
        broker = BrokerId(row["broker"])
        found[broker] = found.get(broker, BrokerHistory())._replace(failures=row["failures"])
    return {broker: of for broker, of in found.items() if any(of)}


def _partitions(behind: list[dict[str, Any]], lost: list[dict[str, Any]]) -> dict[TopicPartition, PartitionHistory]:
    """The history of each partition that has one."""
    found = {TopicPartition(row["topic"], row["partition"]): PartitionHistory(behind=row["behind"]) for row in behind}
    for row in lost:
        name = TopicPartition(row["topic"], row["partition"])
        found[name] = found.get(name, PartitionHistory())._replace(without_leader=row["lost"])
    return found
