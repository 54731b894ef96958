"""What commands print: tables on a terminal, tab-separated lines in a pipe, errors as one sentence on stderr."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from klamm.model.errors import KlammError, UsageError


def print_line(text: str = "") -> None:
    """Print the line to standard output at once."""
    print(text, flush=True)


def print_error(error: KlammError | str) -> None:
    """Print the error to standard error at once."""
    print(f"klamm: {error}", file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Whether a person reads the output, not a program."""
    return sys.stdout.isatty()


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None, *, if_empty: str | None = None
) -> None:
    """Print rows as a table; in a pipe as lines of tab-separated values, the column names first.

    `if_empty` is printed to standard error where there are no rows, on a terminal instead of an empty table.
    """
    if if_empty is not None and not rows:
        print_error(if_empty)
        if is_terminal():
            return
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not is_terminal():
        for line in ([*columns], *texts):
            print_line("\t".join(line))
        return
    from rich.console import Console  # loaded only on a terminal: it is a quarter of a command's start
    from rich.table import Column, Table
    from rich.text import Text

    folded = [Column(name, overflow="fold") for name in columns]  # long ids are wrapped, not cut: people copy them
    table = Table(*folded, title=title, title_justify="left", header_style="bold")
    for row in texts:
        table.add_row(*map(Text, row))  # a name may hold [brackets]
    Console().print(table)


def print_json(value: Any) -> None:
    """Print the value as one JSON document on one line."""
    print_line(msgspec.json.encode(value).decode())


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation. Raises UsageError without a terminal, KlammError when the operator declines."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Not a terminal: pass --yes to confirm.")
    if not typer.confirm(f"{question} Continue?", err=True):
        raise KlammError("Cancelled. Nothing was changed.")


class ProgressLine:
    """One line on a terminal that overwrites itself; nothing in a pipe."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the progress line in the terminal by this text."""
        if sys.stderr.isatty() and (self._width or text):
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(text)

    def clear(self) -> None:
        """Remove the progress line from the terminal."""
        self.show("")
        if sys.stderr.isatty():
            sys.stderr.write("\r")
            sys.stderr.flush()
        self._width = 0
