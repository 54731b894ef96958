"""Which offsets of a group are no longer kept. Source: GroupMetadata.removeExpiredOffsets (3.9, KIP-211)."""

from collections.abc import Callable

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.group import Group
from klamm.coordinator.states import EMPTY, STABLE
from klamm.model.ids import TopicPartition


def expired_offsets(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose committed offsets expired by `offsets.retention.minutes`.

    These are offsets of an empty group, of topics that no member reads, and of a group that never had members. What was
    committed after its group became empty, as a tool does that resets offsets, is kept as long as it. Nothing expires
    during a rebalance, nor while another commit for the partition is under way or waits for the end of its
    transaction: the tombstone would follow that commit in the log, where compaction keeps the last record of a key.
    """
    if group.protocol_type is None:
        return _expired(group, now_ms, retention_ms, lambda offset: offset.commit_timestamp)
    if group.state is EMPTY:
        since_ms = group.state_since_ms or 0
        return _expired(group, now_ms, retention_ms, lambda offset: max(since_ms, offset.commit_timestamp))
    if group.state is STABLE and group.is_consumer_group and (topics := group.subscribed_topics) is not None:
        expired = _expired(group, now_ms, retention_ms, lambda offset: offset.commit_timestamp)
        return [partition for partition in expired if partition.topic not in topics]
    return []


def _expired(group: Group, now_ms: int, retention_ms: int, starts_at: Callable[[Offset], int]) -> list[TopicPartition]:
    """The partitions whose retention is over.

    It is counted from `starts_at`, unless the commit itself named the time of expiry.
    """
    expired = []
    for partition, committed in group.offsets.committed.items():
        offset = committed.offset
        end = offset.expire_timestamp
        if end is None:
            end = starts_at(offset) + retention_ms
        if now_ms >= end and not group.offsets.is_unstable(partition):
            expired.append(partition)
    return expired
