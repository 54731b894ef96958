"""Charts as lines of text, each at most `width` characters long.

Lines are plain; `styles` of a line says which characters a terminal may colour. With `ascii_only` they have only
ASCII characters, for terminals and files in other encodings than UTF-8.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from string import ascii_letters
from typing import Final, NamedTuple

from klamm.charts.model import (
    Bars,
    Chart,
    Level,
    Levels,
    Span,
    Timeline,
    cut_name,
    duration_text,
    number_text,
    states_of,
)

MIN_WIDTH: Final = 40
MIN_CELLS: Final = 10
"""A chart is at least so many characters wide; longer names are cut."""
_WITH_SECONDS_MS: Final = 600_000
"""Times of charts that show less than this have seconds."""
COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
MARKED_COLOUR: Final = "bold red"
OTHERS: Final = "+"
"""The symbol of all states that have no character of their own."""


class Line(NamedTuple):
    text: str
    styles: tuple[tuple[int, int, str], ...] = ()
    """First character, the one after the last, and a style in the words of rich."""


class _Glyphs(NamedTuple):
    full: str
    """A cell of a bar, and of the marked state."""
    parts: str
    """Eighths of a bar's last cell, the smallest first."""
    levels: str
    """Values from the lowest to the highest."""
    empty: str
    cut: str
    """In place of what does not fit."""


_UNICODE: Final = _Glyphs("█", "▏▎▍▌▋▊▉", "▁▂▃▄▅▆▇█", "·", "…")
_ASCII: Final = _Glyphs("#", "", "_.:-=+*#", ".", "~")


def chart_lines(chart: Chart, width: int, *, ascii_only: bool = False) -> list[Line]:
    """The chart as lines of at most `width` characters (40 where it is less), the title first."""
    glyphs = _ASCII if ascii_only else _UNICODE
    width = max(width, MIN_WIDTH)
    match chart:
        case Bars():
            lines = _bar_lines(chart, width, glyphs)
        case Timeline():
            lines = _timeline_lines(chart, width, glyphs)
        case Levels():
            lines = _level_lines(chart, width, glyphs)
    if not lines:
        lines = [Line("(nothing to draw)")]
    whole = [Line(chart.title, ((0, len(chart.title), "bold"),)), *lines]
    return [_fitted(line, width, glyphs) for line in whole]


# ---- bars


