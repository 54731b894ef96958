"""Generates scripts: a seed decides what is done next, and the controllers carry it out at once.

Generation stops at the first unexpected difference; `shorten` then makes the script as short as it can with a
difference still there.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.differential.actions import GeneratedScenario
from tests.differential.arena import Arena
from tests.differential.calls import Call
from tests.differential.scenario import MAX_STEPS, Scenario, assignments


def generate(arena: Arena, seed: int, steps: int) -> Scenario:
    """One script, the same for the same seed, until it has so many steps or a difference."""
    rng = Random(seed)

    def draw(thing: Callable[[Random], Any]) -> Any:
        return thing(rng)

    scenario = GeneratedScenario(arena)
    try:
        scenario.do("create_topic", "a", draw(assignments))
        while len(scenario.steps) < min(steps, MAX_STEPS) and not scenario.differences:
            scenario.do_next(draw)
    finally:
        scenario.end()
    return scenario


def shorten(calls: Sequence[Call], still_differs: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """The calls without those that the difference does not need: halves are tried first, single calls last."""
    left = list(calls)
    size = len(left) // 2
    while size:
        for cut in _shortened(left, size):
            if still_differs(cut):
                left = cut
                break
        else:
            size //= 2
    return left


def _shortened(calls: list[Call], size: int) -> Iterator[list[Call]]:
    """Variants of the calls without one run of this size."""
    for at in range(len(calls) - size, -1, -size):
        yield calls[:at] + calls[at + size :]
