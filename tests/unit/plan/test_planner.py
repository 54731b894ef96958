"""Plans: what each goal brings about, and the reason of each change."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from tests.unit.plan.clusters import cluster, copied, drained, held, led, lists, only, planned

from klamm.model.errors import UsageError
from klamm.plan.arrays import UNKNOWN_RACK, PlanInput, replica_weights
from klamm.plan.planner import Extent, make_plan, reasons

REQUIRED, LEADERS = Extent.REQUIRED, Extent.LEADERS


def reasons_of(given: PlanInput, extent: Extent = Extent.BALANCE) -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for partition, reason in reasons(make_plan(given, extent), given):
        found.setdefault(partition, []).append(reason)
    return found


# ---- balance


def test_a_new_broker_gets_its_share_and_the_others_keep_the_rest() -> None:
    before = cluster([(n % 3, (n + 1) % 3) for n in range(60)], [0] * 4)
    after = planned(before)

    assert max(held(after, 4)) - min(held(after, 4)) <= 2
    assert copied(before.replicas, after) <= 31
    assert max(led(after, 4)) - min(led(after, 4)) <= 2


def test_brokers_of_one_rack_share_what_the_rack_has() -> None:
    after = planned(cluster([(0, 1, 2)] * 40, [0, 1, 2, 0]))

    assert held(after, 4)[1:3] == [40, 40]
    assert abs(held(after, 4)[0] - held(after, 4)[3]) <= 2


def test_without_tolerance_brokers_differ_by_one_replica_and_one_leader_at_most() -> None:
    after = planned(cluster([(0, 1)] * 7 + [(1, 0)] * 4, [0] * 5), tolerance=0.0)

    assert sorted(held(after, 5)) == [4, 4, 4, 5, 5]
    assert sorted(led(after, 5)) == [2, 2, 2, 2, 3]


def test_ten_thousand_partitions_are_even_over_new_brokers_without_tolerance() -> None:
    after = planned(cluster([tuple((n + k) % 18 for k in range(3)) for n in range(10_000)], [0] * 20), tolerance=0.0)

    assert set(held(after, 20)) == {1_500}
    assert led(after, 20) == pytest.approx([500] * 20, abs=1)


def test_sizes_and_rates_count() -> None:
    before = cluster([(0,), (0,), (0,), (1,)], [0, 0], sizes=[900, 50, 50, 1], rates=[9, 1, 1, 1])
    after = planned(before)

    weights = replica_weights(before)
    loads = [weights[after[:, 0] == broker].sum() for broker in (0, 1)]
    assert max(loads) < weights[before.replicas[:, 0] == 0].sum()
    assert after[0, 0] == 0  # the largest is more than what its broker has too much


def test_a_plan_gives_brokers_that_failed_fewer_leaders() -> None:
    before = cluster([(n % 2, 1 - n % 2) for n in range(60)], [0, 0])
    after = planned(before, leading=np.array([1.0, 0.5]))

    assert led(after, 2) == pytest.approx([40, 20], abs=2)
    assert held(after, 2) == [60, 60]


def test_replicas_in_one_rack_are_spread_over_all_racks_with_the_reason() -> None:
    given = cluster([(0, 1)], [0, 0, 1])

    assert [sorted(row) for row in lists(planned(given))] in ([[0, 2]], [[1, 2]])
    [[reason, *_]] = reasons_of(given).values()
    assert reason.endswith("-> 2: rack a has 1 other, rack b has 0")


def test_three_replicas_in_one_of_two_racks_become_two_and_one() -> None:
    after = planned(cluster([(0, 1, 2, 3)] * 8, [0, 0, 0, 0, 1, 1]))

    assert all(sum(b >= 4 for b in row) == 2 for row in lists(after))


def test_replicas_that_are_spread_over_racks_stay() -> None:
    assert make_plan(cluster([(0, 1, 3, 4)], [0, 0, 0, 1, 1, 1]), tolerance=10.0).steps == []


def test_a_plan_with_leaders_only_copies_no_replica() -> None:
    after = planned(cluster([(0, 1, 2)] * 30, [0, 1, 2]), LEADERS)

    assert led(after, 3) == [10, 10, 10]
    assert [sorted(row) for row in lists(after)] == [[0, 1, 2]] * 30


# ---- brokers that are removed


def test_removing_a_broker_moves_only_its_replicas() -> None:
    given = drained(cluster([(0, 1, 2), (1, 2, 3), (0, 1, 3)], [0] * 4), 2)

    assert lists(planned(given, REQUIRED)) == [(0, 1, 3), (1, 0, 3), (0, 1, 3)]


def test_the_leaders_of_a_removed_broker_go_to_the_brokers_with_the_fewest() -> None:
    given = drained(cluster([(2, 0), (2, 1), (0, 1)], [0] * 4), 2)

    assert lists(planned(given, REQUIRED)) == [(3, 0), (1, 3), (0, 1)]


def test_a_removed_broker_has_nothing_and_the_rest_is_even() -> None:
    after = planned(drained(cluster([(n % 4, (n + 1) % 4) for n in range(60)], [0] * 4), 3))

    assert held(after, 4)[3] == led(after, 4)[3] == 0
    assert max(held(after, 4)[:3]) - min(held(after, 4)[:3]) <= 4


def test_a_replica_of_a_removed_broker_goes_to_a_rack_without_a_replica() -> None:
    given = drained(cluster([(0, 1)] * 9, [0, 0, 0, 1]), 1)

    assert lists(planned(given, REQUIRED)) == [(0, 3)] * 9


def test_a_replica_of_a_dead_broker_goes_to_the_rack_with_the_fewest() -> None:
    given = drained(cluster([(0, 1, 2)] * 9, [UNKNOWN_RACK, 1, 2, 1, 3]), 0)

    assert held(planned(given, REQUIRED), 5)[4] == 9


def test_replicas_on_dead_brokers_stay_and_none_are_added_there() -> None:
    given = only(cluster([(0, 1, 2)], [0] * 5), drained=[2], dead=[1], excluded=[3])

    assert lists(planned(given, REQUIRED)) == [(0, 1, 4)]


@pytest.mark.parametrize("extent", [Extent.BALANCE, Extent.LEADERS])
def test_partitions_with_a_replica_on_a_dead_broker_are_not_evened_out(extent: Extent) -> None:
    """Their reassignment could not end; the others are evened out."""
    given = only(cluster([(0, 1, 2)] * 6 + [(0, 1, 3)] * 6, [0] * 5), dead=[2])

    after = lists(planned(given, extent))

    assert after[:6] == [(0, 1, 2)] * 6
    assert after[6:] != [(0, 1, 3)] * 6


def test_brokers_that_are_not_allowed_do_not_count_as_racks() -> None:
    """Rack 2 goes: two replicas share a rack of the rest, although before no two did."""
    given = only(cluster([(0, 1, 2)] * 6, [0, 1, UNKNOWN_RACK, 0, 1]), drained=[2])

    assert Counter(tuple(sorted(b % 3 for b in row)) for row in lists(planned(given))) == {(0, 0, 1): 3, (0, 1, 1): 3}


# ---- replication factors


def test_a_higher_replication_factor_adds_replicas_in_other_racks() -> None:
    assert lists(planned(cluster([(0, 1)], [0, 0, 0], factor=3), REQUIRED)) == [(0, 1, 2)]
    assert lists(planned(cluster([(0,)] * 5, [0, 0, 1], factor=2), REQUIRED)) == [(0, 2)] * 5
    assert reasons_of(cluster([(0,)], [0, 0, 0], factor=3), REQUIRED)[0][0] in (
        "+ 1: the replication factor is 3", "+ 2: the replication factor is 3",
    )  # fmt: skip


def test_a_lower_replication_factor_drops_replicas_in_full_racks_but_never_the_preferred_leader() -> None:
    assert lists(planned(cluster([(0, 1, 2)], [0, 1, 1], factor=2), REQUIRED)) == [(0, 1)]
    assert lists(planned(cluster([(0, 1, 2)] * 3, [0, 0, 1], factor=2), REQUIRED)) == [(0, 2)] * 3
    assert lists(planned(cluster([(0, 1), (0, 2), (0, 3)], [0] * 4, factor=1), REQUIRED)) == [(0,)] * 3
    assert reasons_of(cluster([(0, 1)], [0, 0], factor=1), REQUIRED) == {0: ["- 1: the replication factor is 1"]}


def test_a_lower_replication_factor_drops_replicas_on_removed_brokers_without_copying() -> None:
    given = drained(cluster([(0, 1, 2), (2, 0, 1), (0, 1, 3)], [0] * 4, factor=2), 2, 3)

    assert [sorted(row) for row in lists(planned(given, REQUIRED))] == [[0, 1]] * 3
    assert reasons_of(given, REQUIRED)[0] == ["- 2: the broker is drained, and the replication factor is 2"]


def test_a_lower_replication_factor_drops_replicas_on_dead_brokers() -> None:
    given = only(cluster([(0, 1, 2)] * 9, [0, 0, 1], factor=2), dead=[2])

    assert lists(planned(given, REQUIRED)) == [(0, 1)] * 9


def test_a_lower_replication_factor_never_keeps_a_dead_broker_in_place_of_a_live_one() -> None:
    """Neither as preferred leader, nor as the one that follows it."""
    given = only(cluster([(0, 1, 2)], [0] * 3, factor=1), dead=[0])
    after_a_drained_one = only(cluster([(0, 1, 2)], [0] * 3, factor=1), drained=[0], dead=[1])

    assert lists(planned(given, REQUIRED))[0] in ((1,), (2,))
    assert lists(planned(after_a_drained_one, REQUIRED)) == [(2,)]


def test_replicas_that_a_lower_replication_factor_drops_leave_brokers_even() -> None:
    given = cluster([(n % 2, 2, 3) for n in range(2_000)], [0] * 4, factor=2)

    assert held(planned(given, REQUIRED), 4) == pytest.approx([1_000] * 4, abs=40)


# ---- what cannot be


def test_a_replica_that_would_reduce_the_spread_over_racks_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"t-0 cannot leave broker 1: there is no other .* keeps its racks as spread"):
        make_plan(drained(cluster([(0, 1, 2)], [0, 1, 2, 0]), 1))


@pytest.mark.parametrize(
    "given", [drained(cluster([(0, 1), (2, 0)], [0, 0, 0]), 1, 2), cluster([(0,)], [0, 0], factor=3)]
)
def test_too_few_brokers_are_refused(given: PlanInput) -> None:
    with pytest.raises(UsageError, match=r"t-0 needs \d brokers .* only \d are allowed \(INVALID_REPLICATION_FACTOR\)"):
        make_plan(given, REQUIRED)


# ---- reasons


def test_each_change_has_a_reason() -> None:
    given = drained(cluster([(0, 1)] * 20, [0] * 4), 1)
    found = reasons_of(given)

    assert set(make_plan(given).changed(given.replicas).tolist()) <= set(found)
    texts = [text for of in found.values() for text in of]
    assert "1 -> 2: broker 1 is drained" in texts
    assert any(text.startswith("leader ") or "of its share of the load broker 0 has" in text for text in texts)
