"""Responses to requests that failed as a whole: the error, in the form that each API has for it.

Source: `getErrorResponse` of AbstractRequest's subclasses (3.9). Messages stay empty for UNKNOWN_SERVER_ERROR: what
went wrong inside is for the log alone.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from klamm.model.errors import ErrorCode
from klamm.wire import messages as m
from klamm.wire.api import ApiKey, api

Build = Callable[[Any, int, ErrorCode], Any]
"""(request message, version, error) -> response message."""
NOT_CONTROLLER_TEXT: Final = "This broker is not the active controller. Refresh the metadata and ask the controller."
_UNKNOWN: Final = -1
_FETCH_BY_ID: Final = 13
_LEADER_AND_ISR_BY_ID: Final = 5
_DELETE_BY_STATE: Final = 6
_FETCH_OFFSETS_WITH_ERROR: Final = 2
_FETCH_OFFSETS_OF_GROUPS: Final = 8
_FIND_SEVERAL_COORDINATORS: Final = 4
_JOIN_WITHOUT_PROTOCOL: Final = 7
_ADD_PARTITIONS_OF_BROKERS: Final = 4


def error_response(api_key: ApiKey, message: Any, version: int, error: ErrorCode) -> Any:
    """The response that carries `error` for the whole request; None where the request expects no response."""
    build = _BUILD.get(api_key)
    return api(api_key).response(error_code=error) if build is None else build(message, version, error)


def _produce_error(message: m.ProduceRequest, version: int, error: ErrorCode) -> m.ProduceResponse | None:
    """Return a response with this error for each partition; None for acks=0, where nothing is answered."""
    if message.acks == 0:
        return None
    return m.ProduceResponse(
        responses=[
            m.TopicProduceResponse(
                topic.name,
                [m.PartitionProduceResponse(p.index, error, base_offset=_UNKNOWN) for p in topic.partition_data],
            )
            for topic in message.topic_data
        ]
    )


def _fetch_error(message: m.FetchRequest, version: int, error: ErrorCode) -> m.FetchResponse:
    """Return a response with this error as a whole, and in versions before 7 also for each partition."""
    topics = [] if version >= _FETCH_BY_ID else message.topics
    return m.FetchResponse(
        error_code=error,
        session_id=message.session_id,
        responses=[
            m.FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [
                    m.FetchResponsePartitionData(p.partition, error, high_watermark=_UNKNOWN, records=b"")
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _list_offsets_error(message: m.ListOffsetsRequest, version: int, error: ErrorCode) -> m.ListOffsetsResponse:
    """Return a response with this error for each partition of the request."""
    return m.ListOffsetsResponse(
        topics=[
            m.ListOffsetsTopicResponse(
                topic.name, [m.ListOffsetsPartitionResponse(p.partition_index, error) for p in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def _metadata_error(message: m.MetadataRequest, version: int, error: ErrorCode) -> m.MetadataResponse:
    """Return a response with this error for each topic of the request, and without brokers."""
    topics = message.topics or []
    return m.MetadataResponse(
        topics=[m.MetadataResponseTopic(error_code=error, name=t.name or "", topic_id=t.topic_id) for t in topics]
    )


def _leader_and_isr_error(message: m.LeaderAndIsrRequest, version: int, error: ErrorCode) -> m.LeaderAndIsrResponse:
    """Return a response with this error for each partition: up to version 4 as one list, later by topic id."""
    if version >= _LEADER_AND_ISR_BY_ID:
        topics = [
            m.LeaderAndIsrTopicError(
                topic.topic_id,
                [m.LeaderAndIsrPartitionError("", p.partition_index, error) for p in topic.partition_states],
            )
            for topic in message.topic_states
        ]
        return m.LeaderAndIsrResponse(error_code=error, topics=topics)
    named = [(p.topic_name, p.partition_index) for p in message.ungrouped_partition_states]
    named += [(topic.topic_name, p.partition_index) for topic in message.topic_states for p in topic.partition_states]
    errors = [m.LeaderAndIsrPartitionError(name, index, error) for name, index in named]
    return m.LeaderAndIsrResponse(error_code=error, partition_errors=errors)


def _stop_replica_error(message: m.StopReplicaRequest, version: int, error: ErrorCode) -> m.StopReplicaResponse:
    """Return a response with this error for each partition, whichever of three lists the version has them in."""
    named = [(p.topic_name, p.partition_index) for p in message.ungrouped_partitions]
    named += [(topic.name, index) for topic in message.topics for index in topic.partition_indexes]
    named += [(topic.topic_name, p.partition_index) for topic in message.topic_states for p in topic.partition_states]
    return m.StopReplicaResponse(
        error_code=error, partition_errors=[m.StopReplicaPartitionError(name, index, error) for name, index in named]
    )


def _offset_commit_error(message: m.OffsetCommitRequest, version: int, error: ErrorCode) -> m.OffsetCommitResponse:
    """Return a response with this error for each partition of the request."""
    partition = m.OffsetCommitResponsePartition
    return m.OffsetCommitResponse(
        topics=[
            m.OffsetCommitResponseTopic(topic.name, [partition(p.partition_index, error) for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _offset_fetch_error(message: m.OffsetFetchRequest, version: int, error: ErrorCode) -> m.OffsetFetchResponse:
    """Return a response with this error for the request, each partition or each group, as the version requires."""
    if version >= _FETCH_OFFSETS_OF_GROUPS:
        return m.OffsetFetchResponse(
            groups=[m.OffsetFetchResponseGroup(group.group_id, error_code=error) for group in message.groups]
        )
    topics = message.topics or [] if version < _FETCH_OFFSETS_WITH_ERROR else []
    partition = partial(m.OffsetFetchResponsePartition, committed_offset=_UNKNOWN, error_code=error)
    return m.OffsetFetchResponse(
        error_code=error,
        topics=[
            m.OffsetFetchResponseTopic(topic.name, [partition(p) for p in topic.partition_indexes]) for topic in topics
        ],
    )


def _find_coordinator_error(
    message: m.FindCoordinatorRequest, version: int, error: ErrorCode
) -> m.FindCoordinatorResponse:
    """Return a response with this error for the key, or for each key where the version has several."""
    if version < _FIND_SEVERAL_COORDINATORS:
        return m.FindCoordinatorResponse(error_code=error, node_id=_UNKNOWN, port=_UNKNOWN)
    return m.FindCoordinatorResponse(
        coordinators=[m.Coordinator(key, _UNKNOWN, "", _UNKNOWN, error) for key in message.coordinator_keys]
    )


def _join_group_error(message: m.JoinGroupRequest, version: int, error: ErrorCode) -> m.JoinGroupResponse:
    """Return a response with this error, and with a protocol name that the version can encode."""
    name = "" if version < _JOIN_WITHOUT_PROTOCOL else None
    return m.JoinGroupResponse(error_code=error, protocol_name=name)


def _describe_groups_error(
    message: m.DescribeGroupsRequest, version: int, error: ErrorCode
) -> m.DescribeGroupsResponse:
    """Return a response with this error for each group of the request."""
    group = m.DescribeGroupsResponseDescribedGroup
    return m.DescribeGroupsResponse(groups=[group(error_code=error, group_id=name) for name in message.groups])


def _consumer_group_describe_error(
    message: m.ConsumerGroupDescribeRequest, version: int, error: ErrorCode
) -> m.ConsumerGroupDescribeResponse:
    """Return a response with this error for each group of the request."""
    group = m.ConsumerGroupDescribeResponseDescribedGroup
    return m.ConsumerGroupDescribeResponse(groups=[group(error, group_id=name) for name in message.group_ids])


def _delete_groups_error(message: m.DeleteGroupsRequest, version: int, error: ErrorCode) -> m.DeleteGroupsResponse:
    """Return a response with this error for each group of the request."""
    return m.DeleteGroupsResponse(results=[m.DeletableGroupResult(name, error) for name in message.groups_names])


def _create_topics_error(message: m.CreateTopicsRequest, version: int, error: ErrorCode) -> m.CreateTopicsResponse:
    """Return a response with this error for each topic of the request."""
    return m.CreateTopicsResponse(
        topics=[
            m.CreatableTopicResult(name=topic.name, error_code=error, error_message=None) for topic in message.topics
        ]
    )


def _delete_topics_error(message: m.DeleteTopicsRequest, version: int, error: ErrorCode) -> m.DeleteTopicsResponse:
    """Return a response with this error for each topic of the request, by name or by id as the version asks."""
    if version < _DELETE_BY_STATE:
        responses = [m.DeletableTopicResult(name=name, error_code=error) for name in message.topic_names]
    else:
        responses = [m.DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=error) for t in message.topics]
    return m.DeleteTopicsResponse(responses=responses)


def _delete_records_error(message: m.DeleteRecordsRequest, version: int, error: ErrorCode) -> m.DeleteRecordsResponse:
    """Return a response with this error for each partition of the request."""
    return m.DeleteRecordsResponse(
        topics=[
            m.DeleteRecordsTopicResult(
                topic.name,
                [m.DeleteRecordsPartitionResult(p.partition_index, _UNKNOWN, error) for p in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _alter_replica_log_dirs_error(
    message: m.AlterReplicaLogDirsRequest, version: int, error: ErrorCode
) -> m.AlterReplicaLogDirsResponse:
    """Return a response with this error for each partition of the request."""
    return m.AlterReplicaLogDirsResponse(
        results=[
            m.AlterReplicaLogDirTopicResult(
                topic.name, [m.AlterReplicaLogDirPartitionResult(p, error) for p in topic.partitions]
            )
            for directory in message.dirs
            for topic in directory.topics
        ]
    )


def _create_partitions_error(
    message: m.CreatePartitionsRequest, version: int, error: ErrorCode
) -> m.CreatePartitionsResponse:
    """Return a response with this error for each topic of the request."""
    return m.CreatePartitionsResponse(
        results=[m.CreatePartitionsTopicResult(topic.name, error) for topic in message.topics]
    )


def _init_producer_id_error(
    message: m.InitProducerIdRequest, version: int, error: ErrorCode
) -> m.InitProducerIdResponse:
    """Return a response with this error, and -1 for producer id and epoch."""
    return m.InitProducerIdResponse(error_code=error, producer_id=_UNKNOWN, producer_epoch=_UNKNOWN)


def _offset_for_leader_epoch_error(
    message: m.OffsetForLeaderEpochRequest, version: int, error: ErrorCode
) -> m.OffsetForLeaderEpochResponse:
    """Return a response with this error for each partition of the request."""
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderTopicResult(
                topic.topic,
                [m.OffsetForLeaderEpochResponseEpochEndOffset(error, p.partition) for p in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _elect_leaders_error(message: m.ElectLeadersRequest, version: int, error: ErrorCode) -> m.ElectLeadersResponse:
    """Return a response with this error for each partition of the request, and as a whole from version 1."""
    return m.ElectLeadersResponse(
        error_code=error if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            m.ReplicaElectionResult(topic.topic, [m.PartitionResult(p, error, None) for p in topic.partitions])
            for topic in message.topic_partitions or []
        ],
    )


def _alter_reassignments_error(
    message: m.AlterPartitionReassignmentsRequest, version: int, error: ErrorCode
) -> m.AlterPartitionReassignmentsResponse:
    """Return a response with this error as a whole and for each partition of the request."""
    return m.AlterPartitionReassignmentsResponse(
        error_code=error,
        error_message=None,
        responses=[
            m.ReassignableTopicResponse(
                topic.name,
                [m.ReassignablePartitionResponse(p.partition_index, error, None) for p in topic.partitions],
            )
            for topic in message.topics
        ],
    )


def _list_reassignments_error(
    message: m.ListPartitionReassignmentsRequest, version: int, error: ErrorCode
) -> m.ListPartitionReassignmentsResponse:
    """Return a response with this error; each partition of the request is in it, with empty lists of replicas."""
    return m.ListPartitionReassignmentsResponse(
        error_code=error,
        error_message=None,
        topics=[
            m.OngoingTopicReassignment(topic.name, [m.OngoingPartitionReassignment(p) for p in topic.partition_indexes])
            for topic in message.topics or []
        ],
    )


def _describe_configs_error(
    message: m.DescribeConfigsRequest, version: int, error: ErrorCode
) -> m.DescribeConfigsResponse:
    """Return a response with this error for each resource of the request."""
    return m.DescribeConfigsResponse(
        results=[m.DescribeConfigsResult(error, None, r.resource_type, r.resource_name) for r in message.resources]
    )


def _alter_configs_error(message: m.AlterConfigsRequest, version: int, error: ErrorCode) -> m.AlterConfigsResponse:
    """Return a response with this error for each resource of the request."""
    result = m.AlterConfigsResponseAlterConfigsResourceResponse
    return m.AlterConfigsResponse(
        responses=[result(error, None, r.resource_type, r.resource_name) for r in message.resources]
    )


def _incremental_alter_configs_error(
    message: m.IncrementalAlterConfigsRequest, version: int, error: ErrorCode
) -> m.IncrementalAlterConfigsResponse:
    """Return a response with this error for each resource of the request."""
    result = m.IncrementalAlterConfigsResponseAlterConfigsResourceResponse
    return m.IncrementalAlterConfigsResponse(
        responses=[result(error, None, r.resource_type, r.resource_name) for r in message.resources]
    )


def _add_partitions_to_txn_error(
    message: m.AddPartitionsToTxnRequest, version: int, error: ErrorCode
) -> m.AddPartitionsToTxnResponse:
    """Return a response with this error for the whole request or for each partition, as the version requires."""
    if version >= _ADD_PARTITIONS_OF_BROKERS:
        return m.AddPartitionsToTxnResponse(error_code=error)
    return m.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            m.AddPartitionsToTxnTopicResult(
                topic.name, [m.AddPartitionsToTxnPartitionResult(p, error) for p in topic.partitions]
            )
            for topic in message.v3_and_below_topics
        ]
    )


def _txn_offset_commit_error(
    message: m.TxnOffsetCommitRequest, version: int, error: ErrorCode
) -> m.TxnOffsetCommitResponse:
    """Return a response with this error for each partition of the request."""
    partition = m.TxnOffsetCommitResponsePartition
    return m.TxnOffsetCommitResponse(
        topics=[
            m.TxnOffsetCommitResponseTopic(topic.name, [partition(p.partition_index, error) for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _describe_transactions_error(
    message: m.DescribeTransactionsRequest, version: int, error: ErrorCode
) -> m.DescribeTransactionsResponse:
    """Return a response with this error for each transactional id of the request."""
    return m.DescribeTransactionsResponse(
        transaction_states=[
            m.DescribeTransactionsResponseTransactionState(error, name) for name in message.transactional_ids
        ]
    )


def _write_txn_markers_error(
    message: m.WriteTxnMarkersRequest, version: int, error: ErrorCode
) -> m.WriteTxnMarkersResponse:
    """Return a response with this error for each partition of each marker of the request."""
    partition = m.WritableTxnMarkerPartitionResult
    return m.WriteTxnMarkersResponse(
        markers=[
            m.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    m.WritableTxnMarkerTopicResult(topic.name, [partition(p, error) for p in topic.partition_indexes])
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


def _describe_producers_error(
    message: m.DescribeProducersRequest, version: int, error: ErrorCode
) -> m.DescribeProducersResponse:
    """Return a response with this error for each partition of the request."""
    return m.DescribeProducersResponse(
        topics=[
            m.TopicResponse(topic.name, [m.PartitionResponse(p, error) for p in topic.partition_indexes])
            for topic in message.topics
        ]
    )


_BUILD: Final[Mapping[ApiKey, Build]] = {
    ApiKey.PRODUCE: _produce_error,
    ApiKey.FETCH: _fetch_error,
    ApiKey.LIST_OFFSETS: _list_offsets_error,
    ApiKey.METADATA: _metadata_error,
    ApiKey.LEADER_AND_ISR: _leader_and_isr_error,
    ApiKey.STOP_REPLICA: _stop_replica_error,
    ApiKey.OFFSET_COMMIT: _offset_commit_error,
    ApiKey.OFFSET_FETCH: _offset_fetch_error,
    ApiKey.FIND_COORDINATOR: _find_coordinator_error,
    ApiKey.JOIN_GROUP: _join_group_error,
    ApiKey.DESCRIBE_GROUPS: _describe_groups_error,
    ApiKey.CREATE_TOPICS: _create_topics_error,
    ApiKey.DELETE_TOPICS: _delete_topics_error,
    ApiKey.DELETE_RECORDS: _delete_records_error,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id_error,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch_error,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs_error,
    ApiKey.ALTER_CONFIGS: _alter_configs_error,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs_error,
    ApiKey.CREATE_PARTITIONS: _create_partitions_error,
    ApiKey.DELETE_GROUPS: _delete_groups_error,
    ApiKey.ELECT_LEADERS: _elect_leaders_error,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs_error,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments_error,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments_error,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn_error,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit_error,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions_error,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers_error,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers_error,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe_error,
}
"""APIs whose response needs more than `error_code` at its top; all others get just that."""
