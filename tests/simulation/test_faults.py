"""Each fault takes effect on an otherwise healthy cluster, and breaks no invariant."""

from dataclasses import replace

import pytest

from klamm.runtime.randomness import Rng
from klamm.sim.cluster import CORE_RECOVERY_SHARE, run_script
from klamm.sim.faults.table import FAULT_ROWS, FaultRow
from klamm.sim.schedules import Policy
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script

BESIDE = {
    "expire new controller": "delete /controller",
    "expire busy controller": "shut down together",
    "forbid reading": "delete /controller",
    "kill next controllers": "delete /controller",
    "lose first state responses": "create topic",
    "lose ISR change responses": "follower lags and catches up",
}
"""What gives the controller something to do that they wait for; for the others a session ends."""


def of_one_kind(name: str, seed: int = 1) -> Script:
    """A script with five faults of this kind, ten seconds apart, each followed by work for the controller."""
    options = replace(
        Options.plain(seed),
        policy=Policy.HOSTS,
        servers=3,
        session_timeout_ms=6_000,
        pause_s=1,
        work=0,
        faults=(name,),
        verbs=(),
    )
    topics = [ScheduledAction(5.0 + n, "create topic") for n in range(3)]
    faults = [ScheduledAction(20.0 + 10 * n, name) for n in range(5)]
    work = [ScheduledAction(h.at_s + 1, BESIDE.get(name, "expire")) for h in faults]
    return Script(options, sorted([*topics, *faults, *work]), 75.0)


@pytest.mark.parametrize("row", FAULT_ROWS, ids=lambda row: row.name)
def test_each_simulated_fault_takes_effect_and_breaks_no_invariant(row: FaultRow) -> None:
    outcome = run_script(of_one_kind(row.name), with_story=True)

    assert outcome.violation is None
    assert any(row.sign in line for line in outcome.story)


@pytest.mark.parametrize("bytes_per_s", [0.0, 0.1])
def test_a_simulated_cluster_recovers_after_a_link_with_almost_no_bandwidth_is_healed(bytes_per_s: float) -> None:
    """The shrinker tries such values, because it moves numbers towards zero."""
    facts = {"role": "any node", "node": 1, "latency_s": 0.0, "bytes_per_s": bytes_per_s, "for_s": 1.0}
    actions = [ScheduledAction(5.0, "create topic"), ScheduledAction(20.0, "poor link", facts)]

    assert run_script(Script(Options.plain(1), actions, 25.0)).violation is None


def test_a_simulated_follower_that_cannot_reach_its_leader_leaves_the_isr_until_it_can() -> None:
    topic = ScheduledAction(5.0, "create topic", {"topic": "t1", "replicas": [[1, 2, 3]]})
    cut = ScheduledAction(
        21.0, "cut link", {"role": "any node", "node": 3, "other": "node-1", "way": "from", "for_s": 20.0}
    )

    outcome = run_script(Script(Options.plain(3), [topic, cut], heal_at_s=60.0), with_story=True)

    isrs = [line.partition("after=")[2] for line in outcome.story if "StateWritten partition=t1-0" in line]
    assert outcome.violation is None
    assert [line[line.index("isr=") + 4 : line.index(")") + 1] for line in isrs] == ["(1, 2, 3)", "(1, 2)", "(1, 2, 3)"]


def test_healing_faults_without_restarts_leaves_killed_nodes_down_until_the_final_phase() -> None:
    kill = ScheduledAction(21.0, "kill", {"role": "any node", "node": 3, "back_s": 30.0})
    options = next(
        replace(Options.plain(seed, 3), heals_core=True)
        for seed in range(100)
        if Rng(f"{seed}/rest").random() >= CORE_RECOVERY_SHARE
    )

    outcome = run_script(Script(options, [kill], heal_at_s=25.0), with_story=True)

    [calm] = [line for line in outcome.action_log if "nothing restarts" in line]
    starts = [line for line in outcome.action_log if "node 3 starts" in line]
    assert outcome.violation is None
    assert "nodes [3] stay dead" in calm
    assert len(starts) == 2
    assert float(starts[-1].split()[0]) > float(calm.split()[0]) + 30
