"""The tables as charts: who was without leader when, who led, how often ISRs changed, imbalance, times in queues.

`make_chart` takes the rows of a table as `klamm.insight.tables.make_table` makes them. `klamm.charts` draws what it
returns in a terminal or into a file.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampType

from klamm.charts.model import Bars, Chart, Level, Levels, Span, Timeline, duration_text

MAX_ROWS: Final = 100_000
"""The rows of a table that a chart is made of at most, the newest ones."""
MAX_LINES: Final = 30
"""The partitions, brokers or events that a chart shows at most."""
NO_LEADER: Final = "no leader"


class _Time(NamedTuple):
    """What a chart shows, in ms since 1970; `interval_ms` is what counts are summed over."""

    begin_ms: int
    end_ms: int
    interval_ms: int


def make_chart(
    name: str, rows: DataFrame, *, since_ms: int | None = None, until_ms: int, interval_ms: int = 3_600_000
) -> Chart:
    """The chart of the table with this name in `klamm.insight.tables.TABLES`, from its rows in order of time.

    It begins at `since_ms`, or with the first row where that is None, and ends at `until_ms`, both in ms since 1970.
    States and values of now end there too. `interval_ms` is the interval that the rows were summed over. At most the
    newest `MAX_ROWS` rows are collected; the chart's title says where there are more, and how many lines it leaves out.
    """
    found = _with_times_in_ms(rows).tail(MAX_ROWS + 1)
    cut = f" (the newest {MAX_ROWS:,} rows)" if len(found) > MAX_ROWS else ""
    found = found[-MAX_ROWS:]
    first = [row[column] for row in found for column in ("valid_from", "since", "at") if column in row]
    begin_ms = since_ms if since_ms is not None else min(first, default=until_ms)
    chart = _CHARTS[name](found, _Time(begin_ms, max(until_ms, begin_ms + 1), interval_ms))
    return chart._replace(title=chart.title + cut)


def _with_times_in_ms(rows: DataFrame) -> DataFrame:
    """The rows with their timestamps as ms since 1970."""
    times = {f.name for f in rows.schema.fields if isinstance(f.dataType, TimestampType)}
    return rows.select(*(sql.unix_millis(c).alias(c) if c in times else sql.col(c) for c in rows.columns))


# ---- partitions


def _timeline(rows: Sequence[Row], time: _Time) -> Chart:
    """The chart of who led each partition, with the partitions that changed leaders most often."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in rows:
        state = _broker_text(row.leader) if row.leader >= 0 else NO_LEADER
        spans[f"{row.topic}-{row.partition}"].append(Span(row.valid_from, _end(row.valid_to, time), state))
    changes = {name: sum(a.state != b.state for a, b in pairwise(of)) for name, of in spans.items()}
    shown = _highest(changes)
    title = f"Leaders of {_share(len(shown), len(spans), 'partitions', 'the most changes')}"
    notes = {name: f"{n} change{'s' * (n > 1)}" if (n := changes[name]) else "" for name in shown}
    return Timeline(title, time.begin_ms, time.end_ms, {name: spans[name] for name in shown}, notes, NO_LEADER)


def _availability(rows: Sequence[Row], time: _Time) -> Chart:
    """The chart of when partitions had no leader, with those that had none for the longest time."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in rows:
        spans[f"{row.topic}-{row.partition}"].append(Span(row.since, _end(row.until, time), NO_LEADER))
    lost_ms = {name: sum(span.end_ms - span.begin_ms for span in of) for name, of in spans.items()}
    shown = _highest(lost_ms)
    title = f"Without leader: {_share(len(shown), len(spans), 'partitions', 'the longest time')}"
    notes = {name: f"{len(spans[name])} x, {duration_text(lost_ms[name])}" for name in shown}
    return Timeline(title, time.begin_ms, time.end_ms, {name: spans[name] for name in shown}, notes, NO_LEADER)


def _elections(rows: Sequence[Row]) -> Chart:
    """The chart of how many elections were held and refused, by strategy."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        outcome = "refused" if row.refused is not None else "unclean" if row.unclean else "held"
        counts[row.election][outcome] += 1
    return _bars("Elections", counts, ("held", "unclean", "refused"))


