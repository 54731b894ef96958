"""Exactly once: tasks and drivers of the Spark sink on real nodes, killed between any two steps."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.cluster import Cluster
from tests.support.sink_runs import Killed, SinkRun, committed, committed_for_kafka_python

from klamm.spark.sink_commits import CommitsUnusable

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


def test_rows_are_committed_with_the_batch_and_a_repeated_batch_writes_nothing(
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
def test_a_driver_that_is_killed_inside_a_commit_leaves_all_or_nothing_to_the_next_run(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun, ends: int
) -> None:
    run.commit(0, [run.task(0, 0, "old")])
    with pytest.raises(Killed):
        # the first end is that of the transaction with the commit
        run.commit(1, [run.task(1, n, f"r{n}") for n in range(3)], kill_after_ends=ends)

    next_run.commit(1, [next_run.task(1, n, f"r{n}") for n in range(3)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["old", "r0", "r1", "r2"]


def test_a_commit_that_failed_half_way_is_not_undone_by_the_abort_that_follows(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(2)]
    with pytest.raises(Killed):
        run.commit(0, parts, kill_after_ends=2)

    run.abort(0, parts)
    run.commit(0, [run.task(0, n, f"r{n}") for n in range(2)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1"]


def test_an_aborted_batch_leaves_nothing(cluster: Cluster, topic: str, run: SinkRun) -> None:
    run.abort(0, [run.task(0, 0, "a")])

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == []


def test_a_duplicate_attempt_of_a_task_is_aborted_whichever_of_the_two_counts(
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


def test_transactions_that_timed_out_inside_a_commit_are_replaced_if_their_rows_are_the_same(
    cluster: Cluster, topic: str, run: SinkRun, next_run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(3)]
    with pytest.raises(Killed):
        run.commit(0, parts, kill_after_ends=2)
    run.forget(parts[2])

    next_run.commit(0, [next_run.task(0, n, f"r{n}") for n in range(3)])

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["r0", "r1", "r2"]


def test_other_rows_after_a_half_committed_batch_are_refused(
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


def test_a_transaction_that_is_gone_before_the_commit_leaves_nothing_of_the_batch(
    cluster: Cluster, topic: str, run: SinkRun
) -> None:
    parts = [run.task(0, n, f"r{n}") for n in range(2)]
    run.forget(parts[1])

    with pytest.raises(CommitsUnusable, match="the transaction of task 1 was aborted before the commit"):
        run.commit(0, parts)
    run.abort(0, parts)

    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == []


def test_an_older_run_that_commits_while_the_next_one_writes_is_recognised_by_it(
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


def test_a_run_that_was_replaced_can_commit_neither_its_batch_nor_an_older_one(
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
