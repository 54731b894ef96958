"""Partitions move to other brokers: the steps in their order, overrides, cancellations, and controllers that take over.

Notation as in `test_traces`. `SR a-0@1+delete -> 1` stops the replica for good; the number is the leader epoch.
"""

import uuid
from contextlib import suppress

import pytest
from tests.support.controller_room import Room, alter_partition

from klamm.controller.context import Partition
from klamm.controller.decisions.reassignment import awaited
from klamm.controller.events import (
    ApiPartitionReassignment,
    BrokerChange,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    ListPartitionReassignments,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    ReassignmentAnswer,
    TargetsInSync,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.isr import on_alter_partition, on_isr_change_notification
from klamm.controller.handlers.pending_deletions import forget_pending_deletions
from klamm.controller.handlers.reassignment_requests import (
    on_api_reassignment,
    on_list_reassignments,
    on_state_change,
    on_targets_in_sync,
    on_zk_reassignment,
)
from klamm.controller.handlers.responses import on_leader_and_isr_response
from klamm.controller.handlers.topic_deletion import on_replica_deletion_answer, on_topic_deletion
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import ReplicaState
from klamm.controller.watches import event_of
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition, parse_topic_partition
from klamm.wire.messages import LeaderAndIsrPartitionError, LeaderAndIsrResponse, LeaderAndIsrTopicError
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_reassignment, encode_isr_change, encode_reassignment
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import encode_topic


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


async def room_with(*replicas: int, brokers: tuple[int, ...] = (1, 2, 3)) -> Room:
    return await Room.open(brokers, topics={"a": [replicas or (1, 2, 3)]})


async def ask(room: Room, **targets: list[int] | None) -> tuple[ReassignmentAnswer, list[str]]:
    """`a_0=[2]` asks for a-0 on broker 2, None cancels; the answer and the requests."""
    wanted = {
        parse_topic_partition(name.replace("_", "-")): None if t is None else ids(*t) for name, t in targets.items()
    }
    event = ApiPartitionReassignment(wanted)
    requests = await room.handle(on_api_reassignment, event)
    return event.reply.result(), requests


async def join(room: Room, *isr: int, name: str = "a-0") -> list[str]:
    """The leader reports an ISR."""
    state = room.stored(name)
    event = alter_partition(room, state.leader, state.leader_epoch, state.partition_epoch, isr, name)
    requests = await room.handle(on_alter_partition, event)
    assert event.reply.result().topics[0].partitions[0].error_code == 0
    return requests


def leave_request(room: Room, **targets: list[int]) -> None:
    """As the old tool does."""
    wanted = {parse_topic_partition(name.replace("_", "-")): ids(*t) for name, t in targets.items()}
    room.ensemble.apply([Create(znodes.REASSIGN_PARTITIONS, encode_reassignment(wanted))])


def znodes_of_request(room: Room) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    return dict(decode_reassignment(room.ensemble.nodes[znodes.REASSIGN_PARTITIONS].data))


def assigned(room: Room, name: str = "a-0") -> str:
    """Replicas + adding - removing, as the topic's znode has it; and memory agrees."""
    p = parse_topic_partition(name)
    znode = znodes.decode_topic(p.topic, room.ensemble.nodes[znodes.topic_path(p.topic)].data)
    stored = znode.partitions[p.partition]
    assert room.partition(name).assignment == stored
    assert (room.partition(name) in room.term.context.reassigning) == stored.is_being_reassigned
    return f"{list(stored.replicas)} + {list(stored.adding)} - {list(stored.removing)}"


# ---- worked traces


async def test_f_one_replica_moves_to_another_broker() -> None:
    room = await room_with(1)

    answer, requests = await ask(room, a_0=[2])

    assert answer == (ErrorCode.NONE, {})
    assert assigned(room) == "[2, 1] + [2] - [1]"
    assert room.now("a-0") == "1 / [1] / 1 / 1"
    assert requests == [
        "LISR a-0=1/[1]/1/1 -> 1",
        "LISR a-0=1/[1]/1/1+new -> 2",
        "UMR a-0=1/[1]/1/1 -> 1,2,3",
        "LISR a-0=1/[1]/1/1+new -> 2",
        "UMR a-0=1/[1]/1/1 -> 1,2,3",
    ]

    requests = await join(room, 1, 2)

    assert room.now("a-0") == "2 / [2] / 3 / 4"
    assert assigned(room) == "[2] + [] - []"
    assert requests == [
        "UMR a-0=1/[1,2]/1/2 -> 1,2,3",
        "LISR a-0=2/[1,2]/2/3 -> 2",  # B3: the leader moves before its replica goes
        "UMR a-0=2/[1,2]/2/3 -> 1,2,3",
        "LISR a-0=2/[2]/3/4 -> 2",  # B4
        "UMR a-0=2/[2]/3/4 -> 1,2,3",
        "SR a-0@2 -> 1",
        "SR a-0@3+delete -> 1",  # B5
        "UMR a-0=2/[2]/3/4 -> 1,2,3",  # B8
    ]
    assert room.partition("a-0") not in room.term.context.replicas_on(BrokerId(1))


async def test_a_completed_reassignment_stays_complete_where_its_list_cannot_be_changed() -> None:
    """It was undone in memory alone, and begun again with every trigger."""
    room = await room_with(1)
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    room.ensemble.unreadable.add(znodes.REASSIGN_PARTITIONS)

    with pytest.raises(KlammError):
        await join(room, 1, 2)
    assert assigned(room) == "[2] + [] - []"
    assert room.now("a-0") == "2 / [2] / 3 / 4"

    room.ensemble.unreadable.clear()
    [again] = room.put
    await room.handle(on_zk_reassignment, again)
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[2] + [] - []"


async def test_the_same_list_bumps_the_epoch_once() -> None:
    room = await room_with()

    _, requests = await ask(room, a_0=[1, 2, 3])

    assert room.now("a-0") == "1 / [1,2,3] / 1 / 1"
    assert room.ensemble.nodes["/brokers/topics/a"].version == 1  # written at the end, not at the beginning
    assert requests == [
        "LISR a-0=1/[1,2,3]/1/1 -> 1,2,3",
        "UMR a-0=1/[1,2,3]/1/1 -> 1,2,3",
        "UMR a-0=1/[1,2,3]/1/1 -> 1,2,3",
    ]


async def test_another_order_is_complete_at_once_and_leaves_the_leader() -> None:
    room = await room_with()

    await ask(room, a_0=[3, 2, 1])

    assert assigned(room) == "[3, 2, 1] + [] - []"
    assert room.now("a-0") == "1 / [1,2,3] / 1 / 1"


async def test_a_cancellation_stops_what_was_added() -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])

    answer, requests = await ask(room, a_0=None)

    assert answer == (ErrorCode.NONE, {})
    assert assigned(room) == "[1, 2] + [] - []"
    assert room.now("a-0") == "1 / [1,2] / 2 / 2"
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@1 -> 3,4", "SR a-0@1+delete -> 3,4"]
    assert not room.term.context.replicas_on(BrokerId(3))


