"""Tables that are kept up to date batch by batch equal tables made at once, also after crashes and late lines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.simulated_journals import SimulatedJournal

from klamm.insight import facts, store
from klamm.insight.journal import distinct_lines, empty_lines
from klamm.insight.store import InsightStore, WrongBatch
from klamm.insight.timeline import timeline
from klamm.runtime.randomness import Rng

BATCHES = 2
WRITES = 8
"""Of a batch."""


class Crash(Exception):
    """In place of the end of a process."""


def lines_of(spark: SparkSession, lines: Sequence[str]) -> DataFrame:
    return distinct_lines(spark.createDataFrame([(line,) for line in lines], "value string"))


def rows_of(table: DataFrame) -> list[tuple[Any, ...]]:
    """All rows, in an order that does not depend on their columns' types."""
    return sorted((tuple(row) for row in table.collect()), key=repr)


def in_batches(journals: Sequence[SimulatedJournal], rng: Rng) -> list[list[str]]:
    """The lines in batches: mostly in order, one in a hundred late, one in a hundred twice."""
    batches: list[list[str]] = [[] for _ in range(BATCHES)]
    for journal in journals:
        for number, line in enumerate(journal.lines):
            batch = number * BATCHES // len(journal.lines)
            if rng.random() < 0.01:
                batch = rng.randrange(batch, BATCHES)
            batches[batch].append(line)
            if rng.random() < 0.01:
                batches[rng.randrange(batch, BATCHES)].append(line)
    return batches


@pytest.fixture(scope="module")
def batches(journals: Sequence[SimulatedJournal]) -> list[list[str]]:
    return in_batches(journals[:1], Rng(7))


def test_tables_in_batches_equal_tables_at_once_after_crashes(
    spark: SparkSession,
    batches: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("--journals") <= 100:
        pytest.skip("it takes half a minute: `make prove ONLY=insight` runs it")
    kept = InsightStore(spark, str(tmp_path / "tables"))
    *earlier, newest = (lines_of(spark, lines) for lines in batches)
    for number, lines in enumerate(earlier):
        kept.add_batch(lines, number)
    for writes in range(1, WRITES):
        crash_after(monkeypatch, writes)
        with pytest.raises(Crash):
            kept.add_batch(newest, len(earlier))
        monkeypatch.undo()
    kept.add_batch(newest, len(earlier))
    kept.add_batch(newest, len(earlier))  # Spark repeats a batch that it did not record as done
    at_once = lines_of(spark, [line for lines in batches for line in lines])
    for table, taken_from in store.FACTS.items():
        assert rows_of(kept.facts(table)) == rows_of(taken_from(at_once))
    intervals = rows_of(kept.timeline())
    assert len(intervals) > 20
    assert intervals == rows_of(timeline(facts.state_steps(at_once)))


def crash_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Make the store crash after so many tables of a batch."""
    write, left = InsightStore._write, iter(range(writes))

    def write_or_crash(self: InsightStore, rows: DataFrame, table: str, batch: int) -> None:
        if next(left, None) is None:
            raise Crash
        write(self, rows, table, batch)

    monkeypatch.setattr(InsightStore, "_write", write_or_crash)


def test_a_store_refuses_batches_of_a_query_that_began_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = InsightStore(spark, str(tmp_path / "tables"))
    monkeypatch.setattr(kept, "_commits", lambda: [0, 1])
    with pytest.raises(WrongBatch, match=r"has batches up to 1, and batch 0 comes again: the checkpoint"):
        kept.add_batch(empty_lines(spark), 0)


def test_a_store_continues_where_a_run_was_killed_while_it_wrote_its_first_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = InsightStore(spark, str(tmp_path))
    (tmp_path / "commits" / "batch=0" / "_temporary" / "0").mkdir(parents=True)

    assert not kept.has_batches()
    kept.add_batch(empty_lines(spark), 0)
    assert kept.has_batches()


def test_a_deletion_by_hand_ends_partitions_whose_lines_come_later(spark: SparkSession, tmp_path: Path) -> None:
    """A controller that was cut off writes its last lines after the first ones of the next controller."""
    kept = InsightStore(spark, str(tmp_path))
    batches = (
        [created(1, 1, 0), deleted_by_hand(2, 5)],
        [created(1, 2, 1), created(1, 1, 0)],
        [created(3, 1, 1), created(3, 2, 2)],
    )

    for number, lines in enumerate(batches):
        kept.add_batch(lines_of(spark, lines), number)

    at_once = timeline(facts.state_steps(lines_of(spark, [line for lines in batches for line in lines])))
    intervals = rows_of(kept.timeline())
    assert [(row[1], row[3] is None) for row in intervals] == [(0, False), (1, False), (1, True), (2, True)]
    assert intervals == rows_of(at_once)


def created(epoch: int, seq: int, partition: int) -> str:
    """The journal line of a new partition of topic t."""
    state = {"leader_to": 1, "leader_epoch": 0, "partition_epoch": 0, "isr": [1], "replicas": [1]}
    facts = {"decision": "initial", "topic": "t", "partition": partition, **state}
    return line_of(epoch, seq, "decision", facts)


def deleted_by_hand(epoch: int, seq: int) -> str:
    """The journal line of a controller that finds the znodes of topic t deleted."""
    return line_of(epoch, seq, "found", {"deleted": ["t"]})


def line_of(epoch: int, seq: int, kind: str, of_kind: dict[str, Any]) -> str:
    """A line of the journal of the controller of this epoch."""
    cause = f"{epoch}.1.{seq}"
    head = {"ts_ms": epoch * 10_000 + seq, "node": epoch, "controller_epoch": epoch, "seq": seq, "cause": cause}
    return json.dumps({**head, "kind": kind, **of_kind}, separators=(",", ":"))
