"""The requests of one event to brokers: LeaderAndIsr, UpdateMetadata and StopReplica, sent in this order.

Source: AbstractControllerBrokerRequestBatch (ControllerChannelManager.scala, 3.9).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from klamm.controller.context import ControllerContext, Partitions
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.controller.encoded_bodies import SharedState
from klamm.controller.sent_states import leader_and_isr_state, metadata_state
from klamm.controller.settings import ControllerSettings
from klamm.controller.state_encoder import StateEncoder
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.controller.topic import Partition, Topic
from klamm.controller.whole_topics import EncodedParts, parts_of
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE
from klamm.runtime.time_slices import Slices
from klamm.wire.messages import StopReplicaPartitionState


class Outbox(Protocol):
    """Takes the requests of a batch: `Channels` in production, a list in tests."""

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        """Queue the control request for the broker."""


class RequestObserver(Protocol):
    """Is notified of each queued request."""

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        """Take note of a control request: called whenever one was queued for the broker."""


@dataclass(slots=True)
class _Collected:
    """What is to be sent to brokers next."""

    leader_and_isr: defaultdict[BrokerId, Partitions] = field(default_factory=lambda: defaultdict(dict))
    new: defaultdict[BrokerId, Partitions] = field(default_factory=lambda: defaultdict(dict))
    """By broker, the partitions whose log it has to create."""
    metadata_brokers: dict[BrokerId, None] = field(default_factory=dict)
    metadata_to_all: bool = False
    metadata_partitions: Partitions = field(default_factory=dict)
    stops: dict[BrokerId, dict[Partition, StopReplicaPartitionState]] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)
    """Topics of which every partition is sent to its live replicas."""
    metadata_topics: list[Topic] = field(default_factory=list)
    """Topics of which every partition is sent as metadata."""

    def release_states(self) -> None:
        """Free the partition states that requests share."""
        for p in self.metadata_partitions:
            p.shared_state = None


class RequestBatch:
    """Collects what an event has to tell brokers, until `send`."""

    coalesces_requests = True
    """Whether steps of one event share requests; the differential tests turn it off to compare with Kafka's
    requests."""

    def __init__(
        self,
        context: ControllerContext,
        settings: ControllerSettings,
        outbox: Outbox,
        slices: Slices,
        observer: RequestObserver | None = None,
    ) -> None:
        self._context = context
        self._versions = settings.versions
        self._has_recovery_state = settings.writes_recovery_state
        self._encoder = StateEncoder(settings)
        self._slices = slices
        self.outbox = outbox
        self.max_partitions: int | None = None
        """Into requests of so many partitions LeaderAndIsr is divided; None where each broker gets one."""
        self._observer = observer
        self._collected = _Collected()
        self._sending = asyncio.Lock()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be sent."""
        return self._collected == _Collected()

    @property
    def partition_count(self) -> int:
        """The number of partitions of which brokers are to be told."""
        return len(self._collected.metadata_partitions)

    def clear(self) -> None:
        """Remove the collected requests of an event that failed."""
        self._collected.release_states()
        self._collected = _Collected()

    def add_leader_and_isr(self, brokers: Iterable[BrokerId], partition: Partition, is_new: bool) -> None:
        """Add a LeaderAndIsr to these brokers, and an UpdateMetadata to all brokers."""
        for broker in brokers:
            if broker in self._context.registered:
                self._collected.leader_and_isr[broker][partition] = None
                if is_new:
                    self._collected.new[broker][partition] = None
        self._collected.metadata_partitions[partition] = None
        self._collected.metadata_to_all = True

    def add_changes(self, changed: Iterable[Partition], recipients: Mapping[BrokerId, Collection[Partition]]) -> None:
        """Add a LeaderAndIsr for each of these brokers, and an UpdateMetadata with the changed partitions for all.

        It does for many partitions what `add_leader_and_isr` does without `is_new`, and costs less.
        """
        if listed := dict.fromkeys(changed):
            self._collected.metadata_partitions.update(listed)
            self._collected.metadata_to_all = True
        for broker, partitions in recipients.items():
            if partitions and broker in self._context.registered:
                self._collected.leader_and_isr[broker].update(dict.fromkeys(partitions))

    @property
    def takes_whole_topics(self) -> bool:
        """Whether whole topics may be added, which depends on the versions of the requests."""
        return self._encoder.encodes_topics

    def add_whole_topic(self, topic: Topic) -> None:
        """Add a LeaderAndIsr without `is_new` to the live replicas of all partitions, and no UpdateMetadata."""
        self._collected.topics.append(topic)

    def add_metadata_of_whole_topics(self, brokers: Collection[BrokerId], topics: Collection[Topic]) -> None:
        """Add an UpdateMetadata with all partitions of these topics to these brokers; each partition has a state."""
        if brokers and topics:
            self._collected.metadata_topics += topics
            self._collected.metadata_brokers.update(dict.fromkeys(brokers))

    def add_metadata(self, brokers: Iterable[BrokerId], partitions: Iterable[Partition]) -> None:
        """Add an UpdateMetadata to these brokers; without partitions it has only the broker list."""
        self._collected.metadata_brokers.update(dict.fromkeys(brokers))
        self._collected.metadata_partitions.update(dict.fromkeys(partitions))

    def add_stop_replica(self, brokers: Iterable[BrokerId], partition: Partition, delete: bool) -> None:
        """Add a StopReplica to these brokers; a stop that deletes the replica is not replaced by one that does not."""
        for broker in brokers:
            if broker in self._context.registered:
                stops = self._collected.stops.setdefault(broker, {})
                before = stops.get(partition)
                sticky = delete or (before is not None and before.delete_partition)
                stops[partition] = StopReplicaPartitionState(partition.partition, self._stop_epoch(partition), sticky)

    def _stop_epoch(self, partition: Partition) -> int:
        """The leader epoch for a StopReplica: the one the broker has now.

        For a deleted topic it is the epoch that Kafka reserves for deletion.
        """
        known = self._context.partition(partition.topic, partition.partition) is partition
        is_deleted = not known or self._context.is_to_be_deleted(partition)
        return EPOCH_DURING_DELETE if is_deleted else partition.leader_epoch

    async def send(self, cause: str) -> None:
        """Hand all collected requests to the channels of registered brokers; requests to other brokers are dropped.

        Yields to the loop while there is much to send. What is added meanwhile waits for the next call.
        """
        async with self._sending:
            collected, self._collected = self._collected, _Collected()
            try:
                whole = EncodedParts(self._context, self._encoder)
                await self._encode(collected.topics, whole.add_leader_and_isr)
                await self._send_leader_and_isr(collected, whole, cause)
                await self._encode(collected.metadata_topics, whole.add_metadata)
                await self._send_metadata(collected, whole, cause)
                await self._send_stops(collected, cause)
                await self._free_sent_states(collected)
            finally:
                collected.release_states()

    async def _free_sent_states(self, collected: _Collected) -> None:
        """Free the partition states that the sent requests share, a time slice at a time."""
        async for chunk in self._slices.over(collected.metadata_partitions):
            for p in chunk:
                p.shared_state = None
        await self._slices.clear(collected.metadata_partitions)

    def _registered(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        """Those of these brokers that are registered, in order."""
        return sorted(b for b in brokers if b in self._context.registered)

    async def _encode(self, topics: Iterable[Topic], add: Callable[[Topic, list[Partition]], None]) -> None:
        """Add the states of whole topics to requests, a part of a topic at a time."""
        for topic in topics:
            for partitions in parts_of(topic):
                await self._slices.checkpoint(len(partitions))
                add(topic, partitions)

    async def _send_leader_and_isr(self, collected: _Collected, whole: EncodedParts, cause: str) -> None:
        """Queue LeaderAndIsr, as a rule one per broker; brokers share the state of a partition."""
        context, leaders_of_topics = self._context, whole.leaders()
        for broker in self._registered({**collected.leader_and_isr, **whole.leader_and_isr}):
            leading = set[int](leaders_of_topics.get(broker, ()))
            requested, new = collected.leader_and_isr.pop(broker, {}), collected.new.pop(broker, {})
            states = cast("dict[Partition, SharedState]", requested)  # in place: a second one would grow
            async for chunk in self._slices.over(requested):
                shared = [self._shared_state(p, p in new) for p in chunk]
                states.update(zip(chunk, shared, strict=True))
                leading.update([state.leader for state in shared])
            leaders = {b: known for b, known in context.registered.items() if b in leading}
            sent: Mapping[Partition, SharedState] = states
            if (of_topics := whole.leader_and_isr.get(broker)) is not None:
                of_topics.others = states
                sent = of_topics
            item = LeaderAndIsrItem(sent, (cause,), context.broker_list_version, leaders)
            for piece in self._divided(item):
                self._queue(broker, piece)
                await self._slices.checkpoint(len(piece.states))

    def _divided(self, item: LeaderAndIsrItem) -> Iterable[LeaderAndIsrItem]:
        """The request, or several small ones with the same states."""
        if self.max_partitions is None:
            return [item]
        item.max_partitions = self.max_partitions
        return item.pieces(self.max_partitions)

    def _shared_state(self, partition: Partition, is_new: bool) -> SharedState:
        """The partition's state for LeaderAndIsr requests of this batch."""
        made = partition.shared_state
        if made is None or made.is_new is not is_new:
            brief = self._versions.leader_and_isr >= 2
            made = leader_and_isr_state(partition, is_new, self._has_recovery_state, brief)
            partition.shared_state = made
        return made

    async def _send_metadata(self, collected: _Collected, whole: EncodedParts, cause: str) -> None:
        """Queue UpdateMetadata to the brokers.

        Partitions without a state are left out, unless their deletion has begun: brokers are told of the deletion.
        """
        requested = self._context.registered if collected.metadata_to_all else collected.metadata_brokers
        brokers = self._registered(requested)
        if not brokers:
            return
        sent, send_group = len(whole.metadata), object()
        for states in whole.metadata:
            version = self._context.broker_list_version
            self._send_item(brokers, UpdateMetadataItem(states, (cause,), version, send_group=send_group))
        async for chunk in self._slices.over(collected.metadata_partitions, REQUEST_PARTITIONS):
            included = [p for p in chunk if p.leadership is not None or p in self._context.half_deleted]
            if included:
                sent += 1
                self._send_item(brokers, self._metadata_item(included, cause, send_group))
        if not sent:
            self._send_item(brokers, self._metadata_item([], cause, send_group))

    def _send_item(self, brokers: list[BrokerId], item: UpdateMetadataItem) -> None:
        """Queue the same UpdateMetadata for each broker."""
        for broker in brokers:
            self._queue(broker, item)

    def _metadata_item(self, partitions: list[Partition], cause: str, send_group: object) -> UpdateMetadataItem:
        """An UpdateMetadata with the current states of these partitions."""
        context = self._context
        brief = self._versions.update_metadata >= 5
        states = {p: metadata_state(context, p, brief) for p in partitions}
        deletes = bool(context.topics_with_deletion_started) and any(map(context.is_deletion_started, partitions))
        return UpdateMetadataItem(states, (cause,), context.broker_list_version, deletes, send_group)

    def _queue(self, broker: BrokerId, item: ControlItem) -> None:
        """Hand a request to the outbox, and notify the observer."""
        self.outbox.send(broker, item)
        if self._observer is not None:
            self._observer.on_request_queued(broker, item)

    async def _send_stops(self, collected: _Collected, cause: str) -> None:
        """Queue the StopReplica requests, by broker."""
        for broker in self._registered(collected.stops):
            async for chunk in self._slices.over(collected.stops.pop(broker).items(), REQUEST_PARTITIONS):
                item = StopReplicaItem(dict(chunk), (cause,), self._context.broker_list_version)
                self._queue(broker, item)
