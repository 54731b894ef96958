"""`make docs`: the pages in docs/, or the parts of them, that are generated from tables. `--check` only compares."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.api_errors import as_markdown as coordinator_errors_page

from klamm.pipeline.fields import fields_as_markdown
from klamm.sim.faults.table import faults_as_markdown
from klamm.sim.invariants.table import as_markdown as invariants_page
from klamm.spark.option_table import READ_OPTIONS
from klamm.spark.sink_options import WRITE_OPTIONS
from klamm.telemetry.metric_table import as_markdown as metrics_page

DOCS: Final = Path(__file__).parents[1] / "docs"
FAULTS_BEGIN: Final = "<!-- the table of faults: drawn from sim/faults/table.py -->\n"
TABLE_END: Final = "<!-- end of the table -->"


OPTIONS_BEGIN: Final = "<!-- the tables of options: drawn from spark/option_table.py and spark/kafka_options.py -->\n"
SINK_OPTIONS_BEGIN: Final = "<!-- the tables of the sink's options: drawn from spark/sink_options.py -->\n"


FIELDS_BEGIN: Final = "<!-- the table of fields: drawn from pipeline/fields.py -->\n"


def with_fault_table(page: str) -> str:
    """The page with its table of faults replaced."""
    return with_table(page, FAULTS_BEGIN, faults_as_markdown())


def with_option_tables(page: str) -> str:
    """The page with its tables of Spark options replaced."""
    page = with_table(page, OPTIONS_BEGIN, READ_OPTIONS.as_markdown())
    return with_table(page, SINK_OPTIONS_BEGIN, WRITE_OPTIONS.as_markdown())


def with_table(page: str, begin: str, table: str) -> str:
    """The page with what is between `begin` and the end of the table replaced."""
    before, begin_found, rest = page.partition(begin)
    _, end, after = rest.partition(TABLE_END)
    assert begin_found, f"the page lacks {begin!r}"
    assert end, f"the page lacks {TABLE_END!r} after {begin!r}"
    return before + begin + table + end + after


PAGES: Final[Mapping[str, Callable[[str], str]]] = {
    "coordinator-errors.md": lambda page: coordinator_errors_page(),
    "invariants.md": lambda page: invariants_page(),
    "metrics.md": lambda page: metrics_page(),
    "pipelines.md": lambda page: with_table(page, FIELDS_BEGIN, fields_as_markdown()),
    "simulation.md": with_fault_table,
    "spark.md": with_option_tables,
}
"""By file: what it has to contain, given what it contains."""


def is_current(name: str) -> bool:
    page = (DOCS / name).read_text()
    return PAGES[name](page) == page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not current")
    check = parser.parse_args(arguments).check
    outdated = [name for name in PAGES if not is_current(name)]
    for name in outdated:
        if check:
            print(f"docs/{name} does not equal its table: run `make docs`", file=sys.stderr)
        else:
            (DOCS / name).write_text(PAGES[name]((DOCS / name).read_text()))
    return int(check and bool(outdated))


if __name__ == "__main__":
    sys.exit(main())
