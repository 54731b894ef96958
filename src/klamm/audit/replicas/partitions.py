"""The partitions to verify and their replicas: from log directories, or from the metadata of a cluster."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.audit.replicas.brokers import NOT_RUNNING, ReplicaBrokers
from klamm.audit.replicas.fetched import FetchedReplicaLog
from klamm.audit.replicas.replica_log import ReplicaLog
from klamm.audit.replicas.stored import StoredReplicaLog
from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingClient
from klamm.client.cluster import topic_ids_of
from klamm.client.routing import send_to_any
from klamm.client.steps import retried
from klamm.client.versions import Request
from klamm.log.replicas.directories import common_topic_id, read_directories, replicas_of
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import Disk
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_TOPIC: Final = 2
"""The type of topics in DescribeConfigs."""


class PartitionReplicas(NamedTuple):
    """What there is to verify of one partition; `missing` are replicas that cannot be asked, with the reason."""

    partition: TopicPartition
    replicas: tuple[ReplicaLog, ...]
    missing: tuple[str, ...] = ()


def stored_partitions(disk: Disk, log_dirs: Sequence[str], topics: Collection[str]) -> Iterator[PartitionReplicas]:
    """The partitions in these log directories, those of `topics` or all.

    Raises UsageError for a topic that no directory has, BadLogDirectory, CorruptFile, OSError.
    """
    found = replicas_of(read_directories(disk, log_dirs))
    _check_topics(topics, {p.topic for p in found}, "no log directory")
    for partition, replicas in found.items():
        if not topics or partition.topic in topics:
            topic_id = common_topic_id(disk, replicas)
            yield PartitionReplicas(partition, tuple(StoredReplicaLog(disk, r, topic_id) for r in replicas))


def fetched_partitions(
    client: BlockingClient, topics: Collection[str], timeout_s: float
) -> Iterator[PartitionReplicas]:
    """The partitions of a cluster, those of `topics` or all, each with the brokers that have replicas.

    Raises UsageError for an unknown topic, Unreachable where no broker answers.
    """
    backoff = Backoff(client.world.now_s, timeout_s)
    cluster = client.cluster
    described = client.run(retried("asking for metadata", lambda: cluster.refresh(topics or None), backoff))
    known = {name: t for name, t in described.items() if t.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    _check_topics(topics, known, "the cluster does not have it: no broker")
    compacted = _compacted_topics(client, known)
    cluster.topic_ids = topic_ids_of(known)
    brokers = ReplicaBrokers(client, timeout_s)
    for name, topic in known.items():
        for p in sorted(topic.partitions, key=lambda p: p.partition_index):
            yield _fetched(brokers, topic, p, name in compacted)


def _fetched(
    brokers: ReplicaBrokers, topic: MetadataResponseTopic, described: MetadataResponsePartition, is_compacted: bool
) -> PartitionReplicas:
    """The replicas of one partition; those on brokers that are not registered now are missing."""
    partition = TopicPartition(topic.name or "", described.partition_index)
    cluster = brokers.client.cluster
    topic_id = cluster.topic_ids.get(partition.topic)
    replicas = [BrokerId(b) for b in described.replica_nodes]
    logs = tuple(
        FetchedReplicaLog(brokers, b, partition, topic_id, is_compacted=is_compacted)
        for b in replicas
        if b in cluster.brokers
    )
    dead = tuple(f"broker {b}: {NOT_RUNNING}" for b in replicas if b not in cluster.brokers)
    return PartitionReplicas(partition, logs, dead)


def _compacted_topics(client: BlockingClient, topics: Collection[str]) -> set[str]:
    """The topics that are compacted, as brokers say."""
    resources = [DescribeConfigsResource(_TOPIC, name, ("cleanup.policy",)) for name in sorted(topics)]
    request = Request(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
    answer = client.run(send_to_any(client.cluster, request))
    return {r.resource_name for r in answer.results for c in r.configs if "compact" in (c.value or "")}


def _check_topics(wanted: Collection[str], known: Collection[str] | Mapping[str, object], where: str) -> None:
    """Raise UsageError for a topic that does not exist."""
    for topic in wanted:
        if topic not in known:
            raise UsageError(f"--topic {topic}: {where} has this topic. Correct the name.")
