"""The APIs of a 3.9 broker in ZooKeeper mode, and the header of each version. Source: ApiKeys.java."""

from enum import IntEnum
from typing import NamedTuple

from klamm.wire import messages
from klamm.wire.classes import MESSAGES
from klamm.wire.codec import WireMessage
from klamm.wire.errors import UnknownApi


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


class Api(NamedTuple):
    """`first_flexible` is above `max_version` where no version is flexible."""

    key: ApiKey
    name: str
    request: type[WireMessage]
    response: type[WireMessage]
    min_version: int
    max_version: int
    first_flexible: int

    def request_header_version(self, version: int) -> int:
        """The version of the request header: 0 has no client id, 1 has one, 2 has tagged fields, too."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.first_flexible else 1

    def response_header_version(self, version: int) -> int:
        """The version of the response header: 0 has only the correlation id, 1 has tagged fields, too.

        ApiVersions always has 0, for older clients.
        """
        return 1 if version >= self.first_flexible and self.key is not ApiKey.API_VERSIONS else 0


def api(key: int) -> Api:
    """The API with this key. Raises UnknownApi."""
    found = APIS.get(key)
    if found is None:
        raise UnknownApi(key)
    return found


def _api(key: ApiKey, name: str) -> Api:
    """The API's versions and classes, from the message tables."""
    request = MESSAGES[f"{name}Request"]
    return Api(
        key,
        name,
        getattr(messages, f"{name}Request"),
        getattr(messages, f"{name}Response"),
        request.versions.first,
        request.versions.last,
        request.first_flexible,
    )


APIS: dict[int, Api] = {
    m.api_key: _api(ApiKey(m.api_key), m.api_name)
    for m in sorted(MESSAGES.values(), key=lambda m: m.api_key)
    if m.is_request
}
"""By key, keys rising."""
