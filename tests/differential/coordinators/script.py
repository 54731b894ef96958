"""Scripts of the coordinators' judge: steps of group members, producers and an operator, as plain data."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

DYNAMIC = ("m1", "m2", "m3")
STATIC = {"s1": "i1", "s1b": "i1", "s2": "i2"}
"""Members with an instance id; s1 and s1b have the same one, and fence each other."""
PRODUCERS = {"p1": "x", "p2": "x", "p3": "y"}
"""Producers and their transactional ids; p1 and p2 have the same one, and fence each other."""
OPERATOR = "op"
STOP, KILL = "stop", "kill"
NAMES = ("g", "h", "x", "y", "n")
"""Groups, transactional ids, and one that no producer has."""


class Step(NamedTuple):
    """Who does what; the options are those of the verb (`requests.py`, `player.py`)."""

    who: str
    verb: str
    options: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return " ".join([self.who, self.verb, *(f"{name}={value!r}" for name, value in self.options.items())])


class Script(NamedTuple):
    seed: int
    steps: tuple[Step, ...]

    @property
    def restart(self) -> str | None:
        """How its brokers are restarted in the middle: STOP or KILL; None where they are not."""
        return next((str(step.options["how"]) for step in self.steps if step.verb == "restart"), None)

    @property
    def is_alone(self) -> bool:
        """Whether no other script may run meanwhile: where a topic is deleted, Kafka removes empty groups of all."""
        return any(step.verb == "delete_topic" for step in self.steps)


def to_json(script: Script) -> str:
    return json.dumps([script.seed, [[s.who, s.verb, dict(s.options)] for s in script.steps]], separators=(",", ":"))


def from_json(text: str) -> Script:
    seed, steps = json.loads(text)
    return Script(seed, tuple(Step(*step) for step in steps))
