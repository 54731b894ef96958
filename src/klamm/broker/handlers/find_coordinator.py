"""FindCoordinator: which broker coordinates a group or a transactional id. Source: KafkaApis.getCoordinator (3.9)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import TopicCreation
from klamm.client.coordinators import CoordinatorType
from klamm.coordinator.partitioning import partition_for
from klamm.coordinator.ports import OFFSETS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIND_COORDINATOR: Final = Offered(ApiKey.FIND_COORDINATOR, 0, 6)
TRANSACTION_TOPIC: Final = "__transaction_state"
_SEVERAL_KEYS: Final = 4
_SHARE: Final = 2
"""A share group's partition; 3.9 has no share groups in ZooKeeper mode."""
_KNOWS_SHARE_GROUPS: Final = 6
_NO_PORT: Final = -1


class _Found(NamedTuple):
    error: ErrorCode
    node_id: int = NO_BROKER
    host: str = ""
    port: int = _NO_PORT


class FindCoordinator:
    """`partition_for_group` is the coordinator's: it keeps the number of partitions that the topic had at the start."""

    def __init__(
        self, cache: MetadataCache, creation: TopicCreation, partition_for_group: Callable[[str], int]
    ) -> None:
        self._cache = cache
        self._creation = creation
        self._partition_for_group = partition_for_group

    async def handle(self, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """Answer FindCoordinator: the broker that coordinates each group or transactional id."""
        if request.version < _SEVERAL_KEYS:
            found = await self._find(request, message.key_type, message.key)
            return FindCoordinatorResponse(
                error_code=found.error,
                error_message=found.error.name,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key, found.node_id, found.host, found.port, found.error)
                for key in message.coordinator_keys
                for found in (await self._find(request, message.key_type, key),)
            ]
        )

    async def _find(self, request: Request, key_type: int, key: str) -> _Found:
        """The leader of the partition that keeps the key; the groups' topic is created on first use."""
        if key_type == CoordinatorType.GROUP:
            if not self._cache.has_topic(OFFSETS_TOPIC):
                await self._creation.create_on_first_use(OFFSETS_TOPIC)
                return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self._leader(request, TopicPartition(OFFSETS_TOPIC, self._partition_for_group(key)))
        if key_type == CoordinatorType.TRANSACTION:
            # another broker of a mixed cluster can be the coordinator; klamm has none to create the topic for
            count = len(self._cache.partitions(TRANSACTION_TOPIC))
            if not count:
                return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self._leader(request, TopicPartition(TRANSACTION_TOPIC, partition_for(key, count)))
        knows_share_groups = key_type == _SHARE and request.version >= _KNOWS_SHARE_GROUPS
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE if knows_share_groups else ErrorCode.INVALID_REQUEST)

    def _leader(self, request: Request, topic_partition: TopicPartition) -> _Found:
        """Return the leader of the partition and its address on the request's listener.

        COORDINATOR_NOT_AVAILABLE where there is no leader or it has no such listener.
        """
        state = self._cache.state(topic_partition)
        if state is None:
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        endpoint = self._cache.endpoint_on(BrokerId(state.leader), request.peer.listener)
        if endpoint is None:
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _Found(ErrorCode.NONE, state.leader, endpoint.host, endpoint.port)
