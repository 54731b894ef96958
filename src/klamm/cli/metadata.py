"""Read a cluster's metadata from one broker."""

from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.cluster import metadata_request
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.world import World

_TIMEOUT_S: Final = 5.0


class PartitionFacts(NamedTuple):
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]

    @property
    def is_in_sync(self) -> bool:
        """Whether the partition has a leader, and all its replicas are in sync."""
        return self.leader >= 0 and len(self.isr) == len(self.replicas)


class ClusterFacts(NamedTuple):
    """As one broker knows them."""

    controller: BrokerId
    brokers: frozenset[BrokerId]
    partitions: dict[TopicPartition, PartitionFacts]


async def read_metadata(world: World, host: str, port: int) -> ClusterFacts:
    """Read the metadata of one broker. Raises ConnectionLost if it does not answer."""
    address = Address(host, port)
    async with AsyncClient(world, [address], AsyncSettings("klamm-cli", _TIMEOUT_S)) as client:
        answer = await client.ask(address, metadata_request(None))
    partitions = {
        TopicPartition(topic.name, p.partition_index): PartitionFacts(
            BrokerId(p.leader_id), tuple(p.replica_nodes), tuple(p.isr_nodes)
        )
        for topic in answer.topics
        for p in topic.partitions
    }
    return ClusterFacts(BrokerId(answer.controller_id), frozenset(b.node_id for b in answer.brokers), partitions)
