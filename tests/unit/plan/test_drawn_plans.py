"""Plans of drawn clusters: what never breaks, what never gets worse, and how much may move."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as cases
from hypothesis import strategies as st
from tests.unit.plan.clusters import clusters, copied, lists

from klamm.model.errors import UsageError
from klamm.plan.arrays import NO_REPLICA, UNKNOWN_RACK, Floats, Ints, PlanInput, leader_weights, replica_weights
from klamm.plan.planner import Extent, make_plan, reasons
from klamm.plan.waves import WaveLimits, plan_waves

extents = st.sampled_from(Extent)


def plan_of(given: PlanInput, extent: Extent) -> Ints:
    """The new assignment; clusters that have no place for a replica do not count."""
    try:
        return make_plan(given, extent).replicas
    except UsageError:
        assume(False)
        raise


def spread(racks: Ints, row: tuple[int, ...]) -> tuple[int, int]:
    """How many racks have a replica, and minus the most replicas in one rack."""
    of = [int(racks[b]) for b in row]
    return len(set(of)), -max(of.count(rack) for rack in of)


def loads(given: PlanInput, replicas: Ints) -> Floats:
    """The load of each broker that receives."""
    weights = np.repeat(replica_weights(given), replicas.shape[1])
    return np.asarray(np.bincount(replicas.ravel() + 1, weights, len(given.ids) + 1)[1:][given.receives], np.float64)


@cases(clusters(), extents)
def test_plans_lead_to_the_wanted_factor_on_allowed_brokers(given: PlanInput, extent: Extent) -> None:
    after = plan_of(given, extent)

    for number, (old, new) in enumerate(zip(lists(given.replicas), lists(after), strict=True)):
        assert len(new) == (len(old) if extent is Extent.LEADERS else given.wanted[number])
        assert len(set(new)) == len(new)
        assert after[number].tolist() == [*new, *[NO_REPLICA] * (after.shape[1] - len(new))]
        assert all(given.receives[b] for b in set(new) - set(old))
        assert new == old or given.movable[number]
        if extent is Extent.LEADERS:
            assert sorted(new) == sorted(old)
        elif given.movable[number]:
            assert not any(given.drained[b] for b in new)


@cases(clusters(), extents)
def test_no_partition_gets_a_leader_that_may_not_receive(given: PlanInput, extent: Extent) -> None:
    after = plan_of(given, extent)

    for old, new in zip(lists(given.replicas), lists(after), strict=True):
        left = [b for b in old if b in new]
        assert new[0] in old[:1] or given.receives[new[0]] or new[0] in left


@cases(clusters(), extents)
def test_plans_leave_racks_as_spread_out_or_better(given: PlanInput, extent: Extent) -> None:
    after = plan_of(given, extent)

    for old, new, wanted in zip(lists(given.replicas), lists(after), given.wanted, strict=True):
        if len(old) == wanted and all(given.racks[b] != UNKNOWN_RACK for b in old):
            assert all(a >= b for a, b in zip(spread(given.racks, new), spread(given.racks, old), strict=True))


@cases(clusters())
def test_a_balanced_plan_uses_as_many_racks_as_it_can(given: PlanInput) -> None:
    after = plan_of(given, Extent.BALANCE)

    racks = set(given.racks[given.receives].tolist())
    for row, is_movable in zip(lists(after), given.movable, strict=True):
        if is_movable and given.receives[list(row)].all():
            assert spread(given.racks, row)[0] == min(len(row), len(racks))


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few drawn clusters have one rack and nothing to do
@cases(clusters(), st.booleans())
def test_a_balanced_plan_never_loads_the_most_loaded_broker_more(given: PlanInput, is_exact: bool) -> None:
    nothing_required = (
        not given.drained.any() and given.replicas.shape[1] == (given.replicas != NO_REPLICA).sum(1).max()
    )
    assume(given.receives.any() and nothing_required and len(set(given.racks.tolist())) == 1)
    assume((given.wanted == [len(row) for row in lists(given.replicas)]).all())
    after = make_plan(given, tolerance=0.0 if is_exact else 0.05).replicas

    before, now = loads(given, given.replicas), loads(given, after)
    assert now.max() <= before.max() + 1e-9
    assert (now**2).sum() <= (before**2).sum() + 1e-9
    surplus = np.maximum(before - before.mean(), 0).sum()
    moved = replica_weights(given) @ np.array(
        [len(set(new) - set(old)) for old, new in zip(lists(given.replicas), lists(after), strict=True)]
    )
    largest = replica_weights(given).max()
    assert moved <= surplus + len(given.ids) * largest + 1e-9


@cases(clusters())
def test_leaders_alone_never_raise_the_most_that_a_broker_leads_above_its_share(given: PlanInput) -> None:
    after = plan_of(given, Extent.LEADERS)

    holds = np.array([(given.replicas == broker).any() for broker in range(len(given.ids))]) & given.receives
    assume(holds.any())
    weights = leader_weights(given)
    before, now = (np.bincount(of[:, 0], weights, len(given.ids))[holds] for of in (given.replicas, after))
    shares = before.sum() * given.leading[holds] / given.leading[holds].sum()
    assert now.sum() == pytest.approx(before.sum())
    assert (now - shares).max() <= (before - shares).max() + 1e-9


@cases(clusters())
def test_what_is_required_moves_and_nothing_else(given: PlanInput) -> None:
    after = plan_of(given, Extent.REQUIRED)

    required = 0
    for old, wanted, is_movable in zip(lists(given.replicas), given.wanted.tolist(), given.movable, strict=True):
        stay = [b for b in old if not given.drained[b]] if is_movable else old
        required += max(0, wanted - len(stay))
    assert copied(given.replicas, after) == required
    for number, (old, new) in enumerate(zip(lists(given.replicas), lists(after), strict=True)):
        if len(old) == given.wanted[number] and not given.drained[list(old)].any():
            assert new == old


@cases(clusters(), extents)
def test_every_change_has_a_reason_and_every_plan_is_the_same_again(given: PlanInput, extent: Extent) -> None:
    after = plan_of(given, extent)
    plan = make_plan(given, extent)

    assert (plan.replicas == after).all()
    told = {partition for partition, _ in reasons(plan, given)}
    assert set(plan.changed(given.replicas).tolist()) <= told


@cases(clusters(), st.integers(1, 5), st.floats(1, 20_000))
def test_the_waves_of_a_plan_contain_each_change_once_and_keep_the_limits(
    given: PlanInput, moves: int, most_bytes: float
) -> None:
    after = plan_of(given, Extent.BALANCE)
    changed = np.flatnonzero((after != given.replicas).any(axis=1)).astype(np.int32)
    sizes = given.sizes.tolist()
    waves = plan_waves(changed, given.replicas, after, sizes, WaveLimits(moves, int(most_bytes)))
    assert sorted(at for wave in waves for at in wave) == changed.tolist()
    for wave in waves:
        copies, counts = [], dict.fromkeys(range(len(given.ids)), 0)
        for at in wave:
            targets = set(after[at].tolist()) - set(given.replicas[at].tolist()) - {NO_REPLICA}
            copies += [sizes[at] * len(targets)] * bool(targets)
            for broker in {*targets, int(given.replicas[at, 0])} if targets else ():
                counts[broker] += 1
        assert sum(copies) <= int(most_bytes) or len(copies) == 1
        assert max(counts.values()) <= moves or len(copies) == 1
