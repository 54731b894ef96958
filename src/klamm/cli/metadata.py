"""Read a cluster's metadata from one broker."""

from typing import Final, NamedTuple

from klamm.model.ids import BrokerId, TopicPartition
from klamm.net.client import Connection
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataRequest

_VERSION: Final = 8  # topics by name, all topics, leader epochs; every broker since 2.4 has it
_TIMEOUT_S: Final = 5.0


class PartitionFacts(NamedTuple):
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]

    @property
    def is_in_sync(self) -> bool:
        return self.leader >= 0 and len(self.isr) == len(self.replicas)


class ClusterFacts(NamedTuple):
    """As one broker knows them."""

    controller: BrokerId
    brokers: frozenset[BrokerId]
    partitions: dict[TopicPartition, PartitionFacts]


async def read_metadata(world: World, host: str, port: int) -> ClusterFacts:
    """Raises ConnectionLost where that broker does not answer."""
    connection = await Connection.open(world, host, port, "klamm-cli", _TIMEOUT_S)
    try:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await connection.request(ApiKey.METADATA, _VERSION, request, _TIMEOUT_S)
    finally:
        connection.close()
    partitions = {
        TopicPartition(topic.name, p.partition_index): PartitionFacts(
            BrokerId(p.leader_id), tuple(p.replica_nodes), tuple(p.isr_nodes)
        )
        for topic in answer.topics
        for p in topic.partitions
    }
    return ClusterFacts(BrokerId(answer.controller_id), frozenset(b.node_id for b in answer.brokers), partitions)
