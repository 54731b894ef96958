"""The topic of commits: for each query the last micro-batch that it committed, and in which transactions.

A commit is a record in a transaction of the query's own transactional id, so that of two drivers of one query only the
newer one can write it. The topic is compacted: it keeps the last record of each query.
"""

import json
import uuid
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

import pyarrow as pa

from klamm.client.cluster import partition_counts, topic_ids_of
from klamm.client.errors import DeliveryFailed, RequestRefused, RetriableError, Unreachable, code_name
from klamm.client.offsets import EARLIEST, LATEST
from klamm.client.partitioners import by_murmur2
from klamm.client.routing import send_to_any, send_to_controller
from klamm.client.steps import retried
from klamm.client.transactions import ProducerFenced, ProducerIdAndEpoch
from klamm.client.versions import Request
from klamm.config.entities import TOPIC
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.read_client import ReadClient
from klamm.spark.record_encoder import RecordColumns, Run, encode_runs
from klamm.spark.record_writer import ALL_SIZES, Identity, RecordWriter, SendSettings
from klamm.spark.schema import Columns
from klamm.spark.sink_options import WriteOptions
from klamm.spark.sink_transactions import OpenTransaction, SinkTransactions
from klamm.spark.tasks import POOL, Job, read_task
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

PARTITIONS: Final = 16
MAX_REPLICAS: Final = 3
SEGMENT_BYTES: Final = 1 << 20
"""Small, so that compaction keeps the topic small: each task and each commit reads one partition of it."""
COMMIT_TIMEOUT_MS: Final = 30_000
"""Of the transaction that has the commit: as long may a killed driver keep the commits of other queries unread."""
_CLEANUP_POLICY: Final = "cleanup.policy"
_CONFIGS: Final = {_CLEANUP_POLICY: "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.1"}
_CREATE_TIMEOUT_MS: Final = 30_000
NEW_TOPIC_S: Final = 10.0
"""A topic that is in no metadata for so long was deleted; before, brokers may not know yet that it was created."""

OWN_STUCK_S: Final = 1.0
"""The transaction of a commit takes milliseconds: one that is open for longer is that of a killed driver."""
_PREFIX: Final = "klamm"


class CommitsUnusable(KlammError):
    """The topic of commits cannot be used; the text says why and what to do."""


class TaskPart(NamedTuple):
    """What one task wrote: `rows` and `digest` of its content in order, and the transaction that has it.

    `transaction` is None where the task wrote nothing; `partition` is one of those in the transaction, not stored.
    """

    task: int
    rows: int
    digest: int
    transaction: OpenTransaction | None = None
    partition: TopicPartition | None = None


class Commit(NamedTuple):
    """A micro-batch that is written when all these transactions are committed."""

    batch: int
    parts: tuple[TaskPart, ...]
    topic: str | None = None
    """The option `topic` of the write; None where its rows say it."""

    @property
    def transactional_ids(self) -> frozenset[str]:
        """The transactional ids of its transactions."""
        return frozenset(part.transaction.transactional_id for part in self.parts if part.transaction is not None)


def to_json(commit: Commit) -> bytes:
    """The commit as a record's value."""
    parts = [
        {
            "task": part.task, "rows": part.rows, "digest": part.digest,
            "transactionalId": transaction.transactional_id, "producerId": transaction.producer.id,
            "producerEpoch": transaction.producer.epoch,
        }
        for part in commit.parts if (transaction := part.transaction) is not None
    ]  # fmt: skip
    return json.dumps({"version": 1, "batch": commit.batch, "topic": commit.topic, "tasks": parts}).encode()


def from_json(content: bytes) -> Commit:
    """The commit of a record's value. Raises ValueError, KeyError or TypeError for what is not one."""
    found = json.loads(content)
    if found["version"] != 1:
        raise ValueError(f"version {found['version']!r} is not known")
    parts = [
        TaskPart(
            part["task"], part["rows"], part["digest"],
            OpenTransaction(part["transactionalId"], ProducerIdAndEpoch(part["producerId"], part["producerEpoch"])),
        )
        for part in found["tasks"]
    ]  # fmt: skip
    return Commit(int(found["batch"]), tuple(parts), found.get("topic"))  # earlier versions wrote none


def commit_transactional_id(query: str) -> str:
    """The transactional id for the commits of a query."""
    return f"{_PREFIX}:{query}"


def commit_timeout_ms(options: WriteOptions) -> int:
    """The timeout of the transaction with a commit: brokers may refuse a longer one than that of the tasks."""
    return min(COMMIT_TIMEOUT_MS, options.transaction_timeout_ms)


