"""Replicas that a reassignment removes from dead brokers, and leaders that an override drops."""

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.reassigning import ask, assigned, ids, join, leave_request, room_with

from klamm.controller.events import (
    BrokerChange,
    LeaderAndIsrResponseReceived,
    PartitionReassignmentIsrChange,
    ResumeAfterFailure,
    TopicChange,
    TopicDeletionStopReplicaResponseReceived,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.reassignment_requests import (
    on_state_change,
    on_zk_reassignment,
)
from klamm.controller.handlers.responses import on_leader_and_isr_response
from klamm.controller.handlers.topic_deletion import on_replica_deletion_answer
from klamm.controller.handlers.topics import on_topic_change
from klamm.controller.states import ReplicaState
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.wire.messages import LeaderAndIsrPartitionError, LeaderAndIsrResponse, LeaderAndIsrTopicError
from klamm.zk import znodes
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Set


async def moved_away_from_a_dead_broker() -> Room:
    room = await room_with(1, 2)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await ask(room, a_0=[1, 3])
    await join(room, 1, 3)
    assert assigned(room) == "[1, 3] + [] - []"
    return room


async def test_a_replica_reassigned_away_from_a_dead_broker_is_deleted_when_that_broker_returns() -> None:
    room = await moved_away_from_a_dead_broker()
    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    assert (record.topic, list(record.partitions)) == ("a", [0])

    await room.become_controller()  # it is in ZooKeeper, too
    room.channels.take()
    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert "SR a-0@-2+delete -> 2" in requests
    answer = TopicDeletionStopReplicaResponseReceived(
        BrokerId(2),
        room.term.context.registered[BrokerId(2)].epoch,
        {room.term.context.pending_deletions[BrokerId(2)][record.topic_id].partitions[0]: ErrorCode.NONE},
    )
    await room.handle(on_replica_deletion_answer, answer)
    assert not room.term.context.pending_deletions


@pytest.mark.parametrize("is_seen_first", [True, False])
async def test_a_replica_removed_by_a_reassignment_is_deleted_even_if_its_broker_bounced(is_seen_first: bool) -> None:
    """StopReplica named the registration before and was refused; the answer comes before that is seen, or after."""
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)
    assert assigned(room) == "[1, 3] + [] - []"
    epoch = room.term.context.registered[BrokerId(2)].epoch
    refused = {room.partition("a-0"): ErrorCode.STALE_BROKER_EPOCH}
    answer = TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, refused)
    room.kill(2)
    await room.register(2)
    room.channels.take()

    requests: list[str] = []
    for is_broker_change in (is_seen_first, not is_seen_first):
        if is_broker_change:
            requests += await room.handle(on_broker_change, BrokerChange())
        else:
            requests += await room.handle(on_replica_deletion_answer, answer)

    [stop] = [r for r in requests if r.startswith("SR a-0")]
    assert stop.endswith("+delete -> 2")


async def moved_away(room: Room) -> tuple[Partition, int]:
    """Move a-0 from brokers 1, 2 to 1, 3; returns the replica that broker 2 has to delete, and its broker epoch."""
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)
    assert assigned(room) == "[1, 3] + [] - []"
    return room.partition("a-0"), room.term.context.registered[BrokerId(2)].epoch


async def new_controller(room: Room) -> list[str]:
    room.channels.take()
    await room.become_controller()
    return room.channels.take()


async def answer_deletion(room: Room, partition: Partition, epoch: int, error: ErrorCode = ErrorCode.NONE) -> None:
    answer = TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, {partition: error})
    await room.handle(on_replica_deletion_answer, answer)


async def test_the_next_controller_deletes_a_replica_removed_by_a_reassignment() -> None:
    """It was queued, not sent, when the controller died: the topic's znode names that broker no more."""
    room = await room_with(1, 2)
    await moved_away(room)

    requests = await new_controller(room)

    assert "SR a-0@-2+delete -> 2" in requests
    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    await answer_deletion(room, record.partitions[0], room.term.context.registered[BrokerId(2)].epoch)
    assert not room.term.context.pending_deletions
    assert not any(r.startswith("SR") for r in await new_controller(room))


async def test_a_replaced_controller_does_not_delete_a_replica_that_was_added_back() -> None:
    room = await room_with(1, 2)
    await moved_away(room)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(2)
    room.ensemble.apply([Set("/controller_epoch", b"7")])

    with pytest.raises(ControllerMoved):
        await room.handle(on_broker_change, BrokerChange())

    assert not any(r.startswith("SR") for r in room.channels.take())


async def test_a_stop_replica_response_that_names_a_replica_twice_clears_its_pending_deletion_once() -> None:
    """Orders of a move and of the next controller, or about two topics of one name, share a request."""
    room = await room_with(1, 2)
    partition, epoch = await moved_away(room)
    [record] = room.term.context.pending_deletions[BrokerId(2)].values()

    twice = dict.fromkeys((partition, record.partitions[0]), ErrorCode.NONE)
    await room.handle(on_replica_deletion_answer, TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, twice))

    assert not room.term.context.pending_deletions


