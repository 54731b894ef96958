"""Listing, describing and deleting groups. Cases of GroupCoordinatorTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play
from tests.unit.coordinator.test_large_groups import ObservedSlices
from tests.unit.coordinator.test_loading import take_over

from klamm.coordinator.group import Group
from klamm.coordinator.handlers.admin import DescribedGroup, DescribedMember, ListedGroup
from klamm.coordinator.offsets_topic import TOMBSTONES_IN_BATCH
from klamm.coordinator.states import DEAD, GroupState
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import PIECE

STABLE = ListedGroup(GROUP, "consumer", "Stable")
SIMPLE = ListedGroup("simple", "", "Empty")


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], [STABLE, SIMPLE]),
        (["stable"], [], [STABLE]),
        (["EMPTY", "Dead"], [], [SIMPLE]),
        (["nonsense"], [], []),
        ([], ["Classic"], [STABLE, SIMPLE]),
        ([], ["consumer"], []),
        ([], ["nonsense"], []),
        (["Empty"], ["classic", "consumer"], [SIMPLE]),
    ],
)
def test_list_groups_filters_groups_by_state_and_type(
    states: list[str], types: list[str], listed: list[ListedGroup]
) -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await room.commit({P0: 5}, group_id="simple")
        assert (await room.groups.list_groups(states, types)) == (ErrorCode.NONE, listed)

    play(body)


def test_list_groups_returns_rebalancing_groups_and_the_metrics_count_them() -> None:
    async def body(room: Room) -> None:
        room.join()
        await settle()
        assert (await room.groups.list_groups([], []))[1] == [ListedGroup(GROUP, "consumer", "PreparingRebalance")]
        counted = room.groups.count_groups()
        assert {state for state, count in counted.items() if count} == {GroupState.PREPARING_REBALANCE}

    play(body)


def test_describe_groups_returns_metadata_and_assignments_of_a_stable_group() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(instance_id="i")
        described = DescribedMember(member.member_id, "i", "c0", "/127.0.0.1", b"\x00\x00", b"0")
        assert room.groups.describe_group(GROUP) == DescribedGroup(
            ErrorCode.NONE, "Stable", "consumer", "range", (described,)
        )

    play(body)


def test_describe_groups_returns_no_metadata_or_assignments_of_a_rebalancing_group() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        room.join(member.member_id)
        room.join(client_id="new")
        await settle()
        described = room.groups.describe_group(GROUP)
        assert (described.state, described.protocol) == ("PreparingRebalance", "")
        assert {(m.client_id, m.metadata, m.assignment) for m in described.members} == {
            ("c0", b"", b""),
            ("new", b"", b""),
        }

    play(body)


def test_describe_groups_returns_an_unknown_group_as_dead() -> None:
    async def body(room: Room) -> None:
        assert room.groups.describe_group("x") == DescribedGroup(ErrorCode.NONE, "Dead")

    play(body)


def test_delete_groups_deletes_only_groups_without_members() -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await room.commit({P0: 5}, group_id="simple")
        errors = await room.groups.delete_groups([GROUP, "simple", "x", "simple"])
        assert errors == {
            GROUP: ErrorCode.NON_EMPTY_GROUP,
            "simple": ErrorCode.NONE,
            "x": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert list(room.log.stored())[-1] == "orders-0: removed"  # it never had a record of its own
        await asyncio.sleep(11)
        assert await room.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
        assert list(room.log.stored())[-1] == "group removed"
        assert (await room.groups.list_groups([], []))[1] == []

    play(body)


def test_an_offset_committed_while_a_group_of_many_offsets_is_deleted_survives_the_coordinator() -> None:
    async def body(room: Room) -> None:
        partitions = [TopicPartition("orders", number) for number in range(TOMBSTONES_IN_BATCH + 1)]
        await room.commit(dict.fromkeys(partitions, 5))
        room.log.held = []  # compression.type or flush.messages of the topic makes each append wait
        deletion = asyncio.ensure_future(room.groups.delete_groups([GROUP]))
        await settle()
        commit = asyncio.ensure_future(room.commit({partitions[-1]: 7}))
        while not (deletion.done() and commit.done()):
            room.log.release()
            await settle()

        other = await take_over(room)

        assert other.fetch() == room.fetch() == {partitions[-1]: 7}
        await other.groups.close()

    play(body)


def test_the_next_coordinator_does_not_have_an_unfinished_offset_commit_of_a_deleted_group() -> None:
    async def body(room: Room) -> None:
        await room.commit({P1: 5})
        held: list[asyncio.Future[None]] = []
        room.log.held = held
        commit = asyncio.ensure_future(room.commit({P0: 6}))
        await settle()
        room.log.held = None
        assert await room.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
        held[0].set_result(None)
        await commit

        assert (await take_over(room)).groups.describe_group(GROUP).state == "Dead"

    play(body)


def test_delete_groups_refuses_groups_of_another_coordinator() -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.resigned(0, 1)
        assert await room.groups.delete_groups(["x"]) == {"x": ErrorCode.NOT_COORDINATOR}
        assert room.groups.describe_group("x").error is ErrorCode.NOT_COORDINATOR

    play(body)


def test_a_closed_group_coordinator_answers_coordinator_not_available() -> None:
    async def body(room: Room) -> None:
        await room.groups.close()
        assert (await room.groups.list_groups([], []))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await room.join_now()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(body)


def test_groups_are_listed_in_time_slices_without_those_that_are_removed_meanwhile() -> None:
    async def body(room: Room) -> None:
        groups = room.groups._context.groups
        made = [groups.add(Group(f"g{number}", 0)) for number in range(3 * PIECE)]
        checkpoints = 0

        def remove_the_last() -> None:
            nonlocal checkpoints
            checkpoints += 1
            if checkpoints == 1:
                made[-1].move(DEAD, 0)
                groups.remove(made[-1])

        room.groups._context.slices = ObservedSlices(remove_the_last)
        error, listed = await room.groups.list_groups([], [])
        assert (error, [group.group_id for group in listed]) == (ErrorCode.NONE, [g.group_id for g in made[:-1]])
        assert checkpoints >= 2

    play(body)
