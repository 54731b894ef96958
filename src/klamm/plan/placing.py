"""What a plan must change: replicas on drained brokers, replication factors, replicas that could be in more racks.

Each new replica goes to a rack with the fewest other replicas of its partition, and there to the brokers with the least
load.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from klamm.model.errors import ErrorCode, UsageError
from klamm.plan.arrays import NO_REPLICA, UNKNOWN_RACK, Floats, Ints, PlanInput, Slots
from klamm.plan.draft import Draft, Why

MAX_IDLE_ROUNDS: Final = 3
"""After so many rounds in which no replica found a place, each gets one by itself."""
_CHUNK: Final = 1 << 17
"""Replicas that get places at once: the next ones take their load into account."""
_MIN_BATCH, _BATCHES = 256, 64
"""Replicas are dropped in so many batches, each of at least so many partitions."""
_NOWHERE: Final = 1 << 30


def check_brokers_suffice(given: PlanInput) -> None:
    """Raise UsageError for the first partition that has fewer allowed brokers than it needs."""
    counts = given.receives.sum()
    stays = np.append(~given.receives & ~given.drained, False)[given.replicas].sum(axis=1)
    short = np.flatnonzero(given.movable & (given.wanted > counts + stays))
    if len(short):
        at = short[0]
        raise UsageError(
            f"{given.names[at]} needs {given.wanted[at]} brokers for its {given.wanted[at]} replicas, but only "
            f"{counts + stays[at]} are allowed ({ErrorCode.INVALID_REPLICATION_FACTOR.name}). Allow more brokers, or "
            "lower --replication-factor."
        )


def drop_surplus(draft: Draft) -> None:
    """Drop replicas above the wanted factor: those on drained brokers first, then on dead ones, then in full racks.

    The preferred leader is dropped only from a drained or dead broker.
    """
    while True:
        rows = np.flatnonzero(draft.given.movable & ((draft.replicas != NO_REPLICA).sum(axis=1) > draft.given.wanted))
        if not len(rows):
            return
        batch = max(_MIN_BATCH, len(rows) // _BATCHES)
        rows = draft.rng.permutation(rows)
        for begin in range(0, len(rows), batch):
            _drop_one_of_each(draft, rows[begin : begin + batch])


def _drop_one_of_each(draft: Draft, rows: Slots) -> None:
    """Drop one replica of each of these partitions."""
    there = draft.replicas[rows]
    is_drained = np.append(draft.given.drained, False)[there]
    racks = draft.racks[there]
    doubles = np.where(racks > UNKNOWN_RACK, (racks[:, :, None] == racks[:, None, :]).sum(axis=2), 0)
    load = np.append(draft.load / max(draft.load.max(), 1e-300), 0.0)[there]
    is_dead = ~np.append(draft.given.alive, True)[there]
    rank = 4.0 * draft.width * is_dead + 2 * doubles + load
    rank += np.arange(draft.width) * 1e-6  # of equal ones the last
    rank[:, 0] = np.where(is_dead[:, 0], rank[:, 0], -1.0)
    rank = np.where(there == NO_REPLICA, -2.0, np.where(is_drained, 8.0 * draft.width, rank))
    columns = rank.argmax(axis=1)
    dropped = is_drained[np.arange(len(rows)), columns]
    for of, why in ((dropped, Why.DRAINED), (~dropped, Why.FACTOR)):
        if of.any():
            draft.put(rows[of], columns[of], np.full(of.sum(), NO_REPLICA, np.int32), why)
    _close_gaps(draft, rows)


def _close_gaps(draft: Draft, rows: Slots) -> None:
    """Move replicas to the front where one before them was dropped; the first of them is the new preferred leader."""
    there = draft.replicas[rows]
    order = np.argsort(there == NO_REPLICA, axis=1, kind="stable")
    closed = np.take_along_axis(there, order, axis=1)
    led = draft.led_weights[rows] * (there[:, 0] == NO_REPLICA)
    draft.led += draft.sums(closed[:, 0], led)
    draft.replicas[rows] = closed


def drain(draft: Draft) -> None:
    """Move all movable replicas off the drained brokers. Raises UsageError."""
    drained, movable = np.append(draft.given.drained, False), draft.given.movable[:, None]
    place(draft, lambda: np.flatnonzero(drained[draft.replicas] & movable), Why.DRAINED)


def raise_factor(draft: Draft) -> None:
    """Add replicas where there are fewer than wanted, after the others. Raises UsageError."""

    def next_free() -> Slots:
        """The place after the replicas of each partition that lacks some."""
        counts = (draft.replicas != NO_REPLICA).sum(axis=1)
        rows = np.flatnonzero(draft.given.movable & (counts < draft.given.wanted))
        return np.asarray(rows * draft.width + counts[rows])

    place(draft, next_free, Why.FACTOR)


def spread_over_racks(draft: Draft) -> None:
    """Move replicas out of racks with several of them to racks with fewer, until this spreads them no more."""
    if len(np.unique(draft.given.racks[draft.given.receives])) < 2:
        return
    for _ in range(draft.width):
        slots = _crowded(draft)
        if not len(slots):
            return
        for begin in range(0, len(slots), _CHUNK):
            chunk = slots[begin : begin + _CHUNK]
            draft.move(chunk, *_targets(draft, chunk), Why.RACK)


def _crowded(draft: Draft) -> Slots:
    """The replicas, one of each partition, that would have fewer others beside them in another rack."""
    racks = np.sort(draft.racks[draft.replicas], axis=1)
    doubled = ((np.diff(racks, axis=1) == 0) & (racks[:, 1:] > UNKNOWN_RACK)).any(axis=1)
    rows = np.flatnonzero(draft.given.movable & doubled)
    slots = (rows[:, None] * draft.width + np.arange(draft.width)).ravel()
    slots = slots[draft.has_rack(slots)]
    slots = slots[draft.beside_old(slots // draft.width, slots % draft.width) > 0]
    if not len(slots):
        return np.asarray(slots)
    _, _, fewest = _racks_beside(draft, slots)
    slots = slots[fewest < draft.beside_old(slots // draft.width, slots % draft.width)]
    heaviest = draft.load[draft.replicas.ravel()[slots]] * draft.rng.uniform(0.5, 1.0, len(slots))
    slots = slots[np.argsort(-heaviest, kind="stable")]
    _, first = np.unique(slots // draft.width, return_index=True)
    return np.asarray(slots[first])


# ---- places


def place(draft: Draft, slots_now: Callable[[], Slots], why: Why) -> None:
    """Put an allowed broker into each of these slots. Raises UsageError where there is none.

    A replica whose rack is known never goes to a rack with more others than are in its own.
    """
    idle = 0
    while len(slots := draft.rng.permutation(slots_now())):
        if idle >= MAX_IDLE_ROUNDS:
            for slot in np.sort(slots):
                _place_one(draft, np.array([slot]), why)
            continue
        placed = 0
        for begin in range(0, len(slots), _CHUNK):
            chunk = slots[begin : begin + _CHUNK]
            placed += draft.move(chunk, *_targets(draft, chunk), why)
        idle = 0 if placed else idle + 1


def _place_one(draft: Draft, slot: Slots, why: Why) -> None:
    """Put the allowed broker with the least load into this slot. Raises UsageError."""
    partition, column = slot // draft.width, slot % draft.width
    beside, _, fewest = _racks_beside(draft, slot)
    is_worse = draft.has_rack(slot)[0] and fewest[0] > draft.beside_old(partition, column)[0]
    receivers = np.flatnonzero(draft.given.receives)
    receivers = receivers[~np.isin(receivers, draft.replicas[partition[0]])]
    receivers = receivers[beside[0, _rack_columns(draft, receivers)] == fewest[0]]
    if is_worse:
        name, old = draft.given.names[partition[0]], draft.given.broker_text(draft.replicas[partition[0], column[0]])
        raise UsageError(
            f"{name} cannot leave {old}: there is no other broker that keeps its racks as spread out. Add a broker in "
            "the same rack, or pass --disable-rack-aware."
        )
    target = receivers[np.argmin(draft.load[receivers])]
    draft.put(partition, column, np.array([target], np.int32), why)


def _rack_columns(draft: Draft, brokers: Slots) -> Slots:
    """The column of each broker's rack in `_racks_beside`."""
    known = np.unique(draft.given.racks[draft.given.receives])
    return np.searchsorted(known, draft.given.racks[brokers])


