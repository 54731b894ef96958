"""A request for each field of the protocol of which a client may send as many elements as it likes."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from klamm.wire import messages as m
from klamm.wire.api import ApiKey

GROUP: Final = "group"
TOPIC: Final = "orders"


class Asked(NamedTuple):
    """A request with about so many elements in `field`."""

    api_key: ApiKey
    version: int
    field: str
    build: Callable[[int], Any]


def names(count: int) -> list[str]:
    return [f"topic-{n}" for n in range(count)]


def requests() -> Iterator[Asked]:
    """A request for each count that a client can choose."""
    yield from topic_requests()
    yield from partition_requests()
    yield from record_requests()
    yield from replica_requests()
    yield from group_requests()
    yield from offset_requests()
    yield from transaction_requests()
    yield from config_requests()


def topic_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.METADATA, 12, "topics", lambda n: m.MetadataRequest([m.MetadataRequestTopic(name=t) for t in names(n)])
    )
    yield Asked(
        key.METADATA,
        12,
        "topics by id",
        lambda n: m.MetadataRequest([m.MetadataRequestTopic(topic_id=UUID(int=i + 1), name=None) for i in range(n)]),
    )
    yield Asked(
        key.CREATE_TOPICS,
        7,
        "topics, validated only",
        lambda n: m.CreateTopicsRequest([m.CreatableTopic(t, 1, 1) for t in names(n)], validate_only=True),
    )
    yield Asked(
        key.CREATE_TOPICS,
        7,
        "assignments",
        lambda n: m.CreateTopicsRequest(
            [m.CreatableTopic("new", -1, -1, assignments=[m.CreatableReplicaAssignment(p, (1,)) for p in range(n)])],
            validate_only=True,
        ),
    )
    yield Asked(
        key.CREATE_TOPICS,
        7,
        "num_partitions",
        lambda n: m.CreateTopicsRequest([m.CreatableTopic("new", n, 1)], validate_only=True),
    )
    yield Asked(
        key.CREATE_TOPICS,
        7,
        "configs",
        lambda n: m.CreateTopicsRequest(
            [m.CreatableTopic("new", 1, 1, configs=[m.CreatableTopicConfig(f"c-{i}", "1") for i in range(n)])],
            validate_only=True,
        ),
    )
    yield Asked(
        key.DELETE_TOPICS,
        6,
        "topics",
        lambda n: m.DeleteTopicsRequest(topics=[m.DeleteTopicState(t) for t in names(n)]),
    )


def partition_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.CREATE_PARTITIONS,
        3,
        "topics",
        lambda n: m.CreatePartitionsRequest([m.CreatePartitionsTopic(t, 2) for t in names(n)], validate_only=True),
    )
    yield Asked(
        key.CREATE_PARTITIONS,
        3,
        "count",
        lambda n: m.CreatePartitionsRequest([m.CreatePartitionsTopic(TOPIC, n)], validate_only=True),
    )
    yield Asked(
        key.CREATE_PARTITIONS,
        3,
        "assignments",
        lambda n: m.CreatePartitionsRequest(
            [m.CreatePartitionsTopic(TOPIC, n + 1, [m.CreatePartitionsAssignment((1,))] * n)], validate_only=True
        ),
    )
    yield Asked(
        key.ELECT_LEADERS,
        2,
        "partitions",
        lambda n: m.ElectLeadersRequest(0, [m.ElectLeadersRequestTopicPartitions("t", tuple(range(n)))]),
    )
    yield Asked(
        key.ALTER_PARTITION_REASSIGNMENTS,
        0,
        "partitions",
        lambda n: m.AlterPartitionReassignmentsRequest(
            topics=[m.ReassignableTopic("t", [m.ReassignablePartition(p, (1,)) for p in range(n)])]
        ),
    )
    yield Asked(
        key.LIST_PARTITION_REASSIGNMENTS,
        0,
        "partitions",
        lambda n: m.ListPartitionReassignmentsRequest(
            topics=[m.ListPartitionReassignmentsTopics("t", tuple(range(n)))]
        ),
    )


def record_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.PRODUCE,
        9,
        "partitions",
        lambda n: m.ProduceRequest(
            acks=1, topic_data=[m.TopicProduceData("t", [m.PartitionProduceData(p, b"") for p in range(n)])]
        ),
    )
    yield Asked(
        key.FETCH,
        12,
        "partitions",
        lambda n: m.FetchRequest(
            max_wait_ms=0,
            max_bytes=1000,
            topics=[m.FetchTopic("t", partitions=[m.FetchPartition(p, partition_max_bytes=1000) for p in range(n)])],
        ),
    )
    yield Asked(
        key.LIST_OFFSETS,
        7,
        "partitions",
        lambda n: m.ListOffsetsRequest(
            topics=[m.ListOffsetsTopic("t", [m.ListOffsetsPartition(p, timestamp=-1) for p in range(n)])]
        ),
    )
    yield Asked(
        key.LIST_OFFSETS,
        0,
        "partitions of the oldest version",
        lambda n: m.ListOffsetsRequest(
            topics=[m.ListOffsetsTopic("t", [m.ListOffsetsPartition(p, timestamp=-1) for p in range(n)])]
        ),
    )
    yield Asked(
        key.DELETE_RECORDS,
        2,
        "partitions",
        lambda n: m.DeleteRecordsRequest(
            [m.DeleteRecordsTopic("t", [m.DeleteRecordsPartition(p, 1) for p in range(n)])], 1000
        ),
    )
    yield Asked(
        key.OFFSET_FOR_LEADER_EPOCH,
        4,
        "partitions",
        lambda n: m.OffsetForLeaderEpochRequest(
            topics=[m.OffsetForLeaderTopic("t", [m.OffsetForLeaderPartition(p, -1, 0) for p in range(n)])]
        ),
    )


def replica_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.DESCRIBE_LOG_DIRS,
        4,
        "partitions",
        lambda n: m.DescribeLogDirsRequest([m.DescribableLogDirTopic("t", tuple(range(n)))]),
    )
    yield Asked(
        key.ALTER_REPLICA_LOG_DIRS,
        2,
        "partitions",
        lambda n: m.AlterReplicaLogDirsRequest(
            [m.AlterReplicaLogDir("/x", [m.AlterReplicaLogDirTopic("t", tuple(range(n)))])]
        ),
    )
    yield Asked(
        key.DESCRIBE_PRODUCERS,
        0,
        "partitions",
        lambda n: m.DescribeProducersRequest([m.TopicRequest("t", tuple(range(n)))]),
    )
    yield Asked(
        key.WRITE_TXN_MARKERS,
        1,
        "partitions",
        lambda n: m.WriteTxnMarkersRequest(
            [m.WritableTxnMarker(1, 0, True, [m.WritableTxnMarkerTopic("t", tuple(range(n)))], 0)]
        ),
    )
    yield Asked(
        key.WRITE_TXN_MARKERS,
        1,
        "markers",
        lambda n: m.WriteTxnMarkersRequest(
            [m.WritableTxnMarker(p, 0, True, [m.WritableTxnMarkerTopic("t", (0,))], 0) for p in range(n)]
        ),
    )


def group_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.FIND_COORDINATOR,
        4,
        "coordinator_keys",
        lambda n: m.FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(names(n))),
    )
    yield Asked(
        key.JOIN_GROUP,
        9,
        "protocols",
        lambda n: m.JoinGroupRequest(
            GROUP, 30_000, 30_000, "", None, "consumer", [m.JoinGroupRequestProtocol(t, b"") for t in names(n)]
        ),
    )
    yield Asked(
        key.SYNC_GROUP,
        5,
        "assignments",
        lambda n: m.SyncGroupRequest(
            GROUP, 1, "x", None, "consumer", "range", [m.SyncGroupRequestAssignment(t, b"") for t in names(n)]
        ),
    )
    yield Asked(
        key.LEAVE_GROUP,
        5,
        "members",
        lambda n: m.LeaveGroupRequest(GROUP, members=[m.MemberIdentity(t) for t in names(n)]),
    )


def offset_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.OFFSET_COMMIT,
        8,
        "partitions",
        lambda n: m.OffsetCommitRequest(
            GROUP, topics=[m.OffsetCommitRequestTopic(TOPIC, [m.OffsetCommitRequestPartition(p, 1) for p in range(n)])]
        ),
    )
    yield Asked(
        key.OFFSET_FETCH,
        8,
        "partitions",
        lambda n: m.OffsetFetchRequest(
            groups=[m.OffsetFetchRequestGroup(GROUP, topics=[m.OffsetFetchRequestTopics("t", tuple(range(n)))])]
        ),
    )
    yield Asked(
        key.OFFSET_FETCH,
        8,
        "groups",
        lambda n: m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(t, topics=[]) for t in names(n)]),
    )
    yield Asked(
        key.OFFSET_DELETE,
        0,
        "partitions",
        lambda n: m.OffsetDeleteRequest(
            GROUP, [m.OffsetDeleteRequestTopic("t", [m.OffsetDeleteRequestPartition(p) for p in range(n)])]
        ),
    )
    yield Asked(key.DESCRIBE_GROUPS, 5, "groups", lambda n: m.DescribeGroupsRequest(tuple(names(n))))
    yield Asked(key.CONSUMER_GROUP_DESCRIBE, 0, "group_ids", lambda n: m.ConsumerGroupDescribeRequest(tuple(names(n))))
    yield Asked(key.DELETE_GROUPS, 2, "groups", lambda n: m.DeleteGroupsRequest(tuple(names(n))))
    yield Asked(key.LIST_GROUPS, 4, "states_filter", lambda n: m.ListGroupsRequest(tuple(names(n))))


def transaction_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.ADD_PARTITIONS_TO_TXN,
        3,
        "partitions",
        lambda n: m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(TOPIC, tuple(range(n)))],
        ),
    )
    yield Asked(
        key.TXN_OFFSET_COMMIT,
        3,
        "partitions",
        lambda n: m.TxnOffsetCommitRequest(
            "t",
            GROUP,
            1,
            0,
            topics=[m.TxnOffsetCommitRequestTopic(TOPIC, [m.TxnOffsetCommitRequestPartition(p, 1) for p in range(n)])],
        ),
    )
    yield Asked(
        key.DESCRIBE_TRANSACTIONS, 0, "transactional_ids", lambda n: m.DescribeTransactionsRequest(tuple(names(n)))
    )
    yield Asked(
        key.LIST_TRANSACTIONS,
        1,
        "producer_id_filters",
        lambda n: m.ListTransactionsRequest(producer_id_filters=tuple(range(n))),
    )


def config_requests() -> Iterator[Asked]:
    key = ApiKey
    yield Asked(
        key.DESCRIBE_CONFIGS,
        4,
        "resources",
        lambda n: m.DescribeConfigsRequest([m.DescribeConfigsResource(2, t) for t in names(n)]),
    )
    yield Asked(
        key.DESCRIBE_CONFIGS,
        4,
        "configuration_keys",
        lambda n: m.DescribeConfigsRequest([m.DescribeConfigsResource(2, TOPIC, tuple(names(n)))]),
    )
    yield Asked(
        key.ALTER_CONFIGS,
        2,
        "resources",
        lambda n: m.AlterConfigsRequest(
            [m.AlterConfigsRequestAlterConfigsResource(2, t) for t in names(n)], validate_only=True
        ),
    )
    yield Asked(
        key.ALTER_CONFIGS,
        2,
        "configs",
        lambda n: m.AlterConfigsRequest(
            [
                m.AlterConfigsRequestAlterConfigsResource(
                    2, TOPIC, [m.AlterConfigsRequestAlterableConfig(t, "1") for t in names(n)]
                )
            ],
            validate_only=True,
        ),
    )
    yield Asked(
        key.INCREMENTAL_ALTER_CONFIGS,
        1,
        "configs",
        lambda n: m.IncrementalAlterConfigsRequest(
            [
                m.IncrementalAlterConfigsRequestAlterConfigsResource(
                    2, TOPIC, [m.IncrementalAlterConfigsRequestAlterableConfig(t, 0, "1") for t in names(n)]
                )
            ],
            validate_only=True,
        ),
    )
    yield Asked(
        key.UPDATE_FEATURES,
        1,
        "feature_updates",
        lambda n: m.UpdateFeaturesRequest(feature_updates=[m.FeatureUpdateKey(t, 1) for t in names(n)]),
    )