async def test_an_override_keeps_the_origin_and_stops_what_nobody_wants_any_more() -> None:
    room = await room_with(1, 2, 3, brokers=tuple(range(1, 10)))
    await ask(room, a_0=[4, 5, 6])
    assert assigned(room) == "[4, 5, 6, 1, 2, 3] + [4, 5, 6] - [1, 2, 3]"

    _, requests = await ask(room, a_0=[7, 8, 9])

    assert assigned(room) == "[7, 8, 9, 1, 2, 3] + [7, 8, 9] - [1, 2, 3]"
    assert "SR a-0@1+delete -> 4,5,6" in requests
    assert room.now("a-0") == "1 / [1,2,3] / 2 / 2"


async def test_an_override_back_to_the_origin_is_a_cancellation() -> None:
    room = await room_with(1, 2, 3, brokers=tuple(range(1, 7)))
    await ask(room, a_0=[4, 5, 6])

    await ask(room, a_0=[1, 2, 3])

    assert assigned(room) == "[1, 2, 3] + [] - []"


async def test_a_target_that_is_away_is_waited_for() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,)], "b": [(2,)]})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    leave_request(room, a_0=[2])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    assert room.now("a-0") == "1 / [1] / 1 / 1"
    assert znodes.REASSIGN_PARTITIONS in room.ensemble.nodes

    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "1 / [1] / 2 / 2"
    first = next(r for r in requests if r.startswith("LISR"))
    assert "a-0=" in first  # all that it hosts: from then on it writes high watermarks down

    await join(room, 1, 2)
    assert room.now("a-0") == "2 / [2] / 4 / 5"  # four leader epochs in all
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_deletion_completes_the_move_whose_target_was_elected_uncleanly() -> None:
    """Its ISR is the target, and no leader asks for anything: otherwise each would wait for the other for ever."""
    settings = ControllerSettings(BrokerId(1), unclean_leader_election=True)
    room = await Room.open((1, 2, 3), {"a": [(3,), (3,)]}, settings)
    await ask(room, a_0=[2], a_1=[1, 2])
    room.kill(3)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0").startswith("2 / [2] / ")
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])

    await room.handle(on_topic_deletion, TopicDeletion())
    await room.handle(on_topic_deletion, TopicDeletion())
    assert "being reassigned" in room.term.context.topics_ineligible_for_deletion["a"]
    asked = [e for e in room.put if isinstance(e, TargetsInSync)]
    for event in asked:
        await room.handle(on_targets_in_sync, event)

    assert [e.partitions for e in asked] == [[parse_topic_partition("a-0")]]  # a-1 has to wait for its other target
    assert room.partition("a-0").assignment == ReplicaAssignment(ids(2))
    assert list(room.term.context.reassigning) == [room.partition("a-1")]


async def looked_at_again(room: Room) -> bool:
    """Whether the list is to be looked at again; then it is."""
    asked = [e for e in room.put if isinstance(e, ZkPartitionReassignment)]
    for event in asked:
        await room.handle(on_zk_reassignment, event)
    return bool(asked)


async def test_a_request_goes_with_the_topic_it_was_about() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,)], "b": [(1,)]})
    leave_request(room, a_0=[2], b_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())  # who leads is gone: the move cannot end
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])

    await room.handle(on_topic_deletion, TopicDeletion())

    assert await looked_at_again(room)
    left = znodes_of_request(room)
    assert left == {TopicPartition("b", 0): ids(2)}


@pytest.mark.parametrize("comes_again", [False, True])
async def test_a_request_about_a_topic_that_was_removed_by_hand_goes(comes_again: bool) -> None:
    room = await Room.open((1, 2), topics={"a": [(1,)]})
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    for path in sorted((p for p in room.ensemble.nodes if p.startswith("/brokers/topics/a")), reverse=True):
        room.ensemble.apply([Delete(path)])
    if comes_again:
        room.ensemble.apply([Delete("/config/topics/a")])
        payload = encode_topic(uuid.uuid4(), {0: ReplicaAssignment(ids(2))})
        room.ensemble.apply([Create(znodes.topic_path("a"), payload)])
        await room.handle(on_partition_modifications, PartitionModifications("a"))
    else:
        await room.handle(on_topic_change, TopicChange())

    assert await looked_at_again(room)
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_failed_directory_that_holds_other_partitions_is_no_hindrance() -> None:
    room = await Room.open((1, 2), topics={"a": [(1,)], "filler": [(2,)]})
    room.term.context.offline_dirs[BrokerId(2)] = {room.partition("filler-0"): None}
    leave_request(room, a_0=[2])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    await join(room, 1, 2)

    assert (assigned(room), room.now("a-0")) == ("[2] + [] - []", "2 / [2] / 3 / 4")
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_partition_without_any_state_moves_to_brokers_that_live_and_these_know_it_when_they_return() -> None:
    room = await Room.open((1, 2), topics={"a": [(9,)]})
    await ask(room, a_0=[1, 2])
    assert (assigned(room), room.now("a-0")) == ("[1, 2] + [] - []", "1 / [1,2] / 1 / 1")

    room.kill(2)
    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert any(r.startswith("LISR a-0") and r.endswith("-> 2") for r in requests), requests


# ---- controllers that take over


