"""The three kinds of charts. `text.py` draws them in a terminal, `image.py` in files."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Bars(NamedTuple):
    """Numbers by name, such as flights by carrier: one bar for each name and series."""

    title: str
    names: Sequence[str]
    """What has bars, from top to bottom."""
    series: Mapping[str, Sequence[float]]
    """Name of a series -> one value of at least 0 for each of `names`. All series share one scale."""
    unit: str = ""


class Span(NamedTuple):
    """A state from one time to another, in ms since 1970."""

    begin_ms: int
    end_ms: int
    state: str


class Timeline(NamedTuple):
    """Which state each row was in, from when to when: who led which partition, who had no leader."""

    title: str
    begin_ms: int
    end_ms: int
    rows: Mapping[str, Sequence[Span]]
    """Name of a row -> its states. Times without a span stay empty; what is outside begin and end is not drawn."""
    notes: Mapping[str, str] = {}
    """Name of a row -> what to print after it."""
    marked: str | None = None
    """The state that is drawn wherever it occurs, however short it is."""


class Level(NamedTuple):
    """A value of at least 0 that holds from one time to another, in ms since 1970."""

    begin_ms: int
    end_ms: int
    value: float


class Levels(NamedTuple):
    """Values over time, such as the imbalance of each broker."""

    title: str
    begin_ms: int
    end_ms: int
    series: Mapping[str, Sequence[Level]]
    """Name of a series -> its values in order of time, with gaps where nothing is known."""
    unit: str = ""


Chart = Bars | Timeline | Levels


def states_of(chart: Timeline) -> list[str]:
    """All states of a timeline: the marked one first, the others in the order of their names, numbers by value."""
    states = {span.state for spans in chart.rows.values() for span in spans}
    return sorted(states, key=lambda state: (state != chart.marked, _natural(state)))


def number_text(value: float, unit: str = "") -> str:
    """A number as people read it, with its unit: `12,345 flights`, `0.25 ms`."""
    number = f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


def duration_text(ms: float) -> str:
    """A duration as people read it, such as `50 ms`, `12.5 s`, `3 h 20 min`."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def cut_name(name: str, most: int, mark: str) -> str:
    """The name with at most `most` characters; `mark` is in place of those before its end, which is often a number."""
    if len(name) <= most:
        return name
    kept = most - len(mark)
    return name[: kept - kept // 3] + mark + name[len(name) - kept // 3 :]


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts `broker 2` before `broker 10`."""
    return tuple((0, int(word), "") if word.isdecimal() else (1, 0, word) for word in name.split())
