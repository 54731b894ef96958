"""Steps that are laid out once in memory: the same tables, without a shuffle or a sort for each window."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.contracts.insight.test_tables import A0, A1, Clock, state

from klamm.insight.journal import read_files
from klamm.insight.tables import TABLES, JournalFacts, open_journal, table_rows
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles

OF_STATES = [name for name, table in TABLES.items() if table.is_of_states]


class Opened(NamedTuple):
    """A journal, read in both ways, and its events, which both have."""

    plain: JournalFacts
    laid_out: JournalFacts
    causes: DataFrame


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of two partitions; an event says in a text what a decision says as its kind."""
    path = tmp_path_factory.mktemp("journal")
    clock = Clock()
    journal = Journal(JournalFiles(RealDisk(), str(path), 2), 2, clock)
    journal.controller_epoch = 4
    created = journal.event("TopicChange", text='{"kind":"decision"}')
    for partition in (A0, A1):
        journal.leader_decision(created, "initial", partition, None, state(1, 0, 1, 2), replicas=(1, 2))
    clock.ms += 1_000
    died = journal.event("BrokerChange")
    for partition in (A0, A1):
        journal.leader_decision(died, "offline", partition, state(1, 0, 1, 2), state(2, 1, 2), [(1, "not live")])
    clock.ms += 1_000
    last = journal.event("BrokerChange")
    journal.leader_decision(last, "offline", A0, state(2, 1, 2), state(-1, 2, 2), [(2, "not live")])
    journal.flush()
    return path


@pytest.fixture(scope="module")
def with_a_topic_deleted_by_hand(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deleted")
    journal = Journal(JournalFiles(RealDisk(), str(path), 2), 2, Clock())
    journal.controller_epoch = 5
    journal.found(journal.event("TopicChange"), deleted=["a"])
    journal.flush()
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["one journal", "two journals"])
def opened(
    request: pytest.FixtureRequest, spark: SparkSession, directory: Path, with_a_topic_deleted_by_hand: Path
) -> Iterator[Opened]:
    """The first journal alone, and both together."""
    paths = [str(directory), str(with_a_topic_deleted_by_hand)][: 1 + request.param]
    lines = read_files(spark, paths)
    plain, laid_out = open_journal(lines), open_journal(lines, lay_out=True)
    causes, steps, intervals = (each.localCheckpoint() for each in (plain.causes, plain.steps, plain.intervals))
    plain = plain._replace(causes=causes, steps=steps, intervals=intervals)
    yield Opened(plain, laid_out._replace(causes=causes), causes)
    laid_out.steps.unpersist()


def rows_of(name: str, journal: JournalFacts) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table_rows(name, journal).drop("ms").collect()), key=repr)


def operators(table: DataFrame) -> str:
    """The plan of a table from what is in memory."""
    plan: str = table._jdf.queryExecution().executedPlan().toString()
    return plan.partition("InMemoryRelation")[0]


@pytest.mark.parametrize("opened", [False], indirect=True, ids=["one journal"])
def test_windows_over_steps_that_are_laid_out_neither_move_nor_sort_them(opened: Opened) -> None:
    plan = operators(opened.laid_out.intervals)
    assert "Window" in plan
    assert "Exchange" not in plan
    assert "Sort" not in plan


@pytest.mark.parametrize("name", OF_STATES)
def test_tables_are_the_same_where_steps_are_laid_out(opened: Opened, name: str) -> None:
    expected = rows_of(name, opened.plain)

    assert expected
    assert rows_of(name, opened.laid_out) == expected


@pytest.mark.parametrize("opened", [False], indirect=True, ids=["one journal"])
def test_an_event_whose_text_has_the_kind_of_a_decision_is_read(opened: Opened) -> None:
    names = sorted(row.event for row in opened.causes.select("event").collect())

    assert names == ["BrokerChange", "BrokerChange", "TopicChange"]
