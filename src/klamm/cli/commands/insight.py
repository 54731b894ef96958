"""`klamm insight TABLE`: the history of the controllers as tables, and `klamm insight follow`, which keeps them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from posixpath import join
from typing import Annotated, Any, Final

import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampType

from klamm.charts.files import check_drawable, write_charts
from klamm.cli.admin.client import with_admin
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.charts import print_chart
from klamm.cli.options import Data
from klamm.cli.output import is_terminal, print_error, print_json, print_line, print_table
from klamm.cli.quiet_spark import quiet_session
from klamm.cli.times import parse_duration, parse_past
from klamm.explain.sources import CannotExplain, chosen_directories
from klamm.insight.charts import make_chart
from klamm.insight.journal import read_files, read_topic
from klamm.insight.store import InsightStore
from klamm.insight.tables import TABLES, JournalFacts, make_table, open_journal, open_store, order_of, table_rows
from klamm.model.errors import KlammError, UsageError
from klamm.pipeline.errors import cause_of
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk
from klamm.runtime.small_files import create_directory
from klamm.spark.errors import ADVICE
from klamm.telemetry.journal import JOURNAL_TOPIC
from klamm.telemetry.journal_files import journal_files

MAX_ROWS: Final = 50
DEFAULT_TRIGGER: Final = "30s"
ASK_TIMEOUT_S: Final = 10.0
"""How long a broker may take to say whether there is a journal topic."""

_LOCK: Final = "lock"


class FollowFailed(KlammError):
    """The query of `klamm insight follow` ended with an error."""


Tables = Annotated[
    str | None, typer.Option("--tables", help="directory that `klamm insight follow` keeps, in place of a journal")
]
Journals = Annotated[list[str] | None, typer.Option("--journal", help="journal directory of a node; repeatable")]
Cluster = Annotated[
    str | None, typer.Option("--bootstrap-server", "-b", help="HOST:PORT of a cluster whose journal topic to read")
]
Since = Annotated[
    str | None, typer.Option("--since", help="begin of the period: 7d, 1h30m before now, or 2026-01-31T08:00Z")
]
Until = Annotated[str | None, typer.Option("--until", help="end of the period, like --since; default: now")]
Topic = Annotated[str | None, typer.Option("--topic", help="only this topic")]
Interval = Annotated[str, typer.Option("--interval", help="what counts are summed over, such as 10m or 1h")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="maximum number of rows to print; the newest are printed")]
AsJson = Annotated[bool, typer.Option("--json", help="print all rows, each as one JSON object on a line")]
Parquet = Annotated[str | None, typer.Option("--parquet", help="write all rows to this new directory as Parquet")]
Chart = Annotated[bool, typer.Option("--chart", help="draw the rows as a chart in the terminal")]
Plot = Annotated[str | None, typer.Option("--plot", help="draw the chart into this file: .png, .svg or .pdf")]

insight_app = typer.Typer(
    help="Show the history of partitions, brokers and controllers as tables.", no_args_is_help=True
)


def _command(name: str) -> Callable[..., None]:
    """The command that prints one table."""

    def print_insight(
        data: Data = "klamm-data",
        journal: Journals = None,
        bootstrap: Cluster = None,
        tables: Tables = None,
        since: Since = None,
        until: Until = None,
        topic: Topic = None,
        interval: Interval = "1h",
        limit: Limit = MAX_ROWS,
        as_json: AsJson = False,
        parquet: Parquet = None,
        chart: Chart = False,
        plot: Plot = None,
    ) -> None:
        """Print the table, write it, or draw it. Raises UsageError, CannotExplain, CannotDraw."""
        _check_one_output({"--json": as_json, "--parquet": parquet, "--chart or --plot": chart or plot})
        if plot is not None:
            check_drawable(plot)
        if topic is not None and not TABLES[name].is_of_partitions:
            raise UsageError(f"--topic {topic!r}: klamm insight {name} counts over all topics. Leave it out.")
        if parquet is not None and RealDisk().exists(parquet):
            raise UsageError(f"--parquet {parquet} exists already. Name a new directory, or remove it.")
        now_ms = RealClock().now_ms()
        since_ms, until_ms = _period(since, until, now_ms)
        interval_ms = _positive_duration("--interval", interval)
        opened = _journal(data, journal or [], bootstrap, tables, lay_out=TABLES[name].is_of_states)
        make = make_table if as_json or chart or plot else table_rows
        rows = make(name, opened, since_ms=since_ms, until_ms=until_ms, interval=f"{interval_ms} milliseconds")
        if topic is not None:
            if opened.steps.where(sql.col("topic") == topic).isEmpty():
                raise UsageError(
                    f"--topic {topic!r}: the journal has no such topic. klamm topics list shows the names."
                )
            rows = rows.where(rows.topic == topic)
        if parquet is not None:
            rows.sortWithinPartitions(*order_of(name, rows)).write.parquet(parquet)
            print_line(f"{rows.sparkSession.read.parquet(parquet).count():,} rows are in {parquet}.")
        elif chart or plot:
            end_ms = now_ms if until_ms is None else until_ms
            drawn = make_chart(name, rows, since_ms=since_ms, until_ms=end_ms, interval_ms=interval_ms)
            if chart:
                print_chart(drawn)
            if plot:
                write_charts(plot, [drawn])
                print_line(f"The chart is in {plot}.")
        elif as_json:
            for row in _with_times_as_text(rows, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").toLocalIterator():
                print_json(row.asDict())
        else:
            _print_newest(name, rows, limit)

    return print_insight


for _name, _table in TABLES.items():
    insight_app.command(_name, help=_table.summary)(_command(_name))


@insight_app.command()
def follow(
    tables: Annotated[str, typer.Option("--tables", help="directory of the tables")],
    bootstrap: Annotated[str, typer.Option("--bootstrap-server", "-b", help="HOST:PORT of the cluster")],
    every: Annotated[str, typer.Option("--every", help="time between two batches, such as 30s")] = DEFAULT_TRIGGER,
    once: Annotated[bool, typer.Option("--once", help="add what the topic has now, then stop")] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="continue where the topic has deleted lines that were not read yet")
    ] = False,
) -> None:
    """Keep the tables of a cluster's journal topic up to date, until Ctrl-C; resume where the last run ended."""
    trigger: dict[str, Any] = {"availableNow": True}
    if not once:
        trigger = {"processingTime": f"{_positive_duration('--every', every)} milliseconds"}
    _check_journal_topic(bootstrap)
    with _locked(tables):
        store = InsightStore(quiet_session("klamm insight"), tables)
        query = store.follow(bootstrap, on_data_loss="skip" if skip_lost else "fail", **trigger)
        print_line(
            f"The tables of {bootstrap} are kept in {tables}. Print them: klamm insight availability --tables {tables}"
        )
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
            print_line(f"Stopped. The same command continues {tables}.")
        except StreamingQueryException as error:
            raise FollowFailed(_failure(tables, cause_of(error))) from error


