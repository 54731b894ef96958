"""Charts as figures of matplotlib. `files.py` loads this module, and writes them."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from klamm.charts.model import Bars, Chart, Levels, Timeline, cut_name, number_text, states_of

DOTS_PER_INCH: Final = 120
_WIDTH_INCHES: Final = 11.0
_ROW_INCHES: Final = 0.24
_MOST_INCHES: Final = 60.0
_COLOURS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442", "#999999", "#8c564b", "#7f3c8d", "#3a7d44",
)  # fmt: skip
"""The first seven are told apart by people with any colour vision (Okabe and Ito)."""
_MARKED_COLOUR: Final = "#d62728"
_MAX_LABEL_CHARS: Final = 60
_MIN_SHARE: Final = 0.002
"""The smallest share of the width that a marked state is drawn with: about two dots."""


def draw_charts(charts: Sequence[Chart]) -> Figure:
    """A figure of the charts, one below the other, 11 inches wide and as high as they need, at most 60 inches."""
    heights = [_height(chart) for chart in charts]
    figure = Figure(figsize=(_WIDTH_INCHES, min(sum(heights), _MOST_INCHES)), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no global state, no window
    grid = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights)
    for (axes,), chart in zip(grid, charts, strict=True):
        _draw(axes, chart)
    return figure


def _height(chart: Chart) -> float:
    """The height of a chart in inches."""
    match chart:
        case Bars(names=names, series=series):
            return 1.2 + _ROW_INCHES * len(names) * max(len(series), 1)
        case Timeline(rows=rows):
            return 1.6 + _ROW_INCHES * len(rows)
        case Levels():
            return 3.6


def _draw(axes: Axes, chart: Chart) -> None:
    """Draw one chart into its part of the figure."""
    axes.set_title(_plain(chart.title), loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    match chart:
        case Bars():
            _draw_bars(axes, chart)
        case Timeline():
            _draw_timeline(axes, chart)
        case Levels():
            _draw_levels(axes, chart)


def _draw_bars(axes: Axes, chart: Bars) -> None:
    """One group of horizontal bars for each name, from top to bottom, each with its value."""
    count = max(len(chart.series), 1)
    height = 0.8 / count
    for number, (series, values) in enumerate(chart.series.items()):
        at = [index + (number - (count - 1) / 2) * height for index in range(len(values))]
        bars = axes.barh(at, values, height=height, color=_COLOURS[number % len(_COLOURS)], label=_label(series))
        axes.bar_label(bars, [number_text(value) for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(chart.names)), [_label(name) for name in chart.names], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(_plain(chart.unit))
    if count > 1:
        axes.legend(fontsize=8)


def _draw_timeline(axes: Axes, chart: Timeline) -> None:
    """One line of coloured spans for each row, from top to bottom."""
    others = [state for state in states_of(chart) if state != chart.marked]
    colours = {state: _COLOURS[number % len(_COLOURS)] for number, state in enumerate(others)}
    shortest = (chart.end_ms - chart.begin_ms) * _MIN_SHARE
    for state in [*others, *([] if chart.marked is None else [chart.marked])]:  # the marked one lies above the others
        is_marked = state == chart.marked
        colour = _MARKED_COLOUR if is_marked else colours[state]
        label: str | None = _label(state)
        for index, spans in enumerate(chart.rows.values()):
            ends = [(s.begin_ms, max(s.end_ms, s.begin_ms + shortest * is_marked)) for s in spans if s.state == state]
            lengths = [(_days(begin), _days(end) - _days(begin)) for begin, end in ends]
            if lengths:
                axes.broken_barh(lengths, (index - 0.4, 0.8), facecolors=colour, label=label)
                label = None  # once in the legend
    names = [f"{_label(name)}  {_plain(chart.notes.get(name, ''))}".rstrip() for name in chart.rows]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _set_time_axis(axes, chart.begin_ms, chart.end_ms)
    _add_legend(axes)


def _draw_levels(axes: Axes, chart: Levels) -> None:
    """One stepped line for each series, with gaps where nothing is known."""
    for number, (name, levels) in enumerate(chart.series.items()):
        points = list(_steps((level.begin_ms, level.end_ms, level.value) for level in levels))
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot([_days(ms) for ms, _ in points], [value for _, value in points], color=colour, label=_label(name))
    axes.set_ylim(bottom=0)
    axes.set_ylabel(_plain(chart.unit))
    axes.grid(axis="y", alpha=0.3)
    _set_time_axis(axes, chart.begin_ms, chart.end_ms)
    _add_legend(axes)


def _steps(levels: Iterable[tuple[int, int, float]]) -> Iterable[tuple[int, float]]:
    """Time and value of both ends of each level; NaN between two that do not touch."""
    last_ms: int | None = None
    for begin_ms, end_ms, value in levels:
        if last_ms is not None and begin_ms > last_ms:
            yield last_ms, math.nan
        yield begin_ms, value
        yield end_ms, value
        last_ms = end_ms


def _set_time_axis(axes: Axes, begin_ms: int, end_ms: int) -> None:
    """An axis of time in UTC."""
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.set_xlim(_days(begin_ms), _days(max(end_ms, begin_ms + 1)))
    axes.set_xlabel("time (UTC)", fontsize=8)


def _add_legend(axes: Axes) -> None:
    """A legend beside the chart, if anything is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _days(ms: float) -> float:
    """The time in matplotlib's unit, days since 1970."""
    return float(date2num(datetime.fromtimestamp(ms / 1000, UTC)))


def _plain(text: str) -> str:
    """The text so that matplotlib does not take `$` for mathematics."""
    return text.replace("$", r"\$")


def _label(name: str) -> str:
    """A name beside an axis or in a legend, cut where it would leave no room for the chart."""
    return _plain(cut_name(name, _MAX_LABEL_CHARS, "…"))
