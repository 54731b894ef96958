"""An unexpected error in a handler is answered in the form of its API, and costs nobody the connection."""

import asyncio
import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.broker.node_parts import build

from klamm.broker.dispatch import Dispatcher, Handle, Offered, Request, Route
from klamm.broker.error_responses import error_response
from klamm.broker.routes import routes
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ANONYMOUS, ClientConnection, Peer, Principal
from klamm.net.server import CloseConnection, EndsWithClient
from klamm.wire import messages as m
from klamm.wire.api import ApiKey, api
from klamm.wire.frames import RequestHeader, decode_response, encode_request, encode_response

ID = uuid.UUID(int=7)
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
PRODUCE_DATA = [m.TopicProduceData("t", [m.PartitionProduceData(3, None)])]


def _request(key: ApiKey, version: int) -> Any:
    """A request of this version that names partition 3 of topic t, where its API names any."""
    by_id = ID if version >= 13 else uuid.UUID(int=0)
    named: dict[ApiKey, Any] = {
        ApiKey.PRODUCE: m.ProduceRequest(acks=-1, topic_data=PRODUCE_DATA),
        ApiKey.FETCH: m.FetchRequest(
            topics=[m.FetchTopic("t" if version < 13 else "", by_id, [m.FetchPartition(3)])],
            session_id=5 if version >= 7 else 0,
        ),
        ApiKey.LIST_OFFSETS: m.ListOffsetsRequest(topics=[m.ListOffsetsTopic("t", [m.ListOffsetsPartition(3)])]),
        ApiKey.METADATA: m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")]),
        ApiKey.LEADER_AND_ISR: _leader_and_isr(version),
        ApiKey.STOP_REPLICA: _stop_replica(version),
        ApiKey.OFFSET_COMMIT: m.OffsetCommitRequest(
            topics=[m.OffsetCommitRequestTopic("t", [m.OffsetCommitRequestPartition(3)])]
        ),
        ApiKey.OFFSET_FETCH: m.OffsetFetchRequest(topics=[m.OffsetFetchRequestTopic("t", (3,))])
        if version < 8
        else m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup("g")]),
        ApiKey.FIND_COORDINATOR: m.FindCoordinatorRequest(coordinator_keys=("g",) if version >= 4 else ()),
        ApiKey.DESCRIBE_GROUPS: m.DescribeGroupsRequest(groups=("g",)),
        ApiKey.CONSUMER_GROUP_DESCRIBE: m.ConsumerGroupDescribeRequest(group_ids=("g",)),
        ApiKey.DELETE_GROUPS: m.DeleteGroupsRequest(groups_names=("g",)),
        ApiKey.CREATE_TOPICS: m.CreateTopicsRequest(topics=[m.CreatableTopic("t", 1, 1)]),
        ApiKey.DELETE_TOPICS: m.DeleteTopicsRequest(topic_names=("t",))
        if version < 6
        else m.DeleteTopicsRequest(topics=[m.DeleteTopicState("t", uuid.UUID(int=0))]),
        ApiKey.DELETE_RECORDS: m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsTopic("t", [m.DeleteRecordsPartition(3)])]
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: m.AlterReplicaLogDirsRequest(
            dirs=[m.AlterReplicaLogDir("/d", [m.AlterReplicaLogDirTopic("t", (3,))])]
        ),
        ApiKey.CREATE_PARTITIONS: m.CreatePartitionsRequest(topics=[m.CreatePartitionsTopic("t", 2, None)]),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: m.OffsetForLeaderEpochRequest(
            topics=[m.OffsetForLeaderTopic("t", [m.OffsetForLeaderPartition(3)])]
        ),
        ApiKey.ELECT_LEADERS: m.ElectLeadersRequest(topic_partitions=[m.ElectLeadersRequestTopicPartitions("t", (3,))]),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: m.AlterPartitionReassignmentsRequest(
            topics=[m.ReassignableTopic("t", [m.ReassignablePartition(3)])]
        ),
        ApiKey.DESCRIBE_CONFIGS: m.DescribeConfigsRequest(resources=[m.DescribeConfigsResource(2, "t", None)]),
        ApiKey.ADD_PARTITIONS_TO_TXN: m.AddPartitionsToTxnRequest()
        if version >= 4
        else m.AddPartitionsToTxnRequest(v3_and_below_topics=[m.AddPartitionsToTxnTopic("t", (3,))]),
        ApiKey.TXN_OFFSET_COMMIT: m.TxnOffsetCommitRequest(
            topics=[m.TxnOffsetCommitRequestTopic("t", [m.TxnOffsetCommitRequestPartition(3)])]
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: m.DescribeTransactionsRequest(transactional_ids=("t",)),
        ApiKey.WRITE_TXN_MARKERS: m.WriteTxnMarkersRequest(
            markers=[m.WritableTxnMarker(7, 0, True, [m.WritableTxnMarkerTopic("t", (3,))])]
        ),
        ApiKey.DESCRIBE_PRODUCERS: m.DescribeProducersRequest(topics=[m.TopicRequest("t", (3,))]),
        ApiKey.ALTER_CONFIGS: m.AlterConfigsRequest(resources=[m.AlterConfigsRequestAlterConfigsResource(2, "t")]),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: m.IncrementalAlterConfigsRequest(
            resources=[m.IncrementalAlterConfigsRequestAlterConfigsResource(2, "t")]
        ),
    }
    return named.get(key) or api(key).request()