def _isr(rows: Sequence[Row]) -> Chart:
    """The chart of how many replicas left and entered ISRs, by broker."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for broker in row.removed:
            counts[_broker_text(broker)]["left"] += 1
        for broker in row.added:
            counts[_broker_text(broker)]["entered"] += 1
    return _bars("Changes of ISRs", counts, ("left", "entered"))


def _bars(title: str, counts: dict[str, Counter[str]], series: Sequence[str]) -> Chart:
    """A bar chart of counts by name, the highest first."""
    names = sorted(counts, key=lambda name: (-counts[name].total(), name))[:MAX_LINES]
    return Bars(title, names, {kind: [counts[name][kind] for name in names] for kind in series})


# ---- brokers and events


def _levels(
    title: str, unit: str, name: Callable[[Row], str], value: Callable[[Row], float | None]
) -> Callable[[Sequence[Row], _Time], Chart]:
    """Return a function that draws values over time, a line for each of the names with the highest values.

    Of several rows with the same name and time the highest value is drawn.
    """

    def make(rows: Sequence[Row], time: _Time) -> Chart:
        """The chart of these rows."""
        values: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        for row in rows:
            number = value(row)
            if number is not None:
                until = _end(row.until, time) if "until" in row else row.since + time.interval_ms
                of = values[name(row)]
                of[row.since, until] = max(number, of.get((row.since, until), 0.0))
        shown = _highest({key: max(of.values()) for key, of in values.items()})
        series = {key: [Level(*between, number) for between, number in sorted(values[key].items())] for key in shown}
        left_out = f" ({len(shown)} of {len(values)}, those with the highest)" if len(shown) < len(values) else ""
        return Levels(title + left_out, time.begin_ms, time.end_ms, series, unit)

    return make


_CHARTS: Final[dict[str, Callable[[Sequence[Row], _Time], Chart]]] = {
    "timeline": _timeline,
    "availability": _availability,
    "elections": lambda rows, time: _elections(rows),
    "isr": lambda rows, time: _isr(rows),
    "isr-churn": _levels(
        "ISR churn: replicas that left and entered ISRs",
        "changes",
        lambda row: _broker_text(row.broker),
        lambda row: row.left + row.entered,
    ),
    "balance": _levels(
        "Leader imbalance: share of the partitions that prefer a broker and are led by others",
        "%",
        lambda row: _broker_text(row.broker),
        lambda row: row.imbalance * 100,
    ),
    "requests": _levels(
        "Control requests: time from the event to the sending, 99th percentile",
        "ms",
        lambda row: _broker_text(row.broker),
        lambda row: row.sent_ms_p99,
    ),
    "events": _levels(
        "Controller events: time in the queue, 99th percentile",
        "ms",
        lambda row: row.event,
        lambda row: row.waited_ms_p99,
    ),
}


# ---- what all have in common


def _end(until_ms: int | None, time: _Time) -> int:
    """The time at which a row ends: the end of the chart if the row has no end."""
    return time.end_ms if until_ms is None else until_ms


def _highest(values: dict[str, Any]) -> list[str]:
    """The names with the highest values, at most `MAX_LINES`."""
    return sorted(values, key=lambda name: (-values[name], name))[:MAX_LINES]


def _share(shown: int, known: int, what: str, which: str) -> str:
    """How many of the known items the chart shows, for its title."""
    return f"{known:,} {what}" if shown == known else f"{shown} of {known:,} {what}, those with {which}"


def _broker_text(broker_id: int) -> str:
    """The name of a broker in charts."""
    return f"broker {broker_id}"
