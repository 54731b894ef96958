"""The fault table and its copy in the manual."""

from klamm.sim.faults.table import FAULT_ROWS, FAULTS


def test_fault_and_verb_names_are_unique() -> None:
    assert len(FAULTS) == len(FAULT_ROWS)
