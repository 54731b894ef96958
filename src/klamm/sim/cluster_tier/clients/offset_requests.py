"""Requests about the offsets and sizes of logs, each sent once to one broker: it answers what the files say."""

from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.leaders import NO_EPOCH
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
CONSUMER: Final = -1
DEBUGGER: Final = -2
"""A replica id with which any replica answers, up to the end of its log."""
_MAX_TIMESTAMP_SINCE: Final = 7
_CURRENT_EPOCH_SINCE: Final = 2


class FoundOffset(NamedTuple):
    """The answer of ListOffsets for a partition."""

    error: ErrorCode
    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The answer of OffsetForLeaderEpoch for a partition."""

    error: ErrorCode
    leader_epoch: int
    end: int


class DescribedLog(NamedTuple):
    """A log in the answer of DescribeLogDirs."""

    directory: str
    partition: int
    size: int
    lag: int
    is_future: bool


async def list_offset(
    client: AsyncClient,
    broker: Address,
    p: TopicPartition,
    timestamp: int,
    replica: int = CONSUMER,
    is_committed: bool = False,
    leader_epoch: int = NO_EPOCH,
) -> FoundOffset:
    """The offset of a time, or of a number that stands for an end of the log. Raises KlammError."""
    wanted = ListOffsetsPartition(p.partition, leader_epoch, timestamp)
    message = ListOffsetsRequest(replica, int(is_committed), [ListOffsetsTopic(p.topic, [wanted])])
    request = Request(ApiKey.LIST_OFFSETS, message, oldest=_MAX_TIMESTAMP_SINCE)
    found = (await client.ask(broker, request)).topics[0].partitions[0]
    return FoundOffset(ErrorCode(found.error_code), found.offset, found.timestamp, found.leader_epoch)


async def epoch_end(
    client: AsyncClient, broker: Address, p: TopicPartition, epoch: int, leader_epoch: int = NO_EPOCH
) -> EpochEnd:
    """The end of a leader epoch in the log of the leader. Raises KlammError."""
    wanted = OffsetForLeaderPartition(p.partition, leader_epoch, epoch)
    message = OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(p.topic, [wanted])])
    request = Request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, oldest=_CURRENT_EPOCH_SINCE)
    found = (await client.ask(broker, request)).topics[0].partitions[0]
    return EpochEnd(ErrorCode(found.error_code), found.leader_epoch, found.end_offset)


async def described_logs(client: AsyncClient, broker: Address, topic: str, partitions: range) -> list[DescribedLog]:
    """What DescribeLogDirs says of the logs of a topic, sorted. Raises KlammError."""
    message = DescribeLogDirsRequest([DescribableLogDirTopic(topic, tuple(partitions))])
    answer = await client.ask(broker, Request(ApiKey.DESCRIBE_LOG_DIRS, message))
    return sorted(
        DescribedLog(result.log_dir, found.partition_index, found.partition_size, found.offset_lag, found.is_future_key)
        for result in answer.results
        for described in result.topics
        for found in described.partitions
    )
