"""Guards of replication, log and coordinators that are taken out: clusters of whole nodes miss them soon."""

import pytest
from tests.simulation.injected_bugs import groups, logs, replication_and_log, transactions
from tests.simulation.injected_bugs.mutant import Mutant

from klamm.sim.cluster_tier.invariants.table import ALWAYS, AT_REST, OF_ZOOKEEPER
from klamm.sim.cluster_tier.options import Options
from klamm.sim.cluster_tier.run import run_schedule, run_script
from klamm.sim.scripts.script import decode_script
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
    "51": 101,
    "56": 107,
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


LEADERSHIP_RETURNS = """
{"nodes": 3, "session_timeout_ms": 1500, "lag_ms": 6000, "producers": 3, "heal_at_s": 18.0}
[2.0, "create topic", {"topic": "t1", "replication": 3, "replicas": [[2, 3, 1]], "min_isr": 1, "is_synced": false, "has_retention": false}]
[8.0, "cut", {"role": "anyone", "node": 2, "other": "node-1", "way": "to", "for_s": 4.0}]
[10.0, "pause", {"role": "anyone", "node": 3, "for_s": 7.0}]
[10.3, "kill", {"role": "anyone", "node": 2, "back_s": 3.0}]
[15.0, "elect preferred", {"topic": "t1"}]
"""  # noqa: E501
"""Node 3 copies records of leader 2 that node 1 lacks. It is paused while node 1 and then node 2 lead."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_simulation_catches_a_follower_that_compares_no_epochs_when_leadership_returns(seed: int) -> None:
    """Mutant 47 (KAFKA-7164): schedules from seeds alone rarely have these steps in this order."""
    [mutant] = [m for m in MUTANTS if m.number == "47"]
    script = decode_script(LEADERSHIP_RETURNS, seed, Options)
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    assert run_script(script).violation is None
    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


def test_every_mutant_of_complete_nodes_names_existing_invariants() -> None:
    assert {n for m in MUTANTS for n in m.expected} <= set(NUMBERS.values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.number)
def test_every_mutant_of_complete_nodes_changes_code_that_still_exists(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
