"""What the transaction coordinator needs of the rest of the broker."""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from klamm.coordinator.transactions.transaction import Partitions
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition


class NoLeader(Enum):
    """Why a partition's marker can be sent to nobody now."""

    UNKNOWN = auto()
    """The metadata has no such partition: it is deleted, or this broker was not told of it yet."""
    UNAVAILABLE = auto()


class Marker(NamedTuple):
    """The end of a producer's transaction, for the partitions that one broker leads."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: Partitions


class MarkerChannel(Protocol):
    def leader_of(self, partition: TopicPartition) -> Address | NoLeader:
        """Return the address of the partition's leader, or why there is none."""

    async def deleted(self, partitions: Partitions) -> Partitions:
        """Those of the partitions that are deleted for certain. Raises KlammError where that cannot be found out."""
        ...

    async def write_marker(self, leader: Address, marker: Marker) -> Mapping[TopicPartition, ErrorCode]:
        """Send the marker and return the error of each partition. Raises ConnectionLost, UnsupportedVersion."""
        ...


class ProducerIdSource(Protocol):
    async def next_id(self) -> int | None:
        """Return a new producer id; None where the controller refuses a block of ids for now."""
        ...


def by_leader(
    channel: MarkerChannel, partitions: Iterable[TopicPartition]
) -> dict[Address | NoLeader, list[TopicPartition]]:
    """Group the partitions by the broker that leads them."""
    found: dict[Address | NoLeader, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        found.setdefault(channel.leader_of(partition), []).append(partition)
    return found
