"""The fault table and its copy in the manual."""

from klamm.sim.faults.table import FAULT_ROWS, FAULTS


def test_names_of_simulated_faults_and_workload_actions_are_unique() -> None:
    assert len(FAULTS) == len(FAULT_ROWS)
