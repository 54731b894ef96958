"""A cluster in arrays, for plans over a million partitions in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.int64]
"""Replicas by number: partition times R, plus the column."""

NO_REPLICA: Final = -1
"""In place of a broker, after the replicas of partitions with fewer replicas than others."""
UNKNOWN_RACK: Final = -1
"""The rack of brokers that do not count where replicas are spread over racks."""


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A cluster in arrays: B brokers, P partitions, at most R replicas. Brokers are numbers from 0 to B - 1 in it."""

    ids: Ints
    """[B] the id of each broker."""
    racks: Ints
    """[B] a number for each rack, `UNKNOWN_RACK` for dead brokers. With one number for all, racks do not count."""
    alive: Bools
    """[B]"""
    receives: Bools
    """[B] whether replicas and leaders may move to it: not where it is dead, excluded or drained."""
    drained: Bools
    """[B] whether all its replicas move away."""
    replicas: Ints
    """[P, R] brokers in the order of the assignment, then `NO_REPLICA`. R is at least the largest wanted factor."""
    wanted: Ints
    """[P] the replication factor that the plan leads to, where it may change the partition."""
    movable: Bools
    """[P] whether the plan may change it; the load of the others counts."""
    sizes: Floats
    """[P] bytes of one replica, 0 where unknown."""
    rates: Floats
    """[P] bytes per second that are produced, 0 where unknown."""
    behind: Floats
    """[P] how much longer its replicas were out of the ISR than others on their brokers, as a share of time."""
    without_leader: Floats
    """[P] the share of time in which it had no leader."""
    leading: Floats
    """[B] how much it shall lead, in comparison with the others."""
    names: Sequence[object]
    """[P] what errors call the partitions."""
    rack_names: Sequence[str] = ()
    """What reasons call the racks."""
    broker_notes: Sequence[str] = ()
    """[B] why a broker leads less, for reasons; empty where there is no history."""

    def broker_text(self, broker: int) -> str:
        """What reasons call a broker: `broker 3`."""
        return f"broker {self.ids[broker]}"

    def leader_text(self, broker: int) -> str:
        """What reasons for leaders call a broker: also why it leads less."""
        note = self.broker_notes[broker] if self.broker_notes else ""
        return self.broker_text(broker) + (f" ({note})" if note else "")


def replica_weights(given: PlanInput) -> Floats:
    """[P] the load of one replica: the mean of its shares of all partitions, bytes and rates. The sum is 1.

    A partition whose replicas were often behind counts more, by the share of time in which they were.
    """
    return _mean_of_shares(1 + given.behind, given.sizes, given.rates)


def leader_weights(given: PlanInput) -> Floats:
    """[P] the load of leading a partition: the mean of its shares of all partitions and rates. The sum is 1.

    A partition that was often behind or without leader counts more, by the share of time in which it was.
    """
    return _mean_of_shares(1 + given.behind + given.without_leader, given.rates)


def _mean_of_shares(factors: Floats, *loads: Floats) -> Floats:
    """The mean of the shares of partitions and of those loads that are known, times a factor for each."""
    known = [np.ones(len(factors)), *(of for of in loads if of.sum() > 0)]
    weights = np.asarray(sum(of / of.sum() for of in known)) * factors
    return np.asarray(weights / max(weights.sum(), 1e-300))
