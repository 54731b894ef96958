"""What Spark calls of a write with `format("klamm")`: tasks in workers, then a commit or abort in the driver."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.clock import RealClock
from klamm.runtime.memory import keep_large_buffers
from klamm.runtime.randomness import RealRandomness
from klamm.spark.errors import BadOption
from klamm.spark.option_set import Reads
from klamm.spark.read_client import read_client
from klamm.spark.sink_commit import BatchCommit
from klamm.spark.sink_commits import CommitTopic, TaskPart
from klamm.spark.sink_options import Delivery, WriteOptions, write_options
from klamm.spark.sink_schema import sink_columns
from klamm.spark.sink_task import SinkJob, TaskName, TransactionalTask, WriteName, write_at_least_once
from klamm.spark.tasks import POOL, freeze_heap
from klamm.spark.versions import SameVersion

_LOG: Final = logging.getLogger("klamm.spark")
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_JOB_GROUP: Final = "spark.jobGroup.id"
"""What Spark sets for the tasks of a micro-batch; the job group is the id of the query's run.

Source: MicroBatchExecution.scala, StreamExecution.scala.
"""
_RUN_CHARS: Final = 8
_REPEATS: Final = {
    Delivery.AT_LEAST_ONCE: "a task or micro-batch that runs again writes its rows again. Set delivery to exactly-once "
    "to prevent that",
    Delivery.EXACTLY_ONCE: "readers with isolation.level=read_committed see the rows of each micro-batch once, when it "
    "is committed; other readers see aborted rows, too",
}
_started: set[tuple[WriteOptions, str]] = set()
"""The writes that this process has logged, and for which it has created the topic of commits."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver; `write` is None with at-least-once."""

    rows: int
    write: WriteName | None = None
    part: TaskPart | None = None


def batch_job(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkJob:
    """Check and prepare a batch write. Raises BadOption, CommitsUnusable, Unreachable."""
    if overwrite:
        raise BadOption('a topic cannot be overwritten, only appended to: use mode("append")')
    return _start(write_options(given, Reads.BATCH), schema)


def stream_job(given: Mapping[str, str], schema: StructType) -> SinkJob:
    """Check and prepare a micro-batch of a streaming write. Raises BadOption, CommitsUnusable, Unreachable."""
    return _start(write_options(given, Reads.STREAM), schema)


def _start(options: WriteOptions, schema: StructType) -> SinkJob:
    """Return the job of a write; the first time in this process, log its delivery and create its commit topic."""
    job = SinkJob(options, sink_columns(schema, options.topic), _run_id())
    start = (options, schema.json())
    if start not in _started:
        _LOG.warning("writing with delivery=%s: %s", options.delivery, _REPEATS[options.delivery])
        if options.delivery is Delivery.EXACTLY_ONCE:
            with read_client(RealBlockingWorld(), options.reads, POOL) as brokers:
                CommitTopic(brokers, options, RealClock().now_ms).create_if_missing()
        _started.add(start)
    return job


@cache
def _run_id() -> str:
    """A name for this process, in which Spark plans the writes of a driver."""
    return RealRandomness().bytes(_RUN_CHARS // 2).hex()


def run_of_task(context: TaskContext, planned: str) -> str:
    """The name of the run that a task belongs to; `planned` is that of the process that planned its write.

    In a streaming query it is the same for all micro-batches: Spark ends a planning process that is idle for a minute,
    and coordinators keep each transactional id for a week.
    """
    group = context.getLocalProperty(_JOB_GROUP)
    if not group or not context.getLocalProperty(_QUERY_ID):
        return planned
    return hashlib.sha256(group.encode()).hexdigest()[:_RUN_CHARS]


def write_rows(job: SinkJob, write: WriteName | None, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write the rows of a task, in a worker."""
    keep_large_buffers()
    context = TaskContext.get()
    assert context is not None
    task = TaskName(context.partitionId(), context.attemptNumber())
    now_ms = RealClock().now_ms
    with read_client(RealBlockingWorld(), job.options.reads, POOL) as brokers:
        if write is None:
            done = TaskWritten(write_at_least_once(brokers, job, task, now_ms, batches))
        else:
            own = job._replace(run=run_of_task(context, job.run))
            part = TransactionalTask(brokers, own, write, task, now_ms).run(batches)
            done = TaskWritten(part.rows, write, part)
    freeze_heap()
    return done


def commit(job: SinkJob, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit what the tasks wrote, in the driver."""
    written = _written(messages)
    if written is not None:
        with read_client(RealBlockingWorld(), job.options.reads, POOL) as brokers:
            BatchCommit(brokers, job, written[0], RealClock().now_ms).commit(written[1])


def abort(job: SinkJob, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what the tasks wrote, in the driver; tasks that failed have done it themselves."""
    written = _written(messages)
    if written is not None:
        with read_client(RealBlockingWorld(), job.options.reads, POOL) as brokers:
            BatchCommit(brokers, job, written[0], RealClock().now_ms).abort(written[1])


def _written(messages: Sequence[WriterCommitMessage | None]) -> tuple[WriteName, list[TaskPart]] | None:
    """The write and what its tasks wrote in transactions; None where there are none."""
    done = [m for m in messages if isinstance(m, TaskWritten)]
    parts = [m.part for m in done if m.part is not None]
    names = {m.write for m in done if m.write is not None}
    return (names.pop(), parts) if names else None


class KlammWriter(SameVersion, DataSourceArrowWriter):
    """A batch write. It is pickled to workers and to the process that commits."""

    def __init__(self, job: SinkJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, in a worker."""
        options = self._job.options
        name = None if options.write_id is None else WriteName(options.write_id, options.write_batch)
        return write_rows(self._job, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, in the driver."""
        commit(self._job, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks wrote, in the driver."""
        abort(self._job, messages)


class KlammStreamWriter(SameVersion, DataSourceStreamArrowWriter):
    """A micro-batch of a streaming write. Spark makes one to plan, and another one to commit."""

    def __init__(self, job: SinkJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, in a worker."""
        if self._job.options.delivery is not Delivery.EXACTLY_ONCE:
            return write_rows(self._job, None, iterator)
        context = TaskContext.get()
        query = context and context.getLocalProperty(_QUERY_ID)
        batch = context and context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise BadOption(
                "option delivery=exactly-once: this version of Spark does not tell tasks the ids of query and "
                "micro-batch. Set delivery to at-least-once, or write in foreachBatch with writeId and writeBatch."
            )
        return write_rows(self._job, WriteName(query, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit what the tasks wrote, in the driver."""
        commit(self._job, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort what the tasks wrote, in the driver."""
        abort(self._job, messages)
