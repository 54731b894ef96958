"""How the command line speaks: a table on a terminal, plain lines in a pipe, errors as one sentence on stderr."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from klamm.model.errors import KlammError, UsageError


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def complain(error: KlammError | str) -> None:
    print(f"klamm: {error}", file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Whether somebody looks, and no program reads."""
    return sys.stdout.isatty()


def show(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table; in a pipe its rows as tab-separated lines under a line of column names."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not is_terminal():
        for line in ([*columns], *texts):
            say("\t".join(line))
        return
    from rich.console import Console  # loaded only on a terminal: it is a quarter of a command's start
    from rich.table import Column, Table
    from rich.text import Text

    folded = [Column(name, overflow="fold") for name in columns]  # nothing is cut off: ids are there to be copied
    table = Table(*folded, title=title, title_justify="left", header_style="bold")
    for row in texts:
        table.add_row(*map(Text, row))  # a name may hold [brackets]
    Console().print(table)


def say_json(value: Any) -> None:
    """One JSON document on one line."""
    say(msgspec.json.encode(value).decode())


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation. Raises UsageError without a terminal, KlammError when the operator declines."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here: --yes says so")
    if not typer.confirm(f"{question} Go on?", err=True):
        raise KlammError("left as it was")


class Progress:
    """One line on a terminal that is written over; nothing in a pipe."""

    def __init__(self) -> None:
        self._width = 0

    def at(self, text: str) -> None:
        if sys.stderr.isatty() and (self._width or text):
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(text)

    def end(self) -> None:
        self.at("")
        if sys.stderr.isatty():
            sys.stderr.write("\r")
            sys.stderr.flush()
        self._width = 0
