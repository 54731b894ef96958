"""Creation of many topics in few multis; one that is refused does not stop the others."""

import uuid
from collections.abc import Sequence

import pytest
from tests.support.controller_room import Room

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import topic_creation, znodes
from klamm.zk.errors import RequestTooLarge
from klamm.zk.operations import Create, Op
from klamm.zk.store import TopicExists
from klamm.zk.topic_creation import TopicToCreate


def topics(*names: str, **config: str) -> list[TopicToCreate]:
    placed = {0: ReplicaAssignment((BrokerId(1),))}
    return [TopicToCreate(name, placed, uuid.uuid5(uuid.NAMESPACE_URL, name), config) for name in names]


async def room_with(*names: str) -> Room:
    return await Room.open(topics={name: [(1,)] for name in names})


async def test_creating_topics_writes_the_config_znode_and_the_topic_znode_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_creation, "MAX_TOPICS", 3)
    room = await room_with()
    names = [f"t{n}" for n in range(8)]

    assert await room.store.create_topics(topics(*names, cleanup="compact")) == {}

    found, _ = await room.store.read_topics(names)
    assert {n: t.topic_id for n, t in found.items()} == {n: uuid.uuid5(uuid.NAMESPACE_URL, n) for n in names}
    configs, _ = await room.store.read_topic_configs(names)
    assert configs == {name: {"cleanup": "compact"} for name in names}


async def test_creating_topics_refuses_only_a_topic_created_by_another_client_meanwhile() -> None:
    room = await room_with("t1")
    before = room.ensemble.nodes[znodes.topic_path("t1")].data

    refused = await room.store.create_topics(topics("t0", "t1", "t2", cleanup="compact"))

    assert {name: type(error) for name, error in refused.items()} == {"t1": TopicExists}
    assert {"t0", "t2"} <= set(await room.store.list_topics())
    assert room.ensemble.nodes[znodes.topic_path("t1")].data == before


async def test_creating_topics_refuses_only_a_topic_over_zookeepers_packet_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_creation, "MAX_BYTES", 200)
    room = await room_with()
    large = TopicToCreate("large", {n: ReplicaAssignment((BrokerId(1),)) for n in range(100)}, uuid.uuid4(), {})

    def limit_packets(ops: Sequence[Op]) -> None:
        if any(op.path == znodes.topic_path("large") for op in ops):
            raise RequestTooLarge(ops[0].path)

    room.ensemble.before_multi = limit_packets

    refused = await room.store.create_topics([*topics("t0"), large, *topics("t2")])

    assert {name: type(error) for name, error in refused.items()} == {"large": RequestTooLarge}
    assert await room.store.list_topics() == ["t0", "t2"]
    assert znodes.topic_config_path("large") not in room.ensemble.nodes


async def test_creating_topics_succeeds_although_the_zookeeper_reply_was_lost() -> None:
    room = await room_with()
    assert await room.store.create_topics(topics("t0", "t1")) == {}

    assert await room.store.create_topics(topics("t0", "t1")) == {}


async def test_creating_a_topic_replaces_a_config_znode_left_by_an_earlier_topic() -> None:
    room = await room_with()
    await room.store.write_config("topics", "t0", {"left": "over"})

    assert await room.store.create_topics(topics("t0", cleanup="compact")) == {}

    assert await room.store.read_config("topics", "t0") == {"cleanup": "compact"}


async def test_existing_topic_names_are_read_from_zookeeper_with_one_request() -> None:
    room = await room_with("t1")
    await room.client.create(znodes.delete_topic_path("t2"), None)

    why = await room.store.check_new_topics(["t0", "t1", "t2"])

    assert why == {"t0": None, "t1": "Topic 't1' already exists.", "t2": "Topic 't2' is marked for deletion."}


async def test_first_states_are_written_although_some_parents_exist_already() -> None:
    """The other parents are then written in smaller multis at the same time, a child perhaps before its parent."""
    names = [f"t{n}" for n in range(8)]
    room = await room_with()
    for name in names:
        await room.write_topic(name, [(1,)])
    room.ensemble.apply([Create(znodes.partitions_path(name)) for name in ("t0", "t2")])
    states = {TopicPartition(name, 0): LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1) for name in names}

    outcome = await room.term.store.create_states(states, names)

    assert (list(outcome.written), outcome.conflicted, outcome.failed) == (list(states), [], {})
