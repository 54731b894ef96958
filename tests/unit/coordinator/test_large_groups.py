"""Groups of 10,000 members, and groups and commits larger than the log accepts."""

import asyncio
from unittest.mock import patch

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, Room, play

from klamm.coordinator import offsets_topic
from klamm.coordinator.requests import LeavingMember
from klamm.coordinator.states import EMPTY, STABLE
from klamm.model.errors import ErrorCode

MEMBERS = 10_000
LIMIT = 1_000


def test_a_group_of_ten_thousand_members_rebalances_is_loaded_and_becomes_empty() -> None:
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


@pytest.mark.parametrize("of_metadata", [LIMIT, 0])
def test_a_group_over_the_maximum_record_size_is_refused_without_building_the_record(of_metadata: int) -> None:
    async def body(room: Room) -> None:
        room.log.max_bytes = LIMIT
        join = room.join(protocols=(("range", b"m" * of_metadata),))
        await asyncio.sleep(room.settings.group_initial_rebalance_delay_ms / 1000 + 0.5)
        result = await join
        with patch.object(offsets_topic, "build_batch", side_effect=AssertionError):
            sync = room.sync(result, {result.member_id: b"a" * (LIMIT + 1 - of_metadata)})
            await settle()
        assert (await sync).error is ErrorCode.UNKNOWN_SERVER_ERROR

    play(body)


def test_a_group_of_exactly_the_maximum_record_size_is_stored() -> None:
    async def body(room: Room) -> None:
        join = room.join(protocols=(("range", b"m" * LIMIT),))
        await asyncio.sleep(room.settings.group_initial_rebalance_delay_ms / 1000 + 0.5)
        result = await join
        room.log.max_bytes = LIMIT + 1
        assert (await room.sync(result, {result.member_id: b"a"})).error is ErrorCode.NONE

    play(body)


def test_an_offset_commit_over_the_maximum_batch_size_is_refused_without_building_the_batch() -> None:
    async def body(room: Room) -> None:
        room.log.max_bytes = 10
        with patch.object(offsets_topic, "build_batch", side_effect=AssertionError):
            assert await room.commit({P0: 5}) == {P0: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert room.fetch([P0]) == {P0: -1}

    play(body)
