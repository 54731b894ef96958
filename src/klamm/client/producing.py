"""Produce of one batch to each partition. Source: ProduceRequest.java, Sender.java."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import PartitionProduceData, ProduceRequest, TopicProduceData

ALL_IN_SYNC: Final = -1
"""acks=all."""
_SAYS_LOG_START: Final = 5
"""From this version on; the oldest that brokers since 1.0 take."""


def produce_request(
    partition: TopicPartition, batch: bytes, timeout_s: float, acks: int = ALL_IN_SYNC, newest: int = 11
) -> Request:
    """A Produce request with one batch for one partition, in a version up to `newest`."""
    return produce_many_request({partition: batch}, timeout_s, acks, newest)


def produce_many_request(
    batches: Mapping[TopicPartition, bytes], timeout_s: float, acks: int = ALL_IN_SYNC, newest: int = 11
) -> Request:
    """A Produce request with one batch for each of these partitions of one leader."""
    by_topic: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
    for partition, batch in batches.items():
        by_topic[partition.topic].append(PartitionProduceData(partition.partition, batch))
    message = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[TopicProduceData(topic, data) for topic, data in by_topic.items()],
    )
    return Request(ApiKey.PRODUCE, message, oldest=_SAYS_LOG_START, newest=newest)


def produce_error_code(answer: Any) -> int:
    """The error code of the only partition in a Produce response."""
    code: int = answer.responses[0].partition_responses[0].error_code
    return code
