"""Control requests that wait for a broker, and the wire messages made of them when they are sent.

Partition states and leaders are taken when a request is queued; broker list, broker epoch and topic ids when it is
sent. Requests that wait for one broker are merged into one with the newest state of each partition. An UpdateMetadata
body is encoded once for all brokers that get the same. Source: AbstractControllerBrokerRequestBatch (3.9).
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from klamm.controller.context import ControllerContext
from klamm.controller.encoded_bodies import (
    BodyForBroker,
    MetadataBody,
    SharedState,
    encoded_states,
    groups_of_partitions,
)
from klamm.controller.sent_states import as_new
from klamm.controller.settings import ControllerSettings
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.controller.topic import Partition
from klamm.controller.whole_topics import LeaderAndIsrStates, MetadataStates
from klamm.model.brokers import Broker, SecurityProtocol
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import (
    LEADER_DURING_DELETE,
)
from klamm.model.topic_ids import ZERO_ID
from klamm.net.encoded_messages import encode_in_pieces
from klamm.runtime.time_slices import Slices
from klamm.wire.messages import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from klamm.wire.source import EncodedElements

_NO_PARTITIONS: Final[Mapping[int, Partition]] = MappingProxyType({})
MAX_CAUSES: Final = 8
"""A merged request names this many event ids, the newest."""


@dataclass(slots=True, eq=False)
class LeaderAndIsrItem:
    """A LeaderAndIsr request that waits for one broker."""

    states: Mapping[Partition, SharedState]
    causes: tuple[str, ...]
    broker_list_version: int
    leaders: dict[BrokerId, Broker] = field(default_factory=dict)
    """The leaders that were registered when the states were decided; old brokers read a leader's endpoint from here."""
    max_partitions: int = REQUEST_PARTITIONS
    """No other request is merged into this one beyond so many partitions."""

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions whose leader and ISR the item has."""
        return self.states

    @property
    def own_states(self) -> dict[Partition, SharedState]:
        """The states of a merged request, which may be changed; those of whole topics may not."""
        assert isinstance(self.states, dict), "states of whole topics are copied before they are changed"
        return self.states

    def merge(self, newer: "LeaderAndIsrItem") -> "LeaderAndIsrItem":
        """Return one LeaderAndIsr request with the newest state of each partition of both.

        A partition that is marked `is_new` in one of them stays so.
        """
        most = min(self.max_partitions, newer.max_partitions)
        states = dict(self.states.items())
        merged = LeaderAndIsrItem(states, merged_causes(self, newer), 0, dict(self.leaders), most)
        merged.merge_states_from(newer)
        return merged

    def pieces(self, max_partitions: int) -> Iterator["LeaderAndIsrItem"]:
        """Split into requests of at most `max_partitions`, in order."""
        left = iter(self.states.items())
        while part := dict(islice(left, max_partitions)):
            yield LeaderAndIsrItem(part, self.causes, self.broker_list_version, self.leaders, self.max_partitions)

    def merge_states_from(self, newer: "LeaderAndIsrItem") -> None:
        """Take states, leaders and version of the broker list from a newer request; causes stay as they are."""
        states = self.own_states
        for p, state in newer.states.items():
            before = states.get(p)
            sticks = before is not None and before.is_new and not state.is_new
            states[p] = as_new(state) if sticks else state
        self.leaders |= newer.leaders
        self.broker_list_version = newer.broker_list_version


@dataclass(slots=True, eq=False)
class UpdateMetadataItem:
    """An UpdateMetadata request; one object is queued for all brokers that get the same."""

    states: Mapping[Partition, UpdateMetadataPartitionState]
    causes: tuple[str, ...]
    broker_list_version: int
    deletes: bool = False
    """Whether it removes partitions from the brokers' metadata; then no newer request is merged into it, since a topic
    may be recreated under the same name."""
    send_group: object = None
    """Items of one send share this object. They name different partitions, so there is nothing to merge among them."""
    body: MetadataBody | None = field(default=None, repr=False)
    _merged: "tuple[UpdateMetadataItem, UpdateMetadataItem] | None" = field(default=None, repr=False)

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions whose metadata the item has."""
        return self.states

    def merge(self, newer: "UpdateMetadataItem") -> "UpdateMetadataItem":
        """Return one UpdateMetadata request with the newest states of both.

        Brokers that merge the same two requests share the result.
        """
        if self._merged is None or self._merged[0] is not newer:
            states = dict(chain(self.states.items(), newer.states.items()))
            causes = merged_causes(self, newer)
            self._merged = newer, UpdateMetadataItem(states, causes, newer.broker_list_version, newer.deletes)
        return self._merged[1]


