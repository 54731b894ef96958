"""The manual has every fault."""

from pathlib import Path

from klamm.sim.faults.table import FAULTS, ROWS, drawn

PAGE = (Path(__file__).parents[4] / "docs" / "simulation.md").read_text()


def test_the_manual_has_the_table_of_faults() -> None:
    _, _, rest = PAGE.partition("<!-- the table of faults: drawn from sim/faults/table.py -->\n")

    assert rest.partition("<!-- end of the table -->")[0] == drawn()


def test_no_name_is_there_twice() -> None:
    assert len(FAULTS) == len(ROWS)
