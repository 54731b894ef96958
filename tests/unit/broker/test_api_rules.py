"""Every API that a node serves names its authorization and its quota as Apache Kafka 3.9 has them."""

from pathlib import Path

import pytest
from tests.unit.broker.node_parts import build

from klamm.broker.api_rules import RULES, QuotaClass
from klamm.broker.dispatch import Dispatcher
from klamm.broker.routes import routes
from klamm.wire.api import ApiKey

WHOLE_REQUEST = {
    "LEADER_AND_ISR": "CLUSTER_ACTION", "STOP_REPLICA": "CLUSTER_ACTION", "UPDATE_METADATA": "CLUSTER_ACTION",
    "CONTROLLED_SHUTDOWN": "CLUSTER_ACTION", "ALTER_PARTITION": "CLUSTER_ACTION",
    "ALLOCATE_PRODUCER_IDS": "CLUSTER_ACTION", "ELECT_LEADERS": "ALTER", "ALTER_PARTITION_REASSIGNMENTS": "ALTER",
    "ALTER_REPLICA_LOG_DIRS": "ALTER", "ENVELOPE": "CLUSTER_ACTION",
    "LIST_PARTITION_REASSIGNMENTS": "DESCRIBE", "DESCRIBE_LOG_DIRS": "DESCRIBE", "UPDATE_FEATURES": "ALTER",
    "WRITE_TXN_MARKERS": "ALTER or CLUSTER_ACTION",
}  # fmt: skip
"""The operation on the cluster without which KafkaApis refuses the request."""
RESOURCES = {
    "PRODUCE": "WRITE TOPIC, WRITE TRANSACTIONAL_ID",
    "FETCH": "READ TOPIC, CLUSTER_ACTION CLUSTER",
    "LIST_OFFSETS": "DESCRIBE TOPIC",
    "METADATA": "DESCRIBE TOPIC, CREATE CLUSTER, CREATE TOPIC, DESCRIBE CLUSTER",
    "OFFSET_COMMIT": "READ GROUP, READ TOPIC",
    "OFFSET_FETCH": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "FIND_COORDINATOR": "DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID",
    "JOIN_GROUP": "READ GROUP",
    "HEARTBEAT": "READ GROUP",
    "LEAVE_GROUP": "READ GROUP",
    "SYNC_GROUP": "READ GROUP",
    "DESCRIBE_GROUPS": "DESCRIBE GROUP",
    "LIST_GROUPS": "DESCRIBE CLUSTER, DESCRIBE GROUP",
    "DELETE_GROUPS": "DELETE GROUP",
    "CONSUMER_GROUP_HEARTBEAT": "READ GROUP",
    "CONSUMER_GROUP_DESCRIBE": "DESCRIBE GROUP",
    "OFFSET_DELETE": "DELETE GROUP, READ TOPIC",
    "CREATE_TOPICS": "CREATE CLUSTER, CREATE TOPIC, DESCRIBE_CONFIGS TOPIC",
    "DELETE_TOPICS": "DELETE TOPIC, DESCRIBE TOPIC",
    "DELETE_RECORDS": "DELETE TOPIC",
    "CREATE_PARTITIONS": "ALTER TOPIC",
    "INIT_PRODUCER_ID": "WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER, WRITE TOPIC",
    "ADD_PARTITIONS_TO_TXN": "WRITE TRANSACTIONAL_ID, WRITE TOPIC, CLUSTER_ACTION CLUSTER",
    "ADD_OFFSETS_TO_TXN": "WRITE TRANSACTIONAL_ID, READ GROUP",
    "END_TXN": "WRITE TRANSACTIONAL_ID",
    "TXN_OFFSET_COMMIT": "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
    "DESCRIBE_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC",
    "LIST_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID",
    "OFFSET_FOR_LEADER_EPOCH": "CLUSTER_ACTION CLUSTER, DESCRIBE TOPIC",
    "DESCRIBE_CONFIGS": "DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS CLUSTER",
    "ALTER_CONFIGS": "ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER",
    "INCREMENTAL_ALTER_CONFIGS": "ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER",
    "DESCRIBE_CLUSTER": "DESCRIBE CLUSTER",
    "DESCRIBE_PRODUCERS": "READ TOPIC",
}
"""What KafkaApis checks for the resources that the request names."""
QUOTAS = {
    "PRODUCE": "Produce", "FETCH": "Fetch", "CREATE_TOPICS": "ControllerMutation",
    "DELETE_TOPICS": "ControllerMutation", "CREATE_PARTITIONS": "ControllerMutation", "LEADER_AND_ISR": "exempt",
    "STOP_REPLICA": "exempt", "UPDATE_METADATA": "exempt", "CONTROLLED_SHUTDOWN": "exempt",
    "ALTER_PARTITION": "exempt", "WRITE_TXN_MARKERS": "exempt",
}  # fmt: skip
"""All others count as request time only."""


async def test_every_request_handler_is_registered_with_the_authorization_and_quota_rules_of_its_api(
    tmp_path: Path,
) -> None:
    parts, _ = build(tmp_path)
    served = {route.offered.api_key: route.rules for route in routes(parts)}
    assert served == RULES


@pytest.mark.parametrize("key", RULES, ids=lambda key: key.name)
def test_the_authorization_and_quota_rules_of_each_api_equal_kafkas(key: ApiKey) -> None:
    (request, resources), quota = RULES[key]
    assert " or ".join(p.operation.name for p in request) == WHOLE_REQUEST.get(key.name, "")
    assert {p.resource_type.name for p in request} <= {"CLUSTER"}
    named = ", ".join(f"{p.operation.name} {p.resource_type.name}" for p in resources)
    assert named == RESOURCES.get(key.name, "")
    assert quota is QuotaClass(QUOTAS.get(key.name, "Request"))


async def test_only_produce_requests_may_begin_before_the_response_to_the_one_before(tmp_path: Path) -> None:
    parts, _ = build(tmp_path)

    assert [route.offered.api_key for route in routes(parts) if route.overlaps] == [ApiKey.PRODUCE]
    dispatcher = Dispatcher(routes(parts))
    assert dispatcher.may_overlap(b"\x00\x00\x00\x09")
    assert not dispatcher.may_overlap(b"\x00\x03\x00\x09")
