"""ListOffsets and OffsetForLeaderEpoch for one partition. Source: Partition.scala (fetchOffsetForTimestamp)."""

from enum import IntEnum
from typing import NamedTuple

from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.replication.fetch_data import CONSUMER, Isolation
from klamm.replication.partition import NO_LEADER_EPOCH, Partition
from klamm.replication.ports import PartitionRefused

DEBUGGING_CONSUMER = BrokerId(-2)
NO_TIMESTAMP = -1


class Timestamp(IntEnum):
    """Negative timestamps that name an offset, such as EARLIEST and LATEST."""

    LATEST = -1
    EARLIEST = -2
    MAX = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class FoundOffset(NamedTuple):
    """The result of a lookup; −1 in every field where no record matches."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = NO_TIMESTAMP
    offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH


async def look_up_offset(
    partition: Partition, timestamp: int, replica_id: BrokerId, isolation: Isolation, current_leader_epoch: int
) -> FoundOffset:
    """The offset for a timestamp, or for a special one such as earliest; consumers get none above their visible end.

    Raises PartitionRefused: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, and OFFSET_NOT_AVAILABLE
    while a new leader's high watermark has not reached its epoch, or the last stable offset is not known. Raises also
    what `Log.offset_for_timestamp` raises.
    """
    partition.check_leader_epoch(current_leader_epoch)
    own_log = partition.hosted_log if replica_id == DEBUGGING_CONSUMER else partition.leader_log
    is_client = replica_id == CONSUMER
    if timestamp == Timestamp.LATEST:
        if is_client:
            _require_committed_epoch(partition, own_log)
        return FoundOffset(offset=_visible_end(own_log, isolation, is_client), leader_epoch=partition.leader_epoch)
    if timestamp in (Timestamp.EARLIEST, Timestamp.EARLIEST_LOCAL):
        start = own_log.start_offset
        epoch = own_log.epochs.epoch_for(start)
        return FoundOffset(offset=start, leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch)
    if timestamp == Timestamp.LATEST_TIERED:
        return FoundOffset()
    search = own_log.max_timestamp() if timestamp == Timestamp.MAX else own_log.offset_for_timestamp(timestamp)
    found = await search
    if found is not None and found.offset < _visible_end(own_log, isolation, is_client):
        return FoundOffset(ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch)
    if is_client:
        _require_committed_epoch(partition, own_log)
    return FoundOffset()


def segment_offsets_before(partition: Partition, timestamp: int, most: int, replica_id: BrokerId) -> list[int]:
    """The base offsets of segments up to a timestamp, newest first, for version 0 of ListOffsets.

    For segments above the high watermark a consumer gets the high watermark. Raises PartitionRefused, StorageFailed.
    """
    own_log = partition.hosted_log if replica_id == DEBUGGING_CONSUMER else partition.leader_log
    offsets = own_log.segment_offsets_before(timestamp, most)
    if replica_id != CONSUMER or not offsets or offsets[0] <= own_log.high_watermark:
        return offsets
    return [own_log.high_watermark, *(offset for offset in offsets if offset <= own_log.high_watermark)]


def _visible_end(own_log: Log, isolation: Isolation, is_client: bool) -> int:
    """The offset below which the requester may see records, by its isolation level.

    Raises PartitionRefused while the last stable offset is not known.
    """
    if not is_client:
        return own_log.end_offset
    if isolation is Isolation.READ_UNCOMMITTED:
        return own_log.high_watermark
    if own_log.is_restoring_producers:
        raise PartitionRefused(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{own_log.partition} was truncated, and which of its transactions are open is being read again. Retry.",
        )
    return own_log.last_stable_offset


def _require_committed_epoch(partition: Partition, own_log: Log) -> None:
    """Raise PartitionRefused (OFFSET_NOT_AVAILABLE) until the high watermark reaches the start of the leader epoch.

    Until then the log end is not known for sure, and an answer could go backwards for the client.
    """
    start = partition.leader_epoch_start
    if start is not None and start > own_log.high_watermark:
        raise PartitionRefused(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition}: the high watermark {own_log.high_watermark} has not reached offset "
            f"{start} yet, where the leader epoch begins. Retry.",
        )
