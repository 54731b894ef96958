"""A cluster as its brokers tell it: who is alive, which topics there are, who leads, follows and is in sync."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.client.addresses import Address
from klamm.client.errors import code_name
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)


class Broker(NamedTuple):
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    leader: BrokerId
    """-1: nobody."""
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()

    @property
    def preferred(self) -> BrokerId:
        return self.replicas[0] if self.replicas else BrokerId(-1)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID | None
    is_internal: bool
    partitions: Mapping[int, Partition]


class Move(NamedTuple):
    """A reassignment under way."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    controller: BrokerId
    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, Topic]

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        return {TopicPartition(t.name, n): p for t in self.topics.values() for n, p in t.partitions.items()}


async def read_cluster(admin: Admin, names: Sequence[str] | None = None, of: BrokerId | None = None) -> Cluster:
    """With all topics, or those named as far as they exist; as any broker knows it, or the one named."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    asked = admin.ask(ApiKey.METADATA, request) if of is None else admin.ask_broker(of, ApiKey.METADATA, request)
    answer = await asked
    if of is None:
        admin.take_brokers(answer)
    return Cluster(
        BrokerId(answer.controller_id),
        {BrokerId(b.node_id): Broker(Address(b.host, b.port), b.rack) for b in answer.brokers},
        {t.name: _topic(t) for t in sorted(answer.topics, key=lambda t: str(t.name)) if _exists(t)},
    )


def _exists(topic: Any) -> bool:
    """A topic without a leader somewhere, or just being made, is one."""
    return topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and topic.name is not None


def _topic(found: Any) -> Topic:
    partitions = {
        p.partition_index: Partition(
            BrokerId(p.leader_id), tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas)
        )
        for p in sorted(found.partitions, key=lambda p: int(p.partition_index))
    }
    return Topic(found.name, None if found.topic_id == ZERO_ID else found.topic_id, found.is_internal, partitions)


async def read_moves(admin: Admin) -> dict[TopicPartition, Move]:
    """Every reassignment under way, sorted. Raises CannotAsk."""
    request = ListPartitionReassignmentsRequest(timeout_ms=admin.left_ms, topics=None)
    answer = await admin.ask_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    if answer.error_code:
        raise CannotAsk(
            f"reassignments are not told: {answer.error_message or 'no reason given'} ({code_name(answer.error_code)})"
        )
    found = {
        TopicPartition(t.name, p.partition_index): Move(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in answer.topics
        for p in t.partitions
    }
    return dict(sorted(found.items()))


def listed(brokers: Iterable[int]) -> str:
    """As Kafka's tools write a list of brokers."""
    return ",".join(map(str, brokers))
