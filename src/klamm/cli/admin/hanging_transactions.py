"""Producers in partitions, and transactions that are open there and that no coordinator will end.

Source: TransactionsCommand.java (FindHangingTransactionsCommand, 3.9).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.refusals import Refusal
from klamm.cli.admin.transactions import find_transaction, list_transactions
from klamm.client.committed_offsets import numbers_by_topic
from klamm.model.cluster import Cluster
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeProducersRequest, ProducerState, TopicRequest

_PARTITIONS_IN_REQUEST: Final = 500


class PartitionProducer(NamedTuple):
    """A producer that a partition's replica remembers."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None
    """The first offset of its open transaction; None where none is open."""


async def describe_producers(
    admin: Admin, partitions: Collection[TopicPartition], broker: BrokerId | None = None
) -> tuple[list[PartitionProducer], list[Refusal]]:
    """The producers of each partition, at its leader or at one broker, and the errors. Raises CannotAsk."""
    cluster = await read_cluster(admin, sorted({p.topic for p in partitions}))
    groups, refused = _by_broker(cluster, partitions, broker)
    found: list[PartitionProducer] = []
    for number, requested in sorted(groups.items()):
        for start in range(0, len(requested), _PARTITIONS_IN_REQUEST):
            topics = [
                TopicRequest(t, n) for t, n in numbers_by_topic(requested[start : start + _PARTITIONS_IN_REQUEST])
            ]
            answer = await admin.ask_broker(number, ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics))
            for topic in answer.topics:
                for described in topic.partitions:
                    where = TopicPartition(topic.name, described.partition_index)
                    if described.error_code:
                        refused.append(
                            Refusal(subject=f"{where} at broker {number}", code=described.error_code, message=None)
                        )
                    found += [_producer(where, state) for state in described.active_producers]
    return sorted(found), refused


def _by_broker(
    cluster: Cluster, partitions: Collection[TopicPartition], broker: BrokerId | None
) -> tuple[dict[BrokerId, list[TopicPartition]], list[Refusal]]:
    """The partitions by the broker to ask; an error for each that does not exist or has no leader."""
    groups: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
    refused: list[Refusal] = []
    for partition in sorted(partitions):
        topic = cluster.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            refused.append(Refusal(str(partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            continue
        requested = topic.partitions[partition.partition].leader if broker is None else broker
        if requested < 0:
            refused.append(Refusal(str(partition), ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader"))
        else:
            groups[requested].append(partition)
    return groups, refused


def _producer(partition: TopicPartition, state: ProducerState) -> PartitionProducer:
    """A producer of a DescribeProducers response."""
    start = state.current_txn_start_offset
    return PartitionProducer(
        partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        start if start >= 0 else None,
    )


async def find_hanging(
    admin: Admin, partitions: Collection[TopicPartition], broker: BrokerId | None, before_ms: int
) -> tuple[list[PartitionProducer], list[Refusal]]:
    """Transactions open since before a time that their coordinator does not know of, and errors. Raises CannotAsk."""
    producers, refused = await describe_producers(admin, partitions, broker)
    opened = [p for p in producers if p.start_offset is not None and p.last_timestamp_ms < before_ms]
    if not opened:
        return [], refused
    known, unlisted = await list_transactions(admin, producer_ids=sorted({p.producer_id for p in opened}))
    if unlisted:  # else a transaction of that coordinator would be taken for a hanging one
        raise CannotAsk(
            f"{unlisted[0]}. Without this list it is unknown which transactions hang: repair the broker, and repeat "
            "the command."
        )
    coordinated: defaultdict[int, set[TopicPartition]] = defaultdict(set)
    for listed in known:
        if (transaction := await find_transaction(admin, listed.transactional_id)) is not None:
            coordinated[listed.producer_id].update(transaction.partitions)
    return [p for p in opened if p.partition not in coordinated[p.producer_id]], refused


async def partitions_to_search(
    admin: Admin, topic: str | None, partition: int | None, broker: BrokerId | None
) -> Sequence[TopicPartition]:
    """The partitions to search for hanging transactions: one, those of a topic, or all.

    With `broker`, only those that have a replica there. Raises UsageError for a topic or broker that does not exist.
    """
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    cluster = await read_cluster(admin, None if topic is None else [topic])
    if topic is not None and topic not in cluster.topics:
        raise UsageError(f"--topic {topic}: there is no such topic. `klamm topics list` shows the topics.")
    if broker is not None and broker not in cluster.brokers:
        alive = ", ".join(map(str, sorted(cluster.brokers)))
        raise UsageError(f"--broker-id {broker}: there is no such broker. Live brokers: {alive}.")
    return [p for p, found in cluster.partitions.items() if broker is None or broker in found.replicas]
