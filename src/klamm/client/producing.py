"""Produce of one batch to one partition. Source: ProduceRequest.java, Sender.java."""

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
