"""A write that ZooKeeper applied without an answer, and refused when the client repeated it: it counts as written."""

from collections.abc import Sequence

from tests.support.controller_room import Room, alter_partition
from tests.unit.controller.reassigning import ask, assigned, leave_request

from klamm.controller.events import BrokerChange, ResumeAfterFailure, TopicChange, ZkPartitionReassignment
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.reassignment_requests import on_zk_reassignment
from klamm.controller.handlers.topics import on_topic_change
from klamm.controller.watches import retry_events_for
from klamm.model.errors import ErrorCode
from klamm.model.ids import parse_topic_partition
from klamm.zk import znodes
from klamm.zk.operations import Op
from klamm.zk.znodes import REASSIGN_PARTITIONS

STATE = znodes.state_path(parse_topic_partition("a-0"))
TOPIC = znodes.topic_path("a")


def apply_then_refuse(room: Room, path: str) -> None:
    """ZooKeeper applies the next write to the path; the client gets the answer to its repetition, a refusal."""

    def apply(ops: Sequence[Op]) -> None:
        if any(op.path == path for op in ops):
            room.ensemble.before_multi = lambda ops: None
            room.ensemble.apply(ops)
            room.ensemble.unwritable.add(path)

    room.ensemble.before_multi = apply


async def test_a_new_partition_whose_state_was_written_before_the_refusal_is_sent_to_its_replicas() -> None:
    room = await Room.open(brokers=(1, 2))
    await room.write_topic("a", [(1, 2)])
    apply_then_refuse(room, STATE)

    requests = await room.handle(on_topic_change, TopicChange())

    assert room.now("a-0") == "1 / [1,2] / 0 / 0"
    assert "LISR a-0=1/[1,2]/0/0+new -> 1,2" in requests
    assert room.entries("refused") == []


async def test_a_leader_that_was_written_before_the_refusal_is_sent_to_the_replicas() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    apply_then_refuse(room, STATE)
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert "LISR a-0=2/[2,3]/1/1 -> 2,3" in requests


async def test_an_isr_change_that_was_written_before_the_refusal_is_answered_as_accepted() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    apply_then_refuse(room, STATE)
    event = alter_partition(room, 1, 0, 0, (1,))

    await room.handle(on_alter_partition, event)

    [answer] = event.reply.result().topics[0].partitions
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (ErrorCode.NONE, (1,), 1)
    assert room.now("a-0") == "1 / [1] / 0 / 1"


async def test_an_isr_change_that_zookeeper_refuses_is_answered_with_an_error() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.ensemble.unwritable.add(STATE)
    event = alter_partition(room, 1, 0, 0, (1,))

    await room.handle(on_alter_partition, event)

    [answer] = event.reply.result().topics[0].partitions
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.now("a-0") == "1 / [1,2] / 0 / 0"


async def test_a_reassignment_whose_assignment_was_written_before_the_refusal_begins() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    apply_then_refuse(room, TOPIC)

    answer, requests = await ask(room, a_0=[2])

    assert answer.refused == {}
    assert assigned(room) == "[2, 1] + [2] - [1]"
    assert "LISR a-0=1/[1]/1/1+new -> 2" in requests


async def test_a_reassignment_whose_assignment_zookeeper_refuses_does_not_begin() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    room.ensemble.unwritable.add(TOPIC)

    answer, requests = await ask(room, a_0=[2])

    assert [refusal.error for refusal in answer.refused.values()] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert (assigned(room), requests) == ("[1] + [] - []", [])


async def test_a_requested_reassignment_to_the_present_replicas_completes_without_the_refused_write() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    leave_request(room, a_0=[1, 2])
    room.ensemble.unwritable.add(TOPIC)

    await room.handle(on_zk_reassignment, ZkPartitionReassignment())

    assert REASSIGN_PARTITIONS not in room.ensemble.nodes


async def test_a_requested_reassignment_to_the_present_replicas_is_repeated_while_its_topic_cannot_be_read() -> None:
    """Otherwise the list of the old tool would keep its entry until the next controller."""
    room = await Room.open(topics={"a": [(1, 2)]})
    leave_request(room, a_0=[1, 2])
    room.ensemble.unreadable.add(TOPIC)
    await room.handle(on_zk_reassignment, ZkPartitionReassignment())
    assert REASSIGN_PARTITIONS in room.ensemble.nodes

    retried = retry_events_for(room.term.store.writer.pop_refused_paths())
    assert ResumeAfterFailure().retry_key in retried
    room.ensemble.unreadable.clear()
    await room.handle(on_resume_after_failure, ResumeAfterFailure())

    assert REASSIGN_PARTITIONS not in room.ensemble.nodes
