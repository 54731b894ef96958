"""Groups of 10,000 members, and groups and commits larger than the log accepts."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, Room, play
from tests.unit.coordinator.test_offsets import SUBSCRIBED

from klamm.coordinator import offsets_topic
from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.decision_journal import MAX_LISTED
from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.records import offset_key, offset_value, read_group_value
from klamm.coordinator.requests import JoinResult, LeavingMember, SyncResult
from klamm.coordinator.states import EMPTY, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import PIECE, CountedSlices

MEMBERS = 10_000
MANY = 16 * PIECE
SOME_MEMBERS = 1_000
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


class ObservedSlices(CountedSlices):
    """Calls `observe` at every checkpoint."""

    def __init__(self, observe: Callable[[], None]) -> None:
        super().__init__()
        self._observe = observe

    async def checkpoint(self, items: int = 1) -> None:
        self._observe()
        await super().checkpoint(items)


def test_the_joins_of_a_large_group_are_answered_in_time_slices() -> None:
    async def body(room: Room) -> None:
        answered: list[int] = []
        joins = [asyncio.ensure_future(room.join()) for _ in range(MANY)]
        await settle()
        group = room.group()
        room.groups._context.slices = ObservedSlices(lambda: answered.append(MANY - group.awaiting_join))
        results = await asyncio.gather(*joins)

        assert {result.generation for result in results} == {1}
        steps = [after - before for before, after in itertools.pairwise((*answered, MANY))]
        assert answered[0] == 0
        assert max(steps) == PIECE

    play(body)


def test_a_rebalance_that_begins_while_joins_are_answered_keeps_the_others_waiting() -> None:
    async def body(room: Room) -> None:
        joins = [asyncio.ensure_future(room.join()) for _ in range(MANY)]
        await settle()
        group = room.group()
        first = next(iter(group.members))
        checkpoints = itertools.count(1)

        def leave_at_the_third() -> None:
            if group.awaiting_join < MANY and next(checkpoints) == 2:
                room.groups.leave_group(GROUP, [LeavingMember(first)])

        room.groups._context.slices = ObservedSlices(leave_at_the_third)
        await asyncio.wait(joins, return_when=asyncio.FIRST_COMPLETED)
        await settle()
        answered = [join.result().member_id for join in joins if join.done()]
        assert len(answered) == 2 * PIECE
        assert group.awaiting_join == MANY - len(answered)

        again = [room.join(member_id=member_id) for member_id in answered if member_id != first]
        assert {result.generation for result in await asyncio.gather(*again)} == {2}
        generations = [result.generation for result in await asyncio.gather(*joins)]
        assert (generations.count(1), generations.count(2)) == (len(answered), MANY - len(answered))

    play(body)


async def waiting_syncs(room: Room) -> tuple[list[JoinResult], list["asyncio.Task[SyncResult]"]]:
    """All members of a large group wait for the leader's assignment, which is stored in time slices."""
    joins = [asyncio.ensure_future(room.join()) for _ in range(MANY)]
    results = await asyncio.gather(*joins)
    syncs = [room.sync(result) for result in results if not result.members]
    await settle()
    return results, syncs


def send_assignment(room: Room, results: list[JoinResult]) -> "asyncio.Task[SyncResult]":
    """The leader's SyncGroup; every member is assigned its own id."""
    [leader] = [result for result in results if result.members]
    return room.sync(leader, {result.member_id: result.member_id.encode() for result in results})


def test_the_syncs_of_a_large_group_are_answered_in_time_slices() -> None:
    async def body(room: Room) -> None:
        results, syncs = await waiting_syncs(room)
        answered: list[int] = []

        def observe() -> None:
            answered.append(MANY - sum(member.awaits_sync for member in room.group().members.values()))

        room.groups._context.slices = ObservedSlices(observe)
        leader = send_assignment(room, results)
        assert {(await sync).error for sync in (leader, *syncs)} == {ErrorCode.NONE}
        assert {sync.result().assignment.decode() for sync in (leader, *syncs)} == {r.member_id for r in results}
        assert max(after - before for before, after in itertools.pairwise((*answered, MANY))) == PIECE

    play(body)


def test_a_rebalance_that_begins_while_syncs_are_answered_leaves_the_others_their_assignment() -> None:
    async def body(room: Room) -> None:
        results, syncs = await waiting_syncs(room)
        left = next(r.member_id for r in reversed(results) if not r.members)
        member = room.group().members[left]
        checkpoints = itertools.count(1)

        def leave_at_the_third() -> None:
            if next(checkpoints) == 3:
                room.groups.leave_group(GROUP, [LeavingMember(left)])

        room.groups._context.slices = ObservedSlices(leave_at_the_third)
        leader = send_assignment(room, results)
        answers = [await sync for sync in (leader, *syncs)]
        assert room.group().state is PREPARING_REBALANCE
        assert [a.error for a in answers if not a.assignment] == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert len({a.assignment for a in answers}) == MANY
        assert member.session_timer is None

    play(body)


