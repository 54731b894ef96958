"""Clusters for tests of plans: made by hand, or drawn."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from klamm.model.ids import TopicPartition
from klamm.plan.arrays import NO_REPLICA, UNKNOWN_RACK, Ints, PlanInput
from klamm.plan.planner import TOLERANCE, Extent, make_plan

RACKS = "abcdefghijkl"


def cluster(
    rows: Sequence[Sequence[int]],
    racks: Sequence[int],
    sizes: Sequence[float] = (),
    rates: Sequence[float] = (),
    factor: int | None = None,
) -> PlanInput:
    """Live brokers with these racks, partitions with these replicas; `factor` is the one wanted of all."""
    wanted = [factor or len(row) for row in rows]
    width, count, zeros = max([*map(len, rows), *wanted]), len(racks), [0.0] * len(rows)
    return PlanInput(
        ids=np.arange(count, dtype=np.int32),
        racks=np.array(racks, np.int32),
        alive=np.ones(count, bool),
        receives=np.ones(count, bool),
        drained=np.zeros(count, bool),
        replicas=np.array([[*row, *[NO_REPLICA] * (width - len(row))] for row in rows], np.int32),
        wanted=np.array(wanted, np.int32),
        movable=np.ones(len(rows), bool),
        sizes=np.array(sizes or zeros),
        rates=np.array(rates or zeros),
        behind=np.zeros(len(rows)),
        without_leader=np.zeros(len(rows)),
        leading=np.ones(count),
        names=[TopicPartition("t", number) for number in range(len(rows))],
        rack_names=RACKS,
    )


def only(
    given: PlanInput, drained: Collection[int] = (), dead: Collection[int] = (), excluded: Collection[int] = ()
) -> PlanInput:
    """The cluster with brokers that receive nothing, or that lose all they have."""
    gone, away, out = (np.isin(given.ids, list(of)) for of in (drained, dead, excluded))
    has_racks = len(set(given.racks.tolist())) > 1
    racks = np.where(away & has_racks, UNKNOWN_RACK, given.racks).astype(np.int32)
    return replace(given, drained=gone, alive=~away, receives=~(gone | away | out), racks=racks)


def drained(given: PlanInput, *brokers: int) -> PlanInput:
    return only(given, drained=brokers)


def planned(given: PlanInput, extent: Extent = Extent.BALANCE, tolerance: float = TOLERANCE, **changes: Any) -> Ints:
    return make_plan(replace(given, **changes), extent, tolerance).replicas


def lists(replicas: Ints) -> list[tuple[int, ...]]:
    """The assignment as lists of brokers."""
    return [tuple(b for b in row if b != NO_REPLICA) for row in replicas.tolist()]


def held(replicas: Ints, brokers: int) -> list[int]:
    """How many replicas each broker has."""
    return [int((replicas == broker).sum()) for broker in range(brokers)]


def led(replicas: Ints, brokers: int) -> list[int]:
    """How many partitions prefer each broker as leader."""
    return [int((replicas[:, 0] == broker).sum()) for broker in range(brokers)]


def copied(before: Ints, after: Ints) -> int:
    """How many replicas are on brokers that had none of the partition."""
    return sum(len(set(new) - set(old)) for old, new in zip(lists(before), lists(after), strict=True))


@st.composite
def clusters(draw: st.DrawFn) -> PlanInput:
    """Up to 12 brokers in racks or not, some dead, drained or excluded; up to 60 partitions of different factors."""
    count = draw(st.integers(1, 12))
    racks = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)) if draw(st.booleans()) else [0] * count
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [
        rng.choice(count, rng.integers(1, min(count, 5), endpoint=True), replace=False).tolist()
        for _ in range(draw(st.integers(1, 60)))
    ]
    factor = draw(st.sampled_from([None, None, 1, 2, 3]))
    movable = rng.random(len(rows)) < 0.9
    given = cluster(rows, racks, np.exp(rng.uniform(0, 9, len(rows))).tolist(), factor=factor)
    states = np.array(draw(st.lists(st.sampled_from("aaaadex"), min_size=count, max_size=count)))
    named = only(given, *(np.flatnonzero(states == state).tolist() for state in "dxe"))
    return replace(
        named,
        movable=movable,
        wanted=np.where(movable, given.wanted, list(map(len, rows))).astype(np.int32),
        rates=given.sizes * draw(st.sampled_from([0.0, 0.001])),
        behind=rng.random(len(rows)) * draw(st.sampled_from([0.0, 1.0])),
        without_leader=rng.random(len(rows)) * draw(st.sampled_from([0.0, 1.0])),
        leading=rng.uniform(0.5, 1.0, count) if draw(st.booleans()) else given.leading,
    )
