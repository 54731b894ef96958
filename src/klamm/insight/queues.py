"""How long requests waited for brokers, and events for the controller."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from klamm.insight.journal import at

_PERCENTILES: Final = {"p50": 0.5, "p99": 0.99}


def request_times(requests: DataFrame, causes: DataFrame, interval: str = "1 hour") -> DataFrame:
    """How long control requests took, by broker, API and interval.

    Columns: since, broker, api, requests, failures, sent_ms_p50, sent_ms_p99 (from the notice of the event to the
    sending: decisions, writes to ZooKeeper and the broker's queue), answered_ms_p50, answered_ms_p99 (from the sending
    to the response).
    """
    noticed = requests.join(causes.select("cause", "noticed_ms"), "cause", "left")
    is_sent = sql.col("kind") == "request"
    failures = sql.coalesce("failures", sql.lit(0)) + sql.col("failed").isNotNull().cast("int")
    both = noticed.select(
        "ts_ms",
        "broker",
        "api",
        is_sent.cast("int").alias("requests"),
        sql.when(is_sent, sql.col("ts_ms") - sql.col("noticed_ms")).alias("sent_ms"),
        sql.when(~is_sent, sql.col("ms")).alias("answered_ms"),
        sql.when(~is_sent, failures).alias("failures"),
    )
    return (
        both.groupBy(sql.window(at("ts_ms"), interval).start.alias("since"), "broker", "api")
        .agg(
            sql.sum("requests").alias("requests"),
            sql.coalesce(sql.sum("failures"), sql.lit(0)).alias("failures"),
            *_percentiles("sent_ms"),
            *_percentiles("answered_ms"),
        )
        .orderBy("since", "broker", "api")
    )


def event_times(causes: DataFrame, interval: str = "1 hour") -> DataFrame:
    """How long events waited in the controller's queue, and how long they were handled, by kind and interval.

    Columns: since, event, events, waited_ms_p50, waited_ms_p99, handled_ms_p50, handled_ms_p99.
    """
    return (
        causes.groupBy(sql.window(at("noticed_ms"), interval).start.alias("since"), "event")
        .agg(sql.count("*").alias("events"), *_percentiles("waited_ms"), *_percentiles("handled_ms"))
        .orderBy("since", "event")
    )


def _percentiles(column: str) -> list[Column]:
    """Median and 99th percentile of the column, with the column's name before theirs."""
    return [
        sql.round(sql.percentile_approx(column, sql.lit(share), 10_000), 1).alias(f"{column}_{name}")
        for name, share in _PERCENTILES.items()
    ]
