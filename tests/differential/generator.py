"""Makes scripts as it goes: dice say what is done next, and the controllers carry it out at once.

A life stops at the first difference that nobody wants; `shorten` then makes the script as short as it can with a
difference still there.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.differential.deeds import BusyLife
from tests.differential.ground import Ground
from tests.differential.life import MOST_STEPS, Life, assignments
from tests.differential.lives import Call


def live(ground: Ground, seed: int, steps: int) -> Life:
    """One life, the same for the same seed, until it has so many steps or a difference."""
    dice = Random(seed)

    def draw(thing: Callable[[Random], Any]) -> Any:
        return thing(dice)

    life = BusyLife(ground)
    try:
        life.do("create_topic", "a", draw(assignments))
        while len(life.steps) < min(steps, MOST_STEPS) and not life.found:
            life.live_on(draw)
    finally:
        life.end()
    return life


def shorten(calls: Sequence[Call], still_differs: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """Without any call that can be spared: halves at first, single ones in the end."""
    left = list(calls)
    size = len(left) // 2
    while size:
        for cut in _cuts(left, size):
            if still_differs(cut):
                left = cut
                break
        else:
            size //= 2
    return left


def _cuts(calls: list[Call], size: int) -> Iterator[list[Call]]:
    for at in range(len(calls) - size, -1, -size):
        yield calls[:at] + calls[at + size :]
