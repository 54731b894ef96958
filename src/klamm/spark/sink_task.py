"""What a Spark worker does with one task of a write: encode its rows and send them.

With exactly-once they are in an open transaction at the end, which the driver commits; see `sink_commit`.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

import pyarrow as pa

from klamm.client.backoff import Backoff
from klamm.client.cluster import partition_counts
from klamm.client.errors import RequestRefused, Unreachable
from klamm.client.steps import retried
from klamm.client.transactions import init_producer_id
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.read_client import ReadClient
from klamm.spark.record_encoder import EncodedRecords, encode_runs
from klamm.spark.record_writer import Identity, RecordWriter
from klamm.spark.row_partitioner import StickyPartitions
from klamm.spark.sink_commits import Commit, CommitsUnusable, CommitTopic, TaskPart, task_transactional_id
from klamm.spark.sink_options import WriteOptions
from klamm.spark.sink_rows import BadRow, Router, gather, rows_of
from klamm.spark.sink_schema import SinkColumns
from klamm.spark.sink_transactions import OpenTransaction, SinkTransactions
from klamm.wire.records.batch import HEADER_BYTES, crc32c

GATHERED_BYTES: Final = 8 << 20
"""Rows that are encoded together: enough to fill batches where rows go to many partitions."""
FIRST_BACKOFF_S: Final = 0.02
"""Steps of transactions wait for the end of the one before, which takes milliseconds."""
ABORT_TIMEOUT_S: Final = 5.0


class SinkJob(NamedTuple):
    """What all tasks of a write have in common."""

    options: WriteOptions
    columns: SinkColumns
    run: str
    """Of the driver or the query: those of another run use other transactional ids."""


class WriteName(NamedTuple):
    """By what a repeated write is recognised: the id of the query or of the write, and its number."""

    query: str
    batch: int

    def __str__(self) -> str:
        return f"query {self.query}, batch {self.batch}"


class TaskName(NamedTuple):
    task: int
    attempt: int


def transactions_of(brokers: ReadClient, total_s: float | None = None) -> SinkTransactions:
    """SinkTransactions whose steps end within `total_s`, by default within the time that the options say."""
    options = brokers.options
    seconds = options.api_timeout_s if total_s is None else total_s

    def backoff() -> Backoff:
        """Return the waits between the attempts of one step."""
        return Backoff(brokers.client.world.now_s, seconds, FIRST_BACKOFF_S, options.max_backoff_s)

    return SinkTransactions(brokers.cluster, backoff)


def write_at_least_once(
    brokers: ReadClient, job: SinkJob, task: TaskName, now_ms: Callable[[], int], batches: Iterable[pa.RecordBatch]
) -> int:
    """Write the rows of a task; returns how many. Raises BadRow, BadOption, DeliveryFailed, Unreachable."""
    identity = Identity()
    if job.options.is_idempotent:
        backoff = brokers.backoff(brokers.options.api_timeout_s)
        attempt = retried("asking for a producer id", lambda: init_producer_id(brokers.cluster), backoff)
        identity = Identity(brokers.client.run(attempt))
    writer = RecordWriter(brokers, job.options.send, identity, now_ms)
    count = 0
    for encoded in _encoded(brokers, job, task, batches):
        writer.write(encoded)
        count += sum(records.rows for records in encoded)
    writer.flush()
    return count


class TransactionalTask:
    """Writes the rows of a task into a transaction that it leaves open; nothing where an earlier run committed them."""

    def __init__(
        self, brokers: ReadClient, job: SinkJob, write: WriteName, task: TaskName, now_ms: Callable[[], int]
    ) -> None:
        self._brokers = brokers
        self._job = job
        self._write = write
        self._task = task
        self._now_ms = now_ms
        self._transactions = transactions_of(brokers)
        self._topic = CommitTopic(brokers, job.options, now_ms)
        self._last: Commit | None = None
        self._transaction: OpenTransaction | None = None
        self._writer: RecordWriter | None = None
        self._partitions: set[TopicPartition] = set()
        self._rows = 0
        self._digest = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskPart:
        """Write the rows. Raises BadRow, BadOption, CommitsUnusable, DeliveryFailed, Unreachable."""
        is_committed = self._is_committed()
        try:
            for encoded in _encoded(self._brokers, self._job, self._task, batches):
                self._update_digest(encoded)
                if not is_committed:
                    self._send(encoded)
            if self._writer is not None:
                self._writer.flush()
        except BaseException:
            self._abort()
            raise
        first = min(self._partitions) if self._partitions else None
        return TaskPart(self._task.task, self._rows, self._digest, self._transaction, first)

    def _is_committed(self) -> bool:
        """Whether an earlier run of the micro-batch committed this task.

        Raises CommitsUnusable for an old batch, and for one that was committed to another topic.
        """
        query, batch = self._write
        last = self._last = self._topic.last(query, self._transactions)
        check_last(last, self._write, self._job.options.topic)
        if last is None or last.batch != batch:
            return False
        earlier = next((part for part in last.parts if part.task == self._task.task), None)
        return earlier is not None and commit_part(self._brokers, self._transactions, self._write, earlier)

    def _update_digest(self, encoded: Iterable[EncodedRecords]) -> None:
        """Add the records to the row count, and to the checksum over partitions and contents."""
        for records in encoded:
            self._rows += records.rows
            where = f"{records.partition} {records.rows}".encode()
            self._digest = crc32c(where, 0, len(where), self._digest)
            self._digest = crc32c(records.payload, 0, len(records.payload), self._digest)

    def _send(self, encoded: Iterable[EncodedRecords]) -> None:
        """Send records in the transaction, which begins with the first ones."""
        run = self._brokers.client.run
        if self._transaction is None:
            self._transaction = self._begin()
        if new := {records.partition for records in encoded} - self._partitions:
            run(self._transactions.add_partitions(self._transaction, new))
            self._partitions |= new
        if self._writer is None:
            self._check_not_committed()
            identity = Identity(self._transaction.producer, self._transaction.transactional_id)
            self._writer = RecordWriter(self._brokers, self._job.options.send, identity, self._now_ms)
        self._writer.write(encoded)

    def _begin(self) -> OpenTransaction:
        """Begin the task's transaction. Raises BadOption where brokers refuse its timeout."""
        name = self._free_id()
        timeout_ms = self._job.options.transaction_timeout_ms
        try:
            return self._brokers.client.run(self._transactions.begin(name, timeout_ms))
        except RequestRefused as error:
            if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise BadOption(
                f"option kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow; lower it, or raise "
                "transaction.max.timeout.ms of the brokers"
            ) from error

    def _check_not_committed(self) -> None:
        """Raise CommitsUnusable where the query has committed since this task looked: this attempt is superfluous.

        A driver aborts transactions that are open after its commit. One that was not open yet then sees the commit
        here, so that readers need not wait for its timeout where Spark kills the attempt.
        """
        if self._topic.has_grown() and self._topic.last(self._write.query) != self._last:
            raise CommitsUnusable(
                f"{self._write}: the query has committed a batch since attempt {self._task.attempt} of task "
                f"{self._task.task} began: another attempt was quicker, or another run of the query is active. Stop "
                "one of two runs; else nothing is to be done."
            )

    def _free_id(self) -> str:
        """A transactional id for this attempt that no other one is using.

        Where a stage runs again, Spark counts attempts from 0 again, while tasks of its first run may still write.
        """
        query, run, last = self._write.query, self._job.run, self._last
        tasks = (f"{self._task.task}:{self._task.attempt}{f'.{repeat}' if repeat else ''}" for repeat in count())
        names = (task_transactional_id(query, run, task, last) for task in tasks)
        return next(n for n in names if not self._brokers.client.run(self._transactions.is_ongoing(n)))

    def _abort(self) -> None:
        """Abort the transaction of a failed task, as far as brokers answer; else their timeout does it."""
        if self._transaction is None:
            return
        steps = transactions_of(self._brokers, ABORT_TIMEOUT_S).end(self._transaction, commit=False)
        try:
            self._brokers.client.run(steps)
        except (Unreachable, RequestRefused):
            return