async def test_a_new_controller_begins_again_where_replicas_are_being_added() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])

    await room.become_controller()
    requests = room.channels.take()

    assert assigned(room) == "[2, 1] + [2] - [1]"
    assert room.now("a-0") == "1 / [1] / 2 / 2"
    assert "LISR a-0=1/[1]/1/1 -> 1,2" in requests  # the start: not as new
    assert "LISR a-0=1/[1]/2/2+new -> 2" in requests

    await join(room, 1, 2)
    assert assigned(room) == "[2] + [] - []"


@pytest.mark.parametrize("writes", range(5))
async def test_a_controller_that_dies_after_any_write_leaves_what_the_next_one_finishes(writes: int) -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])
    room.crash_after(writes)
    with pytest.raises(ConnectionError):
        await join(room, 1, 2, 3, 4)

    await room.become_controller()
    if writes == 0:  # the ISR itself was not written
        await join(room, 1, 2, 3, 4)

    assert assigned(room) == "[3, 4] + [] - []"
    state = room.stored("a-0")
    assert state.leader in (3, 4)
    assert set(state.isr) == {3, 4}


@pytest.mark.parametrize("writes", range(4))
async def test_a_cancellation_that_is_cut_short_leaves_nobody_in_the_isr_who_is_no_replica(writes: int) -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])
    await join(room, 1, 2, 3)
    room.crash_after(writes)
    with pytest.raises(ConnectionError):
        await ask(room, a_0=None)

    await room.become_controller()

    state, assignment = room.stored("a-0"), room.partition("a-0").assignment
    assert set(state.isr) <= set(assignment.replicas)
    assert state.leader == 1


# ---- refusals


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
async def test_impossible_requests_are_refused_and_change_nothing(target: list[int] | None, error: ErrorCode) -> None:
    room = await room_with()

    answer, requests = await ask(room, a_0=target)

    assert answer.refused[parse_topic_partition("a-0")].error is error
    assert (requests, room.now("a-0"), assigned(room)) == ([], "1 / [1,2,3] / 0 / 0", "[1, 2, 3] + [] - []")


async def test_one_refusal_does_not_stop_the_others() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})

    answer, _ = await ask(room, a_0=[9], a_1=[2], b_0=[1])

    assert {str(p): r.error for p, r in answer.refused.items()} == {
        "a-0": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "b-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert assigned(room, "a-1") == "[2, 1] + [2] - [1]"


async def test_replicas_that_are_there_already_may_be_dead() -> None:
    room = await room_with(1, 2)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())

    answer, _ = await ask(room, a_0=[3, 2])

    assert answer.refused == {}
    assert assigned(room) == "[3, 2, 1] + [3] - [1]"


# ---- better than Kafka


async def moved_away_from_a_dead_broker() -> Room:
    room = await room_with(1, 2)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await ask(room, a_0=[1, 3])
    await join(room, 1, 3)
    assert assigned(room) == "[1, 3] + [] - []"
    return room


async def test_a_replica_that_moved_away_from_a_dead_broker_goes_when_that_returns() -> None:
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
async def test_a_moved_replica_whose_broker_registered_anew_unseen_goes_all_the_same(is_seen_first: bool) -> None:
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
        handler, event = (
            (on_broker_change, BrokerChange()) if is_broker_change else (on_replica_deletion_answer, answer)
        )
        requests += await room.handle(handler, event)

    [stop] = [r for r in requests if r.startswith("SR a-0")]
    assert stop.endswith("+delete -> 2")


async def moved_away(room: Room) -> tuple[Partition, int]:
    """Partition a-0 from 1, 2 to 1, 3; what broker 2 will be asked about, and in which registration."""
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


async def test_the_order_to_delete_a_moved_replica_outlives_its_controller() -> None:
    """It was queued, not sent, when the controller died: the topic's znode names that broker no more."""
    room = await room_with(1, 2)
    await moved_away(room)

    requests = await new_controller(room)

    assert "SR a-0@-2+delete -> 2" in requests
    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    await answer_deletion(room, record.partitions[0], room.term.context.registered[BrokerId(2)].epoch)
    assert not room.term.context.pending_deletions
    assert not any(r.startswith("SR") for r in await new_controller(room))


