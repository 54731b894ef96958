"""Runs a pipeline: one streaming query whose micro-batches are written to sink and dead letters, each exactly once."""

import json
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from klamm.pipeline.check import check_rows, check_topics, source_rows
from klamm.pipeline.errors import PipelineFailed, cause_of
from klamm.pipeline.letters import letter_records, original_rows
from klamm.pipeline.replay import replay_options
from klamm.pipeline.rows import LETTER, REASON, dead_rows, good_rows, is_dead, prepare, run_steps
from klamm.pipeline.sinks import BatchName, Sink, letters_of, sink_of
from klamm.pipeline.spec import Spec
from klamm.pipeline.state import REPLAY, RUN, BatchStatus, StateDirectory, StateUnusable, Status
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import Disk
from klamm.spark.lag import progress_of

POLL_S: Final = 0.2
Report = Callable[[BatchStatus], None]


class PipelineRun:
    """One run of a pipeline in a session. `failure` is what ended a micro-batch, None while none failed.

    With `replays` it reads the dead letters that are there, instead of the topics, and ends.
    """

    def __init__(self, spark: SparkSession, spec: Spec, disk: Disk, *, replays: bool = False) -> None:
        self._spark = spark
        self._spec = spec
        self._replays = replays
        self._state = StateDirectory(disk, spec.state, REPLAY if replays else RUN)
        self._sink: Sink = sink_of(spec, disk)
        self._letters = letters_of(spec)
        self._now_s = RealBlockingWorld().now_s
        self._planned: int | None = None
        """The last micro-batch that was planned before this run."""
        self._measured: dict[int, tuple[int, dict[str, float]]] = {}
        self._status = Status(RealClock().now_ms())
        self.failure: Exception | None = None

    def run(self, report: Report) -> Status:
        """Run until the query ends: never by itself, unless the trigger is available-now.

        Raises BadFile, StateUnusable, PipelineFailed.
        """
        with self._state.locked():
            check_topics(self._spec)
            check_rows(self._spark, self._spec, self._sink)
            self._state.write_status(self._status)
            self._planned = self._state.last_number("offsets")
            try:
                query = self._start()
            except Py4JError as error:
                raise self._failed(error) from error
            try:
                self._follow(query, report)
            except StreamingQueryException as error:
                raise self._failed(error) from error
            except KeyboardInterrupt:
                self._save()
                raise
            finally:
                query.stop()
            self._save()
        return self._status

    def _failed(self, error: Exception) -> PipelineFailed:
        """Return what the run ends with, and store it as its status, if the disk has room for that."""
        cause = cause_of(self.failure or error)
        text = f"The pipeline {self._spec.name} failed: {cause}"
        try:
            self._save(error=cause)
        except StateUnusable as unsaved:
            text = f"{text.rstrip('.')}. {unsaved}"
        return PipelineFailed(text)

    def _start(self) -> StreamingQuery:
        """Start the streaming query of the pipeline."""
        options = replay_options(self._spec) if self._replays else dict(self._spec.source_options)
        if not self._replays and (start := self._state.start()) is not None:
            del options["startingOffsets"]
            options |= {
                "startingTimestamp": str(start.timestamp_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        rows = source_rows(self._spark, self._spec, options)
        writer = rows.writeStream.queryName(self._spec.name).option("checkpointLocation", self._state.checkpoint)
        seconds = None if self._replays else self._spec.trigger_s
        trigger = (
            {"availableNow": True} if seconds is None else {"processingTime": f"{round(seconds * 1000)} milliseconds"}
        )
        return writer.foreachBatch(self._on_batch).trigger(**trigger).start()

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch; Spark calls it again after a crash, with the same rows."""
        try:
            self._measured[number] = self._write(batch, number)
        except Exception as error:
            self.failure = error
            raise

    def _write(self, batch: DataFrame, number: int) -> tuple[int, dict[str, float]]:
        """Write the dead letters, then the rows; returns the number of dead letters, and the seconds of each part."""
        query = self._state.query_id()
        assert query is not None, "Spark writes the checkpoint's metadata before the first micro-batch"
        name = BatchName(query, number, is_new=self._planned is None or number > self._planned)
        self._sync_checkpoint(number)
        rows = original_rows(batch) if self._replays else batch
        prepared = prepare(rows, self._spec.expectations).persist()
        times = [self._now_s()]
        try:
            counts = {row[0]: row[1] for row in prepared.groupBy(is_dead(prepared)).count().collect()}
            times.append(self._now_s())
            if counts.get(True):
                self._write_letters(prepared, name)
            times.append(self._now_s())
            if counts.get(False):
                self._sink.write(run_steps(batch.sparkSession, self._spec, good_rows(prepared)), name)
            times.append(self._now_s())
        finally:
            prepared.unpersist()
        parts = ("read", "dead letters", "sink")
        return counts.get(True, 0), {part: times[i + 1] - times[i] for i, part in enumerate(parts)}

    def _sync_checkpoint(self, number: int) -> None:
        """Make the offsets of a micro-batch durable before anything of it is written. Raises StateUnusable."""
        try:
            self._state.sync_batch(number)
        except OSError as error:
            raise StateUnusable(
                f"Cannot sync the checkpoint in {self._state.path}: {error.strerror}. Correct the cause and run the "
                "pipeline again; it continues with this micro-batch."
            ) from error

    def _write_letters(self, prepared: DataFrame, name: BatchName) -> None:
        """Write the dead letters of a micro-batch. Raises PipelineFailed where the pipeline has no topic for them."""
        dead = dead_rows(prepared)
        if self._letters is not None:
            self._letters.write(letter_records(dead), name)
            return
        place = ("topic", "partition", "offset")
        # not the timestamp, which Python may be unable to represent
        first = dead.select(*(f"{LETTER}.{name}" for name in place), REASON).orderBy(*place).first()
        assert first is not None, "there is at least one dead letter"
        raise PipelineFailed(
            f"{first.topic}-{first.partition}, offset {first.offset}: {first[REASON]}. Add dead_letter.topic to "
            f"{self._spec.file}, or correct the expectation."
        )

    def _follow(self, query: StreamingQuery, report: Report) -> None:
        """Report each micro-batch until the query ends. Raises StreamingQueryException."""
        last = -1
        is_over = False
        while not is_over:
            try:
                is_over = bool(query.awaitTermination(POLL_S))  # type: ignore[arg-type]  # it takes fractions
            finally:
                for progress in query.recentProgress:
                    if progress["batchId"] > last and progress["batchId"] in self._measured:
                        last = progress["batchId"]
                        self._on_progress(json.loads(progress.json), report)

    def _on_progress(self, progress: dict[str, Any], report: Report) -> None:
        """Count a micro-batch that is complete."""
        letters, parts = self._measured.pop(progress["batchId"])
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        parts["checkpoint"] = max(0.0, seconds - sum(parts.values()))
        reached = progress_of(progress["sources"])
        batch = BatchStatus(
            batch=progress["batchId"],
            ended_ms=RealClock().now_ms(),
            rows=progress["numInputRows"],
            dead_letters=letters,
            seconds=seconds,
            parts_s=parts,
            lag={} if reached is None else {str(p): n for p, n in reached.lag.items()},
        )
        self._status = Status(
            started_ms=self._status.started_ms,
            rows=self._status.rows + batch.rows,
            dead_letters=self._status.dead_letters + letters,
            last_batch=batch,
        )
        self._state.write_status(self._status)
        report(batch)

    def _save(self, error: str | None = None) -> None:
        """Store the status of a run that ended."""
        s = self._status
        ended_ms = RealClock().now_ms()
        self._status = Status(s.started_ms, ended_ms, s.rows, s.dead_letters, s.last_batch, error)
        self._state.write_status(self._status)
