"""Cut a plan into waves, so that no broker copies too much at once."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from klamm.plan.arrays import NO_REPLICA, Ints


class WaveLimits(NamedTuple):
    moves_per_broker: int
    """Replicas that a broker receives, or sends as first replica, in one wave."""
    total_bytes: int
    """Bytes that are copied in one wave; a partition that is larger has a wave of its own."""


def plan_waves(changed: Ints, before: Ints, after: Ints, sizes: Sequence[float], limits: WaveLimits) -> list[list[int]]:
    """The changed partitions in waves, each in the first one that has room for it.

    `before` and `after` are [P, R] assignments, `sizes` the bytes of one replica of each partition. Partitions of which
    only the order of replicas changes copy nothing and are in the first wave.
    """
    waves: list[list[int]] = []
    counts: list[Counter[int]] = []
    copied: list[float] = []
    first_open: Counter[int] = Counter()
    rows = zip(changed.tolist(), before[changed].tolist(), after[changed].tolist(), strict=True)
    for partition, old, new in rows:
        targets = [b for b in new if b != NO_REPLICA and b not in old]
        touched = [old[0], *targets] if targets else []
        bytes_copied = sizes[partition] * len(targets)
        wave = max((first_open[b] for b in touched), default=0)
        while wave < len(waves) and not _has_room(touched, bytes_copied, counts[wave], copied[wave], limits):
            wave += 1
        if wave == len(waves):
            waves.append([])
            counts.append(Counter())
            copied.append(0.0)
        waves[wave].append(partition)
        counts[wave].update(touched)
        copied[wave] += bytes_copied
        for broker in touched:
            while first_open[broker] < len(waves) and counts[first_open[broker]][broker] >= limits.moves_per_broker:
                first_open[broker] += 1
    return waves


def _has_room(
    touched: Sequence[int], bytes_copied: float, counts: Counter[int], copied: float, limits: WaveLimits
) -> bool:
    """Whether a wave takes one more partition; one without copies always has room."""
    if not touched:
        return True
    return copied + bytes_copied <= limits.total_bytes and all(counts[b] < limits.moves_per_broker for b in touched)
