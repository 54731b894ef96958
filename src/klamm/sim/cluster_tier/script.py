"""What happens when, in a run of whole nodes: a seed draws a script."""

from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script

FIRST_TOPICS_S: Final = 2.0
WARM_UP_S: Final = 5.0
CHAOS_S: Final = 40.0


def write_script(options: Options) -> Script:
    """Draw the script of a run from its options: a few topics, then random faults and operations."""
    actions = [ScheduledAction(FIRST_TOPICS_S + n / 10, "create topic") for n in range(options.topics)]
    rng, at_s, end_s = Rng(f"{options.seed}/happenings"), WARM_UP_S, WARM_UP_S + CHAOS_S
    while (at_s := round(at_s + rng.expovariate(1 / options.pause_s), 3)) < end_s:
        kinds = options.verbs if rng.random() < options.work else options.faults
        actions.append(ScheduledAction(at_s, rng.choice(kinds)))
    return Script(options, actions, end_s)
