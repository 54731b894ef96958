"""Records written and read: Produce of one batch to each partition, Fetch by topic id where all are known.

Source: ProduceRequest.java, Sender.java, FetchRequest.java (KIP-516, KIP-320).
"""

import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.leaders import NO_EPOCH
from klamm.client.steps import Ask, Steps
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartitionData,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

ALL_IN_SYNC: Final = -1
"""acks=all."""
_SAYS_LOG_START: Final = 5
"""From this version on; the oldest that brokers since 1.0 take."""


def produce_request(
    partition: TopicPartition,
    batch: bytes,
    timeout_s: float,
    acks: int = ALL_IN_SYNC,
    newest: int = 11,
    transactional_id: str | None = None,
) -> Request:
    """A Produce request with one batch for one partition, in a version up to `newest`."""
    return produce_many_request({partition: batch}, timeout_s, acks, newest, transactional_id)


def produce_many_request(
    batches: Mapping[TopicPartition, bytes],
    timeout_s: float,
    acks: int = ALL_IN_SYNC,
    newest: int = 11,
    transactional_id: str | None = None,
) -> Request:
    """A Produce request with one batch for each of these partitions of one leader.

    `transactional_id`: whose transaction all batches are part of.
    """
    by_topic: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
    for partition, batch in batches.items():
        by_topic[partition.topic].append(PartitionProduceData(partition.partition, batch))
    message = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[TopicProduceData(topic, data) for topic, data in by_topic.items()],
    )
    return Request(ApiKey.PRODUCE, message, oldest=_SAYS_LOG_START, newest=newest)


def produce_error_code(answer: Any) -> int:
    """The error code of the only partition in a Produce response."""
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


NEWEST_BY_NAME: Final = 12
_BATCHES_AS_STORED: Final = 4


class FetchPosition(NamedTuple):
    offset: int
    leader_epoch: int = NO_EPOCH
    """The epoch of the leader that is asked."""
    last_epoch: int = NO_EPOCH
    """The epoch of the record before the offset, where it was fetched: the leader compares it with its log."""


class FetchLimits(NamedTuple):
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    read_committed: bool = False
    max_partition_bytes: int | None = None
    """None: one partition may fill the response."""


def fetch_request(
    partition: TopicPartition, topic_id: uuid.UUID | None, position: FetchPosition, limits: FetchLimits
) -> Request:
    """A Fetch request for one partition, by topic id where both sides know it, else by name."""
    return fetch_many_request({partition: position}, {} if topic_id is None else {partition.topic: topic_id}, limits)


def fetch_many_request(
    positions: Mapping[TopicPartition, FetchPosition], topic_ids: Mapping[str, uuid.UUID], limits: FetchLimits
) -> Request:
    """A Fetch request for partitions of one leader, by topic ids where all are known, else by names."""
    by_topic: defaultdict[str, list[FetchPartition]] = defaultdict(list)
    partition_bytes = limits.max_bytes if limits.max_partition_bytes is None else limits.max_partition_bytes
    for (topic, number), position in positions.items():
        wanted = FetchPartition(
            partition=number,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_epoch,
            partition_max_bytes=partition_bytes,
        )
        by_topic[topic].append(wanted)
    message = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.read_committed),
        topics=[
            FetchTopic(topic=topic, topic_id=topic_ids.get(topic, ZERO_ID), partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )
    request = Request(ApiKey.FETCH, message, oldest=_BATCHES_AS_STORED)
    return request if by_topic.keys() <= topic_ids.keys() else request._replace(newest=NEWEST_BY_NAME)


def partitions_of(
    response: FetchResponse, topic_ids: Mapping[str, uuid.UUID]
) -> dict[TopicPartition, FetchResponsePartitionData]:
    """Each partition's data in a response, which may have an error code. Raises RetriableError, RequestRefused."""
    if response.error_code:
        raise RetriableError(retriable_or_raise("fetch", response.error_code))
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        TopicPartition(topic.topic or names.get(topic.topic_id, ""), p.partition_index): p
        for topic in response.responses
        for p in topic.partitions
    }


def fetch(
    cluster: ClusterMetadata, partition: TopicPartition, offset: int, limits: FetchLimits
) -> Steps[FetchResponsePartitionData]:
    """Fetch one partition from its leader, by the id in `cluster.topic_ids`.

    Raises ConnectionLost, RetriableError, RequestRefused (OFFSET_OUT_OF_RANGE among them), TopicGone.
    """
    topic_id = cluster.topic_ids.get(partition.topic)
    address = yield from cluster.leader(partition)
    position = FetchPosition(offset, cluster.leader_epoch(partition))
    response = yield Ask(address, fetch_request(partition, topic_id, position, limits))
    try:
        answer = partition_data_of(response, partition, topic_id)
        if answer.error_code:
            cluster.learn_leader(partition, answer, response)
            raise RetriableError(retriable_or_raise(partition, answer.error_code))
    except RetriableError:
        cluster.forget_leader(partition, position.leader_epoch)
        raise
    return answer


def partition_data_of(
    response: FetchResponse, partition: TopicPartition, topic_id: uuid.UUID | None
) -> FetchResponsePartitionData:
    """The partition's data in a response; it may have an error code. Raises RetriableError, RequestRefused."""
    if response.error_code:
        raise RetriableError(retriable_or_raise(partition, response.error_code))
    found = [
        p
        for topic in response.responses
        if topic.topic == partition.topic or (topic.topic_id != ZERO_ID and topic.topic_id == topic_id)
        for p in topic.partitions
    ]
    if len(found) != 1 or found[0].partition_index != partition.partition:
        raise RetriableError(
            f"{partition}: the Fetch response has {len(found)} partitions of this topic, none of them is the "
            "requested one"
            if len(found) == 1
            else f"{partition}: the Fetch response has {len(found)} partitions of this topic, but one was expected"
        )
    answer: FetchResponsePartitionData = found[0]
    return answer
