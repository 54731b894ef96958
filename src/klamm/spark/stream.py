"""`readStream.format("klamm")`: micro-batches between offsets that Spark keeps in its checkpoint.

One reader lives in a process of the driver as long as its query. Spark calls `initialOffset` once or twice for a new
query, `latestOffset` for each trigger, and `partitions` with two offsets from the checkpoint; workers `read`.
Source: KafkaMicroBatchStream.scala.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk
from klamm.spark.parallelism import stored_parallelism
from klamm.spark.stream_driver import StreamDriver
from klamm.spark.stream_offsets import from_json, to_json
from klamm.spark.tasks import Job, run_task
from klamm.spark.versions import SameVersion


class KlammStreamReader(SameVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls of a streaming read. It is also pickled to workers, so it connects only when asked."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._driver: StreamDriver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the offsets at which a new query begins; each call of this process returns the same."""
        return to_json(self._stream().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return one of the limits that options set. Spark passes it back, unless its trigger reads everything."""
        limits = self._job.options.trigger
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the end of the next micro-batch; `start` itself where there is nothing to read."""
        unlimited = isinstance(limit, ReadAllAvailable)
        return to_json(self._stream().next_end(from_json(start), unlimited=unlimited))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the ends of the partitions' logs as they were at the last trigger; None before the first one."""
        latest = self._stream().latest
        return None if latest is None else to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Set the end of the query to the records that exist now."""
        self._stream().fix_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        parallelism = stored_parallelism(RealBlockingWorld(), RealDisk())
        tasks = self._stream().tasks(from_json(start), from_json(end), parallelism)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task, in a worker."""
        return run_task(self._job, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint has the offsets. Spark never commits the last batch of a run here."""

    def stop(self) -> None:
        """Close the connections."""
        if self._driver is not None:
            self._driver.close()

    def _stream(self) -> StreamDriver:
        """The state of the query in the driver, made when it is first needed."""
        if self._driver is None:
            self._driver = StreamDriver(RealBlockingWorld(), self._job.options)
        return self._driver
