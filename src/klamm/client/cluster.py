"""The metadata of a cluster as its brokers report it: brokers, controller, leaders, and which broker to ask next.

Source: Metadata.java.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from klamm.client.errors import ConnectionLost, NoBrokerAnswers, RetriableError
from klamm.client.leaders import RELIABLE_EPOCHS, KnownLeaders, Leader
from klamm.client.steps import Ask, Steps
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID, id_to_text
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.messages import (
    FetchResponsePartitionData,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    PartitionProduceResponse,
)

MIN_ABSENCE_S: Final = 2.0
"""A topic counts as gone when brokers have reported it missing for this long."""
_NEVER_CREATES: Final = 4
"""From this version on, a Metadata request does not create topics; from 10 on topics have ids."""


Refusal: TypeAlias = FetchResponsePartitionData | PartitionProduceResponse
"""What a leader answers for one partition; where it does not lead, it may name who does."""


class TopicGone(KlammError):
    """The topic or partition does not exist, or was created again with another id."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(reason)
        self.topic = topic
        self.reason = reason


def metadata_request(names: Collection[str] | None) -> Request:
    """A Metadata request for the named topics, or (None) for all; it does not create topics."""
    topics = None if names is None else [MetadataRequestTopic(name=n) for n in sorted(names)]
    return Request(ApiKey.METADATA, MetadataRequest(topics, allow_auto_topic_creation=False), oldest=_NEVER_CREATES)


