"""The manual has every fault."""

from pathlib import Path

from klamm.sim.faults.table import FAULT_ROWS, FAULTS, faults_as_markdown

PAGE = (Path(__file__).parents[4] / "docs" / "simulation.md").read_text()


def test_fault_table_in_the_manual_equals_the_generated_one() -> None:
    _, _, rest = PAGE.partition("<!-- the table of faults: drawn from sim/faults/table.py -->\n")

    assert rest.partition("<!-- end of the table -->")[0] == faults_as_markdown()


def test_fault_and_verb_names_are_unique() -> None:
    assert len(FAULTS) == len(FAULT_ROWS)