def test_a_rebalance_that_begins_while_the_assignment_of_a_large_group_is_encoded_prevents_its_record() -> None:
    async def body(room: Room) -> None:
        results, syncs = await waiting_syncs(room)
        checkpoints = itertools.count(1)

        def leave_at_the_third() -> None:
            if next(checkpoints) == 3:
                room.groups.leave_group(GROUP, [LeavingMember(results[1].member_id)])

        room.groups._context.topic._slices = ObservedSlices(leave_at_the_third)
        leader = send_assignment(room, results)
        errors = Counter([(await sync).error for sync in (leader, *syncs)])
        assert errors == {ErrorCode.REBALANCE_IN_PROGRESS: MANY - 1, ErrorCode.UNKNOWN_MEMBER_ID: 1}
        await asyncio.sleep(1)
        assert list(room.log.stored()) == []

    play(body)


def test_the_record_of_a_large_group_is_not_stored_once_another_broker_leads_its_partition() -> None:
    async def body(room: Room) -> None:
        results, syncs = await waiting_syncs(room)
        checkpoints = itertools.count(1)

        def resign_at_the_third() -> None:
            if next(checkpoints) == 3:
                room.groups._ownership.resigned(0, 1)

        room.groups._context.topic._slices = ObservedSlices(resign_at_the_third)
        leader = send_assignment(room, results)
        assert {(await sync).error for sync in (leader, *syncs)} == {ErrorCode.NOT_COORDINATOR}
        await asyncio.sleep(1)
        assert list(room.log.stored()) == []

    play(body)


