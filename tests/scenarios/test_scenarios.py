"""The transcripts do not change unnoticed; `make transcripts` records them."""

import pytest
from tests.scenarios.record import TRANSCRIPTS, path_of
from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.transcript import transcript


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_commands_of_a_scenario_print_the_recorded_transcript(name: str) -> None:
    assert transcript(name, SCENARIOS[name]).splitlines() == path_of(name).read_text().splitlines()


def test_each_recorded_transcript_belongs_to_an_existing_scenario() -> None:
    assert sorted(TRANSCRIPTS.glob("*.txt")) == sorted(map(path_of, SCENARIOS))
