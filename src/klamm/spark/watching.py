"""`watch(query)`: the lag of a streaming query, as numbers, Prometheus metrics and offsets of a consumer group."""

import json
import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from klamm.model.cluster import parse_addresses
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import RealBlockingWorld, new_lock
from klamm.spark.errors import BadOption
from klamm.spark.group_offsets import GroupOffsets
from klamm.spark.lag import Progress, metrics, progress_of

_LOG: Final = logging.getLogger("klamm.spark")


class Watch:
    """What a query has read and what it has left, as of its last micro-batch. Close it to stop watching.

    It is a collector of prometheus-client: `klamm_spark_lag`, `klamm_spark_next_offset`, `klamm_spark_rows_total`,
    `klamm_spark_batch_seconds`.
    """

    def __init__(self, query: StreamingQuery, offsets: GroupOffsets | None, registry: CollectorRegistry) -> None:
        self._id = str(query.id)
        self._name = query.name or self._id
        self._offsets = offsets
        self._registry = registry
        self._lock = new_lock()
        self._progress: Progress | None = None
        self._uncommitted: Progress | None = None
        self._is_committing = False
        self._rows = 0
        self._batch_ms = 0.0
        self._listener = _Listener(self)
        self._last_batch = -1
        self._session = SparkSession.active()
        self._session.streams.addListener(self._listener)
        for report in query.recentProgress:
            self.on_progress(json.loads(report.json))
        registry.register(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The records of each partition that the query has not read, by offsets; empty before the first batch."""
        with self._lock:
            return {} if self._progress is None else self._progress.lag

    @property
    def total_lag(self) -> int:
        """The sum of the lag of all partitions."""
        return sum(self.lag.values())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for prometheus-client."""
        with self._lock:
            yield from metrics(self._name, self._progress, self._rows, self._batch_ms)

    def on_progress(self, report: dict[str, Any]) -> None:
        """Store what Spark reports of a micro-batch, for lag and metrics, and commit its offsets."""
        if str(report["id"]) != self._id:
            return
        found = progress_of(report["sources"])
        with self._lock:
            if report["batchId"] > self._last_batch:
                self._rows += sum(s.get("numInputRows") or 0 for s in report["sources"])
                self._batch_ms = (report.get("durationMs") or {}).get("triggerExecution", 0.0)
            if report["batchId"] < self._last_batch or found is None or found == self._progress:
                return
            self._last_batch = report["batchId"]
            self._progress = found
        self._commit(found)

    def close(self) -> None:
        """Stop watching: remove the metrics and close connections. The query continues."""
        self._session.streams.removeListener(self._listener)
        self._registry.unregister(self)
        if self._offsets is not None:
            self._offsets.close()

    def _commit(self, progress: Progress) -> None:
        """Commit the offsets to the consumer group, after a commit that is under way in another thread.

        Two at once would share a connection, and the older one could come last.
        """
        if self._offsets is None:
            return
        with self._lock:
            self._uncommitted = progress
            if self._is_committing:
                return
            self._is_committing = True
        while (latest := self._take_uncommitted()) is not None:
            try:
                self._commit_once(self._offsets, latest)
            except BaseException:
                with self._lock:
                    self._is_committing = False
                raise

    def _take_uncommitted(self) -> Progress | None:
        """The last progress that is not committed yet; None, and the end of committing, where there is none."""
        with self._lock:
            latest, self._uncommitted = self._uncommitted, None
            self._is_committing = latest is not None
            return latest

    def _commit_once(self, offsets: GroupOffsets, progress: Progress) -> None:
        """Commit the offsets. A failure is logged; the next micro-batch commits again."""
        try:
            offsets.commit(progress.read)
        except KlammError as error:
            _LOG.warning(
                "query %s: its offsets are not committed, the next micro-batch tries again: %s", self._name, error
            )


class _Listener(StreamingQueryListener):
    """Hands the reports of all queries of a session to one watch."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Do nothing: the watch was made after the query."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Pass Spark's report of a micro-batch to the watch."""
        self._watch.on_progress(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Do nothing: nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Do nothing: the last report has the last offsets."""


def watch(
    query: StreamingQuery,
    *,
    group: str | None = None,
    bootstrap: str | None = None,
    registry: CollectorRegistry = REGISTRY,
) -> Watch:
    """Watch the lag of a streaming query that reads with `format("klamm")`.

    With `group`, the offsets of each micro-batch are committed to this consumer group at the brokers `bootstrap`
    (HOST:PORT, several with commas), so that any tool shows the lag. The group must have no members. Metrics are in
    `registry`; `prometheus_client.start_http_server(PORT)` serves those of the default one. Raises BadOption.
    """
    if (group is None) != (bootstrap is None):
        raise BadOption("watch needs both group and bootstrap to commit offsets, or neither")
    offsets = None
    if group is not None and bootstrap is not None:
        try:
            offsets = GroupOffsets(RealBlockingWorld(), parse_addresses(bootstrap), group)
        except ValueError as error:
            raise BadOption(f"bootstrap={bootstrap!r}: {error}") from error
    return Watch(query, offsets, registry)
