"""The table of invariants: complete, each with a name and a sentence, and drawn into the manual."""

from pathlib import Path

from klamm.sim.history.trace import StateWritten
from klamm.sim.invariants.page import drawn
from klamm.sim.invariants.table import ALWAYS, AT_REST, by_event

PAGE = Path(__file__).parents[3] / "docs" / "invariants.md"


def test_every_number_is_there_but_those_of_whole_clusters() -> None:
    numbers = {row.number for row in (*ALWAYS, *AT_REST)}

    assert set(range(46)) <= numbers  # 46 is that those at rest hold for a part of the nodes
    assert 46 not in numbers


def test_names_are_told_apart_and_sentences_end() -> None:
    rows = (*ALWAYS, *AT_REST)

    assert len({row.name for row in rows}) == len(rows)
    assert all(row.sentence.endswith(".") for row in rows)


def test_an_invariant_is_asked_about_the_events_it_sees_alone() -> None:
    asked = by_event()

    assert "leader_is_in_sync" in [name for name, _ in asked[StateWritten]]
    assert sum(map(len, asked.values())) == sum(len(row.sees) for row in ALWAYS)
    assert all(row.sees for row in ALWAYS)
    assert not any(row.sees for row in AT_REST)


def test_the_page_is_drawn_from_the_table() -> None:
    assert PAGE.read_text() == drawn()
