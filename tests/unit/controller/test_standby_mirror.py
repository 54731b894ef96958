"""The mirror of a standby: whatever changes in ZooKeeper, a controller that takes it begins as one that reads all."""

from collections.abc import Callable

import pytest
from tests.support.controller_room import Room
from tests.support.waiting import settle
from tests.unit.controller.mirrored_room import (
    CHANGED,
    STATE,
    TOPICS,
    Comparison,
    following,
    payload,
    room_with_mirror,
    topic_id,
)

from klamm.controller.handlers import mirrored
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk import znodes
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Create, Delete, Op, Set

pytestmark = pytest.mark.usefixtures("no_pauses")


def deleted(room: Room, topic: str) -> list[Op]:
    """What deletes all znodes of a topic."""
    root = znodes.topic_path(topic)
    below = sorted((p for p in room.ensemble.nodes if p == root or p.startswith(f"{root}/")), reverse=True)
    return [Delete(path) for path in below]


def recreated(room: Room, topic: str, content: bytes) -> list[Op]:
    """What deletes a topic and creates one of its name, whose states look as the old ones."""
    ops = deleted(room, topic)
    nodes = room.ensemble.nodes
    below = [Create(op.path, nodes[op.path].data) for op in reversed(ops) if op.path != znodes.topic_path(topic)]
    return [*ops, Create(znodes.topic_path(topic), content), *below]


CHANGES: dict[str, Callable[[Room], list[Op]]] = {
    "nothing": lambda room: [],
    "a state is changed": lambda room: [Set(STATE, znodes.encode_state(CHANGED))],
    "a state is changed and changed back": lambda room: [
        Set(STATE, znodes.encode_state(CHANGED)),
        Set(STATE, room.ensemble.nodes[STATE].data),
    ],
    "a state is deleted": lambda room: [Delete(STATE)],
    "a state is deleted and created": lambda room: [Delete(STATE), Create(STATE, znodes.encode_state(CHANGED))],
    "a state becomes malformed": lambda room: [Set(STATE, b"nonsense")],
    "a topic is created": lambda room: [Create(znodes.topic_path("new"), payload((1, 2), (2, 3)))],
    "a topic is created without an id": lambda room: [
        Create(znodes.topic_path("new"), znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))}))
    ],
    "a topic is deleted": lambda room: deleted(room, "a"),
    "a topic is deleted and created with another id": lambda room: recreated(room, "a", payload((1, 2, 3), (2, 3, 1))),
    "a topic is deleted and created with its old znode": lambda room: recreated(
        room, "a", room.ensemble.nodes[znodes.topic_path("a")].data or b""
    ),
    "a topic becomes malformed": lambda room: [Set(znodes.topic_path("a"), b"nonsense")],
    "a topic loses its id": lambda room: [
        Set(znodes.topic_path("c"), znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))}))
    ],
    "partitions are added": lambda room: [
        Set(znodes.topic_path("b"), payload((3, 1), (1, 2), topic_id=topic_id(room, "b")))
    ],
    "a partition is removed": lambda room: [
        Set(znodes.topic_path("a"), payload((1, 2, 3), topic_id=topic_id(room, "a")))
    ],
    "a partition is reassigned": lambda room: [
        Set(
            znodes.topic_path("a"),
            znodes.encode_topic(
                topic_id(room, "a"),
                {
                    0: ReplicaAssignment((BrokerId(1), BrokerId(2), BrokerId(3)), (BrokerId(3),), (BrokerId(1),)),
                    1: ReplicaAssignment((BrokerId(3), BrokerId(1))),
                },
            ),
        )
    ],
    "another znode appears below a partition": lambda room: [Create(f"{STATE}/odd", b""), Set(STATE, b"nonsense")],
}


@pytest.mark.parametrize("is_followed", [True, False], ids=["followed", "noted"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_controller_started_from_a_standby_mirror_equals_one_that_read_all_znodes(
    change: Callable[[Room], list[Op]], is_followed: bool
) -> None:
    room, mirror, _ = await room_with_mirror()

    if is_followed:
        async with following(mirror):
            for op in change(room):
                assert room.ensemble.apply([op])[0].code is ZkCode.OK
                await settle()
        assert not mirror.changed_count
    else:
        for op in change(room):
            assert room.ensemble.apply([op])[0].code is ZkCode.OK
    await room.become_controller()

    assert isinstance(room.observer, Comparison)
    assert room.observer.compared == 1
    assert len(room.entries("warm")) == 1


async def test_an_elected_node_with_a_standby_mirror_reads_only_changed_znodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "COMPARED_TOPICS", 2)
    room, mirror, _ = await room_with_mirror()
    async with following(mirror):
        room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
    room.ensemble.apply([Set(znodes.state_path(TopicPartition("b", 0)), znodes.encode_state(CHANGED))])
    room.ensemble.apply([Create(znodes.topic_path("new"), payload((1, 2)))])

    await room.become_controller()

    [line] = room.entries("warm")
    facts = ("topic_count", "partition_count", "topics_to_read", "states_to_read")
    assert [line.facts[name] for name in facts] == [3, 4, 1, 1]


async def test_an_elected_node_with_a_standby_mirror_sets_watches_on_all_topics() -> None:
    room, _, _ = await room_with_mirror()

    await room.become_controller()

    assert {znodes.topic_path(t) for t in TOPICS} <= room.client.data_watches
    assert znodes.TOPICS in room.client.child_watches


async def test_a_topic_znode_newly_protected_by_an_acl_makes_the_controller_read_everything() -> None:
    room, _, _ = await room_with_mirror()
    room.observer = None
    room.ensemble.unreadable.add(znodes.topic_path("b"))

    await room.become_controller()

    assert list(room.term.context.topics) == ["a", "c"]
    assert list(room.term.context.unreadable_topics) == ["b"]
    assert not room.entries("warm")
