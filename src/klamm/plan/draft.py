"""The assignment that a plan changes step by step, with the load of each broker and the reason of each change."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np

from klamm.plan.arrays import (
    NO_REPLICA,
    UNKNOWN_RACK,
    Bools,
    Floats,
    Ints,
    PlanInput,
    Slots,
    leader_weights,
    replica_weights,
)

ROUNDING: Final = 1e-12
"""What sums of loads may differ by, because they are rounded."""
PADDING_RACK: Final = -2
"""The rack of `NO_REPLICA`."""
_MAX_INT16: Final = 2**15 - 1


class Why(StrEnum):
    """Why a partition changes."""

    DRAINED = "drained"
    FACTOR = "factor"
    RACK = "rack"
    LOAD = "load"
    LEADERS = "leaders"


@dataclass(frozen=True, slots=True)
class Step:
    """Why partitions changed: arrays of equal length, one entry for each change of this kind."""

    why: Why
    partitions: Ints
    old: Ints
    """The broker that loses the replica, or is no longer first; `NO_REPLICA` where one is added."""
    new: Ints
    """The broker that gets it, or is first now; `NO_REPLICA` where one is dropped."""
    same_rack: tuple[Ints, Ints] | None = None
    """Of changes for racks: how many other replicas were in the rack of the old and of the new broker."""


@dataclass(slots=True)
class Plan:
    replicas: Ints
    """[P, R] the new assignment."""
    steps: list[Step] = field(default_factory=list)
    excess: Floats = field(default_factory=lambda: np.zeros(0))
    """[B] load of each broker before it is evened out, compared with its share: 0.1 is 10 % too much."""
    excess_led: Floats = field(default_factory=lambda: np.zeros(0))
    """[B] the same for the partitions that prefer it as leader, before leaders changed."""

    def changed(self, before: Ints) -> Ints:
        """The partitions whose assignment differs."""
        return np.flatnonzero((self.replicas != before).any(axis=1)).astype(np.int32)


class Draft:
    """A plan in the making. Plans are repeatable: chance comes from a fixed seed."""

    def __init__(self, given: PlanInput) -> None:
        self.given = given
        self.plan = Plan(given.replicas.copy())
        self.replicas = self.plan.replicas
        self.width = self.replicas.shape[1]
        self.racks = np.append(given.racks, PADDING_RACK)  # NO_REPLICA is the last one
        self.weights = replica_weights(given)
        self.led_weights = leader_weights(given)
        self.rng = np.random.default_rng(0)
        self.load = self.sums(self.replicas.ravel(), np.repeat(self.weights, self.width))
        self.led = self.sums(self.replicas[:, 0], self.led_weights)

    def sums(self, brokers: Ints, weights: Floats) -> Floats:
        """[B] the sum of weights by broker; `NO_REPLICA` does not count."""
        return np.asarray(np.bincount(brokers + 1, weights, len(self.given.ids) + 1)[1:], np.float64)

    # ---- shares

    def shares(self) -> Floats:
        """[B] the load that each broker should have; that of brokers that do not receive is what they have."""
        receives = self.given.receives
        return np.asarray(np.where(receives, self.load[receives].sum() / max(receives.sum(), 1), self.load))

    def shares_within_racks(self) -> Floats:
        """[B] the load that each broker should have if its rack keeps its load: racks may differ in brokers."""
        receives, racks = self.given.receives, self.given.racks + 1
        loads = np.bincount(racks, np.where(receives, self.load, 0.0))
        counts = np.maximum(np.bincount(racks, receives), 1)
        return np.asarray(np.where(receives, (loads / counts)[racks], self.load))

    def excess(self) -> Floats:
        """[B] the load compared with the share of a broker that receives."""
        receives = self.given.receives
        return np.asarray(self.load / max(self.load[receives].sum() / max(receives.sum(), 1), 1e-300) - 1)

    def led_shares(self) -> Floats:
        """[B] the load of leading that each broker should have; 0 where it may not receive, or has no replica."""
        holds = np.bincount(self.replicas.ravel() + 1, minlength=len(self.given.ids) + 1)[1:] > 0
        leading = np.where(self.given.receives & holds, self.given.leading, 0.0)
        return np.asarray(self.led[self.given.receives].sum() * leading / max(leading.sum(), 1e-300))

    def excess_led(self) -> Floats:
        """[B] the load of leading compared with the share."""
        return np.asarray(self.led / np.maximum(self.led_shares(), 1e-300) - 1)

    # ---- racks

    def beside_old(self, partitions: Any, columns: Any) -> Ints:
        """[moves] how many other replicas of its partition are in the rack of each of these replicas."""
        racks = self.racks[self.replicas[partitions]]
        return np.asarray((racks == racks[np.arange(len(racks)), columns][:, None]).sum(axis=1) - 1, np.int32)

    def beside_new(self, partitions: Any, columns: Any, targets: Ints) -> Ints:
        """[moves] how many replicas of its partition would be in the rack of each of these replicas' new brokers."""
        racks = self.racks[self.replicas[partitions]]
        old, new = racks[np.arange(len(racks)), columns], self.racks[targets]
        return np.asarray((racks == new[:, None]).sum(axis=1) - (old == new), np.int32)

    # ---- changes

    def move(self, slots: Slots, targets: Ints, most_beside: Ints, why: Why, free: Floats | None = None) -> int:
        """Move those replicas whose targets are allowed, at most one of each partition; return how many.

        A target is allowed if it has no replica of the partition, and its rack at most as many others as `most_beside`,
        [moves]. With `free`, [B], no broker gets more load than that.
        """
        has = targets != NO_REPLICA
        slots, targets, most_beside = slots[has], targets[has], most_beside[has]
        partitions, columns = slots // self.width, slots % self.width
        is_new = (self.replicas[partitions] != targets[:, None]).all(axis=1)
        allowed = np.flatnonzero(is_new & (self.beside_new(partitions, columns, targets) <= most_beside))
        _, first = np.unique(partitions[allowed], return_index=True)
        kept = allowed[first]
        if free is not None:
            kept = kept[fits(targets[kept], self.weights[partitions[kept]], free)]
        if len(kept):
            self.put(partitions[kept], columns[kept], targets[kept], why)
        return len(kept)

    def put(self, partitions: Any, columns: Any, targets: Ints, why: Why) -> None:
        """Put brokers in the place of these replicas, one of each partition, and record the step."""
        old = self.replicas[partitions, columns]
        same_rack = None
        if why is Why.RACK:
            same_rack = self.beside_old(partitions, columns), self.beside_new(partitions, columns, targets)
        self.replicas[partitions, columns] = targets
        self.load += self.sums(targets, self.weights[partitions]) - self.sums(old, self.weights[partitions])
        led = self.led_weights[partitions] * (columns == 0)
        self.led += self.sums(targets, led) - self.sums(old, led)
        self.plan.steps.append(Step(why, partitions.astype(np.int32), old, targets.astype(np.int32), same_rack))

    def put_first(self, partitions: Any, columns: Any) -> None:
        """Put the replicas in these columns first, and record the step."""
        rows = self.replicas[partitions]
        old, new = rows[:, 0], rows[np.arange(len(rows)), columns]
        numbers = np.arange(self.width)
        order = np.argsort(np.where(numbers == columns[:, None], -1, numbers), axis=1)
        self.replicas[partitions] = np.take_along_axis(rows, order, axis=1)
        led = self.led_weights[partitions]
        self.led += self.sums(new, led) - self.sums(old, led)
        self.plan.steps.append(Step(Why.LEADERS, partitions.astype(np.int32), old, new))

    def has_rack(self, slots: Slots) -> Bools:
        """Whether the rack of each of these replicas is known."""
        return np.asarray(self.racks[self.replicas.ravel()[slots]] > UNKNOWN_RACK)


def fits(groups: Ints, weights: Floats, most: Floats) -> Slots:
    """The entries, in the order of their groups, whose running sum of weights stays within the limit of their group."""
    narrow = groups.astype(np.int16) if len(most) <= _MAX_INT16 else groups  # numpy sorts 16 bits by radix
    order = np.argsort(narrow, kind="stable")
    sorted_groups, sums = groups[order], np.cumsum(weights[order])
    begins = np.flatnonzero(np.diff(sorted_groups, prepend=-2))
    before = np.repeat(np.append(0.0, sums)[begins], np.diff(np.append(begins, len(order))))
    return np.asarray(order[sums - before <= most[sorted_groups] + ROUNDING])
