"""Committing, fetching and deleting offsets. Cases of GroupCoordinatorTest, GroupMetadataTest (3.9)."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.handlers.offsets import CommitRequest
from klamm.coordinator.states import DEAD
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.messages import ConsumerProtocolSubscription

SUBSCRIBED = (("range", b"\x00\x00" + ConsumerProtocolSubscription(topics=("orders",)).encode(0)),)
NONE = ErrorCode.NONE


def test_an_offset_commit_is_stored_for_a_group_without_members() -> None:
    async def body(room: Room) -> None:
        assert await room.commit({P0: 5, P1: 7}) == {P0: NONE, P1: NONE}
        assert room.fetch([P0, P1, TopicPartition("x", 0)]) == {P0: 5, P1: 7, TopicPartition("x", 0): -1}
        assert room.fetch() == {P0: 5, P1: 7}
        assert list(room.log.stored()) == ["orders-0: 5", "orders-1: 7"]
        assert room.log.acks == [-1]

    play(body)


def test_offset_fetch_of_an_unknown_group_returns_minus_one_or_no_partitions() -> None:
    async def body(room: Room) -> None:
        assert room.fetch([P0]) == {P0: -1}
        assert room.fetch() == {}

    play(body)


def test_an_offset_commit_with_a_generation_to_an_unknown_group_is_refused() -> None:
    async def body(room: Room) -> None:
        assert await room.commit({P0: 5}, generation=1, member_id="m") == {P0: ErrorCode.ILLEGAL_GENERATION}

    play(body)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),  # a consumer without a group commits to one that has members
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "other", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "MINE", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "MINE", "generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "MINE", "generation": 1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "MINE", "generation": 1}, ErrorCode.NONE),
    ],
)
def test_an_offset_commit_to_a_group_with_members_must_come_from_a_current_member(
    changes: dict[str, Any], error: ErrorCode
) -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        mine = {"member_id": member.member_id} if changes.get("member_id") == "MINE" else {}
        assert await room.commit({P0: 5}, **(changes | mine)) == {P0: error}

    play(body)


def test_an_offset_commit_with_the_old_id_of_a_static_member_is_fenced() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(instance_id="i")
        await room.join_now(instance_id="i")
        errors = await room.commit({P0: 5}, member_id=member.member_id, instance_id="i", generation=1)
        assert errors == {P0: ErrorCode.FENCED_INSTANCE_ID}

    play(body)


def test_an_offset_commit_is_accepted_while_members_rejoin_but_not_before_the_assignment() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.join()
        await settle()
        assert await room.commit({P0: 5}, member_id=member.member_id, generation=1) == {P0: NONE}
        room.join(member.member_id)
        await settle()
        errors = await room.commit({P0: 6}, member_id=member.member_id, generation=2)
        assert errors == {P0: ErrorCode.REBALANCE_IN_PROGRESS}

    play(body)


def test_a_group_that_became_empty_accepts_offset_commits_without_a_member_id() -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await asyncio.sleep(11)
        assert await room.commit({P0: 5}, generation=0) == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert await room.commit({P0: 5}) == {P0: NONE}

    play(body)


def test_an_offset_commit_to_a_removed_group_gets_coordinator_not_available() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        room.group().move(DEAD, 0)
        assert await room.commit({P0: 5}) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert room.fetch([P0]) == {P0: -1}

    play(body)


def test_an_offset_commit_refuses_too_large_metadata_only_for_its_partition() -> None:
    async def body(room: Room) -> None:
        offsets = {P0: Offset(1, metadata="x" * 4096), P1: Offset(1, metadata="x" * 4097)}
        errors = await room.groups.commit_offsets(CommitRequest(GROUP, offsets))
        assert errors == {P0: NONE, P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert room.fetch() == {P0: 1}

    play(body)


def test_the_size_of_offset_metadata_is_counted_in_utf_16_units_as_java_counts_characters() -> None:
    async def body(room: Room) -> None:
        offsets = {P0: Offset(1, metadata="\N{CAT FACE}" * 2048), P1: Offset(1, metadata="\N{CAT FACE}" * 2049)}
        errors = await room.groups.commit_offsets(CommitRequest(GROUP, offsets))
        assert errors == {P0: NONE, P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}

    play(body)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_offset_commit_that_cannot_be_stored_leaves_the_committed_offset_unchanged(
    failure: ErrorCode, error: ErrorCode
) -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        room.log.errors = [failure]
        assert await room.commit({P0: 6}) == {P0: error}
        assert room.fetch(require_stable=True) == {P0: 5}

    play(body)


# ---- visible only once replicated


def test_an_offset_commit_is_visible_after_its_replication() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        commit = asyncio.ensure_future(room.commit({P0: 5}))
        await settle()
        assert room.fetch([P0]) == {P0: -1}
        assert room.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        room.log.release()
        assert await commit == {P0: NONE}
        assert room.fetch([P0], require_stable=True) == {P0: 5}

    play(body)


def test_the_later_of_two_offset_commits_wins_in_any_order_of_their_acknowledgements() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        commits = [asyncio.ensure_future(room.commit({P0: offset})) for offset in (5, 6)]
        await settle()
        room.log.release(1)
        await settle()
        assert room.fetch() == {P0: 6}
        room.log.release(0)
        await settle()
        assert room.fetch(require_stable=True) == {P0: 6}
        assert all(commit.done() for commit in commits)

    play(body)


def test_an_earlier_offset_commit_stays_when_a_later_commit_fails() -> None:
    async def body(room: Room) -> None:
        room.log.held, room.log.errors = [], [NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
        commits = [asyncio.ensure_future(room.commit({P0: offset})) for offset in (5, 6)]
        await settle()
        room.log.release(1)
        await settle()
        room.log.release(0)
        await settle()
        assert [c.result()[P0] for c in commits] == [NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert room.fetch(require_stable=True) == {P0: 5}

    play(body)


def test_an_offset_commit_is_stored_even_if_its_client_disconnects() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        group_exists = asyncio.ensure_future(room.commit({P0: 5}))
        await settle()
        room.log.release()
        await group_exists
        room.groups._ownership.resigned(0, 1)
        assert (await room.commit({P0: 6}))[P0] is ErrorCode.NOT_COORDINATOR

    play(body)


# ---- deletion


def test_deleting_the_last_offset_of_an_empty_group_deletes_the_group() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, P1: 7})
        assert await room.groups.delete_offsets(GROUP, [P0]) == (NONE, {P0: NONE})
        assert room.fetch() == {P1: 7}
        assert await room.groups.delete_offsets(GROUP, [P1]) == (NONE, {P1: NONE})
        assert room.groups.describe_group(GROUP).state == "Dead"
        assert list(room.log.stored())[2:] == ["orders-0: removed", "orders-1: removed"]
        assert room.groups.counts.offset_deletions == 2

    play(body)


def test_offset_delete_refuses_offsets_of_topics_to_which_the_group_is_subscribed() -> None:
    async def body(room: Room) -> None:
        other = TopicPartition("other", 0)
        [member] = await room.stable(protocols=SUBSCRIBED)
        await room.commit({P0: 5, other: 7}, member_id=member.member_id, generation=1)
        errors = (await room.groups.delete_offsets(GROUP, [P0, other]))[1]
        assert errors == {P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: NONE}
        assert room.fetch() == {P0: 5}

    play(body)


def test_offset_delete_refuses_a_group_with_unreadable_subscriptions() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocols=(("range", b"garbage"),))
        await room.commit({P0: 5}, member_id=member.member_id, generation=1)
        assert (await room.groups.delete_offsets(GROUP, [P0]))[1] == {P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    play(body)


def test_offset_delete_of_a_group_without_consumer_protocol_requires_an_empty_group() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocol_type="connect")
        await room.commit({P0: 5}, member_id=member.member_id, generation=1)
        assert (await room.groups.delete_offsets(GROUP, [P0]))[0] is ErrorCode.NON_EMPTY_GROUP
        await asyncio.sleep(11)
        assert await room.groups.delete_offsets(GROUP, [P0]) == (NONE, {P0: NONE})

    play(body)


def test_offset_delete_of_an_unknown_group_is_refused() -> None:
    async def body(room: Room) -> None:
        assert (await room.groups.delete_offsets(GROUP, [P0]))[0] is ErrorCode.GROUP_ID_NOT_FOUND

    play(body)


def test_offset_delete_of_a_removed_group_is_refused() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        room.group().move(DEAD, 0)
        assert (await room.groups.delete_offsets(GROUP, [P0]))[0] is ErrorCode.GROUP_ID_NOT_FOUND

    play(body)


# ---- what is special about groups without members


def test_an_offset_commit_is_stored_for_the_group_with_the_empty_name() -> None:
    async def body(room: Room) -> None:
        assert await room.commit({P0: 5}, group_id="") == {P0: NONE}
        assert room.fetch(group_id="") == {P0: 5}
        assert room.groups.describe_group("").state == "Empty"
        assert await room.groups.delete_groups([""]) == {"": NONE}
        assert (await room.groups.delete_offsets("", [P0]))[0] is ErrorCode.INVALID_GROUP_ID

    play(body)


def test_an_offset_commit_without_a_generation_to_an_empty_group_may_name_any_member() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        assert await room.commit({P0: 6}, member_id="any", instance_id="i") == {P0: NONE}

    play(body)


def test_an_offset_commit_with_only_too_large_metadata_stores_nothing() -> None:
    async def body(room: Room) -> None:
        errors = await room.groups.commit_offsets(CommitRequest(GROUP, {P0: Offset(1, metadata="x" * 4097)}))
        assert errors == {P0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert room.log.records() == []

    play(body)
