"""Rebalances: delays, timeouts, generations, leaders. Cases of GroupCoordinatorTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import Room, play

from klamm.coordinator.requests import LeavingMember
from klamm.coordinator.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode


def test_the_first_rebalance_of_a_group_waits_for_the_initial_delay() -> None:
    async def body(room: Room) -> None:
        join = room.join()
        await asyncio.sleep(2.9)
        assert not join.done()
        await asyncio.sleep(0.2)
        assert join.result().generation == 1

    play(body)


def test_the_initial_rebalance_delay_restarts_when_another_member_joins() -> None:
    async def body(room: Room) -> None:
        first = room.join()
        await asyncio.sleep(2)
        second = room.join()
        await asyncio.sleep(3.9)  # 5.9
        assert not first.done()
        await asyncio.sleep(0.2)
        assert (first.done(), second.done()) == (True, True)

    play(body)


def test_the_initial_rebalance_delay_is_never_longer_than_the_rebalance_timeout() -> None:
    async def body(room: Room) -> None:
        joins = []
        for _ in range(7):
            joins.append(room.join(rebalance_timeout_ms=7_000))
            await asyncio.sleep(0.95)
        assert not joins[0].done()  # 6.65
        await asyncio.sleep(0.4)
        assert all(join.done() for join in joins)

    play(body)


def test_a_group_that_became_empty_does_not_extend_its_next_initial_rebalance_delay() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.groups.leave_group("flights", [LeavingMember(member.member_id)])
        assert room.group().state is EMPTY
        first = room.join()
        await asyncio.sleep(2)
        room.join()
        await asyncio.sleep(1.1)
        assert first.result().generation == 3

    play(body)


def test_a_new_member_of_a_stable_group_starts_a_rebalance_without_initial_delay() -> None:
    async def body(room: Room) -> None:
        [old] = await room.stable()
        new = room.join()
        await settle()
        assert room.heartbeat(old) is ErrorCode.REBALANCE_IN_PROGRESS
        again = room.join(old.member_id)
        await settle()
        assert (again.result().generation, new.result().generation) == (2, 2)

    play(body)


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed() -> None:
    async def body(room: Room) -> None:
        [old] = await room.stable(rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
        new = room.join(rebalance_timeout_ms=20_000)
        await asyncio.sleep(19)
        assert not new.done()
        await asyncio.sleep(1.5)
        assert [m.member_id for m in new.result().members] == [new.result().member_id]
        assert room.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_group_leader_that_does_not_rejoin_is_replaced() -> None:
    async def body(room: Room) -> None:
        leader, follower = await room.stable(2, rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
        again = room.join(follower.member_id, protocols=(("range", b"changed"),), rebalance_timeout_ms=20_000)
        await asyncio.sleep(21)
        assert again.result().leader == follower.member_id
        assert room.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_member_session_that_expires_during_a_rebalance_ends_the_wait_for_that_member() -> None:
    async def body(room: Room) -> None:
        old = (await room.stable())[0]
        new = room.join()
        await asyncio.sleep(9.9)
        assert not new.done()
        await asyncio.sleep(0.3)
        assert new.result().generation == 2
        assert room.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_heartbeats_during_a_rebalance_keep_the_members_session_alive() -> None:
    async def body(room: Room) -> None:
        old = (await room.stable())[0]
        new = room.join()
        for _ in range(6):
            await asyncio.sleep(5)
            assert room.heartbeat(old) is ErrorCode.REBALANCE_IN_PROGRESS
        assert not new.done()
        again = room.join(old.member_id)
        await settle()
        assert len(again.result().members) + len(new.result().members) == 2

    play(body)


def test_a_new_member_whose_join_group_waits_five_minutes_is_removed() -> None:
    async def body(room: Room) -> None:
        old = (await room.stable(rebalance_timeout_ms=900_000))[0]
        new = room.join(session_timeout_ms=10_000)
        for _ in range(59):
            await asyncio.sleep(5)
            room.heartbeat(old)
        assert not new.done()
        await asyncio.sleep(5.5)
        assert new.result().error is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_known_member_whose_join_group_waits_does_not_expire() -> None:
    async def body(room: Room) -> None:
        old, other = await room.stable(2)
        again = room.join(old.member_id)
        for _ in range(10):
            await asyncio.sleep(5)
            room.heartbeat(other)
        assert not again.done()
        rejoined = room.join(other.member_id)
        await settle()
        assert len(again.result().members) == 2
        assert rejoined.result().error is ErrorCode.NONE

    play(body)


def test_a_group_is_stored_as_empty_when_its_last_member_leaves() -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await asyncio.sleep(11)
        assert (room.group().state, room.group().generation) == (EMPTY, 2)
        assert list(room.log.stored())[-1] == "generation 2: {}"

    play(body)


# ---- after the joins


def test_members_that_send_no_sync_group_are_removed_after_the_rebalance_timeout() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(rebalance_timeout_ms=20_000, session_timeout_ms=60_000) for _ in range(3)]
        await asyncio.sleep(6.5)
        leader, follower, silent = (join.result() for join in joins)
        waiting = [room.sync(leader, {}), room.sync(follower)]
        await settle()
        assert all(w.result().error is ErrorCode.NONE for w in waiting)
        await asyncio.sleep(20)
        assert room.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS

    play(body)


def test_a_group_leader_that_sends_no_assignment_is_removed_and_the_others_rejoin() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(rebalance_timeout_ms=20_000, session_timeout_ms=60_000) for _ in range(2)]
        await asyncio.sleep(6.5)
        leader, follower = (join.result() for join in joins)
        waiting = room.sync(follower)
        await asyncio.sleep(20)
        assert waiting.result().error is ErrorCode.REBALANCE_IN_PROGRESS
        assert room.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
        again = room.join(follower.member_id)
        await settle()
        assert again.result().leader == follower.member_id

    play(body)


def test_a_group_whose_members_all_sent_sync_group_stays_stable() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(rebalance_timeout_ms=20_000)
        for _ in range(10):
            await asyncio.sleep(5)
            assert room.heartbeat(member) is ErrorCode.NONE
        assert room.group().state is STABLE

    play(body)


@pytest.mark.parametrize("timeout_s", [10, 20])
def test_a_group_leaders_session_expiry_before_sync_group_starts_another_rebalance(timeout_s: int) -> None:
    async def body(room: Room) -> None:
        joins = [room.join(session_timeout_ms=timeout_s * 1000) for _ in range(2)]
        await asyncio.sleep(6.5)
        _, follower = (join.result() for join in joins)
        assert room.group().state is COMPLETING_REBALANCE
        waiting = room.sync(follower)
        await asyncio.sleep(timeout_s)
        assert waiting.result().error is ErrorCode.REBALANCE_IN_PROGRESS
        assert room.group().state is PREPARING_REBALANCE

    play(body)
