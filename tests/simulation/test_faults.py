"""Each fault takes effect on a cluster that has nothing else to suffer, and the cluster lives through it."""

from dataclasses import replace

import pytest

from klamm.sim.cluster import run_script
from klamm.sim.faults.table import ROWS, Row
from klamm.sim.schedules import Policy
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script

BESIDE = {
    "expire taking office": "move",
    "expire while asked": "leave together",
    "forbid reading": "move",
    "kill next controllers": "move",
    "lose first states": "create topic",
    "lose ISR changes": "flap",
}
"""What gives the controller something to do that they wait for; for the others a session ends."""


def of_one_kind(name: str, seed: int = 1) -> Script:
    """Five of them, ten seconds apart, and after each something for the controller to do."""
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_takes_effect_and_is_lived_through(row: Row) -> None:
    outcome = run_script(of_one_kind(row.name), with_story=True)

    assert outcome.violation is None
    assert any(row.sign in line for line in outcome.story)


@pytest.mark.parametrize("bytes_per_s", [0.0, 0.1])
def test_a_link_with_no_room_at_all_is_healed_too(bytes_per_s: float) -> None:
    """As the shrinker tries it: numbers go towards zero."""
    facts = {"role": "anyone", "node": 1, "latency_s": 0.0, "bytes_per_s": bytes_per_s, "for_s": 1.0}
    actions = [ScheduledAction(5.0, "create topic"), ScheduledAction(20.0, "poor link", facts)]

    assert run_script(Script(Options.plain(1), actions, 25.0)).violation is None