def _failure(tables: str, cause: str) -> str:
    """Return the error text for a query that ended with this cause."""
    lost = cause.partition(ADVICE)[0]
    remedy = "Pass --skip-lost to continue without them." if lost != cause else "Correct the cause."
    return (
        f"The tables in {tables} are not kept any more: {lost.rstrip(' .')}. {remedy} The same command continues them."
    )


@contextmanager
def _locked(tables: str) -> Iterator[None]:
    """Create the directory and hold its lock: two queries would write each batch twice.

    Raises UsageError where another process holds it, OSError.
    """
    disk = RealDisk()
    create_directory(disk, tables)
    lock = disk.lock(join(tables, _LOCK))
    if lock is None:
        raise UsageError(
            f"--tables {tables} is in use: another klamm insight follow keeps it. Stop it, or name another directory."
        )
    try:
        yield
    finally:
        lock.release()


def _period(since: str | None, until: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """Begin and end of the period in ms since 1970, None where it has none. Raises UsageError."""
    since_ms = None if since is None else parse_past("--since", since, now_ms)
    until_ms = None if until is None else parse_past("--until", until, now_ms)
    if since_ms is not None and since_ms >= (now_ms if until_ms is None else until_ms):
        raise UsageError(f"--since {since} is not before {'now' if until is None else f'--until {until}'}.")
    return since_ms, until_ms


def _positive_duration(option: str, text: str) -> int:
    """The ms of a duration above 0. Raises UsageError."""
    duration_ms = parse_duration(option, text)
    if duration_ms <= 0:
        raise UsageError(f"{option} {text} is not above 0. Give for example 10m or 1h.")
    return duration_ms


def _check_one_output(outputs: Mapping[str, object]) -> None:
    """Raise UsageError where several of these options say what to do with the rows."""
    named = [option for option, value in outputs.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other: leave one out.")


def _journal(
    data: str, journals: Sequence[str], bootstrap: str | None, tables: str | None, *, lay_out: bool
) -> JournalFacts:
    """Open what the command line names. Raises CannotExplain where there is no journal, and UsageError."""
    named = [
        option
        for option, value in (("--journal", journals), ("--bootstrap-server", bootstrap), ("--tables", tables))
        if value
    ]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other: name one source.")
    if bootstrap is not None:
        _check_journal_topic(bootstrap)
        return _kept(open_journal(read_topic(quiet_session("klamm insight"), bootstrap).cache(), lay_out=lay_out))
    if tables is not None:
        store = InsightStore(quiet_session("klamm insight"), tables)
        if not store.has_batches():
            raise UsageError(
                f"--tables {tables} has no tables. Make them: klamm insight follow --tables {tables} "
                "--bootstrap-server HOST:PORT --once"
            )
        return _kept(open_store(store))
    directories = chosen_directories(RealDisk(), data, journals)
    if not any(journal_files(RealDisk(), directory) for directory in directories):
        raise CannotExplain(
            f"There are no journal files (klamm-journal-*.jsonl) in {', '.join(directories)}. Name the log directory "
            "of a node with --journal, or a cluster with --bootstrap-server."
        )
    return _kept(open_journal(read_files(quiet_session("klamm insight"), directories), lay_out=lay_out))


def _check_journal_topic(bootstrap: str) -> None:
    """Ask the cluster for the journal topic, in seconds, before Spark starts and waits longer for a broker.

    Raises CannotAsk where no broker answers, CannotExplain where there is no journal topic, and UsageError.
    """
    cluster = with_admin(bootstrap, ASK_TIMEOUT_S, lambda admin: read_cluster(admin, [JOURNAL_TOPIC]))
    if JOURNAL_TOPIC not in cluster.topics:
        raise CannotExplain(
            f"The cluster at {bootstrap} has no topic {JOURNAL_TOPIC}. Set klamm.journal.topic={JOURNAL_TOPIC} on its "
            "nodes, or read their journal files with --journal."
        )


def _kept(journal: JournalFacts) -> JournalFacts:
    """The journal with what tables use several times kept in memory."""
    for table in (journal.steps, journal.causes):
        if not table.is_cached:
            table.cache()
    return journal


def _print_newest(name: str, rows: DataFrame, limit: int) -> None:
    """Print the newest rows as a table, in order of time, and how many there are."""
    last_first = rows.orderBy(*(sql.desc(column) for column in order_of(name, rows))).limit(limit + 1)
    newest = _with_times_as_text(last_first, "yyyy-MM-dd HH:mm:ss.SSS").collect()[::-1]
    print_table(rows.columns, [[_text(row[column]) for column in rows.columns] for row in newest[-limit:]])
    if is_terminal():
        more = f"The newest {limit} rows; --limit, --json and --parquet give more." if len(newest) > limit else ""
        print_line(more or f"{len(newest)} rows")
    if not newest:
        nothing = "time without leader" if name == "availability" else "rows"
        print_error(f"klamm insight {name}: the journal has no {nothing} in this period")


def _with_times_as_text(rows: DataFrame, pattern: str) -> DataFrame:
    """The rows with their timestamps as text in UTC, also where the settings of Spark name another time zone."""
    rows.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")
    times = {f.name for f in rows.schema.fields if isinstance(f.dataType, TimestampType)}
    return rows.select(*(sql.date_format(c, pattern).alias(c) if c in times else sql.col(c) for c in rows.columns))


def _text(value: Any) -> object:
    """A value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return "; ".join(": ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    return value
