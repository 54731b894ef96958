"""The office as the simulation sees it: mistakes in it, and how it changes hands."""

import pytest

from klamm.model.ids import BrokerId
from klamm.sim.cluster import run_script
from klamm.sim.history import History
from klamm.sim.invariants.office import no_mistakes_are_made
from klamm.sim.operations import script_of
from klamm.sim.trace import Mistaken

FOUND = {"a mistake": (KeyError("t1"), True), "no memory": (MemoryError(), False)}


@pytest.mark.parametrize(("error", "is_found"), FOUND.values(), ids=FOUND)
def test_mistakes_are_findings_and_a_lack_of_memory_is_none(error: Exception, is_found: bool) -> None:
    wrong = no_mistakes_are_made(History(), Mistaken(BrokerId(1), error, "here"))

    assert bool(wrong) is is_found


def test_an_office_that_is_handed_over_is_an_election() -> None:
    outcome = run_script(script_of("the office is handed over"), tell=True)

    assert outcome.violation is None
    assert any("Elected epoch=2" in line and "broker=2" in line for line in outcome.story)


def test_a_controller_without_memory_gives_its_office_up() -> None:
    outcome = run_script(script_of("a controller runs out of memory"), tell=True)

    assert outcome.violation is None
    assert b"MemoryError" in outcome.journal
    assert any("Elected epoch=2" in line for line in outcome.story)
