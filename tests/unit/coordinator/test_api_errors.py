"""Every error of the coordinators' and the administration's APIs: a test for each, Kafka's list, what is common."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.support.api_errors import THIS_TABLE, ApiError, read_api_errors
from tests.support.kafka_cases import exists
from tests.unit.coordinator import groups_room, transactions_room
from tests.unit.coordinator.groups_room import GROUP, P0, join_request
from tests.unit.coordinator.transactions_room import ID

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.handlers.offsets import CommitRequest, TransactionalCommitRequest
from klamm.coordinator.requests import LeavingMember, ProducerIdAndEpoch, SyncRequest
from klamm.model.errors import ErrorCode

HERE = Path(__file__).parent
LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
STOPPING = ErrorCode.COORDINATOR_NOT_AVAILABLE
ACCEPTED = ErrorCode.NONE
PRODUCER = ProducerIdAndEpoch(1_000, 0)


KAFKA: Final[Mapping[str, str]] = {
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE INVALID_REQUEST",
    "Heartbeat": "COORDINATOR_NOT_AVAILABLE ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS",
    "LeaveGroup": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID UNKNOWN_MEMBER_ID",
    "OffsetCommit": "UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT OFFSET_METADATA_TOO_LARGE COORDINATOR_NOT_AVAILABLE "
    "NOT_COORDINATOR ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE",
    "OffsetFetch": "UNKNOWN_TOPIC_OR_PARTITION UNSTABLE_OFFSET_COMMIT",
    "OffsetDelete": "GROUP_SUBSCRIBED_TO_TOPIC UNKNOWN_TOPIC_OR_PARTITION INVALID_GROUP_ID GROUP_ID_NOT_FOUND "
    "NON_EMPTY_GROUP",
    "DeleteGroups": "NON_EMPTY_GROUP GROUP_ID_NOT_FOUND",
    "InitProducerId": "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    "AddPartitionsToTxn": "COORDINATOR_NOT_AVAILABLE INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_EPOCH "
    "PRODUCER_FENCED UNKNOWN_TOPIC_OR_PARTITION",
    "AddOffsetsToTxn": "COORDINATOR_NOT_AVAILABLE INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    "EndTxn": "COORDINATOR_NOT_AVAILABLE INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_EPOCH "
    "PRODUCER_FENCED",
    "TxnOffsetCommit": "INVALID_PRODUCER_EPOCH COORDINATOR_NOT_AVAILABLE OFFSET_METADATA_TOO_LARGE "
    "INVALID_COMMIT_OFFSET_SIZE REQUEST_TIMED_OUT UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION",
    "WriteTxnMarkers": "INVALID_PRODUCER_EPOCH UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER "
    "TRANSACTION_COORDINATOR_FENCED",
    "DeleteRecords": "OFFSET_OUT_OF_RANGE UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT",
    "ListOffsets": "NOT_LEADER_OR_FOLLOWER FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNKNOWN_TOPIC_OR_PARTITION "
    "KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE OFFSET_NOT_AVAILABLE",
    "OffsetForLeaderEpoch": "NOT_LEADER_OR_FOLLOWER FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
    "UNKNOWN_TOPIC_OR_PARTITION KAFKA_STORAGE_ERROR",
    "DescribeLogDirs": "KAFKA_STORAGE_ERROR",
    "AlterReplicaLogDirs": "LOG_DIR_NOT_FOUND KAFKA_STORAGE_ERROR REPLICA_NOT_AVAILABLE",
    "CreateTopics": "REQUEST_TIMED_OUT INVALID_TOPIC_EXCEPTION TOPIC_ALREADY_EXISTS INVALID_PARTITIONS "
    "INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER INVALID_REQUEST "
    "POLICY_VIOLATION",
    "DeleteTopics": "REQUEST_TIMED_OUT NOT_CONTROLLER INVALID_REQUEST TOPIC_DELETION_DISABLED",
}
"""What the comments of Kafka's response classes list (3.9), but for errors of authorization, the next generation of
groups, of message formats and brokers that klamm does not have, and what is common to all: loading and moved
coordinators. DeleteTopics lists INVALID_TOPIC_EXCEPTION, too, but Kafka answers UNKNOWN_TOPIC_OR_PARTITION."""


def test_the_table_of_coordinator_errors_has_every_error_that_kafka_lists() -> None:
    rows = {(row.api, row.error) for row in read_api_errors()}

    assert {(api, error) for api, errors in KAFKA.items() for error in errors.split()} - rows == set()


@pytest.mark.parametrize("row", read_api_errors(), ids=lambda row: f"{row.api}-{row.error}")
def test_every_row_of_the_table_of_coordinator_errors_names_existing_tests(row: ApiError) -> None:
    assert row.error in ErrorCode.__members__
    assert row.when
    assert [test for test in row.tests if test != THIS_TABLE and not exists(test, HERE)] == []


# ---- groups

Ask = Callable[[groups_room.Room, str], Awaitable[ErrorCode]]


async def ask_join(room: groups_room.Room, group: str) -> ErrorCode:
    return (await room.groups.join_group(join_request(group_id=group, requires_known_member_id=True))).error


async def ask_sync(room: groups_room.Room, group: str) -> ErrorCode:
    return (await room.groups.sync_group(SyncRequest(group, 1, "m"))).error


async def ask_heartbeat(room: groups_room.Room, group: str) -> ErrorCode:
    return room.groups.heartbeat(group, "m", None, 1)


async def ask_leave(room: groups_room.Room, group: str) -> ErrorCode:
    return room.groups.leave_group(group, [LeavingMember("m")]).error


async def ask_commit(room: groups_room.Room, group: str) -> ErrorCode:
    return (await room.commit({P0: 1}, group))[P0]


async def ask_transactional_commit(room: groups_room.Room, group: str) -> ErrorCode:
    commit = CommitRequest(group, {P0: Offset(1)})
    return (await room.groups.commit_transactional_offsets(TransactionalCommitRequest(PRODUCER, commit)))[P0]


async def ask_fetch(room: groups_room.Room, group: str) -> ErrorCode:
    return room.groups.fetch_offsets(group, [P0], require_stable=False)[0]


async def ask_delete_offsets(room: groups_room.Room, group: str) -> ErrorCode:
    return (await room.groups.delete_offsets(group, [P0]))[0]


async def ask_describe(room: groups_room.Room, group: str) -> ErrorCode:
    return room.groups.describe_group(group).error


async def ask_delete(room: groups_room.Room, group: str) -> ErrorCode:
    return (await room.groups.delete_groups([group]))[group]


INVALID, NO_GROUP = ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND
GROUP_APIS: Final[Mapping[str, tuple[Ask, ErrorCode, ErrorCode]]] = {
    "JoinGroup": (ask_join, LOADING, INVALID),
    "SyncGroup": (ask_sync, ErrorCode.REBALANCE_IN_PROGRESS, INVALID),
    "Heartbeat": (ask_heartbeat, ACCEPTED, INVALID),
    "LeaveGroup": (ask_leave, LOADING, INVALID),
    "OffsetCommit": (ask_commit, LOADING, ACCEPTED),
    "TxnOffsetCommit": (ask_transactional_commit, LOADING, INVALID),
    "OffsetFetch": (ask_fetch, LOADING, ACCEPTED),
    "OffsetDelete": (ask_delete_offsets, LOADING, INVALID),
    "DescribeGroups": (ask_describe, LOADING, ACCEPTED),
    "DeleteGroups": (ask_delete, LOADING, NO_GROUP),
}
"""API -> how it is asked, its answer while the group is loaded, and its answer for the empty group id."""


@pytest.mark.parametrize("api", GROUP_APIS)
def test_each_group_api_answers_kafkas_error_while_loading_after_a_move_and_when_closed(api: str) -> None:
    ask, while_loading, _ = GROUP_APIS[api]

    async def body(room: groups_room.Room) -> None:
        await room.commit({P0: 5})
        other = room.restart()
        room.groups._ownership.resigned(0, 1)
        assert await ask(room, GROUP) is MOVED
        room.log.read = never_read  # type: ignore[method-assign, assignment]
        other.groups._ownership.elected(0, 1)
        assert await ask(other, GROUP) is while_loading
        await other.groups.close()
        assert await ask(other, GROUP) is STOPPING

    groups_room.play(body)


@pytest.mark.parametrize("api", GROUP_APIS)
def test_each_group_api_answers_kafkas_error_for_an_empty_group_id(api: str) -> None:
    ask, _, expected = GROUP_APIS[api]

    async def body(room: groups_room.Room) -> None:
        assert await ask(room, "") is expected

    groups_room.play(body)


def test_list_groups_answers_an_error_while_groups_load_or_the_broker_stops() -> None:
    async def body(room: groups_room.Room) -> None:
        room.log.read = never_read  # type: ignore[method-assign, assignment]
        await room.commit({P0: 5})
        other = room.restart()
        other.groups._ownership.elected(0, 1)
        assert (await other.groups.list_groups([], []))[0] is LOADING
        await other.groups.close()
        assert (await other.groups.list_groups([], []))[0] is STOPPING

    groups_room.play(body)


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NOT_ENOUGH_REPLICAS, STOPPING),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, MOVED),
        (ErrorCode.KAFKA_STORAGE_ERROR, MOVED),
    ],
)
@pytest.mark.parametrize("api", ["OffsetCommit", "TxnOffsetCommit"])
def test_each_commit_api_answers_kafkas_error_when_the_log_refuses_the_record(
    api: str, refused: ErrorCode, answered: ErrorCode
) -> None:
    async def body(room: groups_room.Room) -> None:
        room.log.errors = [refused]
        assert await GROUP_APIS[api][0](room, GROUP) is answered
        assert room.fetch([P0]) == {P0: -1}

    groups_room.play(body)


# ---- transactions

AskTransaction = Callable[[transactions_room.Room], Awaitable[ErrorCode]]


async def ask_init(room: transactions_room.Room) -> ErrorCode:
    return (await room.init()).error


async def ask_add(room: transactions_room.Room) -> ErrorCode:
    return await room.add(PRODUCER, transactions_room.P0)


async def ask_verify(room: transactions_room.Room) -> ErrorCode:
    return room.verify(PRODUCER, [transactions_room.P0])[transactions_room.P0]


async def ask_end(room: transactions_room.Room) -> ErrorCode:
    return await room.end(PRODUCER)


async def ask_describe_transaction(room: transactions_room.Room) -> ErrorCode:
    return room.coordinator.describe_transaction(ID).error


TRANSACTION_APIS: Final[Mapping[str, AskTransaction]] = {
    "InitProducerId": ask_init,
    "AddPartitionsToTxn": ask_add,
    "AddPartitionsToTxn, verification": ask_verify,
    "EndTxn": ask_end,
    "DescribeTransactions": ask_describe_transaction,
}


@pytest.mark.parametrize("api", TRANSACTION_APIS)
def test_each_transaction_api_answers_kafkas_error_while_loading_and_after_a_move(api: str) -> None:
    ask = TRANSACTION_APIS[api]

    async def body(room: transactions_room.Room) -> None:
        await room.producer()
        room.resign(1)
        assert await ask(room) is MOVED
        room.coordinator._ownership.elected(0, 2)
        assert await ask(room) is LOADING

    transactions_room.play(body)


def test_add_partitions_to_txn_that_cannot_be_stored_adds_no_partition() -> None:
    async def body(room: transactions_room.Room) -> None:
        producer = await room.producer()
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await room.add(producer, transactions_room.P0) is STOPPING
        assert room.transaction.partitions == frozenset()
        assert await room.add(producer, transactions_room.P0) is ACCEPTED

    transactions_room.play(body)


async def never_read(*_: object) -> bytes:
    """A read of the log that does not end: the load goes on."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError
