"""FindCoordinator: which broker coordinates a group or a transactional id. Source: KafkaApis.getCoordinator (3.9)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import TopicCreation
from klamm.client.routing import CoordinatorType
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIND_COORDINATOR: Final = Offered(ApiKey.FIND_COORDINATOR, 0, 6)
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
    """The partitions are the coordinators': they keep the number that their topics had at the start."""

    def __init__(
        self,
        cache: MetadataCache,
        creation: TopicCreation,
        partition_for_group: Callable[[str], int],
        partition_for_transaction: Callable[[str], int],
    ) -> None:
        self._cache = cache
        self._creation = creation
        self._places: dict[int, tuple[str, Callable[[str], int]]] = {
            CoordinatorType.GROUP: (OFFSETS_TOPIC, partition_for_group),
            CoordinatorType.TRANSACTION: (TRANSACTIONS_TOPIC, partition_for_transaction),
        }
        """By key type: the coordinator's topic, and the partition of a key."""

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
        """The leader of the partition that the group or transactional id belongs to.

        The coordinator's topic is created on first use.
        """
        if (place := self._places.get(key_type)) is not None:
            topic, partition_for = place
            if not self._cache.has_topic(topic):
                await self._creation.create_on_first_use(topic)
                return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self._leader(request, TopicPartition(topic, partition_for(key)))
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
