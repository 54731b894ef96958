"""Progress on stderr: a line that overwrites itself on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable
from typing import Final

from klamm.cli.output import ProgressLine

_TERMINAL_INTERVAL_S: Final = 0.5
_PLAIN_INTERVAL_S: Final = 5.0


class Progress:
    """Shows rows, bytes and rates; `wanted` None: only where stderr is a terminal and standard output is not."""

    def __init__(self, verb: str, now_s: Callable[[], float], wanted: bool | None) -> None:
        self._verb = verb
        self._now_s = now_s
        self._is_shown = sys.stderr.isatty() and not sys.stdout.isatty() if wanted is None else wanted
        self._line = ProgressLine() if sys.stderr.isatty() else None
        self._started_s = now_s()
        self._next_s = self._started_s + self._interval_s

    @property
    def _interval_s(self) -> float:
        """The time between two lines."""
        return _PLAIN_INTERVAL_S if self._line is None else _TERMINAL_INTERVAL_S

    def update(self, records: int, size: int, lag: int | None = None) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now_s = self._now_s()
        if not self._is_shown or now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        text = self._text(records, size, lag)
        if self._line is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._line.show(text)

    def end(self, records: int, size: int, lag: int | None = None) -> None:
        """Show the last line, and leave it there."""
        if not self._is_shown:
            return
        if self._line is not None:
            self._line.clear()
        print(self._text(records, size, lag), file=sys.stderr, flush=True)

    def _text(self, records: int, size: int, lag: int | None) -> str:
        """Return the progress line: records, MB, rates and lag."""
        elapsed_s = max(self._now_s() - self._started_s, 0.001)
        behind = "" if lag is None else f", lag {lag:,}"
        return (
            f"{self._verb} {records:,} records, {size / 1e6:,.1f} MB in {elapsed_s:,.1f} s "
            f"({records / elapsed_s:,.0f} records/s, {size / 1e6 / elapsed_s:,.1f} MB/s){behind}"
        )
