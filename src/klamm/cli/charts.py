"""Print charts: in colours on a terminal, as plain text in a pipe."""

import sys

from klamm.charts.model import Chart
from klamm.charts.text import chart_lines
from klamm.cli.output import is_terminal, print_line
from klamm.runtime.standard_streams import terminal_width


def print_chart(chart: Chart) -> None:
    """Print the chart as wide as the terminal, in a pipe 80 characters or COLUMNS wide; in ASCII unless UTF-8."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    lines = chart_lines(chart, terminal_width(), ascii_only=ascii_only)
    if not is_terminal():
        for line in lines:
            print_line(line.text)
        return
    from rich.console import Console  # loaded only on a terminal
    from rich.text import Text

    console = Console()
    for line in lines:
        text = Text(line.text, no_wrap=True)
        for begin, end, style in line.styles:
            text.stylize(style, begin, end)
        console.print(text)
