"""JoinGroup: who may join, and what a member is answered. Cases of GroupCoordinatorTest (3.9)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import RANGE, Room, play

from klamm.coordinator.requests import JoinedMember
from klamm.coordinator.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode

ROUND_ROBIN = (("roundrobin", b"\x00\x00"),)


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_join_group_with_a_session_timeout_outside_the_configured_range_is_refused(session_timeout_ms: int) -> None:
    async def body(room: Room) -> None:
        result = await room.join_now(session_timeout_ms=session_timeout_ms)
        assert result.error is ErrorCode.INVALID_SESSION_TIMEOUT

    play(body)


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_join_group_with_the_smallest_or_largest_session_timeout_is_accepted(session_timeout_ms: int) -> None:
    async def body(room: Room) -> None:
        assert (await room.join(session_timeout_ms=session_timeout_ms)).error is ErrorCode.NONE

    play(body)


def test_join_group_with_a_member_id_for_an_unknown_group_is_refused() -> None:
    async def body(room: Room) -> None:
        assert (await room.join_now("m")).error is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_join_group_with_an_empty_group_id_is_refused() -> None:
    async def body(room: Room) -> None:
        assert (await room.join_now(group_id="")).error is ErrorCode.INVALID_GROUP_ID

    play(body)


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_join_group_of_a_first_member_without_a_protocol_is_refused(changes: dict[str, Any]) -> None:
    async def body(room: Room) -> None:
        assert (await room.join_now(**changes)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play(body)


@pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocols": ROUND_ROBIN}])
def test_a_member_without_a_common_protocol_gets_inconsistent_group_protocol(changes: dict[str, Any]) -> None:
    async def body(room: Room) -> None:
        await room.stable()
        assert (await room.join_now(**changes)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play(body)


def test_a_new_member_gets_member_id_required_and_joins_with_the_given_id() -> None:
    async def body(room: Room) -> None:
        first = await room.join_now(requires_known_member_id=True)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("client-")
        result = await room.join(first.member_id)
        assert (result.error, result.member_id) == (ErrorCode.NONE, first.member_id)
        assert room.group().pending_members == {}

    play(body)


def test_a_member_id_that_no_member_uses_within_the_session_timeout_becomes_invalid() -> None:
    async def body(room: Room) -> None:
        first = await room.join_now(requires_known_member_id=True)
        await asyncio.sleep(11)
        assert (await room.join_now(first.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_rebalance_waits_for_a_member_whose_given_id_is_still_unused() -> None:
    async def body(room: Room) -> None:
        [leader] = await room.stable()
        first = await room.join_now(requires_known_member_id=True)
        again = room.join(leader.member_id)
        await asyncio.sleep(1)
        assert not again.done()
        new = room.join(first.member_id)
        await settle()
        assert (again.done(), new.done()) == (True, True)
        assert len(again.result().members) == 2

    play(body)


def test_a_rebalance_completes_when_an_unused_member_id_expires() -> None:
    async def body(room: Room) -> None:
        [leader] = await room.stable()
        await room.join_now(requires_known_member_id=True)
        again = room.join(leader.member_id)
        await asyncio.sleep(9)
        assert not again.done()
        await asyncio.sleep(2)
        assert [m.member_id for m in again.result().members] == [leader.member_id]

    play(body)


def test_only_the_group_leaders_join_group_response_lists_the_members() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(client_id=name) for name in "ab"]
        await asyncio.sleep(6.5)
        leader, follower = (join.result() for join in joins)
        assert leader.leader == follower.leader == leader.member_id
        assert leader.members == (
            JoinedMember(leader.member_id, None, b"\x00\x00"),
            JoinedMember(follower.member_id, None, b"\x00\x00"),
        )
        assert follower.members == ()
        assert (leader.protocol_type, leader.protocol_name, leader.generation) == ("consumer", "range", 1)

    play(body)


def test_the_group_protocol_is_the_commonly_supported_protocol_with_most_votes() -> None:
    async def body(room: Room) -> None:
        offers = [("a", "b", "c"), ("b", "a"), ("b", "c", "a")]
        joins = [room.join(protocols=tuple((name, name.encode()) for name in offer)) for offer in offers]
        await asyncio.sleep(6.5)
        results = [join.result() for join in joins]
        assert {r.protocol_name for r in results} == {"b"}
        assert [m.metadata for m in results[0].members] == [b"b"] * 3

    play(body)


# ---- members that join again


def test_an_unchanged_follower_that_rejoins_a_stable_group_gets_the_current_generation() -> None:
    async def body(room: Room) -> None:
        _, follower = await room.stable(2)
        again = await room.join_now(follower.member_id)
        assert (again.error, again.generation, again.members) == (ErrorCode.NONE, 1, ())
        assert room.group().state is STABLE

    play(body)


@pytest.mark.parametrize(("number", "protocols"), [(0, RANGE), (1, (("range", b"other"),))])
def test_a_group_leader_or_changed_follower_that_rejoins_starts_a_rebalance(
    number: int, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    async def body(room: Room) -> None:
        results = await room.stable(2)
        again = room.join(results[number].member_id, protocols=protocols)
        await settle()
        assert not again.done()
        assert room.group().state is PREPARING_REBALANCE
        assert room.heartbeat(results[1 - number]) is ErrorCode.REBALANCE_IN_PROGRESS
        other = room.join(results[1 - number].member_id)
        await settle()
        assert (again.result().generation, other.result().generation) == (2, 2)

    play(body)


def test_an_unchanged_member_that_rejoins_during_completing_rebalance_gets_the_same_generation() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(client_id=name) for name in "ab"]
        await asyncio.sleep(6.5)
        leader, follower = (join.result() for join in joins)
        assert await room.join_now(leader.member_id) == leader
        assert await room.join_now(follower.member_id) == follower
        assert room.group().state is COMPLETING_REBALANCE
        room.join(follower.member_id, protocols=(("range", b"other"),))
        await settle()
        assert room.group().state is PREPARING_REBALANCE

    play(body)


def test_a_second_join_group_of_a_member_ends_the_wait_of_its_first() -> None:
    async def body(room: Room) -> None:
        first = await room.join_now(requires_known_member_id=True)
        waiting = room.join(first.member_id)
        await settle()
        again = room.join(first.member_id)
        await settle()
        assert waiting.result().error is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(4)
        assert again.result().error is ErrorCode.NONE

    play(body)


def test_a_client_that_disconnects_while_its_join_group_waits_stays_a_member() -> None:
    async def body(room: Room) -> None:
        waiting = room.join()
        await settle()
        waiting.cancel()
        await asyncio.sleep(4)
        assert len(room.group().members) == 1
        await asyncio.sleep(11)  # and its session expires
        assert len(room.group().members) == 0

    play(body)


# ---- group.max.size


def test_join_group_beyond_the_maximum_group_size_is_refused() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(client_id=name) for name in "abc"]
        await settle()
        refused = joins[2].result()
        assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        await asyncio.sleep(6.5)
        await room.complete(joins[:2])
        assert (await room.join_now()).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    play(body, group_max_size=2)


def test_existing_members_of_a_full_group_can_rejoin() -> None:
    async def body(room: Room) -> None:
        results = await room.stable(2)
        joins = [room.join(r.member_id) for r in results]
        await settle()
        assert [j.result().generation for j in joins] == [2, 2]

    play(body, group_max_size=2)


def test_members_beyond_a_lowered_maximum_group_size_are_removed_when_they_rejoin() -> None:
    async def body(room: Room) -> None:
        results = await room.stable(3)
        smaller = room.restart(replace(room.settings, group_max_size=2))
        smaller.groups._ownership.elected(0, 1)
        await settle()
        assert smaller.group().state is PREPARING_REBALANCE
        joins = [smaller.join(r.member_id) for r in results]
        await settle()
        errors = [j.result().error for j in joins]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]

    play(body)


def test_join_group_of_a_removed_group_gets_coordinator_not_available() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.group().move(DEAD, 0)
        assert (await room.join_now()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await room.join_now(member.member_id)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(body)


def test_join_group_at_a_broker_that_is_not_the_coordinator_gets_not_coordinator() -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.resigned(0, 1)
        assert (await room.join_now()).error is ErrorCode.NOT_COORDINATOR

    play(body)
