"""Static members (KIP-345). Cases of GroupCoordinatorTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import RANGE, Room, play

from klamm.coordinator.requests import JoinResult, LeavingMember
from klamm.coordinator.states import PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode

OTHER = (("roundrobin", b""), ("range", b""))


async def static_group(room: Room, count: int = 2) -> list[JoinResult]:
    """A stable group of static members `i0`, `i1`, the first its leader."""
    joins = [room.join(instance_id=f"i{number}", requires_known_member_id=True) for number in range(count)]
    await asyncio.sleep(6.5)
    return await room.complete(joins)


def test_a_new_static_member_joins_without_member_id_required() -> None:
    async def body(room: Room) -> None:
        first, _ = await static_group(room)
        assert first.member_id.startswith("i0-")
        assert [m.instance_id for m in first.members] == ["i0", "i1"]

    play(body)


def test_a_restarted_static_follower_of_a_stable_group_causes_no_rebalance() -> None:
    async def body(room: Room) -> None:
        leader, follower = await static_group(room)
        again = await room.join_now(instance_id="i1")
        assert (again.error, again.generation, again.leader, again.members) == (ErrorCode.NONE, 1, leader.member_id, ())
        assert again.member_id not in (follower.member_id, leader.member_id)
        assert room.group().state is STABLE
        assert (await room.sync(again, instance_id="i1")).assignment == b"1"
        assert list(room.log.stored())[-1] == "generation 1: {'i0': '0', 'i1': '1'}"

    play(body)


def test_a_static_member_may_restart_in_a_group_of_the_maximum_size() -> None:
    async def body(room: Room) -> None:
        await static_group(room)
        assert (await room.join_now(instance_id="i1")).error is ErrorCode.NONE
        assert (await room.join_now(instance_id="i2")).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    play(body, group_max_size=2)


def test_a_restarted_static_leader_that_can_skip_the_assignment_gets_the_members() -> None:
    async def body(room: Room) -> None:
        await static_group(room)
        again = await room.join_now(instance_id="i0", can_skip_assignment=True)
        assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 2)

    play(body)


def test_a_restarted_static_leader_with_an_older_version_gets_its_old_id_as_leader() -> None:
    async def body(room: Room) -> None:
        leader, _ = await static_group(room)
        again = await room.join_now(instance_id="i0")
        assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, (), False)

    play(body)


def test_a_restarted_static_follower_that_can_skip_the_assignment_gets_the_current_leader() -> None:
    async def body(room: Room) -> None:
        leader, _ = await static_group(room)
        again = await room.join_now(instance_id="i1", can_skip_assignment=True)
        assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, (), False)

    play(body)


def test_the_old_member_id_of_a_restarted_static_member_is_fenced_in_every_api() -> None:
    async def body(room: Room) -> None:
        _, old = await static_group(room)
        await room.join_now(instance_id="i1")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert room.heartbeat(old, instance_id="i1") is fenced
        assert (await room.sync(old, instance_id="i1")).error is fenced
        assert (await room.join_now(old.member_id, instance_id="i1")).error is fenced
        assert room.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_waiting_joins_and_syncs_of_a_static_members_old_id_are_fenced() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{number}") for number in range(2)]
        await asyncio.sleep(6.5)
        _, follower = (join.result() for join in joins)
        waiting_sync = room.sync(follower, instance_id="i1")
        await settle()
        waiting_join = room.join(instance_id="i1")
        await settle()
        assert waiting_sync.result().error is ErrorCode.FENCED_INSTANCE_ID
        assert room.group().state is PREPARING_REBALANCE
        room.join(instance_id="i1")
        await settle()
        assert waiting_join.result().error is ErrorCode.FENCED_INSTANCE_ID

    play(body)


def test_a_static_members_restart_that_changes_the_groups_protocol_starts_a_rebalance() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id="i0", protocols=(("range", b""), ("roundrobin", b"")))]
        await asyncio.sleep(3.5)
        await room.complete(joins)
        again = await room.join_now(instance_id="i0", protocols=OTHER)
        assert (again.generation, again.protocol_name) == (2, "roundrobin")

    play(body)


def test_a_static_members_restart_that_keeps_the_protocol_stores_the_new_metadata() -> None:
    async def body(room: Room) -> None:
        await static_group(room)
        again = await room.join_now(instance_id="i1", protocols=(("range", b"new"),), session_timeout_ms=7_000)
        assert again.generation == 1
        member = room.group().members[again.member_id]
        assert (member.metadata("range"), member.session_timeout_ms) == (b"new", 7_000)

    play(body)


def test_a_static_members_restart_that_cannot_be_stored_leaves_the_member_unchanged() -> None:
    async def body(room: Room) -> None:
        leader, old = await static_group(room)
        room.log.errors = [ErrorCode.MESSAGE_TOO_LARGE]
        refused = await room.join_now(instance_id="i1", protocols=(("range", b"new"),), session_timeout_ms=7_000)
        assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
        assert refused.leader == leader.member_id
        member = room.group().members[old.member_id]
        assert (member.protocols, member.session_timeout_ms) == (RANGE, 10_000)
        assert room.heartbeat(old, instance_id="i1") is ErrorCode.NONE

    play(body)


def test_a_restarting_static_member_is_answered_by_a_rebalance_that_begins_meanwhile() -> None:
    async def body(room: Room) -> None:
        leader, _ = await static_group(room)
        room.log.held = []
        again = room.join(instance_id="i1")
        await settle()
        room.join(leader.member_id, instance_id="i0")
        await settle()
        assert (again.result().generation, again.result().error) == (2, ErrorCode.NONE)
        room.log.release()
        await settle()
        assert room.group().generation == 2

    play(body)


def test_a_restarting_static_member_that_is_removed_meanwhile_for_its_missing_sync_group_is_answered() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{n}", session_timeout_ms=60_000, rebalance_timeout_ms=20_000) for n in (0, 1)]
        await asyncio.sleep(6.5)
        leader, _ = (join.result() for join in joins)
        assert (await room.sync(leader, {leader.member_id: b"all"})).error is ErrorCode.NONE
        room.log.held = []
        await asyncio.sleep(18)
        again = room.join(instance_id="i1", session_timeout_ms=60_000, rebalance_timeout_ms=20_000)
        await asyncio.sleep(3)
        assert again.done()
        assert again.result().error is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.group().state is PREPARING_REBALANCE
        room.log.release()
        await settle()
        assert list(room.group().static_members) == ["i0"]

    play(body)


def test_join_group_with_a_member_id_and_an_unknown_instance_id_is_refused() -> None:
    async def body(room: Room) -> None:
        leader, _ = await static_group(room)
        assert (await room.join_now(leader.member_id, instance_id="new")).error is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


@pytest.mark.parametrize(("instance", "member"), [("i0", 1), ("i1", 0)])
def test_join_group_with_an_instance_id_and_another_members_id_is_fenced(instance: str, member: int) -> None:
    async def body(room: Room) -> None:
        results = await static_group(room)
        error = (await room.join_now(results[member].member_id, instance_id=instance)).error
        assert error is ErrorCode.FENCED_INSTANCE_ID

    play(body)


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_expires() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{n}", session_timeout_ms=60_000, rebalance_timeout_ms=20_000) for n in (0, 1)]
        await asyncio.sleep(6.5)
        leader, absent = await room.complete(joins)
        again = room.join(leader.member_id, instance_id="i0", rebalance_timeout_ms=20_000)
        await asyncio.sleep(21)
        assert [m.instance_id for m in again.result().members] == ["i0", "i1"]
        assert room.heartbeat(absent, instance_id="i1", generation=2) is ErrorCode.NONE

    play(body)


def test_a_rebalance_keeps_waiting_while_no_static_member_rejoins() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{n}", session_timeout_ms=90_000, rebalance_timeout_ms=20_000) for n in (0, 1)]
        await asyncio.sleep(6.5)
        await room.complete(joins)
        dynamic = await room.join_now(requires_known_member_id=True)
        waiting = room.join(dynamic.member_id, rebalance_timeout_ms=20_000)
        await settle()
        room.groups.leave_group("flights", [LeavingMember(dynamic.member_id)])
        await settle()
        assert waiting.result().error is ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.sleep(21)
        assert (room.group().state, room.group().generation) == (PREPARING_REBALANCE, 1)
        back = room.join(instance_id="i0")
        await asyncio.sleep(21)
        assert back.result().generation == 2

    play(body)


def test_a_static_group_leader_that_does_not_rejoin_stays_a_member_but_not_leader() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{n}", session_timeout_ms=60_000, rebalance_timeout_ms=20_000) for n in (0, 1)]
        await asyncio.sleep(6.5)
        leader, follower = await room.complete(joins)
        changed = (("range", b"changed"),)
        again = room.join(follower.member_id, instance_id="i1", rebalance_timeout_ms=20_000, protocols=changed)
        await asyncio.sleep(21)
        result = again.result()
        assert result.leader == follower.member_id
        assert {m.member_id for m in result.members} == {leader.member_id, follower.member_id}
        assert room.heartbeat(leader, instance_id="i0", generation=2) is ErrorCode.NONE

    play(body)