class HeldSlices(CountedSlices):
    """The first task that comes to a checkpoint waits there until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Future[None] | None = None

    async def checkpoint(self, items: int = 1) -> None:
        if self.held is None:
            self.held = asyncio.get_running_loop().create_future()
            await self.held
        await super().checkpoint(items)


def test_the_records_of_a_large_group_reach_the_log_in_their_order() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{number}") for number in range(SOME_MEMBERS)]
        results = await asyncio.gather(*joins)
        [leader] = [result for result in results if result.members]
        await asyncio.gather(room.sync(leader, {}), *(room.sync(r) for r in results if r is not leader))

        slices = room.groups._context.topic._slices = HeldSlices()
        again = [room.join(instance_id=f"i{number}") for number in range(2)]
        await settle()
        assert slices.held is not None
        slices.held.set_result(None)
        ids = {result.member_id for result in await asyncio.gather(*again)}
        stored = read_group_value(GROUP, room.log.records()[-1].value or b"")
        assert ids <= set(stored.members)

    play(body)


class YieldingSlices(CountedSlices):
    """Every checkpoint lets other tasks run."""

    async def checkpoint(self, items: int = 1) -> None:
        await asyncio.sleep(0)


def test_static_members_of_a_large_group_that_restart_together_are_all_answered_and_stored() -> None:
    async def body(room: Room) -> None:
        joins = [room.join(instance_id=f"i{number}") for number in range(3 * PIECE)]
        await asyncio.sleep(6.5)
        await room.complete(joins)
        room.groups._context.topic._slices = YieldingSlices()

        again = [room.join(instance_id=f"i{number}") for number in (0, 3 * PIECE - 1, PIECE)]
        await asyncio.sleep(1)

        assert [(join.result().error, join.result().generation) for join in again] == [(ErrorCode.NONE, 1)] * 3
        stored = read_group_value(GROUP, room.log.records()[-1].value or b"")
        assert stored.members.keys() == room.group().members.keys()
        assert stored.leader_id == again[0].result().member_id

    play(body)


@pytest.mark.parametrize("checkpoint", range(2, 2 * MANY // PIECE, 4))
def test_a_member_that_changes_its_protocols_while_a_generation_begins_rebalances_the_large_group(
    checkpoint: int,
) -> None:
    both = (*SUBSCRIBED, ("roundrobin", SUBSCRIBED[0][1]))

    async def body(room: Room) -> None:
        joins = [asyncio.ensure_future(room.join(protocols=both)) for _ in range(MANY)]
        await settle()
        last = next(reversed(room.group().members))
        checkpoints = itertools.count(1)
        changed: list[asyncio.Task[JoinResult]] = []

        def change_protocols() -> None:
            if next(checkpoints) == checkpoint:
                changed.append(room.join(member_id=last, protocols=both[1:]))

        room.groups._context.slices = ObservedSlices(change_protocols)
        with capture_logs() as logs:
            *_, replaced = await asyncio.gather(*joins)
            result = await changed[0]
        assert replaced.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (result.generation, result.protocol_name) == (2, "roundrobin")
        assert [line for line in logs if line["log_level"] == "error"] == []

    play(body)


def test_a_large_group_is_loaded_in_time_slices() -> None:
    async def body(room: Room) -> None:
        await room.stable(MANY, protocols=SUBSCRIBED)
        other = room.restart()
        sessions: list[int] = []
        checkpoints = itertools.count(1)

        def observe() -> None:
            next(checkpoints)
            if GROUP in other.groups._context.groups.partition(0).groups:
                sessions.append(sum(m.session_timer is not None for m in other.group().members.values()))

        other.groups._ownership._slices = ObservedSlices(observe)
        other.groups._ownership.elected(0, 2)
        await asyncio.sleep(1)
        assert other.group().subscribed_topics == frozenset({"orders"})
        assert max(after - before for before, after in itertools.pairwise((*sessions, MANY))) == PIECE
        assert next(checkpoints) > 3 * MANY // PIECE  # its members are decoded, built and given a session

    play(body)


def test_a_large_group_that_is_unloaded_while_it_is_loaded_starts_no_more_sessions() -> None:
    async def body(room: Room) -> None:
        await room.stable(MANY)
        other = room.restart()
        started: list[int] = []
        sessions = other.groups._context.sessions
        restart = sessions.restart

        def counted(group: Group, member: Member, timeout_ms: int | None = None) -> None:
            started.append(other.groups._context.groups.partition(0).epoch or 0)
            restart(group, member, timeout_ms)

        def resign_once_sessions_begin() -> None:
            if len(started) == PIECE:
                other.groups._ownership.resigned(0, 3)

        sessions.restart = counted  # type: ignore[method-assign]
        other.groups._ownership._slices = ObservedSlices(resign_once_sessions_begin)
        other.groups._ownership.elected(0, 2)
        await asyncio.sleep(1)
        assert other.groups.availability(GROUP) is ErrorCode.NOT_COORDINATOR
        assert started == [2] * PIECE

    play(body)


def test_the_waiting_members_of_a_large_group_that_is_unloaded_are_answered_in_time_slices() -> None:
    async def body(room: Room) -> None:
        joins = [asyncio.ensure_future(room.join()) for _ in range(MANY)]
        await settle()
        group = room.group()
        waiting: list[int] = []
        room.groups._ownership._slices = ObservedSlices(lambda: waiting.append(group.awaiting_join))
        room.groups._ownership.resigned(0, 1)
        assert {(await join).error for join in joins} == {ErrorCode.NOT_COORDINATOR}
        assert max(before - after for before, after in itertools.pairwise((*waiting, 0))) == PIECE

    play(body)


def test_members_of_a_large_group_that_join_too_late_are_removed_with_one_line_in_the_log() -> None:
    async def body(room: Room) -> None:
        await room.stable(SOME_MEMBERS, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
        with capture_logs() as logs:
            last = await room.join(instance_id="last", session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
        assert (last.generation, list(room.group().members)) == (2, [last.member_id])
        [line] = [line for line in logs if line["event"].startswith("members removed")]
        assert (line["count"], len(line["members"])) == (SOME_MEMBERS, MAX_LISTED)
        removed = [e.facts["member"] for e in await room.journaled() if e.facts["step"] == "removed"]
        assert len(set(removed)) == SOME_MEMBERS

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


def test_an_offset_commit_of_too_many_partitions_is_refused_without_encoding_an_offset() -> None:
    """A million of them would hold the event loop for many seconds, only to be refused."""

    async def body(room: Room) -> None:
        offsets = {TopicPartition("orders", number): 5 for number in range(100)}
        room.log.max_bytes = 100 * (offsets_topic.MIN_OFFSET_BYTES + len(GROUP)) - 1
        with patch.object(offsets_topic, "offset_value", side_effect=AssertionError):
            assert await room.commit(offsets) == dict.fromkeys(offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        assert room.fetch() == {}

    play(body)


@pytest.mark.parametrize("version", range(5))
def test_no_committed_offset_is_smaller_than_the_estimate(version: int) -> None:
    key, value = offset_key(GROUP, TopicPartition("t", 0)), offset_value(Offset(0), version)

    assert len(key) + len(value) >= offsets_topic.MIN_OFFSET_BYTES + len(GROUP)
