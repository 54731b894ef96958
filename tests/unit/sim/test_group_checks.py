"""What the tier of whole nodes takes for two owners of a partition, or for a commit that had to be refused."""

from types import SimpleNamespace
from typing import cast

import pytest

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.groups import (
    commits_of_former_generations_are_refused,
    every_partition_is_owned,
    partitions_have_one_owner,
)
from klamm.sim.cluster_tier.invariants.rest import FinalRead, RestingCluster
from klamm.sim.cluster_tier.trace import Assigned, CommitEnded, MemberGone
from klamm.sim.history.history import History

A, B = TopicPartition("t1", 0), TopicPartition("t1", 1)


def history_of(*assigned: Assigned) -> TierHistory:
    history = TierHistory(History(), {})
    for event in assigned:
        history.on_assigned(event)
    return history


@pytest.mark.parametrize(
    ("generation", "member", "partitions", "is_allowed"),
    [
        (3, "m2", (B,), True),
        (3, "m2", (A, B), False),
        (3, "m1", (A,), True),
        (4, "m2", (A,), True),
    ],
)
def test_a_partition_with_two_owners_in_one_group_generation_is_a_violation(
    generation: int, member: str, partitions: tuple[TopicPartition, ...], is_allowed: bool
) -> None:
    history = history_of(Assigned("g", 3, "m1", (A,), 1.0))
    event = Assigned("g", generation, member, partitions, 2.0)

    assert (partitions_have_one_owner(history, event) is None) is is_allowed
    history.on_destroyed(OFFSETS_TOPIC, 0)
    assert partitions_have_one_owner(history, event) is None


@pytest.mark.parametrize(
    ("generation", "began_s", "is_stored", "is_allowed"),
    [(3, 6.0, True, False), (3, 6.0, False, True), (3, 4.0, True, True), (4, 6.0, True, True), (-1, 6.0, True, True)],
)
def test_an_offset_commit_accepted_after_a_newer_generation_began_is_a_violation(
    generation: int, began_s: float, is_stored: bool, is_allowed: bool
) -> None:
    history = history_of(Assigned("g", 3, "m1", (A,), 1.0), Assigned("g", 4, "m2", (A,), 5.0))
    event = CommitEnded("g", A, 7, is_stored, generation, began_s)

    assert (commits_of_former_generations_are_refused(history, event) is None) is is_allowed


def test_the_simulation_keeps_a_newer_offset_commit_when_an_older_response_arrives_late() -> None:
    history = history_of()
    history.on_commit_ended(CommitEnded("g", A, 9, True, 4, 2.0))
    history.on_commit_ended(CommitEnded("g", A, 7, True, 3, 1.0))

    assert history.commits["g", A].stored == 9


def test_a_partition_of_a_groups_topic_without_an_owner_at_the_end_is_a_violation() -> None:
    tier = history_of(Assigned("g", 3, "m1", (A, B), 1.0), Assigned("g", 4, "m2", (A,), 5.0))
    reads = {A: FinalRead(), B: FinalRead(), TopicPartition("t2", 0): FinalRead()}
    resting = SimpleNamespace(tier=tier, subscriptions={"g": "t1"}, final_reads=reads)
    cluster = cast(RestingCluster, resting)
    assert every_partition_is_owned(cluster) == "g: nobody owns t1-1 in generation 4, the newest"

    tier.on_assigned(Assigned("g", 4, "m3", (B,), 5.0))
    assert every_partition_is_owned(cluster) is None

    tier.on_assigned(Assigned("g", 2, "m4", (B,), 9.0))
    assert every_partition_is_owned(cluster) == "g: nobody owns t1-0 in generation 2, the newest"
    tier.on_assigned(Assigned("g", 2, "m2", (A,), 9.0))
    assert every_partition_is_owned(cluster) is None

    tier.on_member_gone(MemberGone("g", "m2"))
    assert every_partition_is_owned(cluster) == "g: nobody owns t1-0 in generation 2, the newest"

    resting.subscriptions = {"unknown": "t1"}
    assert every_partition_is_owned(cluster) == "unknown: no member was ever assigned anything"


def test_members_of_an_earlier_generation_with_the_same_number_are_no_other_members() -> None:
    """After a power loss a coordinator may count generations from less."""
    former, alone = Assigned("g", 3, "m2", (), 13.4), Assigned("g", 3, "m1", (A,), 46.7)
    other = Assigned("g", 3, "m3", (), 46.8)

    assert not history_of(former, alone).has_other_members(alone)
    history = history_of(former, alone, other)
    assert history.has_other_members(alone)
    history.on_member_gone(MemberGone("g", "m3"))
    assert not history.has_other_members(alone)
