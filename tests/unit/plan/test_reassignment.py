"""Plans keep the replication factor, spread racks, and move no replica without need."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.reassignment import Goal, Plan, plan_moves

Assignment = Mapping[TopicPartition, tuple[BrokerId, ...]]


def at(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def assigned(*lists: str) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """One digit is one broker."""
    return {at(n): tuple(BrokerId(int(c)) for c in text) for n, text in enumerate(lists)}


def racks(text: str) -> dict[BrokerId, str | None]:
    """`1a 2b`, or `1 2` without racks."""
    return {BrokerId(int(word[0])): word[1:] or None for word in text.split()}


def planned(assignment: Assignment, goal: Goal) -> dict[int, str]:
    """The new replicas of each partition that changes."""
    plan = plan_moves(assignment, list(assignment), goal)
    return {p.partition: "".join(map(str, replicas)) for p, replicas in plan.moves.items()}


def test_a_plan_to_remove_a_broker_moves_only_that_brokers_replicas() -> None:
    assignment = assigned("123", "234", "124")

    assert planned(assignment, Goal(racks("1 2 4"), spread=False)) == {0: "124", 1: "214"}


def test_a_removed_brokers_preferred_leadership_goes_to_the_broker_with_fewest_leaders() -> None:
    assert planned(assigned("31", "32", "12"), Goal(racks("1 2 4"), spread=False)) == {0: "41", 1: "24"}


def test_a_plan_moves_a_replica_to_a_rack_without_a_replica_of_the_partition() -> None:
    assert planned(assigned("12"), Goal(racks("1a 3a 4b"), spread=False)) == {0: "14"}


def test_a_reassignment_plan_keeps_replicas_on_dead_brokers_and_adds_none_there() -> None:
    goal = Goal(racks("1 4"), kept=frozenset({BrokerId(2)}), spread=False)

    assert planned(assigned("123"), goal) == {0: "124"}


def test_a_spreading_plan_moves_an_equal_share_of_replicas_to_a_new_broker() -> None:
    assignment = assigned("12", "21", "12", "21", "12", "21")
    after = {**assignment, **plan_moves(assignment, list(assignment), Goal(racks("1 2 3"))).moves}

    assert Counter(b for replicas in after.values() for b in replicas) == {1: 4, 2: 4, 3: 4}


def test_a_spreading_plan_spreads_replicas_of_a_single_rack_over_all_racks() -> None:
    plan = plan_moves(assigned("12"), [at(0)], Goal(racks("1a 2a 3b")))

    assert {racks("1a 2a 3b")[b] for b in plan.moves[at(0)]} == {"a", "b"}
    assert plan.reasons[at(0)] == ["2 -> 3: rack a has another replica, rack b has none"]


def test_a_plan_with_a_new_replication_factor_adds_or_removes_replicas() -> None:
    assert planned(assigned("12"), Goal(racks("1 2 3"), 3, spread=False)) == {0: "123"}
    assert planned(assigned("123"), Goal(racks("1a 2b 3b"), 2, spread=False)) == {0: "12"}


def test_a_plan_with_a_lower_replication_factor_drops_removed_brokers_without_copying() -> None:
    plan = plan_moves(assigned("123", "312", "124"), [at(0), at(1), at(2)], Goal(racks("1 2"), 2, spread=False))

    assert [sorted(replicas) for replicas in plan.moves.values()] == [[1, 2], [1, 2], [1, 2]]
    assert plan.reasons[at(0)] == ["- 3: the broker is excluded, and the replication factor is 2"]


def test_a_plan_with_a_lower_replication_factor_keeps_the_preferred_leader() -> None:
    assert planned(assigned("14", "13", "12"), Goal(racks("1 2 3"), spread=False)) == {0: "12"}


@pytest.mark.parametrize(
    ("assignment", "goal", "why"),
    [
        (assigned("123"), Goal(racks("1 2"), spread=False), r"t-0 needs 3 brokers.*only 2.*INVALID_REPLICATION_FACTOR"),
        (assigned("12"), Goal(racks("1a 2")), r"Brokers 2 have no rack.*--disable-rack-aware"),
    ],
)
def test_an_impossible_reassignment_plan_is_rejected(assignment: Assignment, goal: Goal, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_moves(assignment, list(assignment), goal)


# ---- whatever the cluster looks like


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignment, Sequence[BrokerId], dict[BrokerId, str | None]]:
    """An assignment, all brokers, and those that may hold replicas with their racks."""
    brokers = [BrokerId(n) for n in range(draw(st.integers(2, 8)))]
    copies = draw(st.integers(1, len(brokers) - 1))
    lists = st.permutations(brokers).map(lambda order: tuple(order[:copies]))
    assignment = {at(n): replicas for n, replicas in enumerate(draw(st.lists(lists, min_size=1, max_size=25)))}
    allowed = draw(st.lists(st.sampled_from(brokers), min_size=copies, unique=True))
    has_racks = draw(st.booleans())
    named = {b: draw(st.sampled_from("abc")) if has_racks else None for b in allowed}
    return assignment, brokers, named


def after(assignment: Assignment, plan: Plan) -> Assignment:
    """The assignment after the plan."""
    return {**assignment, **plan.moves}


@given(clusters(), st.booleans())
def test_reassignment_plans_keep_the_replication_factor_and_use_only_allowed_brokers(
    cluster: tuple[Assignment, Sequence[BrokerId], dict[BrokerId, str | None]], spread: bool
) -> None:
    assignment, _, allowed = cluster
    plan = plan_moves(assignment, list(assignment), Goal(allowed, spread=spread))

    for p, replicas in after(assignment, plan).items():
        assert len(set(replicas)) == len(replicas) == len(assignment[p])
        assert set(replicas) <= set(allowed)
    assert plan.reasons.keys() == plan.moves.keys()
    assert all(plan.reasons.values())
    assert plan == plan_moves(assignment, list(reversed(list(assignment))), Goal(allowed, spread=spread))


@given(clusters(), st.integers(1, 7))
def test_a_plan_with_a_new_replication_factor_copies_as_few_replicas_as_possible(
    cluster: tuple[Assignment, Sequence[BrokerId], dict[BrokerId, str | None]], wanted: int
) -> None:
    assignment, _, allowed = cluster
    wanted = min(wanted, len(allowed))
    now = after(assignment, plan_moves(assignment, list(assignment), Goal(allowed, wanted, spread=False)))

    for p, before in assignment.items():
        stay = sum(b in allowed for b in before)
        assert len(set(now[p])) == len(now[p]) == wanted
        assert set(now[p]) <= set(allowed)
        assert len(set(now[p]) - set(before)) == max(0, wanted - stay)


@given(clusters())
def test_any_plan_to_remove_a_broker_moves_only_that_brokers_replicas(
    cluster: tuple[Assignment, Sequence[BrokerId], dict[BrokerId, str | None]],
) -> None:
    assignment, _, allowed = cluster
    plan = plan_moves(assignment, list(assignment), Goal(allowed, spread=False))

    for p, before in assignment.items():
        now = after(assignment, plan)[p]
        assert {b for b in before if b in allowed} <= set(now)
        if set(before) <= set(allowed):
            assert now == before


@given(clusters())
def test_a_spreading_plan_uses_all_racks_and_balances_replicas_per_broker(
    cluster: tuple[Assignment, Sequence[BrokerId], dict[BrokerId, str | None]],
) -> None:
    assignment, _, allowed = cluster
    now = after(assignment, plan_moves(assignment, list(assignment), Goal(allowed)))

    for replicas in now.values():
        assert len({allowed[b] for b in replicas}) == min(len(replicas), len(set(allowed.values())))
    if len(set(allowed.values())) == 1:
        held = Counter(dict.fromkeys(allowed, 0)) + Counter(b for r in now.values() for b in r)
        counts = [held[b] for b in allowed]
        assert max(counts) - min(counts) <= 1


def test_a_reassignment_plan_for_ten_thousand_partitions_balances_all_brokers() -> None:
    """Ten thousand partitions: each move is found without looking at all of them."""
    brokers = [BrokerId(n) for n in range(20)]
    assignment = {at(n): tuple(brokers[(n + k) % 18] for k in range(3)) for n in range(10_000)}
    now = after(assignment, plan_moves(assignment, list(assignment), Goal(dict.fromkeys(brokers))))

    held = Counter(b for r in now.values() for b in r)
    assert set(held.values()) == {1_500}
