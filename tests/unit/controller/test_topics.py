"""Topics that are created, grown, removed and recreated, and state that already exists in ZooKeeper."""

import uuid

import pytest
from tests.support.controller_room import Room

from klamm.controller.decisions.changes import diff_topics
from klamm.controller.events import (
    BrokerChange,
    IsrChangeNotification,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.elections import on_topic_unclean_enabled, on_unclean_enabled
from klamm.controller.handlers.isr import on_isr_change_notification
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.controller.handlers.topics import DELETED_BY_HAND, on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_config, encode_isr_change
from klamm.zk.operations import Create, Delete, Op, Set


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def grow(room: Room, topic: str, partitions: dict[int, tuple[int, ...]]) -> None:
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, topic)
    payload = znodes.encode_topic(topic_id, {n: ReplicaAssignment(ids(*r)) for n, r in partitions.items()})
    room.ensemble.apply([Set(znodes.topic_path(topic), payload)])


def remove(room: Room, topic: str) -> None:
    paths = [
        p for p in room.ensemble.nodes if p == znodes.topic_path(topic) or p.startswith(f"/brokers/topics/{topic}/")
    ]
    for path in sorted(paths, key=len, reverse=True):
        room.ensemble.apply([Delete(path)])


def test_comparing_topic_lists_returns_new_and_deleted_topics_sorted_by_name() -> None:
    assert diff_topics({}, ["b", "a"]) == (("a", "b"), ())


async def test_a_new_topic_with_only_dead_replicas_gets_no_state_znode() -> None:
    room = await Room.open(brokers=(1,))
    await room.write_topic("a", [(2, 3)])

    assert await room.handle(on_topic_change, TopicChange()) == []
    assert room.partition("a-0").state is PartitionState.NEW
    assert "/brokers/topics/a/partitions" not in room.ensemble.nodes

    await room.register(3)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "3 / [3] / 0 / 0"
    assert "LISR a-0=3/[3]/0/0+new -> 3" in requests


async def test_a_changed_topic_znode_adds_partitions_but_does_not_change_existing_replica_lists() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    grow(room, "a", {0: (3, 2), 1: (2, 3)})

    requests = await room.handle(on_partition_modifications, PartitionModifications("a"))

    assert room.now("a-1") == "2 / [2,3] / 0 / 0"
    assert room.partition("a-0").replicas == (1, 2)
    assert requests == ["LISR a-1=2/[2,3]/0/0+new -> 2,3", "UMR a-1=2/[2,3]/0/0 -> 1,2,3"]
    assert await room.handle(on_partition_modifications, PartitionModifications("a")) == []


async def test_a_recreated_topic_has_no_state_of_the_deleted_topic() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    remove(room, "a")
    payload = znodes.encode_topic(uuid.uuid4(), {0: ReplicaAssignment(ids(3, 2))})
    room.ensemble.apply([Create(znodes.topic_path("a"), payload)])

    await room.handle(on_partition_modifications, PartitionModifications("a"))

    assert room.now("a-0") == "3 / [3,2] / 0 / 0"


@pytest.mark.parametrize("looks_between", [False, True])
async def test_a_topic_recreated_without_a_topic_id_has_no_state_of_the_deleted_topic(looks_between: bool) -> None:
    """Whether its absence was seen or not; the list of topics is the same as before."""
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    remove(room, "a")
    if looks_between:
        await room.handle(on_partition_modifications, PartitionModifications("a"))
    room.ensemble.apply([Create(znodes.topic_path("a"), znodes.encode_topic(None, {0: ReplicaAssignment(ids(3, 2))}))])

    await room.handle(on_partition_modifications, PartitionModifications("a"))
    await room.handle(on_topic_change, TopicChange())

    assert room.now("a-0") == "3 / [3,2] / 0 / 0"


@pytest.mark.parametrize("is_queued", [True, False])
async def test_a_topic_recreated_while_its_deletion_is_requested_is_deleted_too(is_queued: bool) -> None:
    room = await Room.open(brokers=(1, 2), topics={"a": [(1, 2)]})
    if is_queued:
        room.ensemble.apply([Create(znodes.delete_topic_path("a"))])
        await room.handle(on_topic_deletion, TopicDeletion())
    remove(room, "a")
    payload = znodes.encode_topic(uuid.uuid4(), {0: ReplicaAssignment(ids(2, 1))})
    room.ensemble.apply([Create(znodes.topic_path("a"), payload)])

    await room.handle(on_partition_modifications, PartitionModifications("a"))

    assert [type(event) for event in room.put] == [TopicDeletion] * is_queued
    requests = await room.handle(on_topic_deletion, TopicDeletion())
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@-2+delete -> 1,2"] * is_queued


