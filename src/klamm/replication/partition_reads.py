"""What Fetch and OffsetForLeaderEpoch read of one partition. Source: Partition.scala (fetchRecords, 3.9)."""

from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from klamm.log.epochs import EpochEnd
from klamm.log.errors import ColdRead
from klamm.log.file_slice import Records
from klamm.log.log import Log
from klamm.log.transactions import AbortedTransaction
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.replication.fetch_data import FetchData, FetchParams, Isolation
from klamm.replication.fetch_waiter import CachedPartition
from klamm.replication.isr_changes import record_follower_fetch
from klamm.replication.partition import NO_LEADER_EPOCH, Partition
from klamm.replication.ports import PartitionRefused
from klamm.replication.replica import RemoteReplica


class ReadLimits(NamedTuple):
    """How much a fetch may read of a partition."""

    max_bytes: int
    at_least_one: bool
    """One batch may exceed the limit."""
    is_first: bool
    """False when the same request reads the partition again after waiting."""


def read_partition(
    partition: Partition,
    watcher: CachedPartition,
    params: FetchParams,
    limits: ReadLimits,
    read_before: Container[ColdRead],
) -> FetchData:
    """Read one partition for a fetch.

    Raises PartitionRefused, StorageFailed, CorruptRecords, and NotCached where the device must be read, except for
    `read_before`. Offsets in the answer are those from before this fetch had an effect.
    """
    request = watcher.request
    partition.check_leader_epoch(request.current_leader_epoch)
    is_follower = params.is_follower
    is_committed = not is_follower and params.isolation is Isolation.READ_COMMITTED
    own_log = partition.leader_log if is_follower or params.leader_only else partition.hosted_log
    replica = _assigned_follower(partition, params.replica_id, request.current_leader_epoch) if is_follower else None
    high_watermark, end = own_log.high_watermark, own_log.end_offset
    start, stable = own_log.start_offset, own_log.last_stable_offset
    offset = request.fetch_offset
    if params.near_brokers and not is_follower:
        near = preferred_replica(partition, params.near_brokers, offset)
        if near != NO_BROKER:
            return FetchData(ErrorCode.NONE, high_watermark, stable, start, preferred_replica=near)
    if request.last_fetched_epoch >= 0:
        ours = _find_divergence(partition, own_log, request.last_fetched_epoch, offset)
        if ours is not None:
            return FetchData(ErrorCode.NONE, high_watermark, stable, start, diverging=ours)
    if offset > end or offset < start:
        raise PartitionRefused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.topic_partition}: offset {offset} is out of range; the log has offsets {start} to {end}",
        )
    if is_follower:
        bound = end
    elif is_committed:
        bound = stable
    else:
        bound = high_watermark
    records: Records = b""
    aborted: Sequence[AbortedTransaction] | None = None
    is_held = replica is not None and offset < bound and _is_throttled(partition, replica)
    if offset < bound and not is_held and (limits.max_bytes > 0 or limits.at_least_one):
        with own_log.avoiding_device(read_before):
            result = own_log.slice(offset, min(limits.max_bytes, request.max_bytes), bound, limits.at_least_one)
            records = result.records
            aborted = own_log.aborted_in(result, offset, bound) if is_committed and records else None
    if replica is not None and limits.is_first:
        replica.broker_epoch = params.broker_epoch
        record_follower_fetch(partition, replica, offset, request.log_start_offset, end)
    settled = offset >= bound and (replica is None or replica.broker_id in partition.isr_state.isr)
    if is_committed and own_log.is_restoring_producers:
        settled = False  # the last stable offset rises when they are restored, and nothing marks that
    return FetchData(
        ErrorCode.NONE,
        high_watermark,
        stable,
        start,
        records,
        aborted=aborted or () if is_committed else None,
        settled=settled,
        held=is_held,
    )


def preferred_replica(partition: Partition, near_brokers: Collection[BrokerId], offset: int) -> BrokerId:
    """Return the follower near the consumer from which it is to read at `offset`; NO_BROKER for the leader.

    Only a leader names one: an in-sync follower that has the offset, and of several the one that is furthest. A leader
    that is near itself names none. Source: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector (KIP-392).
    """
    if partition.leader_id in near_brokers:
        return NO_BROKER
    in_sync = partition.isr_state.isr
    candidates = [
        (replica.log_end_offset, replica.last_caught_up_ms, broker)
        for broker, replica in partition.replicas.items()
        if broker in near_brokers and broker in in_sync and replica.log_start_offset <= offset <= replica.log_end_offset
    ]
    return max(candidates)[2] if candidates else NO_BROKER


def _is_throttled(partition: Partition, replica: RemoteReplica) -> bool:
    """Whether this follower has to wait for the quota; never an in-sync follower, which would leave the ISR."""
    quota = partition.context.leader_quota
    if not quota.is_on or replica.broker_id in partition.isr_state.isr:
        return False
    return quota.covers(partition.topic_partition) and quota.is_exceeded()


def _assigned_follower(partition: Partition, replica_id: BrokerId, epoch: int) -> RemoteReplica:
    """The state of an assigned follower. Raises PartitionRefused for a broker that is not a replica."""
    replica = partition.replicas.get(replica_id)
    if replica is None:
        # with an epoch sent, the follower may only be ahead of us (KAFKA-13837)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == NO_LEADER_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise PartitionRefused(code, f"{partition.topic_partition}: broker {replica_id} is not an assigned replica")
    return replica


def _find_divergence(partition: Partition, own_log: Log, last_fetched_epoch: int, offset: int) -> EpochEnd | None:
    """Return the end of the last epoch that this log shares with the follower's, if the follower's log diverged.

    None where it has not diverged. Raises PartitionRefused.
    """
    epoch, end = own_log.epochs.end_offset_for(last_fetched_epoch, own_log.end_offset)
    if epoch < 0 or offset < own_log.start_offset:
        raise PartitionRefused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.topic_partition}: the leader has no records of leader epoch {last_fetched_epoch}, from which "
            f"the follower fetched, or offset {offset} is before the log start {own_log.start_offset}",
        )
    return EpochEnd(epoch, end) if epoch < last_fetched_epoch or end < offset else None


def end_of_epoch(partition: Partition, epoch: int, current_leader_epoch: int) -> EpochEnd:
    """Answer OffsetForLeaderEpoch. Raises PartitionRefused where this broker does not lead in that leader epoch."""
    partition.check_leader_epoch(current_leader_epoch)
    own_log = partition.leader_log
    return own_log.epochs.end_offset_for(epoch, own_log.end_offset)
