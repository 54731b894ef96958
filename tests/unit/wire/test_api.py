"""The table of what a 3.9 broker in ZooKeeper mode advertises (versions, first flexible version), row by row."""

import pytest

from klamm.wire.api import APIS, ApiKey, api
from klamm.wire.errors import UnknownApi

NEVER_FLEXIBLE = None
ADVERTISED = {
    0: ("Produce", 0, 11, 9),
    1: ("Fetch", 0, 17, 12),
    2: ("ListOffsets", 0, 9, 6),
    3: ("Metadata", 0, 12, 9),
    4: ("LeaderAndIsr", 0, 7, 4),
    5: ("StopReplica", 0, 4, 2),
    6: ("UpdateMetadata", 0, 8, 6),
    7: ("ControlledShutdown", 0, 3, 3),
    8: ("OffsetCommit", 0, 9, 8),
    9: ("OffsetFetch", 0, 9, 6),
    10: ("FindCoordinator", 0, 6, 3),
    11: ("JoinGroup", 0, 9, 6),
    12: ("Heartbeat", 0, 4, 4),
    13: ("LeaveGroup", 0, 5, 4),
    14: ("SyncGroup", 0, 5, 4),
    15: ("DescribeGroups", 0, 5, 5),
    16: ("ListGroups", 0, 5, 3),
    17: ("SaslHandshake", 0, 1, NEVER_FLEXIBLE),
    18: ("ApiVersions", 0, 4, 3),
    19: ("CreateTopics", 0, 7, 5),
    20: ("DeleteTopics", 0, 6, 4),
    21: ("DeleteRecords", 0, 2, 2),
    22: ("InitProducerId", 0, 5, 2),
    23: ("OffsetForLeaderEpoch", 0, 4, 4),
    24: ("AddPartitionsToTxn", 0, 5, 3),
    25: ("AddOffsetsToTxn", 0, 4, 3),
    26: ("EndTxn", 0, 4, 3),
    27: ("WriteTxnMarkers", 0, 1, 1),
    28: ("TxnOffsetCommit", 0, 4, 3),
    29: ("DescribeAcls", 0, 3, 2),
    30: ("CreateAcls", 0, 3, 2),
    31: ("DeleteAcls", 0, 3, 2),
    32: ("DescribeConfigs", 0, 4, 4),
    33: ("AlterConfigs", 0, 2, 2),
    34: ("AlterReplicaLogDirs", 0, 2, 2),
    35: ("DescribeLogDirs", 0, 4, 2),
    36: ("SaslAuthenticate", 0, 2, 2),
    37: ("CreatePartitions", 0, 3, 2),
    38: ("CreateDelegationToken", 0, 3, 2),
    39: ("RenewDelegationToken", 0, 2, 2),
    40: ("ExpireDelegationToken", 0, 2, 2),
    41: ("DescribeDelegationToken", 0, 3, 2),
    42: ("DeleteGroups", 0, 2, 2),
    43: ("ElectLeaders", 0, 2, 2),
    44: ("IncrementalAlterConfigs", 0, 1, 1),
    45: ("AlterPartitionReassignments", 0, 0, 0),
    46: ("ListPartitionReassignments", 0, 0, 0),
    47: ("OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    48: ("DescribeClientQuotas", 0, 1, 1),
    49: ("AlterClientQuotas", 0, 1, 1),
    50: ("DescribeUserScramCredentials", 0, 0, 0),
    51: ("AlterUserScramCredentials", 0, 0, 0),
    56: ("AlterPartition", 0, 3, 0),
    57: ("UpdateFeatures", 0, 1, 0),
    58: ("Envelope", 0, 0, 0),
    60: ("DescribeCluster", 0, 1, 0),
    61: ("DescribeProducers", 0, 0, 0),
    65: ("DescribeTransactions", 0, 0, 0),
    66: ("ListTransactions", 0, 1, 0),
    67: ("AllocateProducerIds", 0, 0, 0),
    68: ("ConsumerGroupHeartbeat", 0, 0, 0),
    69: ("ConsumerGroupDescribe", 0, 0, 0),
}


def test_the_apis_and_versions_are_exactly_those_that_kafka_advertises() -> None:
    ours = {
        a.key: (
            a.name,
            a.min_version,
            a.max_version,
            a.first_flexible if a.first_flexible <= a.max_version else NEVER_FLEXIBLE,
        )
        for a in APIS.values()
    }

    assert ours == ADVERTISED
    assert list(APIS) == sorted(APIS)
    assert {k.value for k in ApiKey} == set(ADVERTISED)


def test_request_and_response_classes_have_the_api_key_and_name_of_their_api() -> None:
    for a in APIS.values():
        assert a.request.API_KEY == a.response.API_KEY == a.key
        assert (a.request.__name__, a.response.__name__) == (a.name + "Request", a.name + "Response")


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.ALTER_PARTITION, 0, 2, 1),
    ],
)
def test_the_header_version_of_a_message_depends_on_api_and_version_as_in_kafka(
    key: ApiKey, version: int, request_header: int, response_header: int
) -> None:
    assert api(key).request_header_version(version) == request_header
    assert api(key).response_header_version(version) == response_header


@pytest.mark.parametrize("key", sorted({-1, *range(90), 32767} - set(ADVERTISED)))
def test_an_api_key_not_served_in_zookeeper_mode_raises_unknown_api(key: int) -> None:
    with pytest.raises(UnknownApi, match=str(key)):
        api(key)
