"""Transactions at the next coordinator: what it loads, when it writes their markers. The cases are those of
TransactionCoordinatorTest and TransactionStateManagerTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.transactions_room import P0, P1, Room, play

from klamm.coordinator.topic_partitions import TRANSACTIONS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.leadership import LeadershipChange

COMPLETE = {True: "Commit", False: "Abort"}


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_coordinator_writes_the_markers_with_its_own_epoch(commit: bool) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.errors[P1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await room.end(producer, commit=commit)
        await settle()
        room.resign(7)
        await asyncio.sleep(1)
        assert len(room.leaders.markers) == 1

        other = await room.successor(7)

        assert room.leaders.markers[-1].coordinator_epoch == 7
        assert room.leaders.markers[-1].partitions == {P0, P1}
        assert other.transaction.state == f"Complete{COMPLETE[commit]}"
        assert await other.end(producer, commit=commit) == ErrorCode.NONE
        await other.coordinator.close()

    play(body)


@pytest.mark.parametrize("commit", [True, False])
def test_a_loaded_decision_gets_no_markers_before_every_replica_has_it(commit: bool) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.log.held = []
        ending = asyncio.ensure_future(room.end(producer, commit=commit))
        await settle()
        room.resign(7)  # the followers do not have the decision yet
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]

        other = await room.successor(7)
        assert room.leaders.markers == []
        room.log.release()
        await settle()
        assert room.leaders.markers == []
        room.log.held = None
        await asyncio.sleep(1)

        assert [(m.is_commit, set(m.partitions)) for m in room.leaders.markers] == [(commit, {P0, P1})]
        assert other.transaction.state == f"Complete{COMPLETE[commit]}"
        decision = f"Prepare{COMPLETE[commit]} 1000/0 orders-0 orders-1"
        assert room.stored()[-3:] == [decision, decision, f"Complete{COMPLETE[commit]} 1000/0"]
        await ending
        await other.coordinator.close()

    play(body)


def test_loaded_partitions_that_are_added_again_are_stored_again_until_every_replica_has_them() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.log.held = []
        adding = asyncio.ensure_future(room.add(producer, P1))
        await settle()
        room.resign(7)  # the followers do not have the second partition yet
        room.log.release()
        await adding

        other = await room.successor(7)
        begun = "Ongoing 1000/0 orders-0 orders-1"
        assert room.stored()[-1] == begun
        count = len(room.stored())
        room.log.held = None
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await other.add(producer, P1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await other.add(producer, P1) == ErrorCode.NONE
        assert await other.add(producer, P0, P1) == ErrorCode.NONE  # from memory

        assert room.stored()[count:] == [begun]
        await other.end(producer)
        await settle()
        assert set(room.leaders.markers[-1].partitions) == {P0, P1}
        await other.coordinator.close()

    play(body)


def test_a_loaded_decision_gets_no_markers_of_a_coordinator_that_lost_it_before_it_was_replicated() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.log.held = []
        ending = asyncio.ensure_future(room.end(producer))
        await settle()
        room.resign(7)
        other = await room.successor(7)
        other.resign(8)
        room.log.release()
        await ending
        await asyncio.sleep(1)
        assert room.leaders.markers == []
        await other.coordinator.close()

    play(body)


def test_a_coordinator_that_stays_leader_writes_markers_with_its_newest_leader_epoch() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        await room.elect(5)  # after another coordinator in epoch 4, of which this broker was not told
        room.coordinator._ownership.elected(0, 3)  # comes late
        await room.end(producer)
        await settle()
        assert [m.coordinator_epoch for m in room.leaders.markers] == [5]

        await room.add(producer, P0)
        room.resign(6)
        room.coordinator._ownership.elected(0, 7)
        await room.elect(9)  # while the partition is loaded
        await room.end(producer)
        await settle()
        assert [m.coordinator_epoch for m in room.leaders.markers] == [5, 9]

    play(body)


def test_a_partition_of_transaction_state_that_is_made_anew_is_served() -> None:
    async def body(room: Room) -> None:
        await room.elect(5)
        deleted = TopicPartition(TRANSACTIONS_TOPIC, 0)
        room.coordinator.on_leadership_change(LeadershipChange(deleted=(deleted,)))
        assert (await room.init()).error == ErrorCode.NOT_COORDINATOR

        await room.elect(0)

        assert (await room.init()).error == ErrorCode.NONE

    play(body)


def test_a_transaction_read_only_in_part_gets_no_markers_where_leadership_is_lost_meanwhile() -> None:
    async def body(room: Room) -> None:
        await room.end(await room.ongoing(P0))
        await settle()
        assert [state.split()[0] for state in room.stored()][-2:] == ["PrepareCommit", "CompleteCommit"]
        room.leaders.markers.clear()
        room.log.reads_left = len(room.stored()) - 1

        other = await room.successor()

        assert room.leaders.markers == []
        assert (await other.init()).error == ErrorCode.NOT_COORDINATOR
        await other.coordinator.close()

    play(body, transaction_state_log_load_buffer_size=1)


def test_an_open_transaction_continues_at_the_next_transaction_coordinator() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        other = await room.successor()
        assert await other.add(producer, P1) == ErrorCode.NONE
        assert await other.end(producer) == ErrorCode.NONE
        await settle()
        assert other.leaders.markers[-1].partitions == {P0, P1}
        await other.coordinator.close()

    play(body)


def test_a_transaction_state_stored_after_the_coordinators_resignation_is_not_applied() -> None:
    async def body(room: Room) -> None:
        producer = await room.producer()
        room.log.held = []
        waiting = asyncio.ensure_future(room.add(producer, P0))
        await settle()
        room.resign(1)
        await room.elect(2)
        room.log.release()
        assert await waiting == ErrorCode.NOT_COORDINATOR
        assert room.transaction.pending is None

    play(body)


def test_transaction_requests_during_loading_get_coordinator_load_in_progress() -> None:
    async def body(room: Room) -> None:
        producer = await room.producer()
        room.resign(1)
        room.coordinator._ownership.elected(0, 2)
        assert await room.add(producer, P0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await room.coordinator.list_transactions((), (), -1)).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
        assert await room.add(producer, P0) == ErrorCode.NONE

    play(body)
