"""SyncGroup and Heartbeat. Cases of GroupCoordinatorTest (3.9)."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, Room, play

from klamm.coordinator.requests import NO_GENERATION, JoinResult
from klamm.coordinator.states import DEAD, PREPARING_REBALANCE, STABLE
from klamm.coordinator.topic_partitions import Appended
from klamm.model.errors import ErrorCode


async def joined(room: Room, count: int = 2) -> list[JoinResult]:
    """The members of a generation whose assignment is missing."""
    joins = [room.join(client_id=str(number)) for number in range(count)]
    await asyncio.sleep(6.5)
    return [join.result() for join in joins]


@pytest.mark.parametrize("leader_first", [True, False])
def test_sync_group_gives_every_member_its_part_of_the_leaders_assignment(leader_first: bool) -> None:
    async def body(room: Room) -> None:
        leader, follower = await joined(room)
        parts = {leader.member_id: b"one", follower.member_id: b"two"}
        order = [(leader, parts), (follower, None)]
        syncs = {
            result.member_id: room.sync(result, sent) for result, sent in (order if leader_first else reversed(order))
        }
        await settle()
        assert {member_id: sync.result().assignment for member_id, sync in syncs.items()} == parts
        assert {s.result().protocol_name for s in syncs.values()} == {"range"}
        texts = {member_id: part.decode() for member_id, part in parts.items()}
        assert list(room.log.stored()) == [f"generation 1: {texts}"]

    play(body)


def test_a_member_missing_in_the_leaders_assignment_gets_an_empty_assignment() -> None:
    async def body(room: Room) -> None:
        leader, follower = await joined(room)
        sync = room.sync(follower)
        await room.sync(leader, {leader.member_id: b"all"})
        assert (sync.result().error, sync.result().assignment) == (ErrorCode.NONE, b"")

    play(body)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_group_with_a_wrong_member_generation_or_protocol_is_refused(
    changes: dict[str, Any], error: ErrorCode
) -> None:
    async def body(room: Room) -> None:
        [leader] = await joined(room, 1)
        assert (await room.sync(leader, **changes)).error is error

    play(body)


def test_sync_group_that_names_the_groups_protocol_is_accepted() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        assert (await room.sync(member, protocol_type="consumer", protocol_name="range")).assignment == b"0"

    play(body)


def test_sync_group_during_a_rebalance_gets_rebalance_in_progress() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.join()
        await settle()
        assert (await room.sync(member)).error is ErrorCode.REBALANCE_IN_PROGRESS

    play(body)


def test_a_second_sync_group_of_a_member_ends_the_wait_of_its_first() -> None:
    async def body(room: Room) -> None:
        leader, follower = await joined(room)
        first = room.sync(follower)
        await settle()
        second = room.sync(follower)
        await room.sync(leader, {follower.member_id: b"two"})
        assert first.result().error is ErrorCode.REBALANCE_IN_PROGRESS
        assert second.result().assignment == b"two"

    play(body)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_group_assignment_that_cannot_be_stored_starts_another_rebalance(
    failure: ErrorCode, error: ErrorCode
) -> None:
    async def body(room: Room) -> None:
        leader, follower = await joined(room)
        room.log.errors = [failure]
        syncs = [room.sync(follower), room.sync(leader, {})]
        await settle()
        assert [s.result().error for s in syncs] == [error, error]
        assert room.group().state is PREPARING_REBALANCE

    play(body)


def test_members_get_the_group_assignment_only_after_its_record_is_stored() -> None:
    async def body(room: Room) -> None:
        [leader] = await joined(room, 1)
        room.log.held = []
        sync = room.sync(leader, {})
        await asyncio.sleep(1)
        assert not sync.done()
        room.log.release()
        await settle()
        assert sync.result().error is ErrorCode.NONE
        assert room.group().state is STABLE

    play(body)


def test_an_assignment_stored_after_its_generation_ended_changes_nothing() -> None:
    async def body(room: Room) -> None:
        [leader] = await joined(room, 1)
        room.log.held = []
        sync = room.sync(leader, {leader.member_id: b"late"})
        await settle()
        new = room.join()
        await settle()
        assert sync.result().error is ErrorCode.REBALANCE_IN_PROGRESS
        room.log.release()
        await settle()
        assert room.group().state is PREPARING_REBALANCE
        assert [m.assignment for m in room.group().members.values()] == [b"", b""]
        new.cancel()

    play(body)


# ---- heartbeats


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": NO_GENERATION}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_heartbeat_with_a_wrong_member_or_generation_gets_kafkas_error(
    changes: dict[str, Any], error: ErrorCode
) -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        assert room.heartbeat(member, **changes) is error

    play(body)


def test_a_heartbeat_during_completing_rebalance_is_accepted() -> None:
    async def body(room: Room) -> None:
        [leader] = await joined(room, 1)
        assert room.heartbeat(leader) is ErrorCode.NONE

    play(body)


def test_a_heartbeat_of_a_removed_group_gets_coordinator_not_available() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.group().move(DEAD, 0)
        assert room.heartbeat(member) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await room.sync(member)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(body)


def test_a_member_without_heartbeats_is_removed_while_a_member_with_heartbeats_stays() -> None:
    async def body(room: Room) -> None:
        silent, alive = await room.stable(2)
        for _ in range(2):
            await asyncio.sleep(4)
            assert room.heartbeat(alive) is ErrorCode.NONE
        await asyncio.sleep(3)
        assert room.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.heartbeat(alive) is ErrorCode.REBALANCE_IN_PROGRESS

    play(body)


def test_an_offset_commit_extends_the_members_session() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        for _ in range(5):
            await asyncio.sleep(7)
            await room.commit({}, member_id=member.member_id, generation=1)
        assert room.heartbeat(member) is ErrorCode.NONE

    play(body)


def test_sync_group_requests_in_a_stable_group_extend_the_members_session() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        for _ in range(5):
            await asyncio.sleep(7)
            assert (await room.sync(member)).assignment == b"0"

    play(body)


def test_group_requests_while_loading_make_members_retry_or_rejoin() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        other = room.restart()

        async def never(*_: object) -> Appended:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        room.log.read = never  # type: ignore[method-assign, assignment]
        other.groups._ownership.elected(0, 1)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert other.heartbeat(member) is ErrorCode.NONE
        assert (await other.sync(member)).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await other.join_now(member.member_id)).error is loading
        assert other.groups.describe_group(GROUP).error is loading
        assert other.groups.fetch_offsets(GROUP, None, require_stable=False)[0] is loading
        assert (await other.groups.list_groups([], []))[0] is loading
        await other.groups.close()

    play(body)