def commit_part(brokers: ReadClient, transactions: SinkTransactions, write: WriteName, part: TaskPart) -> bool:
    """Commit the transaction of a part that is decided; whether it is committed, False where it was aborted before.

    Raises CommitsUnusable if that cannot be known.
    """
    assert part.transaction is not None
    try:
        return brokers.client.run(transactions.end(part.transaction, commit=True))
    except RequestRefused as error:
        if error.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            raise
        raise CommitsUnusable(
            f"{write}: the brokers have forgotten the transactional id {part.transaction.transactional_id} "
            "(transactional.id.expiration.ms), so it cannot be known whether the rows of task "
            f"{part.task} were committed. Compare topic and input, and start the query with a new "
            "checkpointLocation (a batch write: with a new writeId)."
        ) from error


def check_last(last: Commit | None, write: WriteName, topic: str | None) -> None:
    """Raise CommitsUnusable where the query committed a later batch than this one, or this one to another topic."""
    if last is None or last.batch < write.batch:
        return
    if last.batch > write.batch:
        raise CommitsUnusable(
            f"query {write.query} writes batch {write.batch}, but its batch {last.batch} is committed already. Another "
            "run of the query is active, or its checkpoint was set back: stop one of them, or start the query with a "
            "new checkpointLocation (a batch write: with a new writeId)."
        )
    if None not in (last.topic, topic) and last.topic != topic:
        raise CommitsUnusable(
            f"{write} is committed already, by a write to the topic {last.topic}, and this write is to {topic}. Give "
            "each write a writeId of its own (a streaming write: a checkpointLocation of its own; or set the option "
            f"topic to {last.topic} until this batch is complete)."
        )


def _encoded(
    brokers: ReadClient, job: SinkJob, task: TaskName, batches: Iterable[pa.RecordBatch]
) -> Iterator[list[EncodedRecords]]:
    """The rows of a task as batches of records, in lists of limited size. Raises BadRow, BadOption."""
    options = job.options
    router = Router(options.topic, StickyPartitions(task.task, options.batch_bytes), ignores_keys=options.ignores_keys)
    counts: dict[str, int] = {}
    for batch in gather(batches, min(GATHERED_BYTES, options.send.max_buffered_bytes)):
        rows = rows_of(batch, job.columns)
        if new := set(router.topics_of(rows)) - counts.keys():
            counts |= _count_partitions(brokers, new)
        encoded = list(encode_runs(*router.route(rows, counts), options.batch_bytes))
        for records in encoded:
            size = HEADER_BYTES + len(records.payload)
            if records.rows == 1 and size > options.send.max_request_bytes:
                raise BadRow(
                    f"a row for {records.partition} needs {size:,} bytes, more than "
                    f"kafka.max.request.size={options.send.max_request_bytes}: raise it, and max.message.bytes of the "
                    "topic"
                )
        yield encoded


def _count_partitions(brokers: ReadClient, topics: set[str]) -> dict[str, int]:
    """The number of partitions of each topic. Raises BadOption for a topic that does not exist, Unreachable."""
    counts = partition_counts(brokers.topics(topics))
    if missing := topics - counts.keys():
        raise BadOption(f"topic {min(missing)} does not exist: create it, or correct the option or column topic")
    return counts