async def test_a_late_leader_and_isr_response_does_not_clear_a_later_pending_deletion() -> None:
    """Its answer to the LeaderAndIsr with which the move began comes late."""
    room = await room_with(1, 2)
    partition, epoch = await moved_away(room)

    topic_id = room.term.context.topics["a"].id
    assert topic_id is not None
    answer = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id, [LeaderAndIsrPartitionError("", 0, 0)])])
    await room.handle(on_leader_and_isr_response, LeaderAndIsrResponseReceived(answer, BrokerId(2), epoch))
    assert room.term.context.pending_deletions[BrokerId(2)]

    await answer_deletion(room, partition, epoch)
    assert not room.term.context.pending_deletions


async def test_only_the_response_to_a_replicas_last_deletion_clears_its_pending_deletion() -> None:
    """It came back, and went again, before the broker had answered: it may make the log anew in between."""
    room = await room_with(1, 2)
    partition, epoch = await moved_away(room)
    await ask(room, a_0=[1, 2])
    await ask(room, a_0=None)
    room.channels.unsent = {partition.key}

    await answer_deletion(room, partition, epoch)
    assert room.term.context.pending_deletions[BrokerId(2)]

    room.channels.unsent = set()
    await answer_deletion(room, partition, epoch)
    assert not room.term.context.pending_deletions


async def test_adding_a_removed_replica_back_keeps_the_pending_deletion_of_another_replica() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1, 2), (1, 2)]})
    for name in ("a-0", "a-1"):
        await ask(room, **{name.replace("-", "_"): [1, 3]})
        await join(room, 1, 2, 3, name=name)
    await ask(room, a_0=[1, 2])

    for _ in range(2):  # the first one asks, and dies before there is an answer
        requests = await new_controller(room)

        assert [r for r in requests if r.startswith("SR")] == ["SR a-1@-2+delete -> 2"]
        [record] = room.term.context.pending_deletions[BrokerId(2)].values()
        assert list(record.partitions) == [1]


async def test_the_deletion_of_a_replica_whose_broker_died_first_is_recorded_as_pending() -> None:
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)
    epoch = room.term.context.registered[BrokerId(2)].epoch
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())

    unheard = {room.partition("a-0"): ErrorCode.NETWORK_EXCEPTION}
    await room.handle(on_replica_deletion_answer, TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, unheard))

    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    assert (record.topic, list(record.partitions)) == ("a", [0])


async def test_a_failed_replica_deletion_stays_recorded_as_pending_after_its_topic_is_deleted() -> None:
    """Its log directory failed: the topic's deletion asks other brokers, a later topic of that name would meet it."""
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)
    partition = room.partition("a-0")
    room.term.context.queue_deletion(["a"])
    epoch = room.term.context.registered[BrokerId(2)].epoch

    failed = {partition: ErrorCode.KAFKA_STORAGE_ERROR}
    await room.handle(on_replica_deletion_answer, TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, failed))

    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    assert (record.topic, list(record.partitions)) == ("a", [0])


async def test_a_replica_added_back_before_its_broker_returned_is_not_deleted() -> None:
    room = await moved_away_from_a_dead_broker()
    leave_request(room, a_0=[1, 2])
    await room.write_topic("b", [(2,)])  # so that broker 2 is one of the cluster
    await room.handle(on_topic_change, TopicChange())
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert not any(r.startswith("SR") for r in requests)
    assert not room.term.context.pending_deletions


@pytest.mark.parametrize(("target", "waits"), [([2], False), ([2, 3], True)])
async def test_a_reassigned_partition_that_never_had_a_leader_gets_a_target_replica_as_leader(
    target: list[int], waits: bool
) -> None:
    room = await Room.open((1, 2), topics={"a": [(3,)]})

    answer, requests = await ask(room, a_0=target)

    assert answer.refused == {}
    assert (room.stored("a-0").leader, room.stored("a-0").isr) == (2, (2,))
    assert "LISR a-0=2/[2]/0/0+new -> 2" in requests
    assert room.partition("a-0").assignment.is_being_reassigned is waits
    assert room.term.context.replicas_on(BrokerId(2))[room.partition("a-0")] is not ReplicaState.NON_EXISTENT
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())
    assert any(r.startswith("LISR a-0=2/") and r.endswith("-> 2") for r in requests)  # it hears of its replica


async def test_leadership_moves_before_replacing_a_reassignment_removes_the_leaders_replica() -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])
    await join(room, 1, 2, 3)
    for dead in (1, 2):
        room.kill(dead)
        await room.handle(on_broker_change, BrokerChange())
    assert room.stored("a-0").leader == 3
    for back in (1, 2):
        await room.register(back)
        await room.handle(on_broker_change, BrokerChange())
    await join(room, 3, 1)

    answer, requests = await ask(room, a_0=[2, 4])

    assert answer.refused == {}
    assert room.stored("a-0").leader == 1
    assert requests[0].startswith("LISR a-0=1/[3,1]/")
    assert requests[0].endswith("-> 1,2,3,4")  # broker 3 is told that it does not lead any more


