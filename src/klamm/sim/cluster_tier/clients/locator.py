"""Who leads a partition, in which leader epoch: what a client asks brokers before it asks the leader."""

import uuid
from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.errors import ConnectionLost, RetriableError
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.world import World

ANSWER_TIMEOUT_S: Final = 4.0
_CONNECT_TIMEOUT_S: Final = 1.0


class Leader(NamedTuple):
    address: Address
    id: int
    epoch: int
    topic_id: uuid.UUID
    followers: tuple[tuple[int, Address], ...] = ()
    """Id and address of the other replicas."""


class Locator:
    """Remembers leaders until it is told that one was not there, and leader epochs permanently.

    As Kafka's clients do, it ignores metadata with a lower leader epoch than it has seen (KIP-320): a broker that is
    cut off from the controller may still name itself leader.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._leaders: dict[TopicPartition, Leader] = {}
        self._epochs: dict[tuple[uuid.UUID, TopicPartition], int] = {}
        """By topic id and partition: the highest leader epoch in any metadata."""

    async def leader(self, partition: TopicPartition) -> Leader:
        """Return the partition's leader; where it is not known, metadata is requested.

        Raises RetriableError where there is no leader.
        """
        if partition not in self._leaders:
            await self._refresh(partition.topic)
        found = self._leaders.get(partition)
        if found is None:
            raise RetriableError(f"{partition} has no leader")
        return found

    def forget(self, partition: TopicPartition) -> None:
        """Forget the partition's leader, because another broker leads or this one cannot be reached."""
        self._leaders.pop(partition, None)

    async def _refresh(self, topic: str) -> None:
        """Request the topic's metadata and keep the leaders of its partitions."""
        topics = await self._client.run(self._client.cluster.refresh([topic]))
        brokers = self._client.cluster.brokers
        answer = topics.get(topic)
        for p in answer.partitions if answer is not None else ():
            address = brokers.get(BrokerId(p.leader_id))
            if answer is not None and address is not None:
                of = TopicPartition(topic, p.partition_index)
                others = (BrokerId(n) for n in p.replica_nodes if n != p.leader_id)
                followers = tuple((n, brokers[n]) for n in others if n in brokers)
                self._learn(of, Leader(address, p.leader_id, p.leader_epoch, answer.topic_id, followers))

    def _learn(self, partition: TopicPartition, leader: Leader) -> None:
        """Keep the partition's leader, unless a higher leader epoch is known."""
        key = leader.topic_id, partition
        if leader.epoch >= self._epochs.get(key, leader.epoch):
            self._epochs[key], self._leaders[partition] = leader.epoch, leader


def open_client(world: World, name: str, nodes: int, port: int) -> AsyncClient:
    """Create a client on this machine that has the addresses of all nodes."""
    bootstrap = [Address(f"node-{n}", port) for n in range(1, nodes + 1)]
    return AsyncClient(world, bootstrap, AsyncSettings(name, ANSWER_TIMEOUT_S, _CONNECT_TIMEOUT_S))


TRANSIENT: Final = (ConnectionLost, RetriableError)
"""Errors after which a client tries again."""
