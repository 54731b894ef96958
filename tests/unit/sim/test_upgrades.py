"""Simulated clusters whose nodes have different inter-broker protocols."""

from klamm.sim.cluster import run_script
from klamm.sim.scripts.operations import BEGINS_AT_S, script_of

_FLAPS_AT_S = BEGINS_AT_S + 18


def test_simulated_nodes_restart_with_other_protocols_whose_leaders_write_their_isrs_themselves() -> None:
    """Node 2 goes back to 2.6; the others send AlterPartition to the controller, whose writes check its epoch."""
    outcome = run_script(script_of("the protocol is raised, and lowered for one broker"), with_story=True)

    assert outcome.violation is None
    restarts = [
        line.split()[2:] for line in outcome.story if "is to restart with inter.broker.protocol.version" in line
    ]
    assert [(words[0], words[-1].partition("=")[2]) for words in restarts] == [
        ("3", "2.8-IV1"), ("1", "2.8-IV1"), ("2", "2.8-IV1"), ("2", "2.6-IV0")
    ]  # fmt: skip
    writes = [line for line in outcome.story if "/state" in line and "zxid" in line]
    late = [line for line in writes if float(line.split()[0]) > _FLAPS_AT_S]
    assert {"bound to epoch" in line for line in late} == {True, False}
