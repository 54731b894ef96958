"""Guards of replication, log and coordinators that are taken out: clusters of whole nodes miss them soon."""

import pytest
from tests.simulation.injected_bugs import groups, logs, replication_and_log, transactions
from tests.simulation.injected_bugs.mutant import Mutant

from klamm.sim.cluster_tier.invariants.table import ALWAYS, AT_REST, OF_ZOOKEEPER
from klamm.sim.cluster_tier.run import run_schedule
from klamm.sim.scripts.shrink import violated_invariant

MUTANTS = (*replication_and_log.MUTANTS, *logs.MUTANTS, *groups.MUTANTS, *transactions.MUTANTS)
NUMBERS = {row.name: row.number for row in (*OF_ZOOKEEPER, *ALWAYS, *AT_REST)}
SOON = {
    "g": 102,
    "43": 101,
    "44": 116,
    "46a": 103,
    "48": 100,
    "50": 100,
    "51": 104,
    "56": 100,
    "57": 101,
    "58": 101,
    "59": 100,
    "55": 1,
    "t4": 1,
    "t6": 17,
    "g1": 4,
    "g2": 7,
    "g3": 2,
}
"""Mutants, and a seed that misses the guard; it is clean otherwise."""


@pytest.mark.parametrize(("number", "seed"), SOON.items())
def test_the_simulation_of_complete_nodes_catches_a_mutant_by_its_expected_invariant(number: str, seed: int) -> None:
    [mutant] = [m for m in MUTANTS if m.number == number]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_schedule(seed).violation

    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


def test_every_mutant_of_complete_nodes_names_existing_invariants() -> None:
    assert {n for m in MUTANTS for n in m.expected} <= set(NUMBERS.values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.number)
def test_every_mutant_of_complete_nodes_changes_code_that_still_exists(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
