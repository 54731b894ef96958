"""Each table of the journal of one small cluster, row by row; and `klamm insight`, which prints them."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from typer.testing import CliRunner

from klamm.charts.model import Bars, Chart, Levels, Span, Timeline
from klamm.cli.app import app
from klamm.insight.charts import make_chart
from klamm.insight.journal import read_files
from klamm.insight.tables import JournalFacts, make_table, open_journal
from klamm.insight.timeline import timeline
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BEGIN_MS = 1_700_000_000_000
DIED = "BrokerChange: dead [1], broker 1: its process ended (signal 9)"


class Clock:
    ms = BEGIN_MS

    def now_ms(self) -> int:
        return self.ms


def state(leader: int, epoch: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(BrokerId(leader), epoch, tuple(map(BrokerId, isr)), 4, epoch)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of controller 2: broker 1, which led a-0 and alone a-1, dies at 10 s, and returns at 40 s."""
    path = tmp_path_factory.mktemp("journal")
    clock = Clock()
    journal = Journal(JournalFiles(RealDisk(), str(path), 2), 2, clock)
    journal.controller_epoch = 4
    created = journal.event("TopicChange", waited_ms=5.0)
    journal.leader_decision(created, "initial", A0, None, state(1, 0, 1, 2), replicas=(1, 2))
    journal.leader_decision(created, "initial", A1, None, state(1, 0, 1), [(3, "not live")], replicas=(1, 3))
    clock.ms = BEGIN_MS + 10_040
    died = journal.event("BrokerChange", waited_ms=40.0)
    journal.found(died, new=[], dead=[1], ended={"1": "its process ended (signal 9)"})
    clock.ms += 10
    journal.leader_decision(died, "offline", A0, state(1, 0, 1, 2), state(2, 1, 2), [(1, "not live")])
    journal.leader_decision(died, "isr-removal", A1, state(1, 0, 1), state(-1, 1, 1), [(1, "replica went offline")])
    journal.refused(died, "election", "no replica is live", partitions={"a": [1]}, rejected=[(3, "not live")])
    journal.request(died, 2, "LEADER_AND_ISR", {"a": [0]}, count=1)
    clock.ms += 10
    journal.response(died, 2, "LEADER_AND_ISR", ms=7.5, failures=1, error=0)
    journal.line(died, "done", event="BrokerChange", ms=30.0)
    clock.ms = BEGIN_MS + 40_000
    back = journal.event("BrokerChange", waited_ms=0.0)
    journal.found(back, new=[1], dead=[])
    journal.leader_decision(back, "offline", A1, state(-1, 1, 1), state(1, 2, 1))
    clock.ms += 1_000
    caught_up = journal.event("AlterPartitionReceived")
    journal.leader_decision(caught_up, "alter-partition", A0, state(2, 1, 2), state(2, 1, 2, 1))
    clock.ms += 1_000
    deleted = journal.event("TopicDeletion")
    journal.line(deleted, "deletion", step="completed", partitions={"a": [1]})
    journal.flush()
    return path


@pytest.fixture(scope="module")
def journal(spark: SparkSession, directory: Path) -> JournalFacts:
    opened = open_journal(read_files(spark, [str(directory)]).cache())
    # computed once: most of what a test costs is that Spark plans a table, which then begins at these rows
    return JournalFacts(*(facts.localCheckpoint() for facts in opened))


def s(seconds: float | None) -> datetime | None:
    """The time so many seconds after the begin, as Spark gives it to Python."""
    return None if seconds is None else datetime.fromtimestamp(BEGIN_MS / 1000 + seconds)  # noqa: DTZ006 local, as Spark


def rows(name: str, journal: JournalFacts, *columns: str, **times: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in make_table(name, journal, **times).select(*columns).collect()]


def test_a_timeline_goes_from_each_state_to_the_next(journal: JournalFacts) -> None:
    columns = ("partition", "valid_from", "valid_to", "leader", "isr", "decision", "changed_unseen")
    assert rows("timeline", journal, *columns) == [
        (0, s(0), s(10.05), 1, [1, 2], "initial", False),
        (1, s(0), s(10.05), 1, [1], "initial", False),
        (0, s(10.05), s(41), 2, [2], "offline", False),
        (1, s(10.05), s(40), -1, [1], "isr-removal", False),
        (1, s(40), s(42), 1, [1], "offline", False),
        (0, s(41), None, 2, [2, 1], "alter-partition", False),
    ]