async def test_a_removed_topic_leaves_the_controllers_memory_and_can_be_created_again() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.kill(1)
    remove(room, "a")

    assert await room.handle(on_topic_change, TopicChange()) == []
    [told] = room.entries("refused")
    assert (told.facts["topic"], told.facts["why"]) == ("a", DELETED_BY_HAND)
    context = room.term.context
    assert not context.topics
    assert not any(context.replica_states.values())
    assert not any(context.led_by.values())

    await room.write_topic("a", [(2, 3)])
    await room.handle(on_topic_change, TopicChange())
    assert room.now("a-0") == "2 / [2,3] / 0 / 0"


async def test_a_new_partition_with_an_existing_state_znode_takes_leader_and_isr_from_that_znode() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2)])
    found = LeaderAndIsr(BrokerId(2), 7, ids(2), 1)
    partition = TopicPartition("a", 0)
    above: list[Op] = [Create(znodes.partitions_path("a")), Create(znodes.partition_path(partition))]
    room.ensemble.apply([*above, Create(znodes.state_path(partition), znodes.encode_state(found))])

    await room.handle(on_topic_change, TopicChange())

    assert room.now("a-0") == "2 / [2] / 8 / 1"
    assert room.partition("a-0").state is PartitionState.ONLINE


async def test_a_partition_state_created_although_zookeepers_reply_was_lost_is_accepted() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2)])
    lose_first_answer(room, Create)

    requests = await room.handle(on_topic_change, TopicChange())

    assert room.now("a-0") == "1 / [1,2] / 0 / 0"
    assert "LISR a-0=1/[1,2]/0/0+new -> 1,2" in requests


async def test_a_leader_election_whose_zookeeper_reply_was_lost_is_not_repeated() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.kill(1)
    lose_first_answer(room, Set)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert requests[0] == "LISR a-0=2/[2,3]/1/1 -> 2,3"


def lose_first_answer(room: Room, kind: type[Op]) -> None:
    """Let the first write of this kind be applied while its answer is lost, so that the client repeats it."""
    lost: list[bool] = []

    def apply_twice(ops: object) -> None:
        writes = [op for op in ops if isinstance(op, kind) and op.path.endswith("state")]  # type: ignore[attr-defined]
        if writes and not lost:
            lost.append(True)
            room.ensemble.apply(list(ops), room.client.session_id)  # type: ignore[call-overload]

    room.ensemble.before_multi = apply_twice


async def test_an_existing_topic_without_a_topic_id_is_assigned_a_topic_id() -> None:
    room = await Room.open()
    payload = znodes.encode_topic(None, {0: ReplicaAssignment(ids(1, 2, 3), ids(3), ids(1))})
    room.ensemble.apply([Create(znodes.topic_path("old"), payload)])

    await room.handle(on_topic_change, TopicChange())

    stored = znodes.decode_topic("old", room.ensemble.nodes[znodes.topic_path("old")].data)
    assert stored.topic_id == room.term.context.topics["old"].id is not None
    assert stored.partitions[0] == ReplicaAssignment(ids(1, 2, 3), ids(3), ids(1))  # reassignment under way: kept


async def test_a_controller_with_a_protocol_before_topic_ids_assigns_no_topic_ids() -> None:
    room = await Room.open(settings=ControllerSettings(BrokerId(1), ibp=(2, 7, 2)))
    room.ensemble.apply([Create(znodes.topic_path("old"), znodes.encode_topic(None, {0: ReplicaAssignment(ids(1))}))])

    await room.handle(on_topic_change, TopicChange())

    assert room.term.context.topics["old"].id is None


