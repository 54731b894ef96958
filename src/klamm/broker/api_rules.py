"""Authorization and quota rules of each API; operations and resources by Kafka's numbers.

Source: KafkaApis.scala, RequestHandlerHelper.scala, AclOperation.java, ResourceType.java (3.9).
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from klamm.wire.api import ApiKey


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Permission(NamedTuple):
    operation: Operation
    resource_type: ResourceType


class QuotaClass(StrEnum):
    """Which quota throttles the clients of an API. All but exempt ones also count as request time."""

    PRODUCE = "Produce"
    FETCH = "Fetch"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"
    EXEMPT = "exempt"


class Authorization(NamedTuple):
    """A request without any one of `request` is refused before its handler runs, with CLUSTER_AUTHORIZATION_FAILED.

    `resources` are checked by the handler for what the request names; one request may need only some of them.
    """

    request: tuple[Permission, ...] = ()
    resources: tuple[Permission, ...] = ()


class ApiRules(NamedTuple):
    """Authorization and quota of one API."""

    authorization: Authorization = Authorization()
    quota: QuotaClass = QuotaClass.REQUEST


def _on_cluster(operation: Operation, quota: QuotaClass = QuotaClass.REQUEST) -> ApiRules:
    """Return the authorization and quota rules of an API that needs this operation on the cluster resource."""
    return ApiRules(Authorization((Permission(operation, _CLUSTER),)), quota)


def _on_resources(*resources: tuple[Operation, ResourceType], quota: QuotaClass = QuotaClass.REQUEST) -> ApiRules:
    """Return the authorization and quota rules of an API that needs these operations on topics, groups and so on."""
    return ApiRules(Authorization(resources=tuple(Permission(*r) for r in resources)), quota)


_TOPIC, _CLUSTER, _TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_GROUP: Final = ResourceType.GROUP
_OF_A_MEMBER: Final = _on_resources((Operation.READ, _GROUP))
_BETWEEN_BROKERS: Final = _on_cluster(Operation.CLUSTER_ACTION, QuotaClass.EXEMPT)
_ALTER_CONFIGS: Final = _on_resources((Operation.ALTER_CONFIGS, _TOPIC), (Operation.ALTER_CONFIGS, _CLUSTER))

RULES: Final[Mapping[ApiKey, ApiRules]] = {
    ApiKey.PRODUCE: _on_resources(
        (Operation.WRITE, _TOPIC), (Operation.WRITE, _TRANSACTIONAL_ID), quota=QuotaClass.PRODUCE
    ),
    # followers need CLUSTER_ACTION instead of READ, and are exempt from the quota
    ApiKey.FETCH: _on_resources(
        (Operation.READ, _TOPIC), (Operation.CLUSTER_ACTION, _CLUSTER), quota=QuotaClass.FETCH
    ),
    ApiKey.LIST_OFFSETS: _on_resources((Operation.DESCRIBE, _TOPIC)),
    ApiKey.METADATA: _on_resources(
        (Operation.DESCRIBE, _TOPIC), (Operation.CREATE, _CLUSTER), (Operation.CREATE, _TOPIC),
        (Operation.DESCRIBE, _CLUSTER),
    ),
    ApiKey.LEADER_AND_ISR: _BETWEEN_BROKERS,
    ApiKey.STOP_REPLICA: _BETWEEN_BROKERS,
    ApiKey.UPDATE_METADATA: _BETWEEN_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _BETWEEN_BROKERS,
    ApiKey.OFFSET_COMMIT: _on_resources((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    ApiKey.OFFSET_FETCH: _on_resources((Operation.DESCRIBE, _GROUP), (Operation.DESCRIBE, _TOPIC)),
    ApiKey.FIND_COORDINATOR: _on_resources((Operation.DESCRIBE, _GROUP), (Operation.DESCRIBE, _TRANSACTIONAL_ID)),
    ApiKey.JOIN_GROUP: _OF_A_MEMBER,
    ApiKey.HEARTBEAT: _OF_A_MEMBER,
    ApiKey.LEAVE_GROUP: _OF_A_MEMBER,
    ApiKey.SYNC_GROUP: _OF_A_MEMBER,
    ApiKey.DESCRIBE_GROUPS: _on_resources((Operation.DESCRIBE, _GROUP)),
    # with the right to describe the cluster all groups are listed, else those that may be described
    ApiKey.LIST_GROUPS: _on_resources((Operation.DESCRIBE, _CLUSTER), (Operation.DESCRIBE, _GROUP)),
    ApiKey.API_VERSIONS: ApiRules(),
    ApiKey.CREATE_TOPICS: _on_resources(
        (Operation.CREATE, _CLUSTER), (Operation.CREATE, _TOPIC), (Operation.DESCRIBE_CONFIGS, _TOPIC),
        quota=QuotaClass.CONTROLLER_MUTATION,
    ),
    ApiKey.DELETE_TOPICS: _on_resources(
        (Operation.DELETE, _TOPIC), (Operation.DESCRIBE, _TOPIC), quota=QuotaClass.CONTROLLER_MUTATION
    ),
    ApiKey.DELETE_RECORDS: _on_resources((Operation.DELETE, _TOPIC)),
    ApiKey.INIT_PRODUCER_ID: _on_resources(
        (Operation.WRITE, _TRANSACTIONAL_ID), (Operation.IDEMPOTENT_WRITE, _CLUSTER), (Operation.WRITE, _TOPIC)
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _on_resources((Operation.CLUSTER_ACTION, _CLUSTER), (Operation.DESCRIBE, _TOPIC)),
    ApiKey.DESCRIBE_CONFIGS: _on_resources(
        (Operation.DESCRIBE_CONFIGS, _TOPIC), (Operation.DESCRIBE_CONFIGS, _CLUSTER)
    ),
    ApiKey.ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _on_cluster(Operation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _on_cluster(Operation.DESCRIBE),
    ApiKey.CREATE_PARTITIONS: _on_resources((Operation.ALTER, _TOPIC), quota=QuotaClass.CONTROLLER_MUTATION),
    ApiKey.DELETE_GROUPS: _on_resources((Operation.DELETE, _GROUP)),
    ApiKey.ELECT_LEADERS: _on_cluster(Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _on_cluster(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _on_cluster(Operation.DESCRIBE),
    ApiKey.OFFSET_DELETE: _on_resources((Operation.DELETE, _GROUP), (Operation.READ, _TOPIC)),
    ApiKey.ALTER_PARTITION: _BETWEEN_BROKERS,
    ApiKey.UPDATE_FEATURES: _on_cluster(Operation.ALTER),
    ApiKey.ENVELOPE: _on_cluster(Operation.CLUSTER_ACTION),
    ApiKey.WRITE_TXN_MARKERS: ApiRules(
        Authorization((Permission(Operation.ALTER, _CLUSTER), Permission(Operation.CLUSTER_ACTION, _CLUSTER))),
        QuotaClass.EXEMPT,
    ),
    # from version 4 on brokers ask, with CLUSTER_ACTION instead
    ApiKey.ADD_PARTITIONS_TO_TXN: _on_resources(
        (Operation.WRITE, _TRANSACTIONAL_ID), (Operation.WRITE, _TOPIC), (Operation.CLUSTER_ACTION, _CLUSTER)
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _on_resources((Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP)),
    ApiKey.END_TXN: _on_resources((Operation.WRITE, _TRANSACTIONAL_ID)),
    ApiKey.TXN_OFFSET_COMMIT: _on_resources(
        (Operation.WRITE, _TRANSACTIONAL_ID), (Operation.READ, _GROUP), (Operation.READ, _TOPIC)
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _on_resources((Operation.DESCRIBE, _TRANSACTIONAL_ID), (Operation.DESCRIBE, _TOPIC)),
    ApiKey.LIST_TRANSACTIONS: _on_resources((Operation.DESCRIBE, _TRANSACTIONAL_ID)),
    ApiKey.DESCRIBE_PRODUCERS: _on_resources((Operation.READ, _TOPIC)),
    # only decides whether the answer lists the operations that the client may do
    ApiKey.DESCRIBE_CLUSTER: _on_resources((Operation.DESCRIBE, _CLUSTER)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _OF_A_MEMBER,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _on_resources((Operation.DESCRIBE, _GROUP)),
    ApiKey.ALLOCATE_PRODUCER_IDS: _on_cluster(Operation.CLUSTER_ACTION),
}  # fmt: skip
