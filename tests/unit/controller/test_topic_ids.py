"""Topic ids: created once, and kept when partitions are added or moved, at failovers and protocol downgrades."""

import uuid
from collections.abc import Sequence

from tests.support.controller_room import Room

from klamm.controller.control_requests import LeaderAndIsrItem, RequestBuilder
from klamm.controller.events import (
    ApiPartitionReassignment,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
)
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.handlers.topic_deletion import on_replica_deletion_answer, on_topic_deletion
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings, Ibp
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.runtime.time_slices import CountedSlices
from klamm.zk import znodes
from klamm.zk.operations import Create, Op, Set

OLD: Ibp = (2, 7, 0)
NEW: Ibp = (2, 8, 0)


async def open_room(ibp: Ibp) -> Room:
    return await Room.open(brokers=(1, 2), settings=ControllerSettings(BrokerId(1), ibp=ibp))


async def create(room: Room, *names: str) -> None:
    """Create topics without ids, as an old tool does."""
    znode = znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))})
    for name in names:
        room.ensemble.apply([Create(znodes.topic_path(name), znode)])
    await room.handle(on_topic_change, TopicChange())


async def restart(room: Room, ibp: Ibp) -> None:
    """Begin another term with this protocol level."""
    room.settings = ControllerSettings(BrokerId(1), ibp=ibp)
    await room.become_controller()


def topic_id(room: Room, name: str = "a") -> uuid.UUID | None:
    """The topic's id in memory; checks that the znode agrees and that the id leads back to the name."""
    known = room.term.context.topics[name].id
    assert znodes.decode_topic(name, room.ensemble.nodes[znodes.topic_path(name)].data).topic_id == known
    if known is not None:
        assert room.term.context.topic_with_id(known) is room.term.context.topics[name]
    return known


async def grow(room: Room) -> None:
    """Add a partition to topic `a`."""
    both = {n: ReplicaAssignment((BrokerId(1),)) for n in range(2)}
    room.ensemble.apply([Set(znodes.topic_path("a"), znodes.encode_topic(topic_id(room), both))])
    await room.handle(on_partition_modifications, PartitionModifications("a"))


async def delete(room: Room) -> None:
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])
    await room.handle(on_topic_deletion, TopicDeletion())
    errors = dict.fromkeys(room.term.context.topics["a"].partitions.values(), ErrorCode.NONE)
    epoch = room.term.context.registered[BrokerId(1)].epoch
    answer = TopicDeletionStopReplicaResponseReceived(BrokerId(1), epoch, errors)
    await room.handle(on_replica_deletion_answer, answer)
    assert "a" not in room.term.context.topics


async def test_each_created_topic_gets_its_own_topic_id() -> None:
    room = await open_room(NEW)
    await create(room, "a")
    first = topic_id(room)
    room.term.random_bytes = lambda n: b"\x43" * n
    await create(room, "b")

    assert first is not None
    assert (topic_id(room), topic_id(room, "b")) == (first, uuid.UUID(bytes=b"\x43" * 16, version=4))


async def test_a_controller_with_an_old_inter_broker_protocol_creates_no_topic_ids() -> None:
    room = await open_room(OLD)
    await create(room, "a")
    await create(room, "b")

    assert (topic_id(room), topic_id(room, "b")) == (None, None)
    assert room.ensemble.nodes[znodes.topic_path("a")].version == 0


async def test_a_topic_id_is_kept_when_partitions_are_added_and_removed_on_deletion() -> None:
    room = await open_room(NEW)
    await create(room, "a")
    before = topic_id(room)
    assert before is not None

    await grow(room)
    assert (topic_id(room), len(room.term.context.topics["a"].partitions)) == (before, 2)

    await delete(room)
    assert room.term.context.topic_with_id(before) is None


async def test_a_topic_without_an_id_can_get_partitions_and_be_deleted() -> None:
    room = await open_room(OLD)
    await create(room, "a")

    await grow(room)
    assert (topic_id(room), len(room.term.context.topics["a"].partitions)) == (None, 2)

    await delete(room)


async def test_a_topic_id_stays_the_same_under_the_next_controller() -> None:
    for ibp in (NEW, OLD):
        room = await open_room(ibp)
        await create(room, "a")
        before = topic_id(room)

        await restart(room, ibp)

        assert topic_id(room) == before
        assert (before is None) == (ibp is OLD)


async def test_a_protocol_upgrade_assigns_missing_topic_ids_and_sends_them_to_replicas() -> None:
    room = await open_room(OLD)
    await create(room, "a")
    room.channels.take()

    await restart(room, (3, 9, 0))

    made = topic_id(room)
    assert made is not None
    builder = RequestBuilder(room.term.context, room.settings, CountedSlices())
    [(broker, item)] = [(b, i) for b, i in room.channels.items if isinstance(i, LeaderAndIsrItem)]
    [request] = builder.messages(item, room.term.context.registered[BrokerId(broker)])
    assert [t.topic_id for t in request.topic_states] == [made]


async def test_a_topic_id_survives_a_protocol_downgrade_and_a_reassignment() -> None:
    room = await open_room(OLD)
    await create(room, "a")
    await restart(room, NEW)
    made = topic_id(room)
    assert made is not None

    await restart(room, OLD)
    assert topic_id(room) == made

    event = ApiPartitionReassignment({parse_topic_partition("a-0"): (BrokerId(1),)})
    await room.handle(on_api_reassignment, event)
    assert event.reply.result() == (ErrorCode.NONE, {})
    assert (room.now("a-0"), topic_id(room)) == ("1 / [1] / 1 / 1", made)

    await restart(room, NEW)
    assert topic_id(room) == made
    await delete(room)
    assert room.term.context.topic_with_id(made) is None


async def test_partitions_added_while_a_topic_gets_its_id_are_kept() -> None:
    room = await open_room(NEW)
    replicas = ReplicaAssignment((BrokerId(1),))

    def add_partition(ops: Sequence[Op]) -> None:
        if any(op.path == znodes.topic_path("old") for op in ops):
            room.ensemble.before_multi = lambda ops: None
            grown = znodes.encode_topic(None, {0: replicas, 1: replicas})
            room.ensemble.apply([Set(znodes.topic_path("old"), grown)])

    room.ensemble.before_multi = add_partition
    await create(room, "old")
    await room.handle(on_partition_modifications, PartitionModifications("old"))

    stored = znodes.decode_topic("old", room.ensemble.nodes[znodes.topic_path("old")].data)
    assert list(stored.partitions) == [0, 1]
    assert stored.topic_id == room.term.context.topics["old"].id is not None
    assert room.now("old-1") == "1 / [1] / 0 / 0"
