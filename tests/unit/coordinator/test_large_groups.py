"""A group of 10,000 members: it rebalances, is stored and loaded, and its members can all go."""

import asyncio

from tests.unit.coordinator.groups_room import GROUP, Room, play

from klamm.coordinator.requests import LeavingMember
from klamm.coordinator.states import EMPTY, STABLE
from klamm.model.errors import ErrorCode

MEMBERS = 10_000


def test_group_of_ten_thousand_members_rebalances_is_loaded_and_empties() -> None:
    async def body(room: Room) -> None:
        results = await room.stable(MEMBERS)
        assert [len(r.members) for r in results if r.members] == [MEMBERS]
        assert {room.heartbeat(result) for result in results} == {ErrorCode.NONE}
        assert len(room.groups.describe_group(GROUP).members) == MEMBERS

        room.groups._ownership.resigned(0, 1)
        other = room.restart()
        other.groups._ownership.elected(0, 2)
        await asyncio.sleep(1)
        assert (other.group().state, len(other.group().members)) == (STABLE, MEMBERS)

        left = other.groups.leave_group(GROUP, [LeavingMember(result.member_id) for result in results])
        assert set(left.members) == {ErrorCode.NONE}
        assert other.group().state is EMPTY
        await other.groups.close()

    play(body)
