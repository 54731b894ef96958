"""A cluster as its brokers report it: brokers, topics, leaders, replicas and ISRs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from klamm.model.ids import BrokerId, TopicPartition


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Broker(NamedTuple):
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    leader: BrokerId
    """The leader's id; -1 without a leader."""
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()

    @property
    def preferred(self) -> BrokerId:
        """The first assigned replica, which should lead."""
        return self.replicas[0] if self.replicas else BrokerId(-1)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID | None
    is_internal: bool
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class Cluster:
    controller: BrokerId
    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, Topic]

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        """All partitions of all topics, by topic and partition."""
        return {TopicPartition(t.name, n): p for t in self.topics.values() for n, p in t.partitions.items()}


def listed(brokers: Iterable[int]) -> str:
    """The brokers as Kafka's tools write a list: `1,2,3`."""
    return ",".join(map(str, brokers))


def broker_names(brokers: Sequence[int]) -> str:
    """The brokers in a sentence: `broker 1`, `brokers 1, 2`."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
