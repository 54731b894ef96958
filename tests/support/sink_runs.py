"""Runs of a write's tasks and of its driver without Spark, to stop them between any two steps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from klamm.client.steps import Steps
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.clock import RealClock
from klamm.spark.option_set import Reads
from klamm.spark.pool import ClientPool
from klamm.spark.read_client import ReadClient, read_client
from klamm.spark.sink_commit import BatchCommit
from klamm.spark.sink_commits import CommitTopic, TaskPart
from klamm.spark.sink_options import write_options
from klamm.spark.sink_schema import SinkColumns
from klamm.spark.sink_task import SinkJob, TaskName, TransactionalTask, WriteName
from klamm.spark.sink_transactions import OpenTransaction, SinkTransactions
from klamm.spark.tasks import POOL

VALUES = SinkColumns(topic=None, key=None, value=0, headers=None, partition=None)


class Killed(BaseException):
    """The process would end here."""


class SinkRun:
    """A driver and its tasks with clients of their own; `kill_after_ends` is how many EndTxn it still sends."""

    def __init__(self, bootstrap: str, topic: str, query: str, **options: str) -> None:
        named = {name.replace("__", "."): value for name, value in options.items()}
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly-once"} | named
        self._job = SinkJob(write_options(given, Reads.STREAM), VALUES, uuid4().hex[:8])
        self._query = query
        self._pool = ClientPool()

    def prepare(self) -> None:
        """What the driver does before the first micro-batch."""
        with self._client() as brokers:
            CommitTopic(brokers, self._job.options, RealClock().now_ms).create_if_missing()

    def task(
        self, batch: int, task: int, *values: str, attempt: int = 0, before_rows: Callable[[], None] = lambda: None
    ) -> TaskPart:
        """Run a task that writes these values; `before_rows` happens after it has looked for an earlier commit."""
        rows = pa.RecordBatch.from_arrays([pa.array([v.encode() for v in values], pa.binary())], names=["value"])
        write = WriteName(self._query, batch)
        with self._client() as brokers:
            runs = TransactionalTask(brokers, self._job, write, TaskName(task, attempt), RealClock().now_ms)
            return runs.run(_after(before_rows, rows))

    def commit(self, batch: int, parts: Sequence[TaskPart], kill_after_ends: int | None = None) -> None:
        """Commit a micro-batch; raises Killed where it is killed on the way."""
        with self._client() as brokers:
            commit = BatchCommit(brokers, self._job, WriteName(self._query, batch), RealClock().now_ms)
            if kill_after_ends is not None:
                commit._transactions = DyingTransactions(commit._transactions, kill_after_ends)
            commit.commit(parts)

    def abort(self, batch: int, parts: Sequence[TaskPart]) -> None:
        """What Spark does after a task or a commit failed."""
        with self._client() as brokers:
            BatchCommit(brokers, self._job, WriteName(self._query, batch), RealClock().now_ms).abort(parts)

    def is_open(self, part: TaskPart) -> bool:
        """Whether the transaction of a task is open."""
        assert part.transaction is not None
        with self._client() as brokers:
            transactions = SinkTransactions(brokers.cluster, lambda: brokers.backoff(20))
            return brokers.client.run(transactions.is_ongoing(part.transaction.transactional_id))

    def forget(self, part: TaskPart) -> None:
        """Abort the transaction of a task, as a broker does after its timeout."""
        assert part.transaction is not None
        with self._client() as brokers:
            begin = SinkTransactions(brokers.cluster, lambda: brokers.backoff(20)).begin
            brokers.client.run(begin(part.transaction.transactional_id, 60_000))

    @contextmanager
    def _client(self) -> Iterator[ReadClient]:
        with read_client(RealBlockingWorld(), self._job.options.reads, self._pool) as brokers:
            yield brokers

    def close(self) -> None:
        self._pool.close()
        POOL.close()


def _after(happens: Callable[[], None], rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, once something else has happened."""
    happens()
    yield rows


class DyingTransactions(SinkTransactions):
    """Ends so many transactions, then the process is killed."""

    def __init__(self, real: SinkTransactions, ends: int) -> None:
        super().__init__(real.cluster, real.backoff)
        self._ends = ends

    def end(self, transaction: OpenTransaction, *, commit: bool) -> Steps[bool]:
        if not self._ends:
            raise Killed
        self._ends -= 1
        return super().end(transaction, commit=commit)


def committed(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """The values that librdkafka reads with read_committed, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "committed", "isolation.level": "read_committed",
            "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    values: list[str] = []
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message = consumer.poll(20)
        assert message is not None, f"no answer; at the end of {sorted(at_end)}"
        if message.error():
            at_end.add(message.partition() or 0)
        else:
            values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


def committed_for_kafka_python(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """The values that kafka-python reads with read_committed, sorted; it stops at the last stable offset."""
    chosen = [KafkaPythonPartition(topic, n) for n in range(partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False, group_id=None
    )
    consumer.assign(chosen)
    ends = consumer.end_offsets(chosen)
    consumer.seek_to_beginning()
    values: list[str] = []
    while any(consumer.position(p) < ends[p] for p in chosen):
        for records in consumer.poll(timeout_ms=2_000).values():
            values += [r.value.decode() for r in records]
    consumer.close()
    return sorted(values)
