"""The tables by name: `open_journal(lines)` or `open_store(store)`, then `make_table`."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from klamm.insight.availability import unavailability
from klamm.insight.balance import leader_balance
from klamm.insight.elections import elections
from klamm.insight.facts import causes, event_lines, refusal_lines, request_lines, state_steps, with_causes
from klamm.insight.isr import isr_changes, isr_churn
from klamm.insight.queues import event_times, request_times
from klamm.insight.store import InsightStore
from klamm.insight.timeline import laid_out, timeline


class JournalFacts(NamedTuple):
    """What all tables are made of. They use `steps` and `causes` several times: cache those of a large journal."""

    steps: DataFrame
    requests: DataFrame
    refusals: DataFrame
    intervals: DataFrame
    causes: DataFrame


class InsightTable(NamedTuple):
    make: Callable[[JournalFacts, str], DataFrame]
    """From a journal, and the interval that counts are summed over, such as `1 hour`."""
    begins: str
    """The column with the time at which a row begins."""
    ends: str | None
    """The column with the time at which a row ends, null for now; None where rows have no duration."""
    summary: str
    is_of_partitions: bool = True
    """Whether each row is about one partition, so that rows of one topic can be chosen."""
    is_of_intervals: bool = False
    """Whether each row counts what happened in the interval that begins at `begins`."""
    is_of_states: bool = False
    """Whether it is made from the states of partitions one after the other."""


def _timeline(journal: JournalFacts) -> DataFrame:
    """The timeline with the event that caused each state."""
    explained = with_causes(journal.intervals, journal.causes)
    return explained.select(
        "topic", "partition", "valid_from", "valid_to", "leader", "leader_epoch", "isr", "decision", "unclean",
        "rejected", "changed_unseen", "why", "node", "controller_epoch", "seq",
    )  # fmt: skip


TABLES: Final = {
    "timeline": InsightTable(
        lambda journal, interval: _timeline(journal),
        "valid_from",
        "valid_to",
        "Who led each partition from when to when, with which ISR, and why.",
        is_of_states=True,
    ),
    "availability": InsightTable(
        lambda journal, interval: unavailability(journal.intervals, journal.causes),
        "since",
        "until",
        "Which partitions were without leader, from when to when, and why.",
        is_of_states=True,
    ),
    "elections": InsightTable(
        lambda journal, interval: elections(journal.steps, journal.refusals, journal.causes).drop("cause"),
        "at",
        None,
        "Who was elected, who was passed over, and why; refused elections, too.",
    ),
    "isr": InsightTable(
        lambda journal, interval: isr_changes(journal.steps, journal.causes).drop("cause"),
        "at",
        None,
        "Which replicas left and entered ISRs, and why.",
    ),
    "isr-churn": InsightTable(
        lambda journal, interval: isr_churn(isr_changes(journal.steps, journal.causes), interval),
        "since",
        None,
        "How often each broker left and entered ISRs.",
        is_of_partitions=False,
        is_of_intervals=True,
    ),
    "balance": InsightTable(
        lambda journal, interval: leader_balance(journal.steps),
        "since",
        "until",
        "How many partitions each broker led, and how many that prefer it were led by others.",
        is_of_partitions=False,
        is_of_states=True,
    ),
    "requests": InsightTable(
        lambda journal, interval: request_times(journal.requests, journal.causes, interval),
        "since",
        None,
        "How long control requests waited for each broker, and for its answer.",
        is_of_partitions=False,
        is_of_intervals=True,
    ),
    "events": InsightTable(
        lambda journal, interval: event_times(journal.causes, interval),
        "since",
        None,
        "How long controller events waited, and how long they were handled.",
        is_of_partitions=False,
        is_of_intervals=True,
    ),
}


def open_journal(lines: DataFrame, *, lay_out: bool = False) -> JournalFacts:
    """What the tables are made of, from journal lines as `klamm.insight.journal` reads them.

    With `lay_out` the steps are read at once, and kept in memory in the order that tables of states need.
    """
    steps = laid_out(state_steps(lines)) if lay_out else state_steps(lines)
    return JournalFacts(
        steps, request_lines(lines), refusal_lines(lines), timeline(steps), causes(event_lines(lines))
    )  # fmt: skip


def open_store(store: InsightStore) -> JournalFacts:
    """What the tables are made of, from a store that is kept up to date."""
    return JournalFacts(
        store.facts("steps"),
        store.facts("requests"),
        store.facts("refusals"),
        store.timeline(),
        causes(store.facts("events")),
    )


def make_table(
    name: str,
    journal: JournalFacts,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    interval: str = "1 hour",
) -> DataFrame:
    """One of `TABLES`, in order of time: the rows that overlap the time from `since_ms` to `until_ms`."""
    rows = table_rows(name, journal, since_ms=since_ms, until_ms=until_ms, interval=interval)
    return rows.orderBy(*order_of(name, rows))


def table_rows(
    name: str,
    journal: JournalFacts,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    interval: str = "1 hour",
) -> DataFrame:
    """The rows of `make_table` in any order, which spares Spark a second pass over all of them."""
    table = TABLES[name]
    rows = table.make(journal, interval)
    if since_ms is not None:
        rows = rows.where(_reaches(table, sql.timestamp_millis(sql.lit(since_ms)), interval))
    if until_ms is not None:
        rows = rows.where(sql.col(table.begins) < sql.timestamp_millis(sql.lit(until_ms)))
    return rows


def order_of(name: str, rows: DataFrame) -> Sequence[str]:
    """The columns by which the rows of a table are in order of time."""
    return [TABLES[name].begins, *(c for c in ("topic", "partition", "broker", "api", "event") if c in rows.columns)]


def _reaches(table: InsightTable, since: Column, interval: str) -> Column:
    """Whether a row is of this time or later, or has not ended then."""
    if table.is_of_intervals:
        return sql.col(table.begins) + sql.expr(f"interval {interval}") > since
    if table.ends is None:
        return sql.col(table.begins) >= since
    return sql.col(table.ends).isNull() | (sql.col(table.ends) > since)
