"""What an operator sees stays as it was read and approved; `make transcripts` writes it anew."""

import pytest
from tests.scenarios.record import TRANSCRIPTS, path_of
from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.transcript import transcript


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_operator_sees_what_was_approved(name: str) -> None:
    assert transcript(name, SCENARIOS[name]).splitlines() == path_of(name).read_text().splitlines()


def test_each_transcript_has_its_scenario() -> None:
    assert sorted(TRANSCRIPTS.glob("*.txt")) == sorted(map(path_of, SCENARIOS))
