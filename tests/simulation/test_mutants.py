"""A few of the guards that `make mutants` takes out, those that are missed soon: the whole table takes minutes."""

import pytest
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import FIRST_SEEDS, NUMBERS, Job, catcher, hunt, row

MOST = 40
SOON = {
    "2": {11},
    "15": {10, 41},
    "19": {19},
    "20": {3, 31, 33},
    "21": {3},
    "27": {30},
}
"""Mutant -> numbers of the invariants of which one speaks first."""


@pytest.mark.parametrize("number", SOON)
def test_a_guard_taken_out_is_missed(number: str) -> None:
    index = next(i for i, mutant in enumerate(MUTANTS) if mutant.number == number)

    found = hunt(Job(index, FIRST_SEEDS[0], MOST))

    assert found.schedules is not None
    assert catcher(found.violation) in {str(n) for n in SOON[number]}, found.violation


def test_every_mutant_has_a_number_of_its_own_and_expects_invariants_that_exist() -> None:
    assert len({m.number for m in MUTANTS}) == len(MUTANTS)
    assert {n for m in MUTANTS for n in m.expected} <= set(NUMBERS.values())


def test_what_nobody_saw_survives() -> None:
    found = hunt(Job(0, FIRST_SEEDS[0], 0))

    assert "**survives**" in row(MUTANTS[0], [found])