def _leader_and_isr(version: int) -> m.LeaderAndIsrRequest:
    if version < 2:
        return m.LeaderAndIsrRequest(
            ungrouped_partition_states=[m.LeaderAndIsrPartitionState(topic_name="t", partition_index=3)]
        )
    state = m.LeaderAndIsrPartitionState(partition_index=3)
    return m.LeaderAndIsrRequest(topic_states=[m.LeaderAndIsrTopicState("t", ID, [state])])


def _stop_replica(version: int) -> m.StopReplicaRequest:
    if version == 0:
        return m.StopReplicaRequest(ungrouped_partitions=[m.StopReplicaPartitionV0("t", 3)])
    if version < 3:
        return m.StopReplicaRequest(topics=[m.StopReplicaTopicV1("t", (3,))])
    return m.StopReplicaRequest(topic_states=[m.StopReplicaTopicState("t", [m.StopReplicaPartitionState(3)])])


_CODE_FIELDS = ("error_code", "partition_error_code")


def _codes(message: Any) -> list[int]:
    """Every error code in a message, at any depth."""
    if isinstance(message, list | tuple):
        return [code for item in message for code in _codes(item)]
    names: tuple[str, ...] = getattr(message, "__struct_fields__", ()) or getattr(message, "__slots__", ())
    found = [getattr(message, name) for name in names if name in _CODE_FIELDS]
    others = (name for name in names if name not in _CODE_FIELDS)
    return found + [code for name in others for code in _codes(getattr(message, name, None))]


async def _close(request: Any, message: Any) -> Any:
    raise CloseConnection("the handler says so")


async def _fail_later(request: Any, message: Any) -> Any:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bug")


def _fail_at_once(request: Any, message: Any) -> Any:
    raise ZeroDivisionError("a bug")


async def _unencodable(request: Any, message: Any) -> Any:
    return m.ListOffsetsResponse(throttle_time_ms="soon")  # type: ignore[arg-type]


async def test_every_version_of_every_api_can_encode_an_error_response(tmp_path: Path) -> None:
    parts, _ = build(tmp_path)
    for key, lowest, highest in (route.offered for route in routes(parts)):
        for version in range(lowest, highest + 1):
            response = error_response(key, _request(key, version), version, UNKNOWN)
            frame = b"".join(encode_response(key, version, 9, response))
            decoded = decode_response(frame[4:], key, version)[1]
            codes = _codes(decoded)
            if getattr(decoded, "error_code", None) == ErrorCode.NONE:  # this version has no room for it
                codes.remove(ErrorCode.NONE)
            expected = set() if key is ApiKey.DESCRIBE_LOG_DIRS and version < 3 else {UNKNOWN}  # Kafka's is empty, too
            assert set(codes) == expected, f"{key.name} v{version}"


async def _ask(
    handle: Handle,
    *,
    key: ApiKey = ApiKey.LIST_OFFSETS,
    message: Any = None,
    is_hot: bool = False,
    connection: ClientConnection | None = None,
) -> tuple[Dispatcher, Any]:
    dispatcher = Dispatcher([Route(Offered(key, 3, 7), handle, is_hot=is_hot, ends_with_client=is_hot)])
    request = encode_request(RequestHeader(key, 5, 9, "tester"), message or _request(key, 5))
    answer = dispatcher(b"".join(request)[4:], connection or ClientConnection(Peer("PLAINTEXT", "10.0.0.1", 5000)))
    if isinstance(answer, EndsWithClient):
        answer = answer.answer
    return dispatcher, await answer if isinstance(answer, Awaitable) else answer


@pytest.mark.parametrize("handle", [_fail_at_once, _fail_later, _unencodable])
@pytest.mark.parametrize("is_hot", [True, False])
async def test_an_exception_in_a_request_handler_is_logged_and_answered_with_unknown_server_error(
    handle: Handle, is_hot: bool
) -> None:
    with capture_logs() as logs:
        dispatcher, answer = await _ask(handle, is_hot=is_hot)
    _, response = decode_response(b"".join(answer)[4:], ApiKey.LIST_OFFSETS, 5)
    partition = response.topics[0].partitions[0]
    assert (partition.partition_index, partition.error_code, partition.offset) == (3, UNKNOWN, -1)
    assert dispatcher.unexpected_errors == {ApiKey.LIST_OFFSETS: 1}
    assert [(line["api"], line["client"], line["log_level"]) for line in logs] == [("LIST_OFFSETS", "tester", "error")]
    assert logs[0]["exc_info"].__traceback__ is not None


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_request_handler_that_raises_close_connection_closes_the_connection(is_hot: bool) -> None:
    with pytest.raises(CloseConnection, match="says so"):
        await _ask(_close, is_hot=is_hot)


async def test_an_exception_while_handling_a_produce_with_acks_0_closes_the_connection() -> None:
    message = m.ProduceRequest(acks=0, topic_data=PRODUCE_DATA)
    with pytest.raises(CloseConnection, match="so the connection is closed"):
        await _ask(_fail_later, key=ApiKey.PRODUCE, message=message, is_hot=True)


async def test_a_request_carries_the_principal_of_its_connection() -> None:
    seen: list[Principal] = []

    def remember(request: Request, message: Any) -> m.ListOffsetsResponse:
        seen.append(request.principal)
        return m.ListOffsetsResponse()

    connection = ClientConnection(Peer("PLAINTEXT", "10.0.0.1", 5000))
    await _ask(remember, connection=connection)
    connection.principal = Principal("User", "alice")
    await _ask(remember, connection=connection)
    assert seen == [ANONYMOUS, Principal("User", "alice")]
