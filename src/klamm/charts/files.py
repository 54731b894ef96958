"""Charts as files. matplotlib, which draws them, is loaded only here: it is large, and not always installed."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from klamm.charts.model import Chart
from klamm.model.errors import KlammError, UsageError

SUFFIXES: Final = (".png", ".svg", ".pdf")


class CannotDraw(KlammError):
    """The file cannot be written, or matplotlib is not installed; the text says what to do."""


def check_drawable(path: str, option: str = "--plot") -> None:
    """Raise UsageError where the file's name has none of `SUFFIXES`, CannotDraw without matplotlib."""
    if not path.lower().endswith(SUFFIXES):
        raise UsageError(f"{option} {path}: the name must end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise CannotDraw(f"{option} {path}: matplotlib is not installed. Run: pip install 'klamm[plot]'") from error


def write_charts(path: str, charts: Sequence[Chart]) -> None:
    """Write the charts into one file, one below the other, in place of what is there; its suffix names the format.

    `path` has passed `check_drawable`. Raises CannotDraw.
    """
    image = import_module("klamm.charts.image")
    try:
        image.draw_charts(charts).savefig(path, dpi=image.DOTS_PER_INCH)
    except OSError as error:
        raise CannotDraw(f"Cannot write {path}: {error.strerror or error}. Name another file.") from error
