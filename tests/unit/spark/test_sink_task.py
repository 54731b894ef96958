"""A task of an exactly-once write: what it does with a commit of an earlier run."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from klamm.client.errors import RequestRefused
from klamm.client.transactions import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark import sink_commit, sink_task
from klamm.spark.option_set import Reads
from klamm.spark.sink import run_of_task
from klamm.spark.sink_commit import BatchCommit
from klamm.spark.sink_commits import (
    Commit,
    CommitsUnusable,
    TaskPart,
    commit_transactional_id,
    from_json,
    generation_of,
    task_transactional_id,
    to_json,
)
from klamm.spark.sink_options import write_options
from klamm.spark.sink_schema import SinkColumns
from klamm.spark.sink_task import SinkJob, TaskName, TransactionalTask, WriteName
from klamm.spark.sink_transactions import OpenTransaction

WRITE = WriteName("orders-copy", 7)
EARLIER = OpenTransaction("klamm:orders-copy:1:0:0", ProducerIdAndEpoch(5, 0))
LAST = Commit(7, (TaskPart(0, 3, 1, EARLIER),))


def refuse(*_: Any, **__: Any) -> Any:
    raise RequestRefused(EARLIER.transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_task_whose_earlier_transaction_the_brokers_forgot_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    options = write_options(
        {
            "kafka.bootstrap.servers": "a:1", "topic": "out", "delivery": "exactly-once",
            "writeId": WRITE.query, "writeBatch": "7",
        },
        Reads.BATCH,
    )  # fmt: skip
    brokers: Any = SimpleNamespace(client=SimpleNamespace(run=lambda steps: steps))
    monkeypatch.setattr(sink_task, "transactions_of", lambda brokers: SimpleNamespace(end=refuse))
    monkeypatch.setattr(sink_task, "CommitTopic", lambda *_: SimpleNamespace(last=lambda *_: LAST))
    job = SinkJob(options, SinkColumns(None, None, 0, None, None), "2")
    task = TransactionalTask(brokers, job, WRITE, TaskName(0, 0), lambda: 0)

    with pytest.raises(CommitsUnusable, match=r"orders-copy, batch 7: the brokers have forgotten .*with a new writeId"):
        task.run([])


def test_a_commit_that_an_older_run_writes_before_it_is_fenced_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: dict[str, int] = {}
    stored: list[Commit] = []

    def begin(name: str, timeout_ms: int) -> OpenTransaction:
        """The older run is quicker by a moment: its commit is stored just before this fences it."""
        if not begun:
            stored.append(LAST)
        begun[name] = timeout_ms
        return OpenTransaction(name, ProducerIdAndEpoch(6, 1))

    own = OpenTransaction("klamm:orders-copy:2:0:0", ProducerIdAndEpoch(7, 0))
    transactions = SimpleNamespace(
        begin=begin, end=lambda *_, **__: True, is_open=lambda *_: True, ongoing=lambda _: [own.transactional_id]
    )
    topic = SimpleNamespace(
        last=lambda _query: stored[-1] if stored else None, write=lambda _query, commit, *_: stored.append(commit)
    )
    monkeypatch.setattr(sink_commit, "transactions_of", lambda brokers: transactions)
    monkeypatch.setattr(sink_commit, "CommitTopic", lambda *_: topic)
    brokers: Any = SimpleNamespace(client=SimpleNamespace(run=lambda answer: answer))
    options = write_options(
        {
            "kafka.bootstrap.servers": "a:1", "topic": "out", "delivery": "exactly-once",
            "kafka.transaction.timeout.ms": "9000",
        },
        Reads.STREAM,
    )  # fmt: skip
    job = SinkJob(options, SinkColumns(None, None, 0, None, None), "2")

    BatchCommit(brokers, job, WRITE, lambda: 0).commit([TaskPart(0, 3, 1, own, TopicPartition("out", 0))])

    assert stored == [LAST]
    assert list(begun) == [commit_transactional_id(WRITE.query), own.transactional_id]  # and its own rows are aborted
    assert set(begun.values()) == {9000}, "brokers may refuse a longer timeout than the option says"


def test_a_task_takes_no_transactional_id_of_the_last_commit_of_its_run() -> None:
    ids = []
    last = None
    for batch in range(3):
        ids.append(task_transactional_id("orders-copy", "run", "0:0", last))
        last = Commit(batch, (TaskPart(0, 3, 1, OpenTransaction(ids[-1], ProducerIdAndEpoch(5, 0))),))

    assert ids[0] == ids[2] != ids[1]
    assert generation_of(ids[0]) == generation_of(task_transactional_id("orders-copy", "run", "17:2", last=None))
    assert task_transactional_id("orders-copy", "other", "0:0", last) == ids[0].replace("run", "other")


def test_a_commit_of_an_earlier_version_is_read_without_its_topic() -> None:
    stored = json.loads(to_json(LAST._replace(topic="out")))
    assert from_json(json.dumps(stored).encode()).topic == "out"
    del stored["topic"]

    assert from_json(json.dumps(stored).encode()) == LAST


class Context(TaskContext):
    """A task with these local properties."""

    def __new__(cls, **_: str) -> "Context":
        return object.__new__(cls)

    def __init__(self, **properties: str) -> None:
        self._localProperties = {name.replace("__", "."): value for name, value in properties.items()}


def test_tasks_of_a_streaming_query_name_its_run_whichever_process_planned_the_micro_batch() -> None:
    def run_of(group: str, planned: str) -> str:
        return run_of_task(Context(sql__streaming__queryId="q", spark__jobGroup__id=group), planned)

    assert run_of("run 1", "process 1") == run_of("run 1", "process 2") != run_of("run 2", "process 1")
    assert run_of_task(Context(spark__jobGroup__id="a group of the user"), "process 1") == "process 1"
    assert run_of_task(Context(), "process 1") == "process 1"