def task_prefix(query: str) -> str:
    """With what the transactional ids of all tasks of a query begin; no query's own id begins with another's."""
    return f"{_PREFIX}:{query}:"


def run_prefix(query: str, run: str) -> str:
    """With what the transactional ids of all tasks of one run of a query begin."""
    return f"{task_prefix(query)}{run}:"


def task_transactional_id(query: str, run: str, task: str, last: Commit | None) -> str:
    """The transactional id for an attempt of a task: none that the last commit of the query has.

    An id that is begun again would hide from an older run of the query whether the commit's transaction was committed.
    So the number at the end changes from one commit to the next.
    """
    begin = run_prefix(query, run)
    used = {generation_of(name) for name in (last.transactional_ids if last else ()) if name.startswith(begin)}
    number = next(n for n in count() if f"{begin}{n}" not in used)
    return f"{begin}{task}:{number}"


def run_prefix_of(transactional_id: str) -> str:
    """With what the transactional ids of the same run as this one begin."""
    return f"{transactional_id.rsplit(':', 3)[0]}:"


def generation_of(transactional_id: str) -> str:
    """What a task's transactional id has in common with those of the same run and the same commit."""
    return run_prefix_of(transactional_id) + transactional_id.rpartition(":")[2]


class CommitTopic:
    def __init__(self, brokers: ReadClient, options: WriteOptions, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._topic = options.commit_topic
        self._timeout_ms = commit_timeout_ms(options)
        self._now_ms = now_ms
        self._read: tuple[TopicPartition, int] | None = None
        """Up to where `last` read."""

    def create_if_missing(self) -> None:
        """Make sure that the topic exists, and that it is compacted. Raises CommitsUnusable, Unreachable."""
        if partition_counts(self._brokers.topics([self._topic])):
            self._check_compacted()
            return
        replicas = min(MAX_REPLICAS, len(self._brokers.cluster.brokers))
        configs = [CreatableTopicConfig(name, value) for name, value in _CONFIGS.items()]
        topic = CreatableTopic(self._topic, PARTITIONS, replicas, [], configs)
        request = Request(ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], _CREATE_TIMEOUT_MS, False))
        backoff = self._brokers.backoff(self._brokers.options.api_timeout_s)
        answer = self._brokers.client.run(send_to_controller(self._brokers.cluster, request, backoff))
        [result] = answer.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise CommitsUnusable(
                f"cannot create the topic {self._topic} for commits ({code_name(result.error_code)}: "
                f"{result.error_message or 'no reason given'}). Create it with cleanup.policy=compact, or set the "
                "option commitTopic to a topic that exists."
            )
        while not partition_counts(self._brokers.topics([self._topic])):
            error = RetriableError(f"topic {self._topic} is not in the metadata yet")
            self._brokers.client.world.sleep(backoff.next_wait_s(f"creating topic {self._topic}", error))

    def _check_compacted(self) -> None:
        """Raise CommitsUnusable where brokers delete records of the topic by age or size, as far as they tell."""
        resource = DescribeConfigsResource(TOPIC, self._topic, (_CLEANUP_POLICY,))
        request = Request(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest([resource]))
        attempts = retried(
            f"asking for the configs of topic {self._topic}",
            lambda: send_to_any(self._brokers.cluster, request),
            self._brokers.backoff(self._brokers.options.api_timeout_s),
        )
        [found] = self._brokers.client.run(attempts).results
        policy = next((c.value for c in found.configs if c.name == _CLEANUP_POLICY), None)
        if policy is not None and "delete" in policy:
            raise CommitsUnusable(
                f"the topic {self._topic} for commits has {_CLEANUP_POLICY}={policy}: brokers delete commits after "
                "some time, and a batch that was interrupted before would be written twice. Run klamm config set "
                f"--topic {self._topic} {_CLEANUP_POLICY}=compact, or set the option commitTopic to another topic."
            )

    def last(self, query: str, transactions: SinkTransactions | None = None) -> Commit | None:
        """The last commit of the query; None where it never committed. Raises CommitsUnusable, Unreachable.

        With `transactions` the commit that a killed run of the query left open is aborted.
        """
        partition, topic_id = self._partition(query)
        end = self._brokers.offsets({partition: LATEST}, read_committed=False)[partition]
        self._wait_until_stable(partition, end, query, transactions)
        self._read = partition, end
        start = self._brokers.offsets({partition: EARLIEST})[partition]
        if start >= end:
            return None
        columns = ("key", "value")
        job = Job(self._brokers.options, Columns(columns, columns))
        task = TaskRanges((OffsetRange(partition, start, end, topic_id),))
        found: bytes | None = None
        for rows in read_task(self._brokers.client.world, job, task, POOL):
            mine = rows.filter(pa.compute.equal(rows.column("key"), query.encode()))
            if mine.num_rows:
                found = mine.column("value")[-1].as_py()
        try:
            return None if found is None else from_json(found)
        except (ValueError, KeyError, TypeError) as error:
            raise CommitsUnusable(
                f"{partition}: the last record with key {query} is not a commit ({error}). Set the option commitTopic "
                "to a topic that only klamm writes."
            ) from error

    def has_grown(self) -> bool:
        """Whether something was written to the partition since `last` read it, perhaps a commit. Raises Unreachable."""
        assert self._read is not None, "called after `last`"
        partition, end = self._read
        return self._brokers.offsets({partition: LATEST}, read_committed=False)[partition] > end

    def write(self, query: str, commit: Commit, transaction: OpenTransaction, transactions: SinkTransactions) -> None:
        """Write a commit in a transaction that is new, and commit it. Raises CommitsUnusable where it is fenced."""
        partition, _ = self._partition(query)
        run = self._brokers.client.run
        settings = SendSettings(
            acks=-1,
            codec=Codec.GZIP,  # the parts of a commit are much alike
            level=None,
            request_timeout_s=self._brokers.options.request_timeout_s,
            delivery_timeout_s=self._brokers.options.api_timeout_s,
            max_request_bytes=ALL_SIZES,
            max_buffered_bytes=ALL_SIZES,
        )
        identity = Identity(transaction.producer, transaction.transactional_id)
        columns = RecordColumns(pa.array([query.encode()], pa.binary()), pa.array([to_json(commit)], pa.binary()))
        try:
            run(transactions.add_partitions(transaction, [partition]))
            writer = RecordWriter(self._brokers, settings, identity, self._now_ms)
            writer.write(encode_runs(columns, [Run(partition, 0, 1)], ALL_SIZES))
            writer.flush()
            is_committed = run(transactions.end(transaction, commit=True))
        except (ProducerFenced, RequestRefused, DeliveryFailed) as error:
            raise CommitsUnusable(_refused(query, str(error))) from error
        if not is_committed:
            raise CommitsUnusable(_refused(query, "its transaction was aborted"))

    def _partition(self, query: str) -> tuple[TopicPartition, uuid.UUID | None]:
        """The partition that has the commits of the query, and the id of the topic. Raises CommitsUnusable."""
        backoff = self._brokers.backoff(min(NEW_TOPIC_S, self._brokers.options.api_timeout_s))
        while not (counts := partition_counts(topics := self._brokers.topics([self._topic]))):
            try:
                wait_s = backoff.next_wait_s(f"looking for topic {self._topic}", RetriableError("it is in no metadata"))
            except Unreachable:
                raise CommitsUnusable(
                    f"the topic {self._topic}, which has the commits of this query, does not exist any more. If it was "
                    "deleted, start the query with a new checkpointLocation; else set the option commitTopic."
                ) from None
            self._brokers.client.world.sleep(wait_s)
        partition = TopicPartition(self._topic, by_murmur2(query.encode(), counts[self._topic]))
        return partition, topic_ids_of(topics).get(self._topic)

    def _wait_until_stable(
        self, partition: TopicPartition, end: int, query: str, transactions: SinkTransactions | None
    ) -> None:
        """Wait until all transactions before `end` have ended: one of them may have this query's commit."""
        backoff = self._brokers.backoff(self._brokers.options.api_timeout_s)
        world = self._brokers.client.world
        stuck_at_s = world.now_s() + OWN_STUCK_S
        while True:
            stable = self._brokers.offsets({partition: LATEST}, read_committed=True)[partition]
            if stable >= end:
                return
            if transactions is not None and world.now_s() >= stuck_at_s:
                self._brokers.client.run(transactions.begin(commit_transactional_id(query), self._timeout_ms))
                transactions = None
            error = RetriableError(f"{partition} has an open transaction at offset {stable}")
            world.sleep(backoff.next_wait_s("reading the last commit", error))


def _refused(query: str, why: str) -> str:
    """Return the error text for a commit that was refused, most often because another run of the query is active."""
    return (
        f"query {query}: its commit was refused ({why.rstrip('.')}), so nothing of the batch is committed. Correct the "
        "cause; if another run of the query is active, stop one of them. Then start the query again."
    )
