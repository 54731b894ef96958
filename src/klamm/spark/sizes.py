"""How many bytes the records of a partition have on average, so that tasks and micro-batches can be cut by bytes.

Source: DescribeLogDirsResponse.java.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, RetriableError, UnsupportedVersion
from klamm.client.steps import Ask, Steps
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribableLogDirTopic, DescribeLogDirsRequest

GUESSED_BYTES: Final = 1024.0
"""Of one offset, where the brokers do not tell."""


def describe_sizes(
    cluster: ClusterMetadata, partitions: Collection[TopicPartition]
) -> Steps[dict[TopicPartition, int]]:
    """Ask the leaders for the stored bytes of these partitions; partitions without an answer are left out.

    Sizes only balance the tasks, so a broker that does not answer or refuses is skipped.
    """
    found: dict[TopicPartition, int] = {}
    for address, led in (yield from _group_by_leader(cluster, partitions)).items():
        try:
            answer = yield Ask(address, _request(led))
        except (ConnectionLost, UnsupportedVersion):
            continue
        found |= _sizes_of(answer)
    return found


def bytes_per_offset(size: int | None, start: int, end: int) -> float:
    """The average bytes of one offset in a log of `size` bytes from `start` to `end`."""
    return size / (end - start) if size and end > start else GUESSED_BYTES


def _group_by_leader(
    cluster: ClusterMetadata, partitions: Collection[TopicPartition]
) -> Steps[Mapping[Address, list[TopicPartition]]]:
    """The partitions by the address of their leader; those without a leader are left out."""
    groups: defaultdict[Address, list[TopicPartition]] = defaultdict(list)
    try:
        leaders = yield from cluster.leaders(partitions)
    except RetriableError:
        return groups
    for partition, address in leaders.items():
        groups[address].append(partition)
    return groups


def _request(partitions: Collection[TopicPartition]) -> Request:
    """A DescribeLogDirs request for these partitions."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for p in partitions:
        topics[p.topic].append(p.partition)
    message = DescribeLogDirsRequest([DescribableLogDirTopic(name, tuple(numbers)) for name, numbers in topics.items()])
    return Request(ApiKey.DESCRIBE_LOG_DIRS, message)


def _sizes_of(answer: Any) -> dict[TopicPartition, int]:
    """The partition sizes in a DescribeLogDirs response; future logs are not counted."""
    return {
        TopicPartition(topic.name, p.partition_index): p.partition_size
        for directory in answer.results
        if directory.error_code == ErrorCode.NONE
        for topic in directory.topics
        for p in topic.partitions
        if not p.is_future_key
    }