async def test_an_unreadable_topic_znode_does_not_stop_other_new_topics() -> None:
    room = await Room.open()
    room.ensemble.apply([Create(znodes.topic_path("bad"), b"rubbish")])
    await room.write_topic("good", [(1, 2)])

    await room.handle(on_topic_change, TopicChange())
    await room.handle(on_partition_modifications, PartitionModifications("bad"))

    assert room.now("good-0") == "1 / [1,2] / 0 / 0"
    assert "bad" not in room.term.context.topics


# ---- unclean elections


async def lost_isr(room: Room) -> None:
    """A controller with `a-0` on 1 and 2, whose only in-sync replica 1 died."""
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1)))
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "-1 / [1] / 1 / 2"


async def test_enabling_unclean_elections_for_a_topic_elects_leaders_of_its_offline_partitions() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(1, 2)]})
    await lost_isr(room)
    path = znodes.topic_config_path("a")
    room.ensemble.apply([Set(path, encode_config({"unclean.leader.election.enable": "true"}))])

    assert await room.handle(on_topic_unclean_enabled, TopicUncleanLeaderElectionEnable("b")) == []
    await room.handle(on_topic_unclean_enabled, TopicUncleanLeaderElectionEnable("a"))

    assert room.now("a-0") == "2 / [2] / 2 / 3"
    assert room.stored("a-0").recovery == 1
    assert [e.facts["unclean"] for e in room.entries("decision") if e.facts.get("unclean")] == [True]


async def test_a_topics_unclean_election_config_overrides_the_brokers_default() -> None:
    room = await Room.open(
        topics={"a": [(1, 2)]}, settings=ControllerSettings(BrokerId(1), unclean_leader_election=True)
    )
    room.ensemble.apply(
        [Set(znodes.topic_config_path("a"), encode_config({"unclean.leader.election.enable": "false"}))]
    )
    await lost_isr(room)

    await room.handle(on_unclean_enabled, UncleanLeaderElectionEnable())
    assert room.now("a-0") == "-1 / [1] / 1 / 2"

    room.ensemble.apply([Set(znodes.topic_config_path("a"), encode_config({}))])
    await room.handle(on_unclean_enabled, UncleanLeaderElectionEnable())
    assert room.now("a-0") == "2 / [2] / 2 / 3"


async def test_an_unreadable_topic_config_prevents_unclean_election_of_that_topic() -> None:
    room = await Room.open(
        topics={"a": [(1, 2)]}, settings=ControllerSettings(BrokerId(1), unclean_leader_election=True)
    )
    room.ensemble.apply([Set(znodes.topic_config_path("a"), b"rubbish")])

    await lost_isr(room)

    assert room.now("a-0") == "-1 / [1] / 1 / 2"
    assert any("/config/topics/a" in e.facts["why"] for e in room.entries("refused"))


async def test_an_unreadable_topic_znode_is_journalled_once_per_change() -> None:
    room = await Room.open()

    async def told() -> int:
        await room.handle(on_topic_change, TopicChange())
        return sum(e.facts.get("topic") == "bad" for e in room.entries("refused"))

    room.ensemble.apply([Create(znodes.topic_path("bad"), b"rubbish")])
    assert await told() == 1
    await room.write_topic("a", [(1,)])
    assert await told() == 1
    room.ensemble.apply([Set(znodes.topic_path("bad"), b"rubbish")])
    await room.handle(on_partition_modifications, PartitionModifications("bad"))
    assert await told() == 2
    room.ensemble.unreadable.add(znodes.topic_path("bad"))
    assert await told() == 3
    assert await told() == 3
    room.ensemble.apply([Delete(znodes.topic_path("bad"))])
    await told()
    assert room.term.context.unreadable_topics == {}
    room.ensemble.apply([Create(znodes.topic_path("bad"), b"rubbish")])
    assert await told() == 4


# ---- leaders of an old protocol version


async def test_an_isr_change_notification_makes_the_controller_send_the_new_isr_to_brokers() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))
    parent = "/isr_change_notification/isr_change_"
    listed = [TopicPartition("a", 0), TopicPartition("gone", 0)]
    room.ensemble.apply([Create(parent, encode_isr_change(listed), sequential=True)])
    room.ensemble.apply([Create(parent, b"rubbish", sequential=True)])

    requests = await room.handle(on_isr_change_notification, IsrChangeNotification())

    assert requests == ["UMR a-0=1/[1,2]/0/1 -> 1,2,3"]
    assert not room.ensemble.nodes["/isr_change_notification"].children