@dataclass(slots=True, eq=False)
class StopReplicaItem:
    """A StopReplica request that waits for one broker."""

    stops: dict[Partition, StopReplicaPartitionState]
    causes: tuple[str, ...]
    broker_list_version: int

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions whose replicas the item stops."""
        return self.stops


def deletion_errors(
    item: StopReplicaItem, request: StopReplicaRequest, response: StopReplicaResponse
) -> dict[Partition, ErrorCode]:
    """The error code of each replica that the request was to delete; a top-level error applies to all of them.

    A partition that the response omits was not deleted. Before version 3 two requests are sent, of which one deletes
    nothing: for that one the result is empty.
    """
    if not (request.topic_states or request.delete_partitions):
        return {}
    top = ErrorCode(response.error_code)
    answered = {(e.topic_name, e.partition_index): ErrorCode(e.error_code) for e in response.partition_errors}
    return {
        p: top or answered.get((p.topic, p.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
        for p, stop in item.stops.items()
        if stop.delete_partition
    }


ControlItem: TypeAlias = LeaderAndIsrItem | UpdateMetadataItem | StopReplicaItem
Steps: TypeAlias = Iterator[ControlItem | int]
"""Merged requests, interspersed with the numbers of partitions processed since the last step."""


def merged_causes(older: ControlItem, newer: ControlItem) -> tuple[str, ...]:
    """The event ids of both requests, at most MAX_CAUSES."""
    return joined_causes((older, newer))


def joined_causes(items: Iterable[ControlItem]) -> tuple[str, ...]:
    """The event ids of all these requests, at most MAX_CAUSES."""
    return tuple(dict.fromkeys(cause for item in items for cause in item.causes))[-MAX_CAUSES:]


# ---- whole messages


class RequestBuilder:
    """Makes wire messages from queued requests, for one controller term."""

    def __init__(self, context: ControllerContext, settings: ControllerSettings, slices: Slices) -> None:
        self._context = context
        self._slices = slices
        self._settings = settings
        self._versions = settings.versions

    def version(self, item: ControlItem) -> int:
        """The version in which this request is sent."""
        if isinstance(item, LeaderAndIsrItem):
            return self._versions.leader_and_isr
        return self._versions.update_metadata if isinstance(item, UpdateMetadataItem) else self._versions.stop_replica

    async def bodies(self, item: ControlItem, broker: Broker) -> list[Any]:
        """Return the messages to send, in order. A large LeaderAndIsr is encoded in several time slices."""
        if isinstance(item, UpdateMetadataItem) and not self._is_encoded(item):
            await self._slices.checkpoint(len(item.states))
        if (
            not isinstance(item, LeaderAndIsrItem)
            or len(item.states) <= REQUEST_PARTITIONS
            or self._versions.leader_and_isr < 2
        ):
            return self.messages(item, broker)
        request = self._leader_and_isr(item, broker)
        topics: dict[str, LeaderAndIsrTopicState] = {}
        states: Iterable[tuple[Partition, SharedState]] = item.states.items()
        if isinstance(item.states, LeaderAndIsrStates):
            states = self._add_whole_topics(item.states, topics)
        async for chunk in self._slices.over(states):
            encoded = encoded_states([state for _, state in chunk], self._versions.leader_and_isr)
            self._group_by_topic(zip((p for p, _ in chunk), encoded, strict=True), topics, EncodedElements)
        groups = groups_of_partitions(list(topics.values()))
        return [await encode_in_pieces(request, "topic_states", groups, self._versions.leader_and_isr, self._slices)]

    def _add_whole_topics(
        self, states: LeaderAndIsrStates, topics: dict[str, LeaderAndIsrTopicState]
    ) -> Iterator[tuple[Partition, SharedState]]:
        """Add the encoded states of whole topics to `topics`, while the other states are taken one after the other."""
        for part, encoded in states.parts:
            if not part.is_current(self._context):
                yield from part.leader_and_isr(states.broker)
            elif (topic := topics.get(part.topic.name)) is not None:
                topic.partition_states.extend(encoded)
            else:
                name = part.topic.name
                topics[name] = LeaderAndIsrTopicState(name, self._topic_id(name), encoded)
        yield from states.others.items()

    async def free_states(self, item: ControlItem) -> None:
        """Free the states of a request that is no longer needed, in steps that do not block the loop."""
        if isinstance(item, LeaderAndIsrItem) and isinstance(item.states, dict):
            await self._slices.clear(item.states)
        else:
            await self._slices.checkpoint(len(item.partitions))

    def messages(self, item: ControlItem, broker: Broker) -> list[Any]:
        """Return the messages of a request: usually one.

        A StopReplica with stops and deletions becomes two before version 3.
        """
        if isinstance(item, LeaderAndIsrItem):
            return [self.leader_and_isr(item, broker)]
        if isinstance(item, UpdateMetadataItem):
            return [self.update_metadata(item, broker)]
        return self.stop_replica(item, broker)

    def leader_and_isr(self, item: LeaderAndIsrItem, broker: Broker) -> LeaderAndIsrRequest:
        """A LeaderAndIsr message with the states in this request."""
        request = self._leader_and_isr(item, broker)
        if self._versions.leader_and_isr < 2:
            request.ungrouped_partition_states = list(item.states.values())
        else:
            topics: dict[str, LeaderAndIsrTopicState] = {}
            self._group_by_topic(item.states.items(), topics)
            request.topic_states = list(topics.values())
        return request

    def _leader_and_isr(self, item: LeaderAndIsrItem, broker: Broker) -> LeaderAndIsrRequest:
        """A LeaderAndIsr message without partition states."""
        return LeaderAndIsrRequest(
            controller_id=self._settings.broker_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            live_leaders=self._live_leaders(item),
        )

    def _group_by_topic(
        self,
        states: Iterable[tuple[Partition, Any]],
        topics: dict[str, LeaderAndIsrTopicState],
        array: type[list[Any]] = list,
    ) -> None:
        """Add states to their topics' entries; partitions removed since the request was queued are skipped.

        With `EncodedElements` as `array` the states are encodings.
        """
        name, living, topic = "", _NO_PARTITIONS, None
        for p, state in states:
            if p.topic != name:
                name, living, topic = p.topic, self._known_partitions(p.topic), topics.get(p.topic)
            if living.get(p.partition) is not p:
                continue  # gone since this was queued; under its name there may be another one, with another id
            if topic is None:
                topic = topics[name] = LeaderAndIsrTopicState(name, self._topic_id(name), array())
            topic.partition_states.append(state)

    def update_metadata(self, item: UpdateMetadataItem, broker: Broker) -> BodyForBroker:
        """The message for this broker; the body is encoded once and shared."""
        if item.body is None or not self._is_encoded(item):
            item.body = self._metadata_body(item)
        return BodyForBroker(item.body, broker.epoch)

    def _is_encoded(self, item: UpdateMetadataItem) -> bool:
        """Whether the item has an encoded body with the current broker list."""
        return item.body is not None and item.body.broker_list_version == self._context.broker_list_version

    def _metadata_body(self, item: UpdateMetadataItem) -> MetadataBody:
        """Encode the UpdateMetadata request with the current broker list."""
        version = self._versions.update_metadata
        request = UpdateMetadataRequest(
            controller_id=self._settings.broker_id,
            controller_epoch=self._context.epoch,
            live_brokers=[_live_broker(b, version) for b in self._context.registered.values()],
        )
        topics = self._metadata_topics(item)
        if version < 5:
            request.ungrouped_partition_states = [state for topic in topics for state in topic.partition_states]
        else:
            request.topic_states = topics
        return MetadataBody(request, version, self._context.broker_list_version)

    def _metadata_topics(self, item: UpdateMetadataItem) -> list[UpdateMetadataTopicState]:
        """The topics of an UpdateMetadata request.

        Of partitions removed since it was queued only their deletion is sent: another topic may have the name by now.
        """
        topics: dict[str, UpdateMetadataTopicState] = {}
        name, living, topic = "", _NO_PARTITIONS, None
        states: Iterable[tuple[Partition, UpdateMetadataPartitionState]] = item.states.items()
        if isinstance(item.states, MetadataStates):
            states = self._metadata_of_whole_topics(item.states, topics)
        for p, state in states:
            if p.topic != name:
                name, living, topic = p.topic, self._known_partitions(p.topic), topics.get(p.topic)
            is_gone = living.get(p.partition) is not p
            if is_gone and state.leader != LEADER_DURING_DELETE:
                continue
            if topic is None:
                topic_id = ZERO_ID if is_gone else self._topic_id(name)
                topic = topics[name] = UpdateMetadataTopicState(name, topic_id, [])
            topic.partition_states.append(state)
        return list(topics.values())

    def _metadata_of_whole_topics(
        self, states: MetadataStates, topics: dict[str, UpdateMetadataTopicState]
    ) -> Iterator[tuple[Partition, UpdateMetadataPartitionState]]:
        """Add the encoded states of whole topics to `topics`; yield those of topics that lost partitions since."""
        for part, encoded in states.parts:
            name = part.topic.name
            if not part.is_current(self._context):
                yield from part.metadata()
            elif (topic := topics.get(name)) is not None:
                topic.partition_states.extend(encoded)
            else:
                topics[name] = UpdateMetadataTopicState(name, self._topic_id(name), encoded)

    def _known_partitions(self, topic: str) -> Mapping[int, Partition]:
        """The partitions of the topic that now has this name, by number."""
        found = self._context.topics.get(topic)
        return found.partitions if found is not None else _NO_PARTITIONS

    def stop_replica(self, item: StopReplicaItem, broker: Broker) -> list[StopReplicaRequest]:
        """One or two StopReplica messages with the stops in this request."""
        if self._versions.stop_replica >= 3:
            topics: dict[str, StopReplicaTopicState] = {}
            for p, stop in item.stops.items():
                topics.setdefault(p.topic, StopReplicaTopicState(p.topic, [])).partition_states.append(stop)
            return [self._stop_replica(broker, topic_states=list(topics.values()))]
        split = [(d, [p for p, stop in item.stops.items() if stop.delete_partition is d]) for d in (True, False)]
        return [self._old_stop_replica(broker, partitions, delete) for delete, partitions in split if partitions]

    def _old_stop_replica(self, broker: Broker, partitions: list[Partition], delete: bool) -> StopReplicaRequest:
        """A StopReplica message before version 3, which deletes all of its partitions or none."""
        if self._versions.stop_replica == 0:
            ungrouped = [StopReplicaPartitionV0(p.topic, p.partition) for p in partitions]
            return self._stop_replica(broker, delete_partitions=delete, ungrouped_partitions=ungrouped)
        topics: dict[str, list[int]] = {}
        for p in partitions:
            topics.setdefault(p.topic, []).append(p.partition)
        listed = [StopReplicaTopicV1(name, tuple(numbers)) for name, numbers in topics.items()]
        return self._stop_replica(broker, delete_partitions=delete, topics=listed)

    def _stop_replica(self, broker: Broker, **content: Any) -> StopReplicaRequest:
        """A StopReplica message with this controller's id and epoch."""
        return StopReplicaRequest(
            controller_id=self._settings.broker_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            **content,
        )

    def _topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id, or the zero id if it has none."""
        found = self._context.topics.get(topic)
        return found.id if found is not None and found.id is not None else ZERO_ID

    def _live_leaders(self, item: LeaderAndIsrItem) -> list[LeaderAndIsrLiveLeader]:
        """The leaders in this request with their endpoints, as LeaderAndIsr lists them."""
        endpoints = [(b.id, b.endpoint(self._settings.inter_broker_listener)) for _, b in sorted(item.leaders.items())]
        return [LeaderAndIsrLiveLeader(b, e.host, e.port) for b, e in endpoints if e is not None]


def _live_broker(broker: Broker, version: int) -> UpdateMetadataBroker:
    """The broker with its endpoints, as UpdateMetadata of this version lists it."""
    if version == 0:
        plain = next((e for e in broker.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT), None)
        assert plain is not None, f"broker {broker.id} has no PLAINTEXT listener, which UpdateMetadata 0 needs"
        return UpdateMetadataBroker(id=broker.id, v0_host=plain.host, v0_port=plain.port)
    endpoints = [UpdateMetadataEndpoint(e.port, e.host, e.listener, int(e.security_protocol)) for e in broker.endpoints]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)
