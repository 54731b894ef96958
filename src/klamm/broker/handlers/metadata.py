"""Metadata: brokers, topics, leaders; auto-creates topics. Source: KafkaApis.handleTopicMetadataRequest."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache, PartitionState
from klamm.broker.topic_creation import TopicCreation
from klamm.broker.topic_names import name_error
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.model.topic_names import INTERNAL_TOPICS
from klamm.net.encoded_messages import EncodedMessage, encode_in_pieces
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm.wire.source import EncodedElements

METADATA: Final = Offered(ApiKey.METADATA, 0, 12)
ALL_CLUSTER_OPERATIONS: Final = sum(1 << o for o in (5, 7, 8, 9, 10, 11, 12))
"""create, alter, describe, cluster action, describe configs, alter configs, idempotent write: with no authorizer
everything is allowed."""
_ALL_TOPIC_OPERATIONS: Final = sum(1 << o for o in (3, 4, 5, 6, 7, 8, 10, 11))
_OPERATIONS_NOT_REQUESTED: Final = -(2**31)
_FIRST_WITH_LISTENER_NOT_FOUND: Final = 6
_FIRST_WITH_TOPIC_IDS: Final = 12


MAX_ENTRIES_AT_ONCE: Final = 1_000
"""A response with more topics and partitions is made in pieces: one of them costs 1.5 microseconds."""
ENTRIES_OF_A_PIECE: Final = 1_000
_MISSING: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION))


class Metadata:
    """Serves Metadata."""

    def __init__(
        self,
        cache: MetadataCache,
        cluster_id: str,
        creation: TopicCreation,
        auto_create: bool,
        make_slices: Callable[[], Slices],
    ) -> None:
        self._make_slices = make_slices
        self._cache = cache
        self._cluster_id = cluster_id
        self._creation = creation
        self._auto_create = auto_create

    async def handle(self, request: Request, message: MetadataRequest) -> MetadataResponse | EncodedMessage:
        """Answer Metadata: brokers, topics and partitions.

        A large response is made in several time slices: each topic as of its slice, the brokers as of the last one.
        """
        await self._cache.wait_for_expected(self._requested_names(request, message))
        topics: list[MetadataRequestTopic] = message.topics or []
        if _requests_all_topics(request, message):
            topics = [MetadataRequestTopic(name=name) for name in self._cache.topics()]
        if len(topics) <= MAX_ENTRIES_AT_ONCE and sum(map(self._count_entries, topics)) <= MAX_ENTRIES_AT_ONCE:
            return await self._describe(request, message)
        slices = self._make_slices()
        try:
            if request.version < _FIRST_WITH_TOPIC_IDS and any([_is_by_id(t) async for t in slices.each(topics)]):
                return await self._refuse_ids(request, message, topics, slices)
            wanted = await self._wanted(topics, slices)
            return await self._describe_in_pieces(request, message, wanted, slices)
        finally:
            slices.close()

    async def _refuse_ids(
        self, request: Request, message: MetadataRequest, topics: list[MetadataRequestTopic], slices: Slices
    ) -> EncodedMessage:
        """Answer INVALID_REQUEST for each of many topics: some are requested by an id that this version has not."""
        groups = [
            [_topic_error(topic.name or "", ErrorCode.INVALID_REQUEST) for topic in group]
            async for group in slices.over(topics)
        ]
        return await encode_in_pieces(self._response(request, message, []), "topics", groups, request.version, slices)

    def _requested_names(self, request: Request, message: MetadataRequest) -> list[str] | None:
        """Return the names of the requested topics; None for all or many topics, and for an unknown id."""
        topics = message.topics or []
        if len(topics) > MAX_ENTRIES_AT_ONCE:
            return None
        has_unknown_id = any(t.topic_id != ZERO_ID and self._cache.topic_name(t.topic_id) is None for t in topics)
        if has_unknown_id or _requests_all_topics(request, message):
            return None
        return [topic.name or "" for topic in topics]

    async def _wanted(self, topics: list[MetadataRequestTopic], slices: Slices) -> list[MetadataRequestTopic]:
        """Return the requested topics, each once. Where some are requested by id, these only."""
        has_ids = False
        by_id_or_name: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
        async for group in slices.over(topics):
            has_ids = has_ids or any(topic.topic_id != ZERO_ID for topic in group)
            by_id_or_name.update({(topic.name, topic.topic_id): topic for topic in group})
        wanted: list[MetadataRequestTopic] = []
        async for group in slices.over(by_id_or_name.values()):
            wanted += [topic for topic in group if (topic.topic_id != ZERO_ID) is has_ids]
        await slices.clear(by_id_or_name)
        return wanted

    def _count_entries(self, topic: MetadataRequestTopic) -> int:
        """Return the number of existing partitions of a requested topic, and one for itself."""
        name = self._cache.topic_name(topic.topic_id) if topic.topic_id != ZERO_ID else topic.name
        return 1 + len(self._cache.partitions(name or ""))

    async def _describe_in_pieces(
        self, request: Request, message: MetadataRequest, wanted: Iterable[MetadataRequestTopic], slices: Slices
    ) -> EncodedMessage:
        """Encode the response with these topics group by group, in time slices."""
        groups: list[list[MetadataResponseTopic]] = []
        wants_all = _requests_all_topics(request, message)
        may_create = message.allow_auto_topic_creation and not wants_all
        for group in self._groups(wanted):
            await slices.checkpoint()
            part = replace(message, topics=group, allow_auto_topic_creation=may_create)
            groups.append((await self._describe(request, part, slices)).topics)
        if wants_all:  # a topic that was deleted meanwhile is not among all topics
            groups = [[topic for topic in group if topic.error_code not in _MISSING] for group in groups]
        response = self._response(request, message, [])
        return await encode_in_pieces(response, "topics", groups, request.version, slices)

    def _groups(self, wanted: Iterable[MetadataRequestTopic]) -> Iterator[list[MetadataRequestTopic]]:
        """The topics in groups of about ENTRIES_OF_A_PIECE topics and partitions."""
        group: list[MetadataRequestTopic] = []
        entries = 0
        for topic in wanted:
            group.append(topic)
            entries += self._count_entries(topic)
            if entries >= ENTRIES_OF_A_PIECE:
                yield group
                group, entries = [], 0
        if group:
            yield group

    async def _describe(
        self, request: Request, message: MetadataRequest, slices: Slices | None = None
    ) -> MetadataResponse:
        """Return the whole response, made without yielding to the event loop.

        With `slices` it yields within large topics, whose partitions are then encoded.
        """
        if message.topics and request.version < _FIRST_WITH_TOPIC_IDS and any(_is_by_id(t) for t in message.topics):
            topics = [_topic_error(t.name or "", ErrorCode.INVALID_REQUEST) for t in message.topics]
        elif _requests_all_topics(request, message):
            topics = [await self._describe_topic(request, name, slices) for name in self._cache.topics()]
        else:
            topics = await self._describe_requested(request, message, slices)
        if message.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None:  # of an unknown id there is nothing to tell
                    topic.topic_authorized_operations = _ALL_TOPIC_OPERATIONS
        return self._response(request, message, topics)

    def _response(
        self, request: Request, message: MetadataRequest, topics: list[MetadataResponseTopic]
    ) -> MetadataResponse:
        """A response with these topics, and the current brokers and controller."""
        operations = (
            ALL_CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else _OPERATIONS_NOT_REQUESTED
        )
        controller = self._cache.controller_id
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker, endpoint in self._cache.brokers_on(request.peer.listener)
            ],
            cluster_id=self._cluster_id,
            controller_id=NO_BROKER if controller is None else controller,
            topics=topics,
            cluster_authorized_operations=operations,
        )

    async def _describe_requested(
        self, request: Request, message: MetadataRequest, slices: Slices | None
    ) -> list[MetadataResponseTopic]:
        """The topics that the request names or has ids of; missing ones with an error, or auto-created."""
        asked = message.topics or []
        ids = dict.fromkeys(t.topic_id for t in asked if t.topic_id != ZERO_ID)
        found: list[MetadataResponseTopic] = []
        names: Iterable[str] = dict.fromkeys(t.name or "" for t in asked)
        if ids:
            unknown = [i for i in ids if self._cache.topic_name(i) is None]
            found = [
                MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=i) for i in unknown
            ]
            names = [name for i in ids if (name := self._cache.topic_name(i)) is not None]
        may_create = message.allow_auto_topic_creation and self._auto_create
        for name in names:
            if self._cache.has_topic(name):
                found.append(await self._describe_topic(request, name, slices))
            else:
                found.append(_topic_error(name, await self._missing_topic_error(name, may_create)))
        return found

    async def _missing_topic_error(self, name: str, may_create: bool) -> ErrorCode:
        """The error for a topic that does not exist, after creating it where the request and the broker allow that."""
        if may_create:
            return await self._creation.create_on_first_use(name)
        return ErrorCode.INVALID_TOPIC_EXCEPTION if name_error(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _describe_topic(self, request: Request, name: str, slices: Slices | None) -> MetadataResponseTopic:
        """The response entry of a topic that exists; with `slices`, the partitions of a large one are encoded."""
        states = self._cache.partitions(name)
        partitions: list[MetadataResponsePartition]
        if slices is not None and len(states) > ENTRIES_OF_A_PIECE:
            partitions = await self._encode_partitions(request, states, slices)
        else:
            partitions = [self._describe_partition(request, number, state) for number, state in states.items()]
        return MetadataResponseTopic(
            name=name,
            topic_id=self._cache.topic_id(name),
            is_internal=name in INTERNAL_TOPICS,
            partitions=partitions,
        )

    async def _encode_partitions(
        self, request: Request, states: Mapping[int, PartitionState], slices: Slices
    ) -> EncodedElements:
        """The encoded response entries of a topic's partitions, made in several time slices."""
        encoded = EncodedElements()
        async for piece in slices.over(list(states.items()), ENTRIES_OF_A_PIECE):
            described = [self._describe_partition(request, number, state) for number, state in piece]
            encoded += MetadataResponse.encode_elements(MetadataResponsePartition, described, request.version)
        return encoded

    def _describe_partition(self, request: Request, number: int, state: PartitionState) -> MetadataResponsePartition:
        """The response entry of one partition; an error where its leader has no endpoint on the client's listener."""
        leader = BrokerId(state.leader)
        error = ErrorCode.NONE
        replicas, isr = state.replicas, state.isr
        if self._cache.endpoint_on(leader, request.peer.listener) is None:
            alive = self._cache.is_alive(leader) and request.version >= _FIRST_WITH_LISTENER_NOT_FOUND
            error = ErrorCode.LISTENER_NOT_FOUND if alive else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_BROKER
        if request.version == 0:
            replicas, isr = self._reachable_brokers(request, replicas), self._reachable_brokers(request, isr)
            if not error and (len(replicas) < len(state.replicas) or len(isr) < len(state.isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=state.offline_replicas,
        )

    def _reachable_brokers(self, request: Request, brokers: Iterable[int]) -> tuple[int, ...]:
        """Those of the brokers that have an endpoint on the client's listener."""
        listener = request.peer.listener
        return tuple(b for b in brokers if self._cache.endpoint_on(BrokerId(b), listener) is not None)


def _requests_all_topics(request: Request, message: MetadataRequest) -> bool:
    """Whether the request is for all topics: no list, or in version 0 an empty one."""
    return message.topics is None or (request.version == 0 and not message.topics)


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    """Whether the request names this topic by its id."""
    return topic.name is None or topic.topic_id != ZERO_ID


def _topic_error(name: str, error: ErrorCode) -> MetadataResponseTopic:
    """The response entry of a topic with an error."""
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
