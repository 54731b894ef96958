"""Even out the load of brokers, and the load of leading, by as few moves as possible."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from klamm.plan.arrays import NO_REPLICA, Bools, Floats, Ints, Slots
from klamm.plan.draft import ROUNDING, Draft, Why, fits

MAX_ROUNDS: Final = 60
MAX_IDLE_ROUNDS: Final = 4
_MAX_COMPARISONS: Final = 500_000_000
_MIN_PAIRS, _MAX_PAIRS = 100, 20_000
"""Single moves look at all replicas for each pair of brokers; a large cluster is even before them."""
_POOL_FACTOR: Final = 4.0
"""Rounds look at so many times the load that a broker gives away; at all of it when that does not suffice."""


def even_out_replicas(draft: Draft, tolerance: float) -> None:
    """Move replicas from brokers above their share of the load to those below it, until all are within `tolerance`.

    In the rack of the new broker are at most as many other replicas of the partition as in the rack of the old one.
    """
    draft.plan.excess = draft.excess()
    _move_in_rounds(draft, draft.shares_within_racks, tolerance, within_racks=True)  # most moves keep the rack
    _move_in_rounds(draft, draft.shares, tolerance, within_racks=False)
    _move_one_by_one(draft, tolerance)


def even_out_leaders(draft: Draft, tolerance: float, candidates: Bools) -> None:
    """Put other replicas of the partitions in the mask `candidates` first where this evens out the load of leading."""
    draft.plan.excess_led = draft.excess_led()
    if draft.width == 1:
        return
    idle = 0
    for _ in range(MAX_ROUNDS):
        shares = draft.led_shares()
        if idle >= MAX_IDLE_ROUNDS or _is_even(_led_surplus(draft, shares), shares, tolerance):
            break
        idle = 0 if _swap_leaders(draft, _led_surplus(draft, shares), candidates) else idle + 1
    _swap_one_by_one(draft, tolerance, candidates)


def _is_even(surplus: Floats, shares: Floats, tolerance: float) -> bool:
    """Whether each broker is within the tolerance of its share."""
    return bool((np.abs(surplus) <= tolerance * shares + ROUNDING).all())


# ---- replicas


def _move_in_rounds(draft: Draft, shares_now: Callable[[], Floats], tolerance: float, *, within_racks: bool) -> None:
    """Move replicas, the heaviest first, in rounds, as long as no broker goes beyond its share."""
    by_weight = np.argsort(-draft.weights, kind="stable")
    by_weight = by_weight[draft.given.movable[by_weight]]
    first = draft.rng.integers(0, draft.width, len(by_weight))  # of one partition only one replica moves in a round
    columns = (first + column for column in range(draft.width))
    slots = np.concatenate([by_weight * draft.width + column % draft.width for column in columns])
    idle, pool = 0, slots
    for number in range(MAX_ROUNDS):
        shares = shares_now()
        surplus = draft.load - shares
        if idle >= MAX_IDLE_ROUNDS or _is_even(surplus, shares, tolerance):
            return
        if idle:
            slots = draft.rng.permutation(slots)
        if number == 0 or idle:
            pool = _of_givers(draft, slots, surplus, _POOL_FACTOR)
        chosen = _of_givers(draft, pool, surplus)
        pool = np.setdiff1d(pool, chosen, assume_unique=True)  # what cannot move now will not in the next round
        chosen, free = draft.rng.permutation(chosen), np.maximum(-surplus, 0.0)
        targets = _targets(draft, chosen, free, same_rack=within_racks or number % 2 == 0)
        most_beside = draft.beside_old(chosen // draft.width, chosen % draft.width)
        idle = 0 if draft.move(chosen, targets, most_beside, Why.LOAD, free) else idle + 1


def _of_givers(draft: Draft, slots: Slots, surplus: Floats, factor: float = 1.0) -> Slots:
    """The first replicas of each broker above its share: in sum its surplus, or `factor` times as much."""
    givers, weights = draft.replicas.ravel()[slots], draft.weights[slots // draft.width]
    light = np.flatnonzero(weights <= np.append(surplus, 0.0)[givers] + ROUNDING)
    chosen = fits(givers[light], weights[light], np.append(surplus, 0.0) * factor)
    return slots[light[np.sort(chosen)]]


def _targets(draft: Draft, slots: Slots, free: Floats, *, same_rack: bool) -> Ints:
    """A receiver for each replica, within its rack or anywhere, until the free loads are used up."""
    weights = draft.weights[slots // draft.width]
    receivers = np.flatnonzero(free > 0)
    if not same_rack:
        return spread(weights, free, receivers, draft.rng)
    targets = np.full(len(slots), NO_REPLICA, np.int32)
    racks = draft.racks[draft.replicas.ravel()[slots]]
    for rack in np.unique(racks):
        of = racks == rack
        targets[of] = spread(weights[of], free, receivers[draft.given.racks[receivers] == rack], draft.rng)
    return targets


def spread(weights: Floats, free: Floats, receivers: Slots, rng: np.random.Generator) -> Ints:
    """A receiver for each weight, in proportion to their free loads; `NO_REPLICA` when these are used up."""
    receivers = rng.permutation(receivers)
    at = np.searchsorted(np.cumsum(free[receivers]), np.cumsum(weights) - weights / 2)
    return np.append(receivers, NO_REPLICA)[np.minimum(at, len(receivers))].astype(np.int32)


def _move_one_by_one(draft: Draft, tolerance: float) -> None:
    """Move single replicas between brokers that differ by more than its load, where rounds found nothing more."""

    def surplus_and_shares() -> tuple[Floats, Floats]:
        """What each broker has above its share, and the shares."""
        shares = draft.shares()
        return draft.load - shares, shares

    _for_uneven_pairs(draft, surplus_and_shares, tolerance, lambda *pair: _move_between(draft, *pair))


def _for_uneven_pairs(
    draft: Draft,
    surplus_and_shares: Callable[[], tuple[Floats, Floats]],
    tolerance: float,
    even_out: Callable[[int, int, float], bool],
) -> None:
    """Even out pairs of brokers, the most uneven first, until no pair can be evened out any more."""
    left = int(np.clip(_MAX_COMPARISONS / draft.replicas.size, _MIN_PAIRS, _MAX_PAIRS))
    changes = True
    while changes and left > 0:
        changes = False
        for pair in _uneven_pairs(*surplus_and_shares(), draft.given.receives, tolerance):
            left -= 1
            changes = even_out(*pair)
            if changes or left <= 0:
                break


def _move_between(draft: Draft, giver: int, receiver: int, difference: float) -> bool:
    """Move the replica that best evens out two brokers. Whether there is one."""
    partitions, columns = np.nonzero(draft.replicas == giver)
    lighter = draft.given.movable[partitions] & (draft.weights[partitions] < difference - ROUNDING)
    partitions, columns = partitions[lighter], columns[lighter]
    order = np.argsort(np.abs(draft.weights[partitions] - difference / 2), kind="stable")
    partitions, columns = partitions[order], columns[order]
    targets = np.full(len(partitions), receiver, np.int32)
    most_beside = draft.beside_old(partitions, columns)
    allowed = (draft.beside_new(partitions, columns, targets) <= most_beside) & (
        draft.replicas[partitions] != receiver
    ).all(axis=1)
    if not allowed.any():
        return False
    first = np.flatnonzero(allowed)[:1]
    draft.put(partitions[first], columns[first], targets[first], Why.LOAD)
    return True


def _uneven_pairs(
    surplus: Floats, shares: Floats, receives: Bools, tolerance: float
) -> Iterator[tuple[int, int, float]]:
    """Brokers with more and less of which one is beyond the tolerance, and the difference; the largest first."""
    order = np.flatnonzero(receives)
    order = order[np.argsort(surplus[order], kind="stable")]
    is_beyond = np.abs(surplus) > tolerance * shares + ROUNDING
    for giver in order[::-1].tolist():
        for receiver in order.tolist():
            difference = float(surplus[giver] - surplus[receiver])
            if difference <= ROUNDING:
                break
            if is_beyond[giver] or is_beyond[receiver]:
                yield giver, receiver, difference


# ---- leaders


def _led_surplus(draft: Draft, shares: Floats) -> Floats:
    """[B] what each broker leads above its share; brokers that do not receive keep what they lead."""
    return np.asarray(np.where(draft.given.receives, draft.led - shares, 0.0))


def _swap_leaders(draft: Draft, surplus: Floats, candidates: Bools) -> bool:
    """One round: who leads too much gives leaders to the replicas that lead too little. Whether any changed."""
    surplus = np.append(surplus, 0.0)  # of NO_REPLICA
    free = np.maximum(-surplus, 0.0)
    first = draft.replicas[:, 0]
    chosen = draft.rng.permutation(np.flatnonzero(candidates & (draft.led_weights <= surplus[first] + ROUNDING)))
    offered = free[draft.replicas[chosen, 1:]]
    columns = (offered * draft.rng.uniform(0.5, 1.0, offered.shape)).argmax(axis=1) + 1
    targets = draft.replicas[chosen, columns]
    weights = draft.led_weights[chosen]
    kept = np.flatnonzero(weights <= free[targets] + ROUNDING)
    kept = kept[fits(first[chosen[kept]], weights[kept], surplus)]
    kept = kept[fits(targets[kept], weights[kept], free)]
    if len(kept):
        draft.put_first(chosen[kept], columns[kept])
    return bool(len(kept))


def _swap_one_by_one(draft: Draft, tolerance: float, candidates: Bools) -> None:
    """Put single replicas first where brokers differ by more than the load of leading the partition."""

    def surplus_and_shares() -> tuple[Floats, Floats]:
        """What each broker leads above its share, and the shares."""
        shares = draft.led_shares()
        return _led_surplus(draft, shares), shares

    _for_uneven_pairs(draft, surplus_and_shares, tolerance, lambda *pair: _swap_between(draft, candidates, *pair))


def _swap_between(draft: Draft, candidates: Bools, giver: int, receiver: int, difference: float) -> bool:
    """Put a replica of `receiver` in place of `giver` that best evens out the two. Whether there is one."""
    led = np.flatnonzero((draft.replicas[:, 0] == giver) & candidates & (draft.led_weights < difference - ROUNDING))
    rows, columns = np.nonzero(draft.replicas[led] == receiver)
    if not len(rows):
        return False
    best = np.argmin(np.abs(draft.led_weights[led[rows]] - difference / 2))
    draft.put_first(led[rows[best : best + 1]], columns[best : best + 1])
    return True
