"""Records written and read: Produce of one batch to one partition, Fetch of one partition by topic id where known.

Source: ProduceRequest.java, Sender.java, FetchRequest.java (KIP-516).
"""

import uuid
from typing import Any, Final, NamedTuple

from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import RetriableError, retriable_or_raise
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
    partition: TopicPartition, batch: bytes, timeout_s: float, acks: int = ALL_IN_SYNC, newest: int = 11
) -> Request:
    """A Produce request with one batch for one partition, in a version up to `newest`."""
    message = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[TopicProduceData(partition.topic, [PartitionProduceData(partition.partition, batch)])],
    )
    return Request(ApiKey.PRODUCE, message, oldest=_SAYS_LOG_START, newest=newest)


def produce_error_code(answer: Any) -> int:
    """The error code of the only partition in a Produce response."""
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


NEWEST_BY_NAME: Final = 12
_BATCHES_AS_STORED: Final = 4


class FetchLimits(NamedTuple):
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    read_committed: bool = False


def fetch_request(partition: TopicPartition, topic_id: uuid.UUID | None, offset: int, limits: FetchLimits) -> Request:
    """A Fetch request for one partition, by topic id where both sides know it, else by name."""
    wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=limits.max_bytes)
    message = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.read_committed),
        topics=[FetchTopic(topic=partition.topic, topic_id=topic_id or ZERO_ID, partitions=[wanted])],
    )
    request = Request(ApiKey.FETCH, message, oldest=_BATCHES_AS_STORED)
    return request if topic_id is not None else request._replace(newest=NEWEST_BY_NAME)


def fetch(
    cluster: ClusterMetadata, partition: TopicPartition, offset: int, limits: FetchLimits
) -> Steps[FetchResponsePartitionData]:
    """Fetch one partition from its leader, by the id in `cluster.topic_ids`.

    Raises ConnectionLost, RetriableError, RequestRefused (OFFSET_OUT_OF_RANGE among them), TopicGone.
    """
    topic_id = cluster.topic_ids.get(partition.topic)
    address = yield from cluster.leader(partition)
    response = yield Ask(address, fetch_request(partition, topic_id, offset, limits))
    try:
        answer = partition_data_of(response, partition, topic_id)
        if answer.error_code:
            raise RetriableError(retriable_or_raise(partition, answer.error_code))
    except RetriableError:
        cluster.forget_leader(partition)
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
            else f"{partition}: the Fetch response has {len(found)} partitions of this topic, expected is one"
        )
    answer: FetchResponsePartitionData = found[0]
    return answer
