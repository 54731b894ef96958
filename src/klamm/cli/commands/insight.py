"""`klamm insight TABLE`: the history of the controllers as tables, and `klamm insight follow`, which keeps them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampType

from klamm.cli.options import Data
from klamm.cli.output import is_terminal, print_error, print_json, print_line, print_table
from klamm.cli.quiet_spark import quiet_session
from klamm.cli.times import parse_duration, parse_time
from klamm.explain.sources import journal_directories
from klamm.insight.journal import read_files, read_topic
from klamm.insight.store import InsightStore
from klamm.insight.tables import TABLES, JournalFacts, make_table, open_journal, open_store
from klamm.model.errors import UsageError
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk

MAX_ROWS: Final = 50
DEFAULT_TRIGGER: Final = "30s"

Tables = Annotated[
    str | None, typer.Option("--tables", help="directory that `klamm insight follow` keeps, in place of a journal")
]
Journals = Annotated[list[str] | None, typer.Option("--journal", help="journal directory of a node; repeatable")]
Cluster = Annotated[
    str | None, typer.Option("--bootstrap-server", "-b", help="HOST:PORT of a cluster whose journal topic to read")
]
Since = Annotated[
    str | None, typer.Option("--since", help="begin of the time: 7d, 1h30m before now, or 2026-01-31T08:00Z")
]
Until = Annotated[str | None, typer.Option("--until", help="end of the time, like --since; default: now")]
Topic = Annotated[str | None, typer.Option("--topic", help="only this topic")]
Interval = Annotated[str, typer.Option("--interval", help="what counts are summed over, such as 10m or 1h")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="print the newest rows, at most so many")]
AsJson = Annotated[bool, typer.Option("--json", help="print all rows, each as one JSON object on a line")]
Parquet = Annotated[str | None, typer.Option("--parquet", help="write all rows to this directory as Parquet")]

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
    ) -> None:
        """Print the table, or write it. Raises UsageError, CannotExplain."""
        now_ms = RealClock().now_ms()
        since_ms, until_ms = _time("--since", since, now_ms), _time("--until", until, now_ms)
        summed_over = f"{parse_duration('--interval', interval)} milliseconds"
        opened = _journal(data, journal or [], bootstrap, tables)
        rows = make_table(name, opened, since_ms=since_ms, until_ms=until_ms, interval=summed_over)
        if topic is not None:
            if "topic" not in rows.columns:
                raise UsageError(f"--topic {topic!r}: klamm insight {name} counts over all topics. Leave it out.")
            rows = rows.where(rows.topic == topic)
        if parquet is not None:
            rows.write.mode("overwrite").parquet(parquet)
            print_line(f"{rows.sparkSession.read.parquet(parquet).count():,} rows are in {parquet}.")
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
) -> None:
    """Keep the tables of a cluster's journal topic up to date, until Ctrl-C; resume where the last run ended."""
    trigger: dict[str, Any] = {"availableNow": True}
    if not once:
        trigger = {"processingTime": f"{parse_duration('--every', every)} milliseconds"}
    query = InsightStore(quiet_session("klamm insight"), tables).follow(bootstrap, **trigger)
    print_line(
        f"The tables of {bootstrap} are kept in {tables}. Print them: klamm insight availability --tables {tables}"
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
        print_line(f"Stopped. The same command continues {tables}.")


def _journal(data: str, journals: Sequence[str], bootstrap: str | None, tables: str | None) -> JournalFacts:
    """Open what the command line names. Raises CannotExplain where there is no journal, and UsageError."""
    named = [
        option
        for option, value in (("--journal", journals), ("--bootstrap-server", bootstrap), ("--tables", tables))
        if value
    ]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other: name one source.")
    if bootstrap is None and tables is None:
        directories = list(journals) or journal_directories(RealDisk(), data)
        return _kept(open_journal(read_files(quiet_session("klamm insight"), directories)))
    if tables is not None:
        return _kept(open_store(InsightStore(quiet_session("klamm insight"), tables)))
    assert bootstrap is not None
    return _kept(open_journal(read_topic(quiet_session("klamm insight"), bootstrap).cache()))


def _kept(journal: JournalFacts) -> JournalFacts:
    """The journal with what tables use several times kept in memory."""
    journal.steps.cache()
    journal.causes.cache()
    return journal


def _time(option: str, text: str | None, now_ms: int) -> int | None:
    """The ms since 1970 of a time, or of a duration before now. Raises UsageError."""
    if text is None:
        return None
    if "-" in text or text.isdecimal():
        return parse_time(option, text)
    return now_ms - parse_duration(option, text)


def _print_newest(name: str, rows: DataFrame, limit: int) -> None:
    """Print the newest rows as a table, and how many there are."""
    newest = _with_times_as_text(rows, "yyyy-MM-dd HH:mm:ss.SSS").tail(limit + 1)
    print_table(rows.columns, [[_text(row[column]) for column in rows.columns] for row in newest[-limit:]])
    if is_terminal():
        more = f"The newest {limit} rows; --limit, --json and --parquet give more." if len(newest) > limit else ""
        print_line(more or f"{len(newest)} rows")
    if not newest:
        print_error(f"there are no rows in klamm insight {name} for this time")


def _with_times_as_text(rows: DataFrame, pattern: str) -> DataFrame:
    """The rows with their timestamps as text in UTC, the time zone of `klamm.spark.session`."""
    times = {f.name for f in rows.schema.fields if isinstance(f.dataType, TimestampType)}
    return rows.select(*(sql.date_format(c, pattern).alias(c) if c in times else sql.col(c) for c in rows.columns))


def _text(value: Any) -> object:
    """A value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return "; ".join(": ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    return value