async def test_a_controller_that_was_replaced_unheard_does_not_delete_what_moved_back_since() -> None:
    room = await room_with(1, 2)
    await moved_away(room)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(2)
    room.ensemble.apply([Set("/controller_epoch", b"7")])

    with pytest.raises(ControllerMoved):
        await room.handle(on_broker_change, BrokerChange())

    assert not any(r.startswith("SR") for r in room.channels.take())


async def test_an_answer_that_names_a_moved_replica_twice_settles_it_once() -> None:
    """Orders of a move and of the next controller, or about two topics of one name, share a request."""
    room = await room_with(1, 2)
    partition, epoch = await moved_away(room)
    [record] = room.term.context.pending_deletions[BrokerId(2)].values()

    twice = dict.fromkeys((partition, record.partitions[0]), ErrorCode.NONE)
    await room.handle(on_replica_deletion_answer, TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, twice))

    assert not room.term.context.pending_deletions


async def test_what_a_broker_said_before_a_replica_moved_away_does_not_prove_that_it_is_gone() -> None:
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


async def test_of_two_orders_to_delete_a_replica_the_answer_to_the_last_one_counts() -> None:
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


async def test_of_two_replicas_that_moved_away_one_comes_back_and_the_other_is_still_remembered() -> None:
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


async def test_a_moved_replica_whose_broker_died_before_it_was_told_is_written_down() -> None:
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


async def test_a_moved_replica_that_could_not_be_deleted_outlives_its_topic_in_a_record() -> None:
    """Its log directory failed: the topic's deletion asks other brokers, a later topic of that name would meet it."""
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)
    partition = room.partition("a-0")
    room.term.context.queue_deletion(["a"])
    epoch = room.term.context.registered[BrokerId(2)].epoch

    failed = {partition: ErrorCode.KAFKA_STORAGE_ERROR}
    await room.handle(on_replica_deletion_answer, TopicDeletionStopReplicaResponseReceived(BrokerId(2), epoch, failed))
    await forget_pending_deletions(room.term, "a", [])

    [record] = room.term.context.pending_deletions[BrokerId(2)].values()
    assert (record.topic, list(record.partitions)) == ("a", [0])


async def test_a_replica_that_moved_back_before_its_broker_returned_is_not_touched() -> None:
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
async def test_a_partition_that_never_had_a_leader_gets_one_where_it_goes(target: list[int], waits: bool) -> None:
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


async def test_the_leader_moves_before_an_override_drops_it() -> None:
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


async def test_an_override_that_would_drop_the_only_in_sync_replica_is_refused() -> None:
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
    """Broker 3, being added, leads alone: what an unclean election leaves behind."""
    state = room.stored("a-0")
    room.write_state("a-0", state._replace(leader=BrokerId(3), isr=ids(3)))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))


async def test_replicas_are_kept_while_no_replica_of_the_target_can_lead() -> None:
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


# ---- leaders that write their ISR themselves


OLD = ControllerSettings(BrokerId(1), ibp=(2, 6, 0))


async def old_room() -> Room:
    room = await Room.open(topics={"a": [(1,)]}, settings=OLD)
    await ask(room, a_0=[2])
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))
    return room


async def test_an_announced_isr_change_completes_it() -> None:
    room = await old_room()
    announced = encode_isr_change([parse_topic_partition("a-0")])
    room.ensemble.apply([Create(f"{znodes.ISR_CHANGES}/isr_change_", announced, sequential=True)])

    await room.handle(on_isr_change_notification, IsrChangeNotification())

    assert assigned(room) == "[2] + [] - []"
    assert room.now("a-0") == "2 / [2] / 3 / 4"
    assert not room.ensemble.nodes[znodes.ISR_CHANGES].children


