"""How the command line speaks: a table on a terminal, plain lines in a pipe, errors as one sentence on stderr."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from klamm.model.errors import KlammError


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def complain(error: KlammError | str) -> None:
    print(f"klamm: {error}", file=sys.stderr, flush=True)


def show(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table; in a pipe its rows as tab-separated lines under a line of column names."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in ([*columns], *texts):
            say("\t".join(line))
        return
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in texts:
        table.add_row(*row)
    Console().print(table)