class ClusterMetadata:
    """Metadata from brokers' responses; a topic whose id is not the one in `topic_ids` counts as gone."""

    def __init__(self, bootstrap: Sequence[Address], now_s: Callable[[], float]) -> None:
        self.bootstrap = bootstrap
        self.brokers: dict[BrokerId, Address] = {}
        self.controller: BrokerId = NO_BROKER
        self.cluster_id: str | None = None
        """None until a broker told it; brokers before 0.10.1 never do."""
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._now_s = now_s
        self._leaders = KnownLeaders()
        self._answered: dict[Address, None] = {}
        """Brokers that answered last time, in the order in which they first did."""
        self._behind: set[Address] = set()
        """Brokers whose last Metadata response lacked a topic that was asked for, or had leaders of older epochs."""
        self._answered_last: Address | None = None
        self._absent: dict[TopicPartition, tuple[float, str]] = {}
        """Since when, and in which way."""

    # ---- whom to ask

    def addresses(self) -> list[Address]:
        """The addresses of brokers in the order to ask them: those that answered before, bootstrap servers, others.

        Brokers that may be stale come last. A frozen broker costs a whole request timeout, so it must not be asked
        repeatedly before the others.
        """
        known = dict.fromkeys((*self._answered, *self.bootstrap, *self.brokers.values()))
        if self._behind.issuperset(known):
            self._behind = {a for a in known if a == self._answered_last}
        return sorted(known, key=self._behind.__contains__)

    def on_answer(self, address: Address) -> None:
        """Remember that the broker at this address answered."""
        self._answered[address] = None

    def on_lost(self, address: Address) -> None:
        """Forget, after a lost connection, that the broker answered and which partitions it leads."""
        self._answered.pop(address, None)
        gone = {broker for broker, at in self.brokers.items() if at == address}
        self._leaders.forget_brokers(gone)

    # ---- metadata

    def update_brokers(self, answer: MetadataResponse) -> None:
        """Replace brokers, controller and cluster id by those of a Metadata response."""
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.brokers = {BrokerId(b.node_id): Address(b.host, b.port) for b in answer.brokers}
        self.controller = BrokerId(answer.controller_id)

    def _update(self, answer: MetadataResponse, *, has_epochs: bool) -> bool:
        """Replace brokers, controller, cluster id and leaders by those of a Metadata response.

        Leaders of older epochs than seen are not taken; returns whether there were none. `has_epochs`: whether the
        version of the response has leader epochs that can be relied on.
        """
        self.update_brokers(answer)
        return self._leaders.update(answer.topics, has_epochs=has_epochs)

    def refresh(self, names: Collection[str] | None) -> Steps[dict[str, MetadataResponseTopic]]:
        """Request metadata of the named topics, or (None) of all; missing topics have an error code.

        Raises NoBrokerAnswers.
        """
        request = metadata_request(names)
        versions: list[int] = []

        def build(version: int) -> WireMessage:
            """Note the version that was agreed upon, and build the request."""
            versions.append(version)
            return request.body(version)

        causes: list[str] = []
        for address in self.addresses():
            try:
                answer: MetadataResponse = yield Ask(address, request._replace(message=build))
            except ConnectionLost as error:
                causes.append(str(error))
                continue
            if answer.brokers:
                self._answered_last = address
                is_current = self._update(answer, has_epochs=versions[-1] >= RELIABLE_EPOCHS)
                self._mark_behind(address, not is_current)
                return {t.name or "": t for t in sorted(answer.topics, key=lambda t: t.name or "")}
            causes.append(f"broker {address} has no metadata yet: its response lists no brokers")
        raise NoBrokerAnswers("; ".join(causes))

    def _mark_behind(self, address: Address, is_behind: bool) -> None:
        """Remember whether the broker's last Metadata response was older than those of others."""
        if is_behind:
            self._behind.add(address)
        else:
            self._behind.discard(address)

    # ---- leaders

    def leaders(self, partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, Address]]:
        """The leaders' addresses; partitions without a leader are omitted. Only uncached ones are requested.

        Raises RetriableError if no broker answers, TopicGone.
        """
        partitions = list(partitions)
        for found in [p for p in self._absent if self._cached_leader(p) is not None]:
            del self._absent[found]  # a response since then had it
        if unknown := [p for p in partitions if self._cached_leader(p) is None]:
            topics = yield from self.refresh({p.topic for p in unknown})
            for partition in unknown:
                self._check_presence(partition, topics.get(partition.topic))
        return {p: address for p in partitions if (address := self._cached_leader(p)) is not None}

    def leader(self, partition: TopicPartition) -> Steps[Address]:
        """The address of the leader. Raises RetriableError if there is none now, TopicGone."""
        addresses = yield from self.leaders([partition])
        if partition not in addresses:
            raise RetriableError(self.no_leader_reason(partition))
        return addresses[partition]

    def no_leader_reason(self, partition: TopicPartition) -> str:
        """Why a partition has no leader, as text."""
        if partition in self._absent:
            return self._absent[partition][1]
        return self._leaders.refused.get(partition, f"{partition} has no leader in the metadata")

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch of the leader that is known now; NO_EPOCH where none is, or brokers tell no epochs."""
        return self._leaders.get(partition).epoch

    def see_epoch(self, partition: TopicPartition, epoch: int, topic_id: uuid.UUID | None = None) -> None:
        """Take no leader of an older epoch than this one any more.

        `topic_id` is that of the topic that has the epoch; None for the expected one.
        """
        self._leaders.see(partition, epoch, topic_id or self.topic_ids.get(partition.topic))

    def learn_leader(self, partition: TopicPartition, refusal: Refusal, answer: Any) -> None:
        """Take over the leader that a broker names where it refuses a request to a partition (KIP-951)."""
        named = refusal.current_leader
        for node in getattr(answer, "node_endpoints", ()):
            if node.node_id == named.leader_id:
                self.brokers[BrokerId(node.node_id)] = Address(node.host, node.port)
        if named.leader_id in self.brokers:
            self._leaders.learn(partition, Leader(BrokerId(named.leader_id), named.leader_epoch))

    def forget_topics(self) -> None:
        """Forget expected topic ids and missing topics; cached leaders stay."""
        self.topic_ids = {}
        self._absent.clear()

    def forget_leader(self, partition: TopicPartition, epoch: int | None = None) -> None:
        """Forget the leader of the partition, so that the next request looks it up.

        With `epoch`, a leader of a newer epoch stays.
        """
        if epoch is None or self.leader_epoch(partition) <= epoch:
            self._leaders.forget(partition)

    def _cached_leader(self, partition: TopicPartition) -> Address | None:
        """The address of the partition's leader; None where it is not known, or leads another topic of this name."""
        expected = self.topic_ids.get(partition.topic)
        if expected is not None and not self._leaders.may_be_of(partition.topic, expected):
            return None
        return self.brokers.get(self._leaders.get(partition).broker)

    def _check_presence(self, partition: TopicPartition, topic: MetadataResponseTopic | None) -> None:
        """Record whether the partition exists. Raises TopicGone once it has been missing for MIN_ABSENCE_S."""
        reason = _absence_reason(topic, partition, self.topic_ids.get(partition.topic))
        if reason is None:
            self._absent.pop(partition, None)
            return
        self.forget_leader(partition)
        if self._answered_last is not None:
            self._behind.add(self._answered_last)
        now_s = self._now_s()
        since_s, _ = self._absent.get(partition, (now_s, reason))
        self._absent[partition] = since_s, reason
        if now_s - since_s >= MIN_ABSENCE_S:
            self._leaders.forget_topic(partition.topic)
            raise TopicGone(partition.topic, reason)


def _absence_reason(
    topic: MetadataResponseTopic | None, partition: TopicPartition, expected: uuid.UUID | None
) -> str | None:
    """Why the partition counts as missing; None if it exists or the response does not show it."""
    name = partition.topic
    if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {name} does not exist"
    if topic.error_code:
        return None
    if expected is not None and topic.topic_id not in (ZERO_ID, expected):
        return (
            f"topic {name} was deleted and created again: its id was {id_to_text(expected)}, "
            f"now it is {id_to_text(topic.topic_id)}"
        )
    if all(p.partition_index != partition.partition for p in topic.partitions):
        return f"topic {name} has no partition {partition.partition}"
    return None


def partition_counts(topics: Mapping[str, MetadataResponseTopic]) -> dict[str, int]:
    """The number of partitions of each topic that exists; a partition may be without a leader."""
    exists = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    return {name: len(t.partitions) for name, t in topics.items() if t.error_code in exists and t.partitions}


def topic_ids_of(topics: Mapping[str, MetadataResponseTopic]) -> dict[str, uuid.UUID]:
    """The ids of these topics; topics without an id are omitted (brokers or protocol versions before 2.8)."""
    return {name: t.topic_id for name, t in topics.items() if t.topic_id != ZERO_ID}
