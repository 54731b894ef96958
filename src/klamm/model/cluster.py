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


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`, without duplicates. Raises ValueError."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT; give for example 127.0.0.1:9092")
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise ValueError(f"{text!r} names no broker; give HOST:PORT[,HOST:PORT], for example 127.0.0.1:9092")
    return tuple(dict.fromkeys(found))


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
    """The broker ids as Kafka's tools write a list: `1,2,3`."""
    return ",".join(map(str, brokers))


def broker_names(brokers: Sequence[int]) -> str:
    """The broker ids as words in a sentence: `broker 1`, `brokers 1, 2`."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