async def test_replacing_a_reassignment_is_refused_if_it_removes_the_only_in_sync_replica() -> None:
    room = await room_with(1, brokers=(1, 2, 3))
    await ask(room, a_0=[2])
    await join(room, 1, 2)  # complete
    await ask(room, a_0=[3])
    await join_without_completing(room)

    before = assigned(room)
    answer, requests = await ask(room, a_0=[1, 2])

    [refusal] = answer.refused.values()
    assert refusal.error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert (requests, assigned(room)) == ([], before)


async def join_without_completing(room: Room) -> None:
    """Make the added broker 3 the only ISR member and leader, as an unclean election does."""
    state = room.stored("a-0")
    room.write_state("a-0", state._replace(leader=BrokerId(3), isr=ids(3)))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))


async def test_a_reassignment_removes_no_replica_while_no_target_replica_can_become_leader() -> None:
    room = await room_with(1, brokers=(1, 2))
    await ask(room, a_0=[2])
    room.term.context.begin_shutdown(BrokerId(2))
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))
    change = PartitionReassignmentIsrChange(parse_topic_partition("a-0"))

    requests = await room.handle(on_state_change, change)

    assert assigned(room) == "[2, 1] + [2] - [1]"
    assert room.now("a-0") == "1 / [1,2] / 1 / 2"
    assert not any(r.startswith("SR") for r in requests)
    assert "no live in-sync replica" in room.entries("refused")[-1].facts["why"]

    room.term.context.end_shutdown([BrokerId(2)])
    await room.handle(on_state_change, change)
    assert room.now("a-0") == "2 / [2] / 3 / 4"


async def test_a_reassignment_removes_no_replica_while_its_leader_shuts_down_and_no_other_can_lead() -> None:
    """The leader is in the target, and soon gone."""
    room = await room_with(1, 2, brokers=(1, 2))
    await join(room, 1)
    room.term.context.begin_shutdown(BrokerId(1))

    _, requests = await ask(room, a_0=[1])

    assert assigned(room) == "[1, 2] + [] - [2]"
    assert room.now("a-0") == "1 / [1] / 0 / 1"
    assert not any(r.startswith("SR") for r in requests)

    room.term.context.end_shutdown([BrokerId(1)])
    await room.handle(on_state_change, PartitionReassignmentIsrChange(parse_topic_partition("a-0")))
    assert assigned(room) == "[1] + [] - []"


async def removed_but_still_assigned(*, is_dead: bool) -> Room:
    """A reassignment deletes the replica on broker 2, and ZooKeeper refuses to write the assignment without it."""
    room = await room_with(1, 2)
    if is_dead:
        room.kill(2)
        await room.handle(on_broker_change, BrokerChange())
    await ask(room, a_0=[1, 3])
    room.ensemble.unwritable.add("/brokers/topics/a")
    requests = await join(room, *([1, 3] if is_dead else [1, 2, 3]))
    assert is_dead or any(r.endswith("+delete -> 2") for r in requests)
    assert assigned(room) == "[1, 3, 2] + [3] - [2]"
    room.ensemble.unwritable.clear()
    return room


async def test_a_broker_that_returns_gets_a_replica_whose_removal_from_the_assignment_was_refused() -> None:
    """Its first LeaderAndIsr is to have all its replicas; were it not sent this one, nobody would delete its log."""
    room = await removed_but_still_assigned(is_dead=True)

    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())
    assert "a-0=" in next(r for r in requests if r.startswith("LISR") and r.endswith("2"))

    requests = await room.handle(on_resume_after_failure, ResumeAfterFailure())
    assert any(r.startswith("SR a-0") and r.endswith("+delete -> 2") for r in requests)
    assert assigned(room) == "[1, 3] + [] - []"
    assert BrokerId(2) in room.term.context.pending_deletions


async def test_a_replica_deleted_before_a_refused_write_is_created_again_when_its_reassignment_is_cancelled() -> None:
    room = await removed_but_still_assigned(is_dead=False)

    _, requests = await ask(room, a_0=None)

    assert assigned(room) == "[1, 2] + [] - []"
    assert any(r.startswith("LISR a-0") and "2" in r.partition("-> ")[2].split(",") for r in requests)
    assert room.term.context.replicas_on(BrokerId(2))[room.partition("a-0")] is ReplicaState.ONLINE


@pytest.mark.parametrize("is_created", [True, False])
async def test_only_a_replica_that_a_broker_was_asked_to_create_is_recorded_for_deletion(is_created: bool) -> None:
    """No broker would answer for the other one, so that its record would stay."""
    room = await room_with(1, brokers=(1, 2, 3))
    if not is_created:
        room.ensemble.unwritable.add(znodes.state_path(parse_topic_partition("a-0")))
    await ask(room, a_0=[2, 3])

    _, requests = await ask(room, a_0=[3])

    assert assigned(room) == "[3, 1] + [3] - [1]"
    assert (BrokerId(2) in room.term.context.pending_deletions) is is_created
    assert any(r.startswith("SR a-0") and r.endswith("-> 2") for r in requests) is is_created
