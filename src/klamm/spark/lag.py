"""How far a streaming query is behind its topics, from the progress that Spark reports for each micro-batch."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from klamm.client.leaders import OffsetAndEpoch
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.stream_offsets import StreamOffset, from_json

_LABELS: Final = ("query", "topic", "partition")


class Progress(NamedTuple):
    """What one micro-batch reached: `read` has the next position of each partition, `ends` where their logs ended."""

    read: Mapping[TopicPartition, OffsetAndEpoch]
    ends: Mapping[TopicPartition, int]

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The number of records of each partition that the query has not read, counted by offsets."""
        return {p: max(0, self.ends.get(p, at.offset) - at.offset) for p, at in self.read.items()}


def progress_of(sources: Iterable[Mapping[str, Any]]) -> Progress | None:
    """The progress of all klamm sources of a query, from the sources in Spark's JSON; None where it has none."""
    read: dict[TopicPartition, OffsetAndEpoch] = {}
    ends: dict[TopicPartition, int] = {}
    for source in sources:
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is not None:
            read |= end.positions
            ends |= latest.next if latest is not None else {}
    return Progress(read, ends) if read else None


def _offset(given: Any) -> StreamOffset | None:
    """The offset of a klamm source; None for those of other sources."""
    stored = json.loads(given) if isinstance(given, str) else given
    if not isinstance(stored, dict) or "cluster" not in stored:
        return None
    try:
        return from_json(stored)
    except BadOption:
        return None


def metrics(query: str, progress: Progress | None, rows: int, batch_ms: float) -> Iterator[Metric]:
    """The metrics of a query for Prometheus."""
    lag = GaugeMetricFamily(
        "klamm_spark_lag",
        "Records in the partition that the query has not read yet, counted by offsets.",
        labels=_LABELS,
    )
    position = GaugeMetricFamily(
        "klamm_spark_next_offset", "The offset in the partition that the query reads next.", labels=_LABELS
    )
    for p, behind in (progress.lag if progress is not None else {}).items():
        lag.add_metric([query, p.topic, str(p.partition)], behind)
    for p, at in (progress.read if progress is not None else {}).items():
        position.add_metric([query, p.topic, str(p.partition)], at.offset)
    count = CounterMetricFamily("klamm_spark_rows", "Rows that the query has read.", labels=("query",))
    count.add_metric([query], rows)
    took = GaugeMetricFamily("klamm_spark_batch_seconds", "Seconds that the last micro-batch took.", labels=("query",))
    took.add_metric([query], batch_ms / 1000)
    yield from (lag, position, count, took)
