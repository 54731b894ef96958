"""A run as data: options and scheduled actions. A seed draws one; a recorded one can be edited and run again."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.runtime.randomness import Rng
from klamm.sim.scripts.options import Options

FIRST_TOPICS_S: Final = 5.0
WARM_UP_S: Final = 20.0
CHAOS_S: Final = 75.0
_FIRST_TOPICS: Final = 3


class ScheduledAction(NamedTuple):
    """A fault or a verb at a time; decisions that `facts` does not give are drawn at random."""

    at_s: float
    what: str
    """A name of `FAULTS` or `VERBS`."""
    facts: Mapping[str, Any] = {}


class Script(NamedTuple):
    """All that defines a run."""

    options: Any
    """Those of the tier: `Options`, or `cluster_tier.options.Options`."""
    actions: Sequence[ScheduledAction]
    heal_at_s: float
    """Nothing happens any more from then on, and everything is mended."""


def write_script(options: Options) -> Script:
    """Draw the script of a run from its options: a few topics, then random faults and verbs."""
    actions = [ScheduledAction(FIRST_TOPICS_S + n / 10, "create topic") for n in range(_FIRST_TOPICS)]
    rng, at_s, end_s = Rng(f"{options.seed}/happenings"), WARM_UP_S, WARM_UP_S + CHAOS_S
    while (at_s := round(at_s + rng.expovariate(1 / options.pause_s), 3)) < end_s:
        kinds = options.verbs if rng.random() < options.work else options.faults
        actions.append(ScheduledAction(at_s, rng.choice(kinds)))
    return Script(options, actions, end_s)
