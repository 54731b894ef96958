"""A controller that was replaced without noticing: it writes nothing, and resigns."""

from collections.abc import Sequence

import pytest
from tests.support.controller_nodes import Nodes

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.zk.admin_znodes import encode_preferred_election, encode_reassignment
from klamm.zk.operations import Create, Delete, Op, Set
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


async def test_a_controller_whose_epoch_znode_another_client_changed_resigns_and_is_elected_again(
    nodes: Nodes,
) -> None:
    """`/controller` is still its own: without the resignation nobody could write any more, and nobody be elected."""
    controller = await nodes.start(1)
    await nodes.settle()

    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"7")])
    await nodes.topic("a", [(1,)])

    assert (controller.is_active, controller.epoch, nodes.controller_epoch) == (True, 8, 8)
    assert "/brokers/topics/a/partitions/0/state" in nodes.ensemble.nodes


async def test_a_controller_whose_epoch_znode_is_changed_in_its_failover_is_elected_again(nodes: Nodes) -> None:
    await nodes.start(1)
    controller = await nodes.start(2)
    await nodes.settle()
    await nodes.topic("a", [(1, 2)])

    def change(ops: Sequence[Op]) -> None:
        if any(op.path == "/brokers/topics/a/partitions/0/state" for op in ops):
            nodes.ensemble.before_multi = lambda ops: None
            nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"7")])

    nodes.ensemble.before_multi = change
    await nodes.stop(1)
    await nodes.settle()

    assert (controller.is_active, controller.epoch, nodes.controller_epoch) == (True, 8, 8)
    assert b'"leader":2' in (nodes.ensemble.nodes["/brokers/topics/a/partitions/0/state"].data or b"")