def _bar_lines(chart: Bars, width: int, glyphs: _Glyphs) -> list[Line]:
    """One line for each bar; the series' name stands beside it where there are several."""
    several = len(chart.series) > 1
    labels, values, colours = [], [], []
    for index, name in enumerate(chart.names):
        for number, (series, numbers) in enumerate(chart.series.items()):
            labels.append((name if number == 0 else "", series if several else ""))
            values.append(numbers[index])
            colours.append(COLOURS[number % len(COLOURS)])
    columns = list(zip(*(_padded(column, width // 4, glyphs) for column in zip(*labels, strict=True)), strict=True))
    notes = [number_text(value, chart.unit) for value in values]
    begins = [" ".join(part for part in parts if part) + " " for parts in columns]
    cells = _cells_left(begins, notes, width)
    most = max(values, default=0.0)
    lines = []
    for begin, value, note, colour in zip(begins, values, notes, colours, strict=True):
        bar = _bar(value / most * cells if most > 0 else 0.0, glyphs)
        lines.append(Line(f"{begin}{bar} {note}", ((len(begin), len(begin) + len(bar), colour),)))
    return lines


def _bar(cells: float, glyphs: _Glyphs) -> str:
    """A bar with a length of `cells` characters; a length above 0 is always visible."""
    eighths = max(round(cells * 8), 1) if cells > 0 else 0
    whole, part = divmod(eighths, 8)
    if not glyphs.parts:
        return glyphs.full * max(round(cells), int(cells > 0))
    return glyphs.full * whole + (glyphs.parts[part - 1] if part else "")


# ---- timelines


def _timeline_lines(chart: Timeline, width: int, glyphs: _Glyphs) -> list[Line]:
    """One line for each row, the axis, and what the symbols mean."""
    if not chart.rows:
        return []
    symbols = _symbols(states_of(chart), chart.marked, glyphs)
    styles = {symbol: COLOURS[number % len(COLOURS)] for number, symbol in enumerate(dict.fromkeys(symbols.values()))}
    if chart.marked in symbols:
        styles[symbols[chart.marked]] = MARKED_COLOUR
    begins = [f"{name} " for name in _padded(chart.rows, width // 3, glyphs)]
    notes = [chart.notes.get(name, "") for name in chart.rows]
    cells = _cells_left(begins, notes, width)
    lines = []
    for begin, spans, note in zip(begins, chart.rows.values(), notes, strict=True):
        states = _states_of_cells(chart, spans, cells)
        drawn = "".join(glyphs.empty if state is None else symbols[state] for state in states)
        lines.append(Line(f"{begin}{drawn} {note}".rstrip(), tuple(_styled_ranges(drawn, styles, len(begin)))))
    lines.append(_axis(chart.begin_ms, chart.end_ms, len(begins[0]), cells))
    return [*lines, Line(_legend(symbols))]


def _states_of_cells(chart: Timeline, spans: Iterable[Span], cells: int) -> list[str | None]:
    """The state of each cell: the marked one if it occurs there, else the one that lasts longest; None without any."""
    shares: list[dict[str, float]] = [{} for _ in range(cells)]
    for span in spans:
        for cell, ms in _overlaps(chart.begin_ms, chart.end_ms, span.begin_ms, span.end_ms, cells):
            held = shares[cell]
            held[span.state] = held.get(span.state, 0.0) + ms
    return [
        chart.marked if chart.marked in share else max(share, key=lambda state: share[state], default=None)
        for share in shares
    ]


def _symbols(states: Sequence[str], marked: str | None, glyphs: _Glyphs) -> dict[str, str]:
    """A character for each state: the digit at its end, else a letter, else `OTHERS`."""
    symbols = {state: glyphs.full for state in states if state == marked}
    letters = iter(ascii_letters)
    for state in states:
        last = state.split()[-1] if state.split() else ""
        if state not in symbols:
            is_free = len(last) == 1 and last.isdecimal() and last not in symbols.values()
            symbols[state] = last if is_free else next(letters, OTHERS)
    return symbols


def _legend(symbols: Mapping[str, str]) -> str:
    """What the symbols mean."""
    others = sum(symbol == OTHERS for symbol in symbols.values())
    named = [f"{symbol} {state}" for state, symbol in symbols.items() if symbol != OTHERS]
    return "  ".join([*named, *([f"{OTHERS} {others} others"] if others else [])])


def _styled_ranges(drawn: str, styles: Mapping[str, str], offset: int) -> Iterable[tuple[int, int, str]]:
    """Begin, end and style of each range of equal symbols that has a style."""
    begin = 0
    for at in range(1, len(drawn) + 1):
        if at == len(drawn) or drawn[at] != drawn[begin]:
            if style := styles.get(drawn[begin]):
                yield offset + begin, offset + at, style
            begin = at


# ---- levels


def _level_lines(chart: Levels, width: int, glyphs: _Glyphs) -> list[Line]:
    """One line for each series: the highest value in each cell, and after them the highest of all."""
    if not chart.series:
        return []
    most_of = [max((level.value for level in levels), default=0.0) for levels in chart.series.values()]
    most = max(most_of)
    begins = [f"{name} " for name in _padded(chart.series, width // 3, glyphs)]
    notes = [f"max {number_text(value, chart.unit)}" for value in most_of]
    cells = _cells_left(begins, notes, width)
    lines = []
    for number, (begin, levels, note) in enumerate(zip(begins, chart.series.values(), notes, strict=True)):
        drawn = "".join(_level(value, most, glyphs) for value in _highest_of_cells(chart, levels, cells))
        style = (len(begin), len(begin) + len(drawn), COLOURS[number % len(COLOURS)])
        lines.append(Line(f"{begin}{drawn} {note}", (style,)))
    return [*lines, _axis(chart.begin_ms, chart.end_ms, len(begins[0]), cells)]


def _highest_of_cells(chart: Levels, levels: Iterable[Level], cells: int) -> list[float | None]:
    """The highest value in each cell, None where there is none."""
    highest: list[float | None] = [None] * cells
    for level in levels:
        for cell, _ in _overlaps(chart.begin_ms, chart.end_ms, level.begin_ms, level.end_ms, cells):
            known = highest[cell]
            highest[cell] = level.value if known is None else max(known, level.value)
    return highest


def _level(value: float | None, most: float, glyphs: _Glyphs) -> str:
    """The character that shows a value of at most `most`; only 0 is shown by the lowest one."""
    if value is None:
        return " "
    if value <= 0 or most <= 0:
        return glyphs.levels[0]
    steps = len(glyphs.levels) - 1
    return glyphs.levels[max(1, min(steps, round(value / most * steps)))]


# ---- what all have in common


def _overlaps(begin_ms: int, end_ms: int, since_ms: int, until_ms: int, cells: int) -> Iterable[tuple[int, float]]:
    """The cells of the chart that a period overlaps, each with the overlap in ms; a period of 0 ms is in one cell."""
    whole = max(end_ms - begin_ms, 1)
    since, until = max(since_ms, begin_ms), min(until_ms, end_ms)
    if since > until:
        return
    first = min((since - begin_ms) * cells // whole, cells - 1)
    last = min(max(first, -((begin_ms - until) * cells // whole) - 1), cells - 1)
    for cell in range(first, last + 1):
        held = min(until, begin_ms + (cell + 1) * whole / cells) - max(since, begin_ms + cell * whole / cells)
        yield cell, max(held, 0.0)


def _axis(begin_ms: int, end_ms: int, offset: int, cells: int) -> Line:
    """Begin and end of the time, in UTC, and between them how long one character is, if there is room."""
    pattern = "%Y-%m-%d %H:%M" if end_ms - begin_ms >= _WITH_SECONDS_MS else "%Y-%m-%d %H:%M:%S"
    begin, end = (f"{datetime.fromtimestamp(ms / 1000, UTC):{pattern}}" for ms in (begin_ms, end_ms))
    scale = f"one character: {duration_text((end_ms - begin_ms) / cells)}"
    left = cells - len(begin) - len(end) - len(" UTC")
    between = scale if left > len(scale) + 1 else ""
    return Line(f"{' ' * offset}{begin}{between.center(max(left, 1))}{end} UTC")


def _padded(names: Iterable[str], most: int, glyphs: _Glyphs) -> list[str]:
    """The names, cut to at most `most` characters and padded to one length."""
    cut = [cut_name(name, most, glyphs.cut) for name in names]
    length = max(map(len, cut), default=0)
    return [name.ljust(length) for name in cut]


def _cells_left(begins: Iterable[str], notes: Iterable[str], width: int) -> int:
    """How many characters of the line remain for the chart between the texts before and after it."""
    taken = max(map(len, begins), default=0) + max(map(len, notes), default=0) + 1
    return max(width - taken, MIN_CELLS)


def _fitted(line: Line, width: int, glyphs: _Glyphs) -> Line:
    """The line, cut to the width; with ASCII glyphs, other characters of names become `?`."""
    text = line.text if len(line.text) <= width else line.text[: width - 1] + glyphs.cut
    if glyphs is _ASCII:
        text = text.encode("ascii", "replace").decode()
    return Line(text, tuple((begin, min(end, len(text)), style) for begin, end, style in line.styles))
