"""LeaveGroup. Cases of GroupCoordinatorTest (3.9)."""

import asyncio

from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, Room, play

from klamm.coordinator.handlers.leaving import LeaveResult
from klamm.coordinator.requests import LeavingMember
from klamm.coordinator.states import DEAD, EMPTY
from klamm.model.errors import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def leave(room: Room, *members: LeavingMember) -> LeaveResult:
    return room.groups.leave_group(GROUP, members)


def test_a_member_that_leaves_is_removed_from_the_group_at_once() -> None:
    async def body(room: Room) -> None:
        first, second = await room.stable(2)
        assert leave(room, LeavingMember(first.member_id)) == (ErrorCode.NONE, (ErrorCode.NONE,))
        assert room.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS
        assert leave(room, LeavingMember(second.member_id)).members == (ErrorCode.NONE,)
        assert room.group().state is EMPTY

    play(body)


def test_leave_group_of_an_unknown_group_gets_unknown_member_id() -> None:
    async def body(room: Room) -> None:
        assert leave(room, LeavingMember("a"), LeavingMember("b")) == (ErrorCode.NONE, (UNKNOWN, UNKNOWN))

    play(body)


def test_leave_group_of_several_members_returns_the_own_error_code_of_each_member() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{number}") for number in range(2)]
        await asyncio.sleep(6.5)
        first, _ = await room.complete(joins)
        result = leave(
            room,
            LeavingMember("other", "i0"),
            LeavingMember("", "i1"),
            LeavingMember("", "i2"),
            LeavingMember(first.member_id, "i1"),
            LeavingMember("other"),
        )
        assert result.members == (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE, UNKNOWN, UNKNOWN, UNKNOWN)
        assert list(room.group().static_members) == ["i0"]

    play(body)


def test_the_waiting_join_group_of_a_member_is_answered_when_that_member_leaves() -> None:
    async def body(room: Room) -> None:
        waiting = room.join()
        await settle()
        [member_id] = room.group().members
        assert leave(room, LeavingMember(member_id)).members == (ErrorCode.NONE,)
        await settle()
        assert waiting.result().error is UNKNOWN

    play(body)


def test_a_given_member_id_can_leave_the_group_before_its_member_joins() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        given = await room.join_now(requires_known_member_id=True)
        again = room.join(member.member_id)
        await settle()
        assert leave(room, LeavingMember(given.member_id)).members == (ErrorCode.NONE,)
        await settle()
        assert len(again.result().members) == 1

    play(body)


def test_leave_group_of_a_moved_or_removed_group_is_refused() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.group().move(DEAD, 0)
        assert leave(room, LeavingMember(member.member_id)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        room.groups._ownership.resigned(0, 1)
        assert leave(room, LeavingMember(member.member_id)).error is ErrorCode.NOT_COORDINATOR
        assert room.groups.leave_group("", []).error is ErrorCode.INVALID_GROUP_ID

    play(body)
