"""A run as data: options and scheduled actions. A seed draws one; a recorded one can be edited and run again.

As text, a script has one action per line, as in `tests/simulation/regressions.toml`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from klamm.runtime.randomness import Rng
from klamm.sim.schedules import Policy
from klamm.sim.scripts.options import Options

FIRST_TOPICS_S: Final = 5.0
WARM_UP_S: Final = 20.0
CHAOS_S: Final = 75.0
_FIRST_TOPICS: Final = 3
_ADDED_PAUSE_S: Final = 8.0
"""Mean time between two of the faults that came later."""


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
    """From then on no action begins, and all faults are healed."""


def write_script(options: Options) -> Script:
    """Draw the script of a run from its options: a few topics, then random faults and operations."""
    actions = [ScheduledAction(FIRST_TOPICS_S + n / 10, "create topic") for n in range(_FIRST_TOPICS)]
    rng, at_s, end_s = Rng(f"{options.seed}/happenings"), WARM_UP_S, WARM_UP_S + CHAOS_S
    while (at_s := round(at_s + rng.expovariate(1 / options.pause_s), 3)) < end_s:
        kinds = options.verbs if rng.random() < options.work else options.faults
        actions.append(ScheduledAction(at_s, rng.choice(kinds)))
    return Script(options, sorted([*actions, *_added_actions(options)], key=lambda action: action.at_s), end_s)


def _added_actions(options: Options) -> list[ScheduledAction]:
    """Draw when which of the faults happen that came later."""
    actions: list[ScheduledAction] = []
    rng, at_s = Rng(f"{options.seed}/added actions"), WARM_UP_S
    while options.added_faults and (at_s := round(at_s + rng.expovariate(1 / _ADDED_PAUSE_S), 3)) < WARM_UP_S + CHAOS_S:
        actions.append(ScheduledAction(at_s, rng.choice(options.added_faults)))
    return actions


def options_beyond_plain(options: Any) -> dict[str, Any]:
    """The options that differ from a plain cluster with the same number of nodes."""
    plain = type(options).plain(options.seed, options.nodes)
    values = {f.name: getattr(options, f.name) for f in fields(options)}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}


def encode_script(script: Script) -> str:
    """The script as JSON, without the seed."""
    about = {"nodes": script.options.nodes, **options_beyond_plain(script.options), "heal_at_s": script.heal_at_s}
    lines = [json.dumps(about), *(json.dumps([h.at_s, h.what, dict(h.facts)]) for h in script.actions)]
    return "\n".join(lines)


def decode_script(text: str, seed: int, tier: Any = Options) -> Script:
    """The script that `encode_script` wrote; `tier` is the class of its options."""
    about, *actions = (json.loads(line) for line in text.strip().splitlines())
    heal_at_s, nodes = about.pop("heal_at_s"), about.pop("nodes")
    if "policy" in about:
        about["policy"] = Policy(about["policy"])
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    options = replace(tier.plain(seed, nodes), **given)
    return Script(options, [ScheduledAction(at_s, what, facts) for at_s, what, facts in actions], heal_at_s)