def _racks_beside(draft: Draft, slots: Slots) -> tuple[Ints, Ints, Ints]:
    """How many other replicas are in each rack, how many brokers are free there, and the fewest of the first.

    Shapes: [slots, racks that receive] twice; [slots] for the fewest in racks with a free broker.
    """
    known, brokers_of = np.unique(draft.given.racks[draft.given.receives], return_counts=True)
    column_of = np.full(len(draft.racks), -1)
    column_of[:-1] = np.where(np.isin(draft.given.racks, known), np.searchsorted(known, draft.given.racks), -1)
    receives = np.append(draft.given.receives, False)
    beside = np.zeros((len(slots), len(known)), np.int32)
    free = np.tile(brokers_of.astype(np.int32), (len(slots), 1))
    rows, numbers = draft.replicas[slots // draft.width], np.arange(len(slots))
    for column in range(draft.width):
        brokers = rows[:, column]
        at = column_of[brokers]
        others = (at >= 0) & (slots % draft.width != column)
        beside[numbers[others], at[others]] += 1
        taken = (at >= 0) & receives[brokers]
        free[numbers[taken], at[taken]] -= 1
    return beside, free, np.where(free > 0, beside, _NOWHERE).min(axis=1)


def _targets(draft: Draft, slots: Slots) -> tuple[Ints, Ints]:
    """A broker for each slot, and how many others may be in its rack; `NO_REPLICA` where no rack is allowed.

    Loads of brokers rise to one level, first among racks, then among the brokers of each.
    """
    weights = draft.weights[slots // draft.width]
    known = np.unique(draft.given.racks[draft.given.receives])
    beside, free, fewest = _racks_beside(draft, slots)
    receivers = np.flatnonzero(draft.given.receives)
    rises = np.zeros(len(draft.given.ids))
    rises[receivers] = _rises(draft.load[receivers], weights.sum())
    of_rack = np.array([rises[receivers][draft.given.racks[receivers] == rack].sum() for rack in known])
    chance = np.where((beside == fewest[:, None]) & (free > 0), of_rack + weights.sum() * 1e-9, 0.0)
    chosen = (chance * -1.0 / np.log(draft.rng.uniform(1e-12, 1.0 - 1e-12, chance.shape))).argmax(axis=1)
    targets = np.full(len(slots), NO_REPLICA, np.int32)
    for column, rack in enumerate(known.tolist()):
        of = np.flatnonzero(chosen == column)
        if len(of):
            inside = draft.rng.permutation(receivers[draft.given.racks[receivers] == rack])
            ends = np.cumsum(_rises(draft.load[inside], weights[of].sum()))
            at = np.searchsorted(ends, np.cumsum(weights[of]) - weights[of] / 2)
            targets[of] = inside[np.minimum(at, len(inside) - 1)]
    is_worse = draft.has_rack(slots) & (fewest > draft.beside_old(slots // draft.width, slots % draft.width))
    return np.where(is_worse, NO_REPLICA, targets).astype(np.int32), fewest


def _rises(loads: Floats, more: float) -> Floats:
    """How much each load gets when `more` is distributed so that always the lowest load is raised first."""
    rising = np.sort(loads)
    levels = (more + np.cumsum(rising)) / np.arange(1, len(rising) + 1)
    last = np.flatnonzero(levels >= rising)[-1]
    return np.asarray(np.maximum(levels[last] - loads, 0.0))
