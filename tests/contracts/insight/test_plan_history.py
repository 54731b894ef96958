"""What plans take from journals: failures, time out of ISRs, time without leader; and plans that use it."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.contracts.insight.test_tables import BEGIN_MS, directory, journal
from typer.testing import CliRunner

from klamm.cli.app import app
from klamm.insight.journal import read_files
from klamm.insight.plan_history import count_failures, plan_history
from klamm.insight.store import InsightStore
from klamm.insight.tables import JournalFacts, open_journal, open_store
from klamm.insight.timeline import timeline
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.history import BrokerHistory, History, PartitionHistory

__all__ = ["directory", "journal"]
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
END_MS = BEGIN_MS + 100_000


def about(number: float) -> Any:
    """What equals the number but for rounding."""
    return pytest.approx(number)


@pytest.fixture(scope="module")
def history(journal: JournalFacts) -> History:
    """The history of the whole journal."""
    return plan_history(journal, BEGIN_MS, END_MS)


def test_a_broker_that_died_failed_once_and_was_out_of_isrs_until_it_caught_up(history: History) -> None:
    """a-0 has no broker 1 in its ISR from 10.05 to 41 s of 100 s; a-1, which it has alone, is deleted at 42 s."""
    assert history.brokers == {BrokerId(1): BrokerHistory(1, about(30.95 / 142))}
    assert history.partitions == {
        A0: PartitionHistory(about((0.3095 - 30.95 / 142) / 2), about(0.0005)),
        A1: PartitionHistory(0.0, about(0.3)),
    }


def test_only_the_time_asked_for_counts(journal: JournalFacts) -> None:
    history = plan_history(journal, BEGIN_MS + 20_000, BEGIN_MS + 30_000)

    assert history.brokers[BrokerId(1)].failures == 1  # a-1 is without leader since it failed
    assert history.brokers[BrokerId(1)].out_of_isr == pytest.approx(10 / 20)
    assert history.partitions[A1].without_leader == pytest.approx(1.0)
    later = plan_history(journal, BEGIN_MS + 41_500, END_MS)
    assert (later.brokers, later.partitions) == ({}, {})


def test_failures_are_times_at_which_leaders_were_lost_without_a_controlled_shutdown(spark: SparkSession) -> None:
    windows = [
        (1, "10:00", "BrokerChange: dead [1]"),
        (1, "10:00", "BrokerChange: dead [1]"),
        (1, "11:00", None),
        (2, "12:00", "ControlledShutdown: broker 2"),
        (None, "13:00", "TopicChange"),
    ]
    counted = count_failures(spark.createDataFrame(windows, "leader_before int, since string, why string"))

    assert [tuple(row) for row in counted.collect()] == [(1, 2)]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that follow the same journal."""
    path = tmp_path_factory.mktemp("tables")
    InsightStore(spark, str(path)).add_batch(read_files(spark, [str(directory)]), 0)
    return path


def test_tables_that_follow_a_journal_give_the_same_history(
    spark: SparkSession, tables: Path, history: History
) -> None:
    kept = open_store(InsightStore(spark, str(tables)))

    assert plan_history(kept, BEGIN_MS, END_MS) == history


@pytest.mark.parametrize("source", ["directory", "tables"])
def test_a_plan_lets_the_broker_that_failed_lead_less(
    source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    where = str(request.getfixturevalue(source))
    partitions = [{"topic": "t", "partition": n, "replicas": [1 + n % 2, 2 - n % 2]} for n in range(30)]
    given = tmp_path / "cluster.json"
    given.write_text(json.dumps({"brokers": [{"id": 1}, {"id": 2}], "partitions": partitions}))
    words = ["reassign", "plan", "--cluster-file", str(given), "--history", where, "--since", "2023-11-14", "--json"]
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout

    changed = json.loads(printed)["partitions"]
    assert [p["replicas"] for p in changed] == [[2, 1]] * len(changed)
    assert len(changed) in (4, 5)
    assert "broker 1 (failed 1 time, out of ISRs" in changed[0]["reasons"][0]


def test_times_out_of_isrs_are_those_of_the_timeline(
    request: pytest.FixtureRequest,
) -> None:
    """Computed again in Python from the intervals of simulated clusters."""
    if request.config.getoption("--journals") <= 100:
        pytest.skip("it takes ten seconds: `make prove ONLY=insight` runs it")
    simulated_lines: DataFrame = request.getfixturevalue("simulated_lines")
    opened = open_journal(simulated_lines)
    rows = [row.asDict() for row in timeline(opened.steps).collect()]
    begin_ms = min(row["ts_ms"] for row in rows)
    until_ms = max(row["ts_ms"] for row in rows) + 60_000
    assigned: dict[TopicPartition, Any] = {}
    for step in opened.steps.where("replicas is not null").orderBy("controller_epoch", "seq").collect():
        assigned[TopicPartition(step.topic, step.partition)] = set(step.replicas)
    of_partition: dict[TopicPartition, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["controller_epoch"], row["seq"])):
        of_partition[TopicPartition(row["topic"], row["partition"])].append(row)
    known: dict[int, float] = defaultdict(float)
    out: dict[int, float] = defaultdict(float)
    for at, intervals in of_partition.items():
        seen: set[int] = set()
        for row in intervals:
            end = until_ms if row["valid_to"] is None else round(row["valid_to"].timestamp() * 1000)
            seen |= set(row["isr"])
            for broker in seen & assigned.get(at, seen):
                known[broker] += end - row["ts_ms"]
                out[broker] += (end - row["ts_ms"]) * (broker not in row["isr"])
    history = plan_history(opened, begin_ms, until_ms)

    assert {b: of.out_of_isr for b, of in history.brokers.items() if of.out_of_isr} == {
        broker: pytest.approx(out[broker] / known[broker]) for broker in out if out[broker]
    }
    assert any(of.failures for of in history.brokers.values())
