"""Partitions move to other brokers: the steps in their order, overrides, cancellations, and controllers that take over.

Notation as in `test_broker_failures`. `SR a-0@1+delete -> 1` stops and deletes the replica; the number is the
leader epoch."""

import uuid

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.reassigning import ask, assigned, ids, join, leave_request, room_with

from klamm.controller.events import (
    BrokerChange,
    PartitionModifications,
    TargetsInSync,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.reassignment_requests import (
    on_targets_in_sync,
    on_zk_reassignment,
)
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_reassignment
from klamm.zk.operations import Create, Delete
from klamm.zk.znodes import encode_topic


def znodes_of_request(room: Room) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    return dict(decode_reassignment(room.ensemble.nodes[znodes.REASSIGN_PARTITIONS].data))


# ---- worked traces


async def test_reassigning_a_replica_adds_the_new_waits_for_the_isr_and_deletes_the_old() -> None:
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


async def test_a_completed_reassignment_stays_complete_even_if_its_znode_entry_cannot_be_removed() -> None:
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
    assert isinstance(again, ZkPartitionReassignment)
    await room.handle(on_zk_reassignment, again)
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[2] + [] - []"


async def test_repeating_the_same_reassignment_request_increments_the_leader_epoch_only_once() -> None:
    room = await room_with()

    _, requests = await ask(room, a_0=[1, 2, 3])

    assert room.now("a-0") == "1 / [1,2,3] / 1 / 1"
    assert room.ensemble.nodes["/brokers/topics/a"].version == 1  # written at the end, not at the beginning
    assert requests == [
        "LISR a-0=1/[1,2,3]/1/1 -> 1,2,3",
        "UMR a-0=1/[1,2,3]/1/1 -> 1,2,3",
        "UMR a-0=1/[1,2,3]/1/1 -> 1,2,3",
    ]


async def test_repeating_the_request_of_a_waiting_reassignment_sends_leader_and_isr_again() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])

    answer, requests = await ask(room, a_0=[2])

    assert answer == (ErrorCode.NONE, {})
    assert (assigned(room), room.now("a-0")) == ("[2, 1] + [2] - [1]", "1 / [1] / 2 / 2")
    assert "LISR a-0=1/[1]/2/2+new -> 2" in requests


async def test_a_reassignment_that_only_reorders_replicas_completes_at_once_and_keeps_the_leader() -> None:
    room = await room_with()

    await ask(room, a_0=[3, 2, 1])

    assert assigned(room) == "[3, 2, 1] + [] - []"
    assert room.now("a-0") == "1 / [1,2,3] / 1 / 1"


async def test_cancelling_a_reassignment_deletes_the_added_replicas() -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])

    answer, requests = await ask(room, a_0=None)

    assert answer == (ErrorCode.NONE, {})
    assert assigned(room) == "[1, 2] + [] - []"
    assert room.now("a-0") == "1 / [1,2] / 2 / 2"
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@1 -> 3,4", "SR a-0@1+delete -> 3,4"]
    assert not room.term.context.replicas_on(BrokerId(3))


async def test_replacing_a_reassignment_keeps_the_original_replicas_and_deletes_unneeded_replicas() -> None:
    room = await room_with(1, 2, 3, brokers=tuple(range(1, 10)))
    await ask(room, a_0=[4, 5, 6])
    assert assigned(room) == "[4, 5, 6, 1, 2, 3] + [4, 5, 6] - [1, 2, 3]"

    _, requests = await ask(room, a_0=[7, 8, 9])

    assert assigned(room) == "[7, 8, 9, 1, 2, 3] + [7, 8, 9] - [1, 2, 3]"
    assert "SR a-0@1+delete -> 4,5,6" in requests
    assert room.now("a-0") == "1 / [1,2,3] / 2 / 2"


async def test_reassigning_to_the_original_replicas_cancels_the_reassignment() -> None:
    room = await room_with(1, 2, 3, brokers=tuple(range(1, 7)))
    await ask(room, a_0=[4, 5, 6])

    await ask(room, a_0=[1, 2, 3])

    assert assigned(room) == "[1, 2, 3] + [] - []"


async def test_a_reassignment_waits_for_a_target_replica_that_is_offline() -> None:
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


async def test_a_topic_deletion_completes_a_reassignment_whose_target_was_elected_uncleanly() -> None:
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
    """Whether the reassignment znode is queued to be read again; if so, reads it."""
    asked = [e for e in room.put if isinstance(e, ZkPartitionReassignment)]
    for event in asked:
        await room.handle(on_zk_reassignment, event)
    return bool(asked)


async def test_a_reassignment_request_is_removed_with_its_deleted_topic() -> None:
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
async def test_a_reassignment_request_for_a_topic_removed_in_zookeeper_is_removed(comes_again: bool) -> None:
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


async def test_a_failed_log_directory_of_other_partitions_does_not_block_a_reassignment() -> None:
    room = await Room.open((1, 2), topics={"a": [(1,)], "filler": [(2,)]})
    room.term.context.offline_dirs[BrokerId(2)] = {room.partition("filler-0"): None}
    leave_request(room, a_0=[2])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    await join(room, 1, 2)

    assert (assigned(room), room.now("a-0")) == ("[2] + [] - []", "2 / [2] / 3 / 4")
    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_partition_without_a_state_znode_can_be_reassigned_to_live_brokers() -> None:
    room = await Room.open((1, 2), topics={"a": [(9,)]})
    await ask(room, a_0=[1, 2])
    assert (assigned(room), room.now("a-0")) == ("[1, 2] + [] - []", "1 / [1,2] / 1 / 1")

    room.kill(2)
    await room.register(2)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert any(r.startswith("LISR a-0") and r.endswith("-> 2") for r in requests), requests
