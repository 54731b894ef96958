"""Scripts as text, one action per line, as stored in `tests/simulation/regressions.toml`."""

import json
from dataclasses import fields, replace
from typing import Any

from klamm.sim.schedules import Policy
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script


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
