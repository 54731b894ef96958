"""`/admin/reassign_partitions`, and how reassignments are listed and journalled."""

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.reassigning import ask, assigned, ids, join, leave_request, room_with

from klamm.controller.decisions.reassignment import awaited
from klamm.controller.events import (
    ListPartitionReassignments,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.reassignment_requests import (
    on_list_reassignments,
    on_zk_reassignment,
)
from klamm.controller.watches import event_for
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import parse_topic_partition
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_reassignment
from klamm.zk.operations import Create
from klamm.zk.watches import WatchEvent

# ---- the old tools' znode


async def test_the_reassign_partitions_znode_is_processed_and_removed_with_its_last_entry() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})
    leave_request(room, a_0=[2], a_1=[3])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    await join(room, 1, 2, name="a-0")
    assert znodes.REASSIGN_PARTITIONS in room.ensemble.nodes
    await join(room, 1, 3, name="a-1")

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_reassignment_already_in_progress_is_not_restarted_by_a_reassign_partitions_entry() -> None:
    room = await room_with(1)
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert await room.handle(on_zk_reassignment, ZkPartitionReassignment()) == []


async def test_an_invalid_reassign_partitions_entry_is_removed_even_if_equal_to_an_ongoing_reassignment() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])
    leave_request(room, a_0=[2, 2])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[2, 1] + [2] - [1]"


async def test_invalid_reassign_partitions_entries_are_journalled_and_removed() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,), (1,)]})
    leave_request(room, a_0=[2], a_1=[-1], a_2=[2, 2], b_0=[1])

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert room.ensemble.nodes[znodes.REASSIGN_PARTITIONS].data == encode_reassignment(
        {parse_topic_partition("a-0"): ids(2)}
    )
    refused = {str(e.facts["partitions"]): e.facts["why"] for e in room.entries("refused")}
    assert refused == {
        "{'a': [1]}": "The list of replicas has a negative broker id: [-1]. Send ids of brokers.",
        "{'a': [2]}": "The list of replicas has a broker twice: [2, 2]. Send each broker once.",
        "{'b': [0]}": "The partition does not exist.",
    }


async def test_a_reassign_partitions_entry_with_an_offline_broker_waits_and_can_be_cancelled() -> None:
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
async def test_a_malformed_reassign_partitions_znode_is_journalled_and_removed(payload: bytes) -> None:
    room = await room_with(1)
    heard: list[WatchEvent] = []
    room.ensemble.apply([Create(znodes.REASSIGN_PARTITIONS, payload)])
    room.client.on_watch = heard.append

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert room.entries("refused")[-1].facts["what"] == znodes.REASSIGN_PARTITIONS
    assert [type(event_for(watch)) for watch in heard] == [ZkPartitionReassignment]  # which sets the watch again


async def test_an_empty_reassign_partitions_znode_is_removed() -> None:
    room = await room_with(1)
    leave_request(room)

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_alter_partition_reassignments_overrides_the_reassign_partitions_znode() -> None:
    room = await room_with(1)
    leave_request(room, a_0=[2])
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    await ask(room, a_0=[3])

    assert znodes.REASSIGN_PARTITIONS not in room.ensemble.nodes
    assert assigned(room) == "[3, 1] + [3] - [1]"


# ---- what is under way


async def test_list_partition_reassignments_returns_the_reassignments_in_progress() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})
    await ask(room, a_1=[2])
    every = ListPartitionReassignments(None)
    named = ListPartitionReassignments([parse_topic_partition(n) for n in ("a-0", "a-1", "b-0")])

    for event in (every, named):
        await room.handle(on_list_reassignments, event)

        assert event.reply.result().assignments == {
            parse_topic_partition("a-1"): ReplicaAssignment(ids(2, 1), ids(2), ids(1))
        }


async def test_the_journal_names_the_replicas_for_which_a_reassignment_waits() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])

    steps = [(e.facts["step"], e.facts.get("awaited")) for e in room.entries("reassignment")]
    assert steps == [("begun", [2]), ("waiting", [2])]

    await join(room, 1, 2)
    assert room.entries("reassignment")[-1].facts["step"] == "complete"


async def test_the_journal_states_why_a_reassigned_replica_leaves_the_isr() -> None:
    room = await room_with(1, 2)
    await ask(room, a_0=[1, 3])
    await join(room, 1, 2, 3)

    [removal] = [e.facts for e in room.entries("decision") if e.facts["decision"] == "isr-removal"]
    assert removal["rejected"] == [[2, "a reassignment takes its replica away"]]


async def test_reassignments_of_many_partitions_share_zookeeper_writes_and_control_requests() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,)] * 300, "b": [(1,)] * 300})
    room.ensemble.multis.clear()

    await ask(room, **{f"{t}_{n}": [2] for t in "ab" for n in range(300)})

    assert len(room.ensemble.multis) <= 6
    assert room.partition("b-299").assignment.adding == (2,)


def test_a_reassignment_completes_when_all_target_replicas_are_in_sync() -> None:
    moving = ReplicaAssignment(ids(3, 1, 2), ids(3), ids(1))

    assert awaited(moving, ids(1, 2)) == (3,)
    assert awaited(moving, ids(3, 2)) == ()
    assert awaited(ReplicaAssignment(ids(1, 2)), ids(1)) == ()  # nothing is being reassigned
