"""Wall clocks that are wrong. Time-outs are the loop's and know nothing of it."""

from typing import Final

from klamm.sim.faults.aim import victim
from klamm.sim.stage import Draw, Stage, later

_HOUR_MS: Final = 3_600_000
_DRIFTS_S: Final = 10


def clock_jump(stage: Stage, draw: Draw) -> None:
    """It jumps by up to an hour, forwards or backwards, once or again and again."""
    number, _ = victim(stage, draw)
    times = draw("times", lambda dice: dice.choice((1, 1, 6)))
    by_ms = draw("by_ms", lambda dice: dice.randint(-_HOUR_MS, _HOUR_MS))
    stage.tell(f"the clock of node {number} jumps by {by_ms} ms, {times} times to and fro")
    for turn in range(times):
        later(stage, 0.3 * turn, _shift, stage, number, by_ms if turn % 2 == 0 else -by_ms)


def clock_drift(stage: Stage, draw: Draw) -> None:
    """It goes too fast, or too slowly."""
    number, _ = victim(stage, draw)
    rate = draw("rate", lambda dice: dice.choice((-0.5, -0.01, 0.01, 0.5)))
    stage.tell(f"the clock of node {number} is wrong by {rate} s in each second")
    for second in range(_DRIFTS_S):
        later(stage, second, _shift, stage, number, int(rate * 1000))


def _shift(stage: Stage, number: int, by_ms: int) -> None:
    if not stage.is_healed:
        stage.clocks[f"node-{number}"].offset_ms += by_ms