async def test_an_isr_that_zookeeper_does_not_show_is_looked_at_again() -> None:
    """The refused read set no watch: nobody would tell of the next change."""
    room = await old_room()
    room.ensemble.unreadable.add(znodes.state_path(parse_topic_partition("a-0")))
    change = PartitionReassignmentIsrChange(parse_topic_partition("a-0"))

    with pytest.raises(KlammError, match="does not show the state of a-0"):
        await room.handle(on_state_change, change)
    assert room.entries("refused")[-1].facts["why"] == "ZooKeeper: NO_AUTH"

    room.ensemble.unreadable.clear()
    await room.handle(on_state_change, change)
    assert assigned(room) == "[2] + [] - []"


async def test_a_change_of_the_state_znode_is_watched_and_completes_it() -> None:
    room = await Room.open(topics={"a": [(1,)]}, settings=OLD)
    heard: list[WatchEvent] = []
    room.client.on_watch = heard.append
    await ask(room, a_0=[2])

    for _ in range(2):  # our own write of the leader epoch is heard first
        event = next(e for e in map(event_of, heard) if isinstance(e, PartitionReassignmentIsrChange))
        heard.clear()
        await room.handle(on_state_change, event)
        if room.partition("a-0").assignment.is_being_reassigned:
            room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))

    assert assigned(room) == "[2] + [] - []"


@pytest.mark.parametrize("target", [None, [3]])
@pytest.mark.parametrize("writes", range(5))
async def test_a_leader_that_writes_its_isr_itself_takes_in_nobody_who_is_being_dropped(
    target: list[int] | None, writes: int
) -> None:
    """It has been told of the state as it was before, and writes after any of the controller's writes."""
    room = await Room.open(topics={"a": [(1,)]}, settings=OLD)
    await ask(room, a_0=[2])
    told = room.stored("a-0")
    room.crash_after(writes)
    with suppress(ConnectionError):
        await ask(room, a_0=target)

    own_write = Set(
        znodes.state_path(parse_topic_partition("a-0")),
        znodes.encode_state(told._replace(isr=ids(1, 2))),
        told.partition_epoch,
    )
    room.ensemble.apply([own_write])

    name = znodes.decode_topic("a", room.ensemble.nodes[znodes.topic_path("a")].data)
    assert set(room.stored("a-0").isr) <= set(name.partitions[0].replicas)


async def test_an_override_goes_by_the_isr_that_the_leader_wrote_and_nobody_announced_yet() -> None:
    room = await old_room()
    writes: list[str] = []
    room.ensemble.before_multi = lambda ops: writes.extend(op.path for op in ops if isinstance(op, Set))

    await ask(room, a_0=[3])

    state, topic = znodes.state_path(parse_topic_partition("a-0")), znodes.topic_path("a")
    assert [w for w in writes if w in (state, topic)][:3] == [state, state, topic]
    assert room.stored("a-0").isr == (1,)


async def test_an_override_is_refused_where_the_leader_could_not_be_kept_from_its_isr() -> None:
    room = await Room.open(topics={"a": [(1,)]}, settings=OLD)
    await ask(room, a_0=[2])
    before = assigned(room)
    room.write_state("a-0", room.stored("a-0")._replace(controller_epoch=99))

    answer, requests = await ask(room, a_0=None)

    [refusal] = answer.refused.values()
    assert "could not be kept from taking replica 2" in refusal.why
    assert (requests, assigned(room)) == ([], before)


async def test_what_is_not_being_reassigned_is_not_looked_at() -> None:
    room = await old_room()
    await room.handle(on_state_change, PartitionReassignmentIsrChange(parse_topic_partition("a-0")))

    for name in ("a-0", "gone-0"):
        event = PartitionReassignmentIsrChange(parse_topic_partition(name))
        assert await room.handle(on_state_change, event) == []


# ---- the old tools' znode


async def test_the_old_tools_list_is_worked_off_and_removed_with_its_last_entry() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})
    leave_request(room, a_0=[2], a_1=[3])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    await join(room, 1, 2, name="a-0")
    assert znodes.REASSIGN_PARTITIONS in room.ensemble.nodes
    await join(room, 1, 3, name="a-1")

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_an_entry_that_is_under_way_is_not_begun_again() -> None:
    room = await room_with(1)
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert await room.handle(on_zk_reassignment, ZkPartitionReassignment()) == []


async def test_an_impossible_entry_that_asks_for_what_is_under_way_is_refused_and_goes() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])
    leave_request(room, a_0=[2, 2])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[2, 1] + [2] - [1]"


