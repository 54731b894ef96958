"""Replicas on failed log directories, and LeaderAndIsr responses about them."""

from tests.support.controller_room import Room

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.changes import diff_offline_dirs
from klamm.controller.events import (
    BrokerChange,
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    UpdateMetadataResponseReceived,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.responses import (
    on_leader_and_isr_response,
    on_log_dir_event,
    on_update_metadata_response,
)
from klamm.controller.states import ReplicaState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    UpdateMetadataResponse,
)
from klamm.zk.admin_znodes import encode_log_dir_event
from klamm.zk.operations import Create


def answered(room: Room, response: LeaderAndIsrResponse) -> LeaderAndIsrResponseReceived:
    """The event of a response from broker 1 in its current registration."""
    return LeaderAndIsrResponseReceived(response, BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)


def answer(room: Room, **codes: ErrorCode) -> LeaderAndIsrResponse:
    topics = [
        LeaderAndIsrTopicError(
            room.term.context.topics[name].id or ZERO_ID,
            [LeaderAndIsrPartitionError(partition_index=0, error_code=code)],
        )
        for name, code in codes.items()
    ]
    return LeaderAndIsrResponse(topics=topics)


async def test_a_replica_on_a_failed_log_dir_loses_leadership_and_comes_online_after_repair() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(1, 2, 3)]})
    failed = answered(room, answer(room, a=ErrorCode.KAFKA_STORAGE_ERROR, b=ErrorCode.NONE))

    requests = await room.handle(on_leader_and_isr_response, failed)

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert room.now("b-0") == "1 / [1,2,3] / 0 / 0"
    assert requests[-1] == "SR a-0@1 -> 1"
    umr = [i for _, i in room.channels.items] or requests
    assert umr
    assert await room.handle(on_leader_and_isr_response, failed) == []  # known already

    healed = answered(room, answer(room, a=ErrorCode.NONE))
    await room.handle(on_leader_and_isr_response, healed)
    assert not room.term.context.offline_dirs


async def test_only_a_partitions_kafka_storage_error_in_leader_and_isr_marks_the_replica_offline() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    stale = answer(room, a=ErrorCode.STALE_CONTROLLER_EPOCH)
    top = answer(room, a=ErrorCode.KAFKA_STORAGE_ERROR)
    top.error_code = ErrorCode.STALE_BROKER_EPOCH
    old = LeaderAndIsrResponse(partition_errors=[LeaderAndIsrPartitionError("gone", 0, ErrorCode.KAFKA_STORAGE_ERROR)])
    for response in (stale, top, old):
        assert await room.handle(on_leader_and_isr_response, answered(room, response)) == []
    refused = UpdateMetadataResponseReceived(
        UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), BrokerId(1)
    )
    assert await room.handle(on_update_metadata_response, refused) == []


def test_leader_and_isr_errors_change_only_replicas_whose_log_dir_status_differs() -> None:
    context = ControllerContext(1)
    topic = context.add_topic("a", None)
    known, healthy, failing = (context.add_partition(topic, n, ReplicaAssignment((BrokerId(1),))) for n in range(3))
    context.offline_dirs[BrokerId(1)] = {known: None}
    codes = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)

    changes = diff_offline_dirs(context, BrokerId(1), zip((known, healthy, failing), codes, strict=True))
    again = diff_offline_dirs(context, BrokerId(1), [(known, ErrorCode.KAFKA_STORAGE_ERROR)])

    assert (changes.offline, changes.online) == ([failing], [known])
    assert (again.offline, again.online) == ([], [])


async def test_a_replica_that_a_broker_refuses_in_leader_and_isr_is_journalled() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(1, 2, 3)], "c": [(1, 2, 3)]})
    codes = {"a": ErrorCode.INCONSISTENT_TOPIC_ID, "b": ErrorCode.STALE_CONTROLLER_EPOCH, "c": ErrorCode.NONE}

    assert await room.handle(on_leader_and_isr_response, answered(room, answer(room, **codes))) == []

    [refused] = room.entries("refused")
    assert (refused.facts["what"], refused.facts["broker"]) == ("LEADER_AND_ISR", 1)
    assert (refused.facts["error"], refused.facts["partitions"]) == ("INCONSISTENT_TOPIC_ID", {"a": [0]})


async def test_a_leader_and_isr_response_from_an_earlier_broker_epoch_is_ignored() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    late = answered(room, answer(room, a=ErrorCode.KAFKA_STORAGE_ERROR))
    room.kill(1)
    await room.register(1)
    await room.handle(on_broker_change, BrokerChange())

    assert await room.handle(on_leader_and_isr_response, late) == []


async def test_leader_and_isr_responses_of_old_versions_are_matched_by_topic_name() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    response = LeaderAndIsrResponse(
        partition_errors=[LeaderAndIsrPartitionError("a", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    )

    await room.handle(on_leader_and_isr_response, answered(room, response))

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"


async def test_a_log_dir_event_notification_makes_the_controller_send_all_partitions_to_that_broker() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(3, 2)]})
    parent = "/log_dir_event_notification/log_dir_event_"
    room.ensemble.apply([Create(parent, encode_log_dir_event(BrokerId(2)), sequential=True)])
    room.ensemble.apply([Create(parent, b"rubbish", sequential=True)])

    requests = await room.handle(on_log_dir_event, LogDirEventNotification())

    assert requests[0] == "LISR a-0=1/[1,2]/0/0 b-0=3/[3,2]/0/0 -> 2"
    assert not room.ensemble.nodes["/log_dir_event_notification"].children


async def test_the_controller_forgets_failed_log_directories_of_a_dead_broker() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    failed = answered(room, answer(room, a=ErrorCode.KAFKA_STORAGE_ERROR))
    await room.handle(on_leader_and_isr_response, failed)
    room.kill(1)
    await room.register(1)

    await room.handle(on_broker_change, BrokerChange())

    assert not room.term.context.offline_dirs
    assert room.term.context.replicas_on(BrokerId(1))[room.partition("a-0")] is ReplicaState.ONLINE
