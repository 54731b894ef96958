"""Work that an event left unfinished because ZooKeeper failed is resumed, whatever the event was."""

import pytest
from tests.support.controller_room import Room, alter_partition

from klamm.controller.events import (
    ApiPartitionReassignment,
    BrokerChange,
    ResumeAfterFailure,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.handlers.topic_deletion import on_replica_deletion_answer, on_topic_deletion
from klamm.controller.handlers.topics import on_topic_change
from klamm.controller.states import ReplicaState
from klamm.controller.steps import READ_TOPICS
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Create

ONE = BrokerId(1)


async def resume(room: Room) -> list[str]:
    """Handle ResumeAfterFailure; returns the requests sent."""
    return await room.handle(on_resume_after_failure, ResumeAfterFailure())


async def test_the_next_controller_finishes_an_interrupted_topic_creation() -> None:
    room = await Room.open(brokers=(1, 2))
    await room.write_topic("a", [(3, 1), (3,)])
    room.fail_once("/brokers/topics/a")
    with pytest.raises(MalformedReply):
        await on_topic_change(room.term, TopicChange())

    assert "LISR a-0=1/[1]/0/0+new -> 1" in await resume(room)

    await room.register(3)
    requests = await room.handle(on_broker_change, BrokerChange())
    first = next(r for r in requests if r.startswith("LISR") and r.endswith("-> 3"))
    assert first == "LISR a-0=1/[1]/0/0 a-1=3/[3]/0/0+new -> 3"


async def test_topics_loaded_before_zookeeper_failed_get_leaders() -> None:
    """The topic without an id is in a later group of topics that are read together: ZooKeeper fails with its new id."""
    room = await Room.open(brokers=(1, 2))
    for number in range(READ_TOPICS):
        await room.write_topic(f"a{number:02}", [(1, 2)])
    replicas = {0: ReplicaAssignment((ONE,))}
    room.ensemble.apply([Create(znodes.topic_path("old"), znodes.encode_topic(None, replicas))])
    room.fail_once(znodes.topic_path("old"))
    with pytest.raises(MalformedReply):
        await on_topic_change(room.term, TopicChange())

    assert room.now("a00-0") == room.now("a19-0") == "1 / [1,2] / 0 / 0"
    await room.handle(on_topic_change, TopicChange())
    assert room.now("old-0") == "1 / [1] / 0 / 0"


@pytest.mark.parametrize("path", ["/brokers/topics/a", znodes.PENDING_DELETIONS])
async def test_the_next_controller_starts_and_completes_an_interrupted_reassignment(path: str) -> None:
    """It may fail before or after the replica that goes was told to."""
    room = await Room.open(topics={"a": [(1,)]})
    move = ApiPartitionReassignment({parse_topic_partition("a-0"): [BrokerId(2)]})
    await room.handle(on_api_reassignment, move)
    room.write_state("a-0", room.stored("a-0")._replace(isr=(ONE, BrokerId(2))))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))
    room.fail_once(path)
    with pytest.raises(MalformedReply):
        await on_resume_after_failure(room.term, ResumeAfterFailure())
    room.term.batch.clear()
    room.channels.take()

    requests = await resume(room)

    assert room.partition("a-0").replicas == (2,)
    assert room.now("a-0").startswith("2 / [2] ")
    assert any(r.startswith("SR a-0") and r.endswith("+delete -> 1") for r in requests)


async def test_a_replica_whose_removal_from_the_assignment_was_not_written_is_deleted_again() -> None:
    """ZooKeeper failed with the assignment, after the order to delete; the broker's answer had the log made again."""
    room = await Room.open(topics={"a": [(1,)]})
    await room.handle(on_api_reassignment, ApiPartitionReassignment({parse_topic_partition("a-0"): [BrokerId(2)]}))
    state = room.stored("a-0")
    with pytest.MonkeyPatch.context() as broken:

        async def fail(*_: object) -> None:
            raise MalformedReply("the assignment")

        broken.setattr("klamm.zk.topic_assignments.AssignmentStore.change", fail)
        with pytest.raises(MalformedReply):
            await on_alter_partition(
                room.term, alter_partition(room, 1, state.leader_epoch, state.partition_epoch, [1, 2])
            )
    answer = TopicDeletionStopReplicaResponseReceived(
        ONE, room.term.context.registered[ONE].epoch, {room.partition("a-0"): ErrorCode.NONE}
    )
    room.channels.take()
    assert any("LISR a-0" in r for r in await room.handle(on_replica_deletion_answer, answer))
    assert room.term.context.replicas_on(ONE)[room.partition("a-0")] is ReplicaState.ONLINE

    assert any(r.startswith("SR a-0") and r.endswith("+delete -> 1") for r in await resume(room))


async def test_the_next_controller_completes_an_interrupted_topic_deletion() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])
    await room.handle(on_topic_deletion, TopicDeletion())
    room.fail_once("/brokers/topics/a")
    answer = TopicDeletionStopReplicaResponseReceived(
        ONE, room.term.context.registered[ONE].epoch, {room.partition("a-0"): ErrorCode.NONE}
    )
    with pytest.raises(MalformedReply):
        await on_replica_deletion_answer(room.term, answer)

    await resume(room)

    assert "/brokers/topics/a" not in room.ensemble.nodes
    assert znodes.delete_topic_path("a") not in room.ensemble.nodes
