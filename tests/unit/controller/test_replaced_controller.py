"""A controller that was replaced without noticing: it writes nothing, and resigns."""

import pytest
from tests.support.controller_nodes import Nodes

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.zk.admin_znodes import encode_preferred_election, encode_reassignment
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    encode_controller,
    encode_topic,
)


def depose(nodes: Nodes) -> None:
    """Make broker 9 the controller; node 1 has not noticed yet."""
    nodes.clients[1].drop_data_watch(CONTROLLER)
    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"2"), Delete(CONTROLLER)])
    nodes.ensemble.apply([Create(CONTROLLER, encode_controller(BrokerId(9), 0))])


async def test_a_replaced_controllers_first_zookeeper_write_fails_and_the_controller_resigns(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    depose(nodes)

    await nodes.topic("a", [(1,)])

    assert not controller.is_active
    assert "/brokers/topics/a/partitions" not in nodes.ensemble.nodes
    assert nodes.controller_epoch == 2


MOVED_WHILE = {
    "a topic is created": Create("/brokers/topics/b", encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))})),
    "a preferred leader is asked for": Create(PREFERRED_ELECTION, encode_preferred_election([TopicPartition("a", 0)])),
    "a partition is to move": Create(
        REASSIGN_PARTITIONS, encode_reassignment({TopicPartition("a", 0): (BrokerId(1),)})
    ),
}


@pytest.mark.parametrize("asked", MOVED_WHILE.values(), ids=MOVED_WHILE)
async def test_a_replaced_controller_changes_nothing_on_any_request_and_resigns(nodes: Nodes, asked: Create) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])
    depose(nodes)
    before = dict(nodes.ensemble.nodes)
    nodes.receivers[1].received.clear()

    nodes.ensemble.apply([asked])
    await nodes.settle()

    assert not controller.is_active
    assert nodes.journal(1, "moved")
    assert {p: n.version for p, n in nodes.ensemble.nodes.items() if p != asked.path} == {
        p: n.version for p, n in before.items()
    }
    assert asked.path in nodes.ensemble.nodes
    assert nodes.receivers[1].take("LeaderAndIsr") == nodes.receivers[1].take("StopReplica") == []


async def test_a_replaced_controller_deletes_no_topic_znodes_on_a_deletion_request_and_resigns(nodes: Nodes) -> None:
    """Nobody is told to delete: brokers that do not know the new controller would."""
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])
    depose(nodes)
    told: list[ApiKey] = []
    nodes.receivers[1].answer = lambda key, request: told.append(key)

    nodes.ensemble.apply([Create("/admin/delete_topics/a")])
    await nodes.settle()

    assert told == []
    assert not controller.is_active
    assert nodes.journal(1, "moved")
    left = {"/admin/delete_topics/a", "/config/topics/a", "/brokers/topics/a/partitions/0/state"}
    assert left <= nodes.ensemble.nodes.keys()