async def test_impossible_entries_are_refused_aloud_and_taken_from_the_list() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,), (1,)]})
    leave_request(room, a_0=[2], a_1=[-9], a_2=[2, 2], b_0=[1])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert room.ensemble.nodes[znodes.REASSIGN_PARTITIONS].data == encode_reassignment(
        {parse_topic_partition("a-0"): ids(2)}
    )
    refused = {str(e.facts["partitions"]): e.facts["why"] for e in room.entries("refused")}
    assert refused == {
        "{'a': [1]}": "the list of replicas has an invalid broker id: [-9]",
        "{'a': [2]}": "the list of replicas names a broker twice: [2, 2]",
        "{'b': [0]}": "The partition does not exist.",
    }


async def test_an_entry_for_a_new_broker_that_is_away_waits_for_it_and_can_be_cancelled() -> None:
    room = await Room.open((1, 2), topics={"a": [(1,)]})
    leave_request(room, a_0=[9])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    partition = room.partition("a-0")
    assert (partition.assignment.adding, partition.assignment.removing) == (ids(9), ids(1))
    assert partition.leadership is not None
    assert partition.leadership.isr == ids(1)
    assert znodes.REASSIGN_PARTITIONS in room.ensemble.nodes
    assert room.entries("refused") == []


@pytest.mark.parametrize("payload", [b"", b"{", b'{"version":1,"partitions":[{"topic":"a"}]}'])
async def test_a_list_nobody_can_read_is_refused_and_removed(payload: bytes) -> None:
    room = await room_with(1)
    heard: list[WatchEvent] = []
    room.ensemble.apply([Create(znodes.REASSIGN_PARTITIONS, payload)])
    room.client.on_watch = heard.append

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert room.entries("refused")[-1].facts["what"] == znodes.REASSIGN_PARTITIONS
    assert [type(event_of(watch)) for watch in heard] == [ZkPartitionReassignment]  # which sets the watch again


async def test_an_empty_list_is_removed() -> None:
    room = await room_with(1)
    leave_request(room)

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_the_api_wins_over_the_old_tools_list() -> None:
    room = await room_with(1)
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    await ask(room, a_0=[3])

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[3, 1] + [3] - [1]"


# ---- what is under way


async def test_what_is_under_way_is_listed() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})
    await ask(room, a_1=[2])
    every = ListPartitionReassignments(None)
    named = ListPartitionReassignments([parse_topic_partition(n) for n in ("a-0", "a-1", "b-0")])

    for event in (every, named):
        await room.handle(on_list_reassignments, event)

        assert event.reply.result().assignments == {
            parse_topic_partition("a-1"): ReplicaAssignment(ids(2, 1), ids(2), ids(1))
        }


async def test_the_journal_says_what_is_waited_for() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])

    steps = [(e.facts["step"], e.facts.get("awaited")) for e in room.entries("reassignment")]
    assert steps == [("begun", [2]), ("waiting", [2])]

    await join(room, 1, 2)
    assert room.entries("reassignment")[-1].facts["step"] == "complete"


async def test_the_journal_says_why_a_moved_replica_leaves_the_isr() -> None:
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)

    [removal] = [e.facts for e in room.entries("decision") if e.facts["decision"] == "isr-removal"]
    assert removal["rejected"] == [[2, "a reassignment takes its replica away"]]


async def test_many_partitions_share_their_writes_and_requests() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,)] * 300, "b": [(1,)] * 300})
    room.ensemble.multis.clear()

    await ask(room, **{f"{t}_{n}": [2] for t in "ab" for n in range(300)})

    assert len(room.ensemble.multis) <= 6
    assert room.partition("b-299").assignment.adding == (2,)


def test_only_the_target_is_awaited() -> None:
    moving = ReplicaAssignment(ids(3, 1, 2), ids(3), ids(1))

    assert awaited(moving, ids(1, 2)) == (3,)
    assert awaited(moving, ids(3, 2)) == ()
    assert awaited(ReplicaAssignment(ids(1, 2)), ids(1)) == ()  # nothing is being reassigned
