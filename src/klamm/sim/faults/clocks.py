"""Faults that make wall clocks wrong. Timeouts are not affected, because they use the event loop's time."""

from typing import Final

from klamm.sim.actions import Draw, ScheduledCluster, call_after
from klamm.sim.faults.aim import draw_node

_HOUR_MS: Final = 3_600_000
_DRIFTS_S: Final = 10


def clock_jump(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's wall clock jumps by up to an hour, forwards or backwards, once or repeatedly."""
    number, _ = draw_node(cluster, draw)
    times = draw("times", lambda rng: rng.choice((1, 1, 6)))
    by_ms = draw("by_ms", lambda rng: rng.randint(-_HOUR_MS, _HOUR_MS))
    cluster.log(f"the clock of node {number} jumps by {by_ms} ms and back, {times} times")
    for turn in range(times):
        call_after(cluster, 0.3 * turn, _shift, cluster, number, by_ms if turn % 2 == 0 else -by_ms)


def clock_drift(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's wall clock runs too fast or too slowly."""
    number, _ = draw_node(cluster, draw)
    rate = draw("rate", lambda rng: rng.choice((-0.5, -0.01, 0.01, 0.5)))
    cluster.log(f"the clock of node {number} drifts by {rate} s in each second")
    for second in range(_DRIFTS_S):
        call_after(cluster, second, _shift, cluster, number, int(rate * 1000))


def _shift(cluster: ScheduledCluster, number: int, by_ms: int) -> None:
    """Move a node's wall clock by this many milliseconds, unless the cluster is healed."""
    if not cluster.is_healed:
        cluster.clocks[f"node-{number}"].offset_ms += by_ms
