"""Exactly once: tasks and drivers of the Spark sink on real nodes, killed between any two steps."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.cluster import Cluster
from tests.support.sink_runs import Killed, SinkRun, committed, committed_for_kafka_python

from klamm.spark.sink_commits import CommitsUnusable, CommitTopic, TaskPart
from klamm.spark.sink_task import TransactionalTask
from klamm.spark.sink_transactions import OpenTransaction

PARTITIONS = 3


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"sink-{uuid4().hex[:8]}"
    cluster.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def query() -> str:
    return str(uuid4())


@pytest.fixture
def run(cluster: Cluster, topic: str, query: str) -> Iterator[SinkRun]:
    run = SinkRun(cluster.bootstrap, topic, query, kafka__retry__backoff__ms="20")
    run.prepare()
    yield run
    run.close()


@pytest.fixture
def next_run(cluster: Cluster, topic: str, query: str) -> Iterator[SinkRun]:
    """The same query, started again."""
    run = SinkRun(cluster.bootstrap, topic, query, kafka__retry__backoff__ms="20")
    yield run
    run.close()


def test_the_spark_sink_commits_rows_with_the_batch_and_writes_nothing_for_a_repeated_batch(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    parts = [run.task(0, 0, "a", "b"), run.task(0, 1, "c")]
    assert committed(cluster.bootstrap, topic, PARTITIONS) == []

    run.commit(0, parts)
    next_run.commit(0, [next_run.task(0, 0, "a", "b"), next_run.task(0, 1, "c")])
    next_run.commit(1, [next_run.task(1, 0, "d"), next_run.task(1, 1)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a", "b", "c", "d"]
    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("ends", [0, 1, 2, 3])
def test_a_spark_sink_batch_whose_driver_dies_during_the_commit_is_written_once_after_restart(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun, ends: int
) -> None:
    run.commit(0, [run.task(0, 0, "old")])
    with pytest.raises(Killed):
        # the first end is that of the transaction with the commit
        run.commit(1, [run.task(1, n, f"r{n}") for n in range(3)], kill_after_ends=ends)

    next_run.commit(1, [next_run.task(1, n, f"r{n}") for n in range(3)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["old", "r0", "r1", "r2"]


def test_an_abort_after_a_partly_failed_spark_sink_commit_does_not_undo_the_commit(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(2)]
    with pytest.raises(Killed):
        run.commit(0, parts, kill_after_ends=2)

    run.abort(0, parts)
    run.commit(0, [run.task(0, n, f"other {n}") for n in range(2)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1"]


def test_an_aborted_spark_sink_batch_leaves_no_readable_records(cluster: Cluster, topic: str, run: SinkRun) -> None:
    run.abort(0, [run.task(0, 0, "a")])

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == []


def test_the_spark_sink_aborts_the_transaction_of_a_duplicate_task_attempt(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    first = run.task(0, 0, "a")
    run.task(0, 0, "a", attempt=1)
    run.commit(0, [first])
    run.task(1, 0, "b")
    run.commit(1, [run.task(1, 0, "b", attempt=1)])

    # nothing is left open: kafka-python reads up to the last stable offset
    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == ["a", "b"]
    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a", "b"]


def test_spark_sink_transactions_that_time_out_during_a_commit_are_rewritten_if_rows_are_equal(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(3)]
    with pytest.raises(Killed):
        run.commit(0, parts, kill_after_ends=2)
    run.forget(parts[2])

    next_run.commit(0, [next_run.task(0, n, f"r{n}") for n in range(3)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1", "r2"]


def test_the_spark_sink_refuses_different_rows_for_a_partly_committed_batch(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(3)]
    with pytest.raises(Killed):
        run.commit(0, parts, kill_after_ends=2)
    run.forget(parts[2])
    changed = [next_run.task(0, n, f"r{2 - n}") for n in range(3)]

    with pytest.raises(CommitsUnusable, match=r"batch 0: .* its tasks 2 were aborted .* tasks 0, 2 are now others"):
        next_run.commit(0, changed)
    next_run.abort(0, changed)

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1"]


def test_a_spark_sink_batch_with_a_transaction_aborted_before_the_commit_writes_nothing(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(2)]
    run.forget(parts[1])

    with pytest.raises(CommitsUnusable, match="the transaction of task 1 was aborted before the commit"):
        run.commit(0, parts)
    run.abort(0, parts)

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == []


def test_a_spark_sink_batch_committed_by_an_older_run_meanwhile_is_not_written_again(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    old = [run.task(0, n, f"r{n}") for n in range(2)]
    new = [next_run.task(0, 0, "r0")]

    with pytest.raises(Killed):
        run.commit(0, old, kill_after_ends=2)
    new.append(next_run.task(0, 1, "r1"))
    next_run.commit(0, new)

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1"]
    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1"]


def test_a_spark_sink_run_replaced_by_a_newer_run_can_commit_no_batch(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    old = [run.task(0, 0, "a")]
    next_run.commit(0, [next_run.task(0, 0, "a")])
    run.commit(0, old)  # recognised: the batch is committed
    next_run.commit(1, [next_run.task(1, 0, "b")])

    with pytest.raises(CommitsUnusable, match="writes batch 0, but its batch 1 is committed already"):
        run.commit(0, old)
    with pytest.raises(CommitsUnusable, match="stop one of them"):
        run.task(0, 0, "a")

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a", "b"]


def test_an_older_spark_sink_run_writes_nothing_of_a_batch_whose_successor_is_being_written(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    next_run.commit(0, [next_run.task(0, 0, "a")])
    begun = next_run.task(1, 0, "b")

    run.commit(0, [run.task(0, 0, "a")])
    next_run.commit(1, [begun])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a", "b"]


def test_an_older_spark_sink_run_that_aborts_its_batch_leaves_the_transactions_of_a_newer_run_open(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    old, new = [run.task(0, 0, "a")], [next_run.task(0, 0, "a")]

    run.abort(0, old)
    next_run.commit(0, new)

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == ["a"]


def test_a_duplicate_attempt_of_a_spark_sink_task_that_begins_after_the_commit_leaves_no_transaction_open(
    cluster: Cluster, topic: str, run: SinkRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[OpenTransaction] = []
    begin = TransactionalTask._begin

    def note(task: TransactionalTask) -> OpenTransaction:
        begun.append(begin(task))
        return begun[-1]

    first = run.task(0, 0, "a")
    monkeypatch.setattr(TransactionalTask, "_begin", note)
    with pytest.raises(CommitsUnusable, match="batch 0: the query has committed a batch since attempt 1 of task 0 beg"):
        run.task(0, 0, "a", attempt=1, before_rows=lambda: run.commit(0, [first]))

    assert [run.is_open(TaskPart(0, 1, 0, transaction)) for transaction in begun] == [False]
    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a"]


def test_an_abort_of_an_old_spark_sink_batch_leaves_no_transaction_open(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtake() -> None:
        next_run.commit(0, [next_run.task(0, 0, "a")])
        next_run.commit(1, [next_run.task(1, 0, "b")])

    with monkeypatch.context() as patched:
        patched.setattr(CommitTopic, "has_grown", lambda topic: False)  # its request came a moment before
        old = run.task(0, 0, "a", before_rows=overtake)
    assert run.is_open(old)
    with pytest.raises(CommitsUnusable, match="writes batch 0, but its batch 1 is committed already"):
        run.commit(0, [old])

    run.abort(0, [old])

    assert not run.is_open(old)
    next_run.commit(2, [next_run.task(2, 0, "c")])
    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["a", "b", "c"]


def test_a_spark_sink_task_of_a_repeated_stage_does_not_abort_what_the_first_stage_wrote(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    first = run.task(0, 0, "a")
    run.task(0, 0, "a")  # Spark counts the attempts of each stage from 0

    run.commit(0, [first])

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == ["a"]


def test_a_spark_sink_write_with_the_name_of_a_write_to_another_topic_is_refused(
    cluster: Cluster, topic: str, query: str, run: SinkRun
) -> None:
    run.commit(0, [run.task(0, 0, "a")])
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    second = SinkRun(cluster.bootstrap, other, query)

    with pytest.raises(CommitsUnusable, match=f"committed already, by a write to the topic {topic}, .* to {other}"):
        second.task(0, 0, "b")
    second.close()


def test_a_spark_sink_commit_that_the_brokers_refuse_says_why(
    cluster: Cluster, topic: str, query: str, run: SinkRun
) -> None:
    commits = f"commits-{topic}"
    cluster.create_topic(commits, 1, config={"cleanup.policy": "compact", "max.message.bytes": "200"})
    small = SinkRun(cluster.bootstrap, topic, query, commitTopic=commits)

    with pytest.raises(CommitsUnusable, match=r"MESSAGE_TOO_LARGE.* raise max.message.bytes .*\), so nothing"):
        small.commit(0, [small.task(0, 0, "a")])
    small.close()


def test_the_spark_sink_refuses_a_topic_for_commits_that_is_not_compacted(
    cluster: Cluster, topic: str, query: str
) -> None:
    commits = f"commits-{topic}"
    cluster.create_topic(commits, 1)
    run = SinkRun(cluster.bootstrap, topic, query, commitTopic=commits)

    with pytest.raises(CommitsUnusable, match=f"has cleanup.policy=delete: .* klamm config set --topic {commits}"):
        run.prepare()
    run.close()
