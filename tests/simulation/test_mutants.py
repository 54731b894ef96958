"""Some mutants of `make mutants` that are caught quickly; the whole table takes many minutes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.injected_bugs import hunt as mutation
from tests.simulation.injected_bugs.hiding import HIDING
from tests.simulation.injected_bugs.hunt import (
    FIRST_SEEDS,
    NUMBERS,
    Found,
    Hunts,
    Job,
    catcher,
    hunt,
    page,
    row,
    rows_of,
)
from tests.simulation.injected_bugs.mutant import Mutant, check_fits
from tests.simulation.injected_bugs.table import MUTANTS

from klamm.controller.timers import Timers
from klamm.sim.cluster import Outcome, run_schedule

MOST = 40
SOON = {"2": 10_000, "15": 10_000, "19": 10_000, "20": 10_003, "21": 10_000, "27": 10_002}
"""Mutants, and a seed that catches each."""
FEW_RUNS = 2
"""Runs that make a script smaller before it is played without the mutant; `make mutants` spends more."""


def index_of(number: str) -> int:
    """The index of the mutant with this number."""
    return next(i for i, mutant in enumerate(MUTANTS) if mutant.number == number)


def found(number: str, first: int = FIRST_SEEDS[0], schedules: int | None = 3, most: int = MOST) -> Found:
    """The result of a hunt with few schedules."""
    return Found(number, first, most, schedules, "isr_is_never_empty: t1-0" if schedules else "", 1, {"44": 2}, 1)


@pytest.mark.parametrize(("number", "first"), SOON.items())
def test_each_controller_mutant_is_caught_by_its_expected_invariant(
    number: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "SHRINKING_RUNS", FEW_RUNS)
    mutant = index_of(number)

    caught = hunt(Job(mutant, first, MOST))

    assert caught.schedules is not None
    assert catcher(caught.violation) in set(map(str, MUTANTS[mutant].expected)), caught.violation


def test_every_controller_mutant_has_a_unique_number_and_names_existing_invariants() -> None:
    numbers = {m.number for m in MUTANTS}

    assert len(numbers) == len(MUTANTS)
    assert {n for m in MUTANTS for n in m.expected} <= set(NUMBERS.values())
    assert {*HIDING, *(h.pair for h in HIDING.values())} <= numbers


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.number)
def test_every_controller_mutant_changes_code_that_still_exists(mutant: Mutant) -> None:
    """What it patches is still there, and is called with the same arguments."""
    check_fits(mutant)


@pytest.mark.parametrize("broken", ["seed", "reproducer"])
def test_a_violation_that_occurs_without_the_mutant_too_does_not_count_as_caught(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = run_schedule(1)

    def breaks(is_broken: bool) -> Outcome:
        return replace(calm, violation="isr_is_never_empty: t1-0" if is_broken else None)

    is_mutated: list[bool] = []

    def apply(patch: pytest.MonkeyPatch) -> None:
        is_mutated.append(True)

    monkeypatch.setattr(mutation, "MUTANTS", [Mutant("x", "", "nothing", apply, (11,))])
    monkeypatch.setattr(mutation, "run_schedule", lambda seed: breaks(bool(is_mutated) or broken == "seed"))
    monkeypatch.setattr(mutation, "run_script", lambda script: breaks(broken == "reproducer"))
    monkeypatch.setattr(mutation, "SHRINKING_RUNS", 0)
    monkeypatch.setattr(mutation, "is_clean", lambda seed: broken != "seed")

    caught = hunt(Job(0, 1, 2))

    assert caught.schedules is None
    assert caught.discounted == 2


def test_a_mutant_that_no_invariant_catches_is_listed_as_survivor() -> None:
    assert mutation.SURVIVES in row(MUTANTS[0], [found("1", schedules=None)])


def test_a_mutant_run_resumes_from_saved_results_unless_more_schedules_are_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutation, "KEPT", tmp_path / "kept")
    mutation.keep("these sources", found("1"))
    mutation.keep("these sources", found("2", schedules=None, most=20))
    mutation.keep("other sources", found("3"))

    hunts = Hunts([index_of(n) for n in "123"], seeds=1, most=40, sources="these sources")
    hunts.take_up(mutation.kept("these sources"))

    assert [MUTANTS[job.mutant].number for job in hunts.left()] == ["2", "3"]
    assert list(hunts.rows()) == ["1"]
    assert len(json.loads((tmp_path / "kept").read_text().splitlines()[0])["found"]) == len(Found._fields)


def test_the_documentation_page_on_mutants_keeps_rows_of_mutants_not_run_again() -> None:
    first = page({"1": row(MUTANTS[0], [found("1")]), "2": row(MUTANTS[1], [found("2", schedules=None)])})

    again = page({**rows_of(first), "2": row(MUTANTS[1], [found("2", schedules=7)])})

    assert "| 2 | KAFKA-708 | the last member leaves the ISR | 11 | **survives** |" in first
    assert "the other guard is not known" in first
    assert "| 11 | 11 | 7 | 44 (2) |" in again
    assert "the other guard is not known" not in again
    assert rows_of(again)["1"] == rows_of(first)["1"]


def test_a_mutant_that_takes_other_arguments_than_what_it_replaces_is_refused() -> None:
    outdated = Mutant("x", "", "nothing", lambda patch: patch.setattr(Timers, "close", lambda: None), (0,))

    with pytest.raises(TypeError, match=r"close\(\) cannot replace close\(self\)"):
        check_fits(outdated)


def test_a_surviving_mutant_with_unexpected_errors_is_reported_as_failing(capsys: pytest.CaptureFixture[str]) -> None:
    hunts = Hunts([index_of(n) for n in "23"], seeds=1, most=40, sources="these sources")
    failed = found("2", schedules=None)._replace(others={mutation.UNEXPECTED_ERRORS: 39})
    hunts.take_up([failed, found("3", schedules=None)])

    assert mutation.verdict(hunts) == 1

    assert hunts.failing() == ["2"]
    assert "FAILS 2: it raises errors of its own" in capsys.readouterr().out
