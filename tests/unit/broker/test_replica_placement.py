"""Where the replicas of a new topic go."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.replica_placement import (
    PlacementRefused,
    _place_over_brokers,
    alternate_racks,
    place_more_replicas,
    place_replicas,
)
from klamm.model.ids import BrokerId


def brokers(count: int, racks: int = 0) -> dict[BrokerId, str | None]:
    return {BrokerId(n): f"r{n % racks}" if racks else None for n in range(count)}


def test_replicas_are_placed_like_the_example_in_kafkas_sources() -> None:
    # the table in the comment of AdminUtils.assignReplicasToBrokers: 10 partitions, 3 replicas, 5 brokers
    placed = _place_over_brokers([BrokerId(n) for n in range(5)], range(10), 3, start=0, shift=0)

    columns = [placed[p] for p in range(10)]
    assert [c[0] for c in columns] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert [c[1] for c in columns] == [1, 2, 3, 4, 0, 2, 3, 4, 0, 1]
    assert [c[2] for c in columns] == [2, 3, 4, 0, 1, 3, 4, 0, 1, 2]


@given(
    count=st.integers(1, 9),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_replica_placement_spreads_leaders_evenly_and_uses_a_broker_once_per_partition(
    count: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))

    placed = place_replicas(brokers(count), partitions, factor, random.Random(seed))

    leaders = Counter(replicas[0] for replicas in placed.values())
    assert sorted(placed) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1 or len(leaders) < count


@given(per_rack=st.integers(1, 4), racks=st.integers(2, 4), partitions=st.integers(1, 30), seed=st.integers(0, 99))
def test_replica_placement_uses_as_many_racks_per_partition_as_possible(
    per_rack: int, racks: int, partitions: int, seed: int
) -> None:
    members = brokers(per_rack * racks, racks)
    factor = min(3, len(members))

    placed = place_replicas(members, partitions, factor, random.Random(seed))

    for replicas in placed.values():
        assert len({members[b] for b in replicas}) == min(factor, racks)
        assert len(set(replicas)) == factor


def test_the_broker_list_for_replica_placement_alternates_between_racks() -> None:
    racks = {BrokerId(0): "a", BrokerId(1): "a", BrokerId(2): "a", BrokerId(3): "b", BrokerId(4): "c", BrokerId(5): "c"}

    assert alternate_racks(racks) == [0, 3, 4, 1, 5, 2]


def test_replica_placement_refuses_a_replication_factor_above_the_number_of_brokers() -> None:
    with pytest.raises(PlacementRefused, match="as many live brokers that may have replicas; there are 2"):
        place_replicas(brokers(2), 1, 3, random.Random(1))


def test_replica_placement_is_refused_where_only_some_brokers_have_a_rack() -> None:
    with pytest.raises(PlacementRefused, match=r"broker\.rack"):
        place_replicas({BrokerId(1): "a", BrokerId(2): None}, 1, 1, random.Random(1))


def test_replicas_of_added_partitions_continue_the_broker_rotation_of_existing_partitions() -> None:
    # Kafka's example again: partitions 5 to 9 begin at broker 1, whose index is the shift, too
    more = place_more_replicas(brokers(5), range(5, 8), 3, BrokerId(1))

    assert more == {5: (1, 4, 0), 6: (2, 0, 1), 7: (3, 1, 2)}


def test_placement_of_added_partitions_starts_at_the_next_broker_if_the_first_is_dead() -> None:
    alive: dict[BrokerId, str | None] = {BrokerId(n): None for n in (2, 5, 9)}

    assert place_more_replicas(alive, range(1, 2), 1, BrokerId(3)) == {1: (9,)}
    assert place_more_replicas(alive, range(1, 2), 1, BrokerId(10)) == {1: (5,)}
    with pytest.raises(PlacementRefused):
        place_more_replicas(alive, range(1, 2), 4, BrokerId(2))
