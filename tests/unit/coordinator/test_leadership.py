"""Coordinators that lose and gain the leadership of their partition. Cases of GroupMetadataManagerTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.leadership import LeadershipChange


def test_a_group_coordinator_that_resigns_answers_all_waiting_requests() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        join = room.join()
        again = room.join(member.member_id, protocols=(("range", b"x"),))
        room.join(group_id="second")
        await settle()
        joined = again.result()
        sync = room.sync(joined) if joined.leader != joined.member_id else None
        room.groups._ownership.resigned(0, 1)
        await settle()
        assert sync is None or sync.result().error is ErrorCode.NOT_COORDINATOR
        assert join.done()
        assert room.heartbeat(member) is ErrorCode.NOT_COORDINATOR
        assert (await room.groups.list_groups([], []))[1] == []

    play(body)


def test_waiting_join_group_requests_get_not_coordinator_when_the_coordinator_moves() -> None:
    async def body(room: Room) -> None:
        join = room.join()
        await settle()
        room.groups._ownership.resigned(0, 1)
        await settle()
        assert join.result().error is ErrorCode.NOT_COORDINATOR

    play(body)


def test_the_group_coordinator_ignores_a_leadership_change_with_an_older_leader_epoch() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        ownership = room.groups._ownership
        ownership.elected(0, 5)
        ownership.resigned(0, 4)
        assert room.fetch() == {P0: 5}
        ownership.resigned(0, 6)
        ownership.elected(0, 5)
        await settle()
        assert (await room.commit({P0: 6}))[P0] is ErrorCode.NOT_COORDINATOR
        ownership.elected(0, 7)
        await asyncio.sleep(1)
        assert room.fetch() == {P0: 5}

    play(body)


def test_a_stop_replica_without_a_leader_epoch_unloads_the_groups() -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.elected(0, 5)
        room.groups._ownership.resigned(0, None)
        assert (await room.commit({P0: 6}))[P0] is ErrorCode.NOT_COORDINATOR

    play(body)


def test_the_groups_of_an_offsets_topic_that_is_made_anew_are_served() -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.elected(0, 5)
        room.groups.on_leadership_change(LeadershipChange(deleted=(TopicPartition(OFFSETS_TOPIC, 0),)))
        room.log.partitions.clear()

        room.groups._ownership.elected(0, 0)
        await settle()

        assert (await room.commit({P0: 6}))[P0] is ErrorCode.NONE

    play(body)


def test_loading_groups_ends_when_the_broker_loses_leadership_of_the_partition() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        other = room.restart()
        other.groups._ownership.elected(0, 1)
        other.groups._ownership.resigned(0, 2)
        await settle()
        assert (await other.commit({P0: 6}))[P0] is ErrorCode.NOT_COORDINATOR
        assert len(other.groups._context.groups) == 0

    play(body)


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_partition_that_was_not_read_to_its_end_as_leader_is_not_served(reads: int) -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        await room.commit({P1: 6})
        other = room.restart()
        ownership = other.groups._ownership
        room.log.reads_left = reads

        ownership.elected(0, 1)
        await settle()

        error, _ = other.groups.fetch_offsets(GROUP, [P0, P1], require_stable=False)
        assert error is ErrorCode.NOT_COORDINATOR
        room.log.reads_left = None
        ownership.resigned(0, 2)
        ownership.elected(0, 3)
        await settle()
        assert other.fetch() == {P0: 5, P1: 6}

    play(body, offsets_load_buffer_size=1)


def test_a_new_leader_epoch_of_the_same_leader_keeps_the_loaded_groups() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        before = room.group()
        room.groups._ownership.elected(0, 1)
        await settle()
        assert room.group() is before

    play(body)