def test_a_timeline_shows_where_a_state_changed_without_a_line_in_the_journal(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = Journal(JournalFiles(RealDisk(), str(tmp_path), 2), 2, Clock())
    journal.controller_epoch = 4
    cause = journal.event("AlterPartitionReceived")
    journal.leader_decision(cause, "initial", A0, None, state(1, 0, 1, 2))
    journal.leader_decision(cause, "alter-partition", A0, state(1, 0, 1), state(1, 0, 1, 2))
    journal.flush()
    files = sorted(tmp_path.iterdir())
    files[-1].write_text(
        files[-1].read_text() + '{"ts_ms": 1700000000000, "kind": "decision", "seq'
    )  # as a kill leaves it
    opened = open_journal(read_files(spark, [str(tmp_path)]))
    told = timeline(opened.steps).orderBy("seq").select("decision", "changed_unseen")
    assert [tuple(row) for row in told.collect()] == [("initial", True), ("alter-partition", False)]


def test_availability_begins_when_the_controller_noticed_that_the_leader_was_gone(journal: JournalFacts) -> None:
    columns = ("partition", "since", "until", "ms", "leader_before", "leader_after", "why", "ended_by", "rejected")
    assert rows("availability", journal, *columns) == [
        (0, s(10), s(10.05), 50, 1, 2, DIED, DIED, [["1", "not live"]]),
        (1, s(10), s(40), 30_000, 1, 1, DIED, "BrokerChange: new [1]", [["1", "replica went offline"]]),
    ]
    open_window = journal._replace(
        intervals=journal.intervals.where("leader = -1")
        .drop("valid_to")
        .withColumn("valid_to", sql.lit(None).cast("timestamp"))
    )
    (row,) = make_table("availability", open_window).collect()
    assert row.until is None
    assert row.ms > 30_000  # until now
    assert rows("availability", journal, "partition", since_ms=BEGIN_MS + 20_000) == [(1,)]
    assert rows("availability", journal, "partition", until_ms=BEGIN_MS + 9_000) == []


def test_elections_have_the_replicas_passed_over_and_the_refused_ones(journal: JournalFacts) -> None:
    columns = ("at", "partition", "election", "leader_before", "leader", "rejected", "refused")
    assert rows("elections", journal, *columns) == [
        (s(0), 0, "initial", None, 1, [], None),
        (s(0), 1, "initial", None, 1, [["3", "not live"]], None),
        (s(10.05), 0, "offline", 1, 2, [["1", "not live"]], None),
        (s(10.05), 1, "isr-removal", 1, -1, [["1", "replica went offline"]], None),
        (s(10.05), 1, "election", None, None, [["3", "not live"]], "no replica is live"),
        (s(40), 1, "offline", -1, 1, [], None),
    ]


def test_isr_changes_and_churn_count_who_left_and_who_entered(journal: JournalFacts) -> None:
    assert rows("isr", journal, "at", "partition", "decision", "removed", "added") == [
        (s(10.05), 0, "offline", [1], []),
        (s(41), 0, "alter-partition", [], [1]),
    ]
    churn = rows("isr-churn", journal, "broker", "left", "entered", "partitions", interval="1 day")
    assert churn == [(1, 1, 1, 1)]


def test_balance_counts_leaders_and_partitions_that_prefer_another(journal: JournalFacts) -> None:
    columns = ("broker", "since", "until", "led", "preferred", "led_elsewhere", "imbalance")
    assert rows("balance", journal, *columns) == [
        (1, s(0), s(10.05), 2, 2, 0, 0.0),
        (1, s(10.05), s(40), 0, 2, 2, 1.0),
        (2, s(10.05), None, 1, 0, 0, 0.0),
        (1, s(40), s(42), 1, 2, 1, 0.5),
        (1, s(42), None, 0, 1, 1, 1.0),
    ]


def test_times_of_requests_and_events_begin_at_the_notice_of_the_event(journal: JournalFacts) -> None:
    requests = ("broker", "api", "requests", "failures", "sent_ms_p50", "answered_ms_p99")
    assert rows("requests", journal, *requests, interval="1 day") == [(2, "LEADER_AND_ISR", 1, 1, 50, 7.5)]
    events = ("event", "events", "waited_ms_p99", "handled_ms_p50")
    assert rows("events", journal, *events, interval="1 day")[1] == ("BrokerChange", 2, 40.0, 30.0)


def test_counts_of_an_interval_that_reaches_into_the_period_are_shown(journal: JournalFacts) -> None:
    """Events are at 0, 10, 40, 41 and 42 s; the intervals of a minute begin 20 s before the first one."""
    minute = {"interval": "60000 milliseconds"}
    times = {"since_ms": BEGIN_MS + 5_000, "until_ms": BEGIN_MS + 35_000}
    assert rows("isr-churn", journal, "since", "broker", "left", **minute, **times) == [(s(-20), 1, 1)]
    assert rows("requests", journal, "since", "requests", **minute, **times) == [(s(-20), 1)]
    assert {row[0] for row in rows("events", journal, "since", **minute, **times)} == {s(-20)}
    assert rows("requests", journal, "since", **minute, since_ms=BEGIN_MS + 40_000) == []


def test_klamm_insight_prints_the_newest_rows_in_utc(spark: SparkSession, directory: Path) -> None:
    words = ["insight", "availability", "--journal", str(directory)]
    lines = CliRunner().invoke(app, [*words, "--limit", "1"], catch_exceptions=False).stdout.splitlines()
    assert lines[0].split("\t")[:4] == ["topic", "partition", "since", "until"]
    assert lines[1].split("\t")[:4] == ["a", "1", "2023-11-14 22:13:30.000", "2023-11-14 22:14:00.000"]
    assert len(lines) == 2
    printed = CliRunner().invoke(app, [*words, "--json", "--topic", "a"], catch_exceptions=False).stdout
    assert [(row["partition"], row["since"], row["ms"]) for row in map(json.loads, printed.splitlines())] == [
        (0, "2023-11-14T22:13:30.000Z", 50),
        (1, "2023-11-14T22:13:30.000Z", 30_000),
    ]
    assert datetime.fromtimestamp(BEGIN_MS / 1000 + 10, UTC).isoformat() == "2023-11-14T22:13:30+00:00"


def test_klamm_insight_says_where_there_are_no_rows_topics_and_tables(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        return CliRunner().invoke(app, ["insight", "availability", *words], catch_exceptions=False).stderr

    (tmp_path / "klamm-journal-1-00000001.jsonl").touch()
    nothing = "klamm: klamm insight availability: the journal has no time without leader in this period\n"
    assert run("--journal", str(tmp_path)) == nothing
    with pytest.raises(UsageError, match="--topic 'none': the journal has no such topic"):
        run("--journal", str(directory), "--topic", "none")
    with pytest.raises(UsageError, match=r"has no tables\. Make them: klamm insight follow --tables"):
        run("--tables", str(tmp_path))


def test_klamm_insight_draws_a_chart_in_the_terminal_and_into_a_file(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "lost.png"
    words = ["insight", "availability", "--journal", str(directory), "--until", str(BEGIN_MS + 60_000), "--chart"]
    drawn = CliRunner().invoke(app, [*words, "--plot", str(path)], catch_exceptions=False).stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in drawn[1:3]] == ["a-1", "a-0"]
    assert drawn[1].endswith("· 1 x, 30 s")
    assert drawn[-1] == f"The chart is in {path}."
    assert path.read_bytes().startswith(b"\x89PNG")
    for wrong, error in (
        (["--json"], "--json and --chart or --plot exclude each other: leave one out."),
        (["--plot", "lost.gif"], "--plot lost.gif: the name must end with .png, .svg or .pdf."),
    ):
        with pytest.raises(UsageError, match=re.escape(error)):
            CliRunner().invoke(app, [*words, *wrong], catch_exceptions=False)


def test_charts_of_insight_show_the_values_of_their_tables(journal: JournalFacts) -> None:
    end_ms = BEGIN_MS + 60_000

    def chart(name: str, interval_ms: int = 3_600_000, **since: int) -> Chart:
        table = make_table(name, journal, interval=f"{interval_ms} milliseconds", **since)
        return make_chart(name, table, until_ms=end_ms, interval_ms=interval_ms, **since)

    def span(begin_s: float, end_s: float, state: str) -> Span:
        return Span(BEGIN_MS + round(begin_s * 1000), BEGIN_MS + round(end_s * 1000), state)

    assert chart("availability") == Timeline(
        "Without leader: 2 partitions",
        BEGIN_MS + 10_000,
        end_ms,
        {"a-1": [span(10, 40, "no leader")], "a-0": [span(10, 10.05, "no leader")]},
        {"a-1": "1 x, 30 s", "a-0": "1 x, 50 ms"},
        "no leader",
    )
    led = chart("timeline")
    assert isinstance(led, Timeline)
    assert led.rows["a-0"][-1] == span(41, 60, "broker 2")
    assert led.rows["a-1"] == [span(0, 10.05, "broker 1"), span(10.05, 40, "no leader"), span(40, 42, "broker 1")]
    assert led.notes == {"a-0": "1 change", "a-1": "2 changes"}
    assert chart("elections") == Bars(
        "Elections",
        ["initial", "offline", "election", "isr-removal"],
        {"held": [2, 2, 0, 1], "unclean": [0, 0, 0, 0], "refused": [0, 0, 1, 0]},
    )
    assert chart("isr") == Bars("Changes of ISRs", ["broker 1"], {"left": [1], "entered": [1]})
    churn, balance = chart("isr-churn", 1_000), chart("balance", since_ms=BEGIN_MS + 20_000)
    assert isinstance(churn, Levels)
    assert isinstance(balance, Levels)
    assert churn.series == {"broker 1": [(BEGIN_MS + s, BEGIN_MS + s + 1_000, 1) for s in (10_000, 41_000)]}
    assert balance.begin_ms == BEGIN_MS + 20_000
    assert [level.value for level in balance.series["broker 1"]] == [100, 50, 100]
    assert balance.series["broker 1"][-1].end_ms == end_ms
    requests, events = chart("requests"), chart("events")
    assert isinstance(requests, Levels)
    assert isinstance(events, Levels)
    assert [level.value for level in requests.series["broker 2"]] == [50]
    assert next(iter(events.series)) == "BrokerChange"
    assert events.series["BrokerChange"][0].value == 40


def test_the_title_of_a_chart_says_how_many_rows_it_leaves_out(
    journal: JournalFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.insight.charts.MAX_LINES", 1)
    monkeypatch.setattr("klamm.insight.charts.MAX_ROWS", 3)
    titles = [
        make_chart(n, make_table(n, journal), until_ms=BEGIN_MS).title for n in ("availability", "timeline", "events")
    ]
    assert titles == [
        "Without leader: 1 of 2 partitions, those with the longest time",
        "Leaders of 1 of 2 partitions, those with the most changes (the newest 3 rows)",
        "Controller events: time in the queue, 99th percentile (1 of 2, those with the highest) (the newest 3 rows)",
    ]


def test_tables_of_a_clock_that_was_set_back_have_no_negative_durations_and_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    written = Journal(JournalFiles(RealDisk(), str(tmp_path), 2), 2, clock)
    written.controller_epoch = 4
    created = written.event("TopicChange")
    for partition in (A0, A1):
        written.leader_decision(created, "initial", partition, None, state(1, 0, 1, 2), replicas=(1, 2))
    clock.ms = BEGIN_MS + 10_000
    died = written.event("BrokerChange")
    written.leader_decision(died, "isr-removal", A0, state(1, 0, 1), state(-1, 1, 1), [(1, "not live")])
    clock.ms = BEGIN_MS - 5_000
    back = written.event("BrokerChange")
    for partition, before in ((A0, state(-1, 1, 1)), (A1, state(1, 0, 1, 2))):
        written.leader_decision(back, "offline", partition, before, state(2, 2, 2), [(1, "not live")])
    written.flush()
    found = open_journal(read_files(spark, [str(tmp_path)]))

    assert [ms for (ms,) in rows("availability", found, "ms")] == [0, 0]
    led = rows("balance", found, "broker", "since", "led")
    assert [row for row in led if row[2] < 0] == []
    assert {broker: count for broker, _, count in led} == {1: 0, 2: 2}


def test_klamm_insight_prints_utc_where_the_settings_of_spark_name_another_time_zone(
    spark: SparkSession, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "spark.sql.session.timeZone"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {zone}=Asia/Tokyo pyspark-shell")
    spark.conf.set(zone, "Asia/Tokyo")
    try:
        done = CliRunner().invoke(app, ["insight", "balance", "--json", "--journal", str(directory)])
    finally:
        spark.conf.set(zone, "UTC")

    assert json.loads(done.stdout.splitlines()[0])["since"] == "2023-11-14T22:13:20.000Z"
