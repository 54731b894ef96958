"""The progress of load and pipeline: bars on a terminal, a line for each tenth in a pipe."""

import sys
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from klamm.cli.output import print_line

TENTHS: Final = 10


class LoadProgress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._last_tenth = 0
        self._bar: Progress | None = None
        if sys.stdout.isatty():
            columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console())
            self._tasks = [self._bar.add_task(name, total=total) for name in ("acknowledged", "in the table")]

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _b: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, done: int, written: int) -> None:
        """Show how many records are acknowledged, and how many of them the pipeline has written."""
        if self._bar:
            for task, completed in zip(self._tasks, (done, written), strict=True):
                self._bar.update(task, completed=completed)
        elif (tenth := done * TENTHS // self._total) > self._last_tenth:
            self._last_tenth = tenth
            print_line(f"   {done:,} of {self._total:,} records acknowledged, {written:,} in the table")

    def print_line(self, text: str) -> None:
        """Print a line above the bars."""
        if self._bar:
            self._bar.console.print(f"   {text}", highlight=False)
        else:
            print_line(f"   {text}")
