"""Counters and timers: plain values that code updates and the metrics page reads."""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those that Kafka's timers have."""
_KEPT: Final = 1_024


class Timer:
    """Durations in ms: their number, their sum, and quantiles over the last 1,024."""

    __slots__ = ("_kept", "_next", "count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self._kept = array("d")
        self._next = 0

    def observe(self, ms: float) -> None:
        """Add one duration in ms."""
        self.count += 1
        self.total_ms += ms
        if len(self._kept) < _KEPT:
            self._kept.append(ms)
        else:
            self._kept[self._next] = ms
            self._next = (self._next + 1) % _KEPT

    def forget(self) -> None:
        """Remove the durations of which the quantiles are computed; count and sum continue, as counters must."""
        del self._kept[:]
        self._next = 0

    def quantiles(self) -> Sequence[tuple[float, float]]:
        """(quantile, ms) pairs; zeros without any duration."""
        ordered = sorted(self._kept)
        if not ordered:
            return [(q, 0.0) for q in QUANTILES]
        return [(q, ordered[min(len(ordered) - 1, int(q * len(ordered)))]) for q in QUANTILES]


class Reading(NamedTuple):
    """The current value of a metric; `labels` are in the order of its row."""

    name: str
    value: float | Timer
    labels: tuple[str, ...] = ()
