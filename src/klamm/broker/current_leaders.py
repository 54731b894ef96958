"""The current leader that errors of Produce and Fetch carry (KIP-951). Source: KafkaApis.getCurrentLeader (3.9)."""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.broker.metadata_cache import MetadataCache
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.replica_manager import ReplicaManager


class CurrentLeader(NamedTuple):
    """The leader of a partition (-1: none) and its leader epoch."""

    leader: BrokerId
    leader_epoch: int


class LeaderEndpoint(NamedTuple):
    """Where clients of a listener reach a leader."""

    leader: BrokerId
    host: str
    port: int
    rack: str | None


def current_leader(
    replicas: ReplicaManager, cache: MetadataCache, topic_partition: TopicPartition
) -> CurrentLeader | None:
    """The newest leader that this broker knows; None for an unknown partition.

    A broker with a replica knows it from LeaderAndIsr. UpdateMetadata comes later: until then the metadata cache of a
    broker that ceased to lead still names this broker, and clients would come back.
    """
    partition = replicas.partition(topic_partition)
    if partition is not None:
        return CurrentLeader(partition.leader_id, partition.leader_epoch)
    state = cache.state(topic_partition)
    return None if state is None else CurrentLeader(BrokerId(state.leader), state.leader_epoch)


def leader_endpoints(cache: MetadataCache, leaders: Iterable[BrokerId], listener: str) -> list[LeaderEndpoint]:
    """The addresses of these leaders on a listener; without those that are not live or do not have the listener."""
    return [
        LeaderEndpoint(leader, endpoint.host, endpoint.port, cache.brokers[leader].rack)
        for leader in sorted(leaders)
        if (endpoint := cache.endpoint_on(leader, listener)) is not None
    ]
