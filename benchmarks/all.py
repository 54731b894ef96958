"""`make bench`: every benchmark, one after another, with progress, what it printed, and its duration.

The output of each is in `.bench/NAME.log`, too. All run; the exit status is 1 if one fails. Three run
apart, because they take long: `make bench-controller`, `make bench-request_holds` and `make bench-spark_soak`.
"""

import ast
import sys
from functools import partial
from pathlib import Path

from tests.support.steps import Step, exit_with, run_chosen

DIRECTORY = Path(".bench")
FIRST = "side_by_side"
PARTS_OF_OTHERS = ("load", "spark_process", "spark_read_job", "spark_write_job")
"""Modules that benchmarks import, or start as processes of their own."""
APART = ("controller", "request_holds", "spark_soak")


def benchmarks() -> list[Step]:
    """A step for each benchmark, with the first line of its docstring."""
    paths = [p for p in Path(__file__).parent.glob("*.py") if not p.name.startswith("__") and p != Path(__file__)]
    names = sorted({p.stem for p in paths} - {*PARTS_OF_OTHERS, *APART}, key=lambda name: (name != FIRST, name))
    return [Step(name, (sys.executable, "-m", f"benchmarks.{name}"), _first_line(name)) for name in names]


def _first_line(name: str) -> str:
    """The first line of the docstring of a benchmark, which is not imported for it."""
    text = Path(__file__).with_name(f"{name}.py").read_text()
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


if __name__ == "__main__":
    exit_with(partial(run_chosen, __doc__, benchmarks(), DIRECTORY, prints_output=True))
