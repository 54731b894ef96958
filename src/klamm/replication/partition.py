"""One hosted replica: its role, its ISR, its high watermark. Source: Partition.scala (Kafka 3.9).

Nothing here awaits: each method is one step that no other step can interrupt.
"""

import uuid
from typing import Final

import structlog

from klamm.log.errors import UnexpectedOffset
from klamm.log.leader_append import CheckedBatch
from klamm.log.log import AppendInfo, Log
from klamm.log.producers import Origin
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.replication.context import ReplicationContext
from klamm.replication.fetch_waiter import CachedPartition
from klamm.replication.isr import (
    Committed,
    IsrState,
    next_high_watermark,
)
from klamm.replication.ports import PartitionRefused
from klamm.replication.replica import RemoteReplica
from klamm.runtime.disk import Buffer

log = structlog.get_logger("replication")

NO_LEADER_EPOCH: Final = -1
UP_TO_HIGH_WATERMARK: Final = -1  # as the offset of DeleteRecords


class Partition:
    """A replica this broker hosts, as leader or follower. Source of the fields: broker reference, KIP-101, KIP-497."""

    __slots__ = (
        "_consumers",
        "_followers",
        "assignment",
        "context",
        "controller_epoch",
        "future_log",
        "is_leader",
        "isr_state",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, context: ReplicationContext) -> None:
        self.topic_partition = topic_partition
        self.context = context
        self.controller_epoch = 0
        self.leader_epoch = NO_LEADER_EPOCH
        self.leader_epoch_start: int | None = None
        self.partition_epoch = 0
        self.leader_id = NO_BROKER
        self.is_leader = False
        self.assignment = ReplicaAssignment(())
        self.isr_state: IsrState = Committed(())
        self.replicas: dict[BrokerId, RemoteReplica] = {}
        self.log: Log | None = None
        self.future_log: Log | None = None
        """The copy that will replace the log, while the replica moves to another log directory."""
        self._followers: dict[CachedPartition, None] = {}
        self._consumers: dict[CachedPartition, None] = {}

    # ---- facts

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic id of the log; None without a log or an id."""
        return None if self.log is None else self.log.topic_id

    @property
    def hosted_log(self) -> Log:
        """The log; raises PartitionRefused where it could not be created yet."""
        if self.log is None:
            raise PartitionRefused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} has no log on this broker yet. Refresh the metadata.",
            )
        return self.log

    @property
    def leader_log(self) -> Log:
        """The log; raises PartitionRefused unless this broker leads."""
        if self.log is None or not self.is_leader:
            raise PartitionRefused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is not led by this broker"
            )
        return self.log

    @property
    def effective_min_isr(self) -> int:
        """The smaller of `min.insync.replicas` and the number of replicas."""
        assert self.log is not None
        return min(self.log.config.min_insync_replicas, len(self.assignment.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR has fewer replicas than `min.insync.replicas` demands."""
        return len(self.isr_state.isr) < self.effective_min_isr

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas; -1 while one of them has not fetched. Only for the leader.

        A follower's is that of its last fetch.
        """
        is_alive = self.context.metadata.is_alive
        followers = (replica.log_start_offset for b, replica in self.replicas.items() if is_alive(b))
        own_start = self.leader_log.start_offset
        if self.future_log is not None and not self.future_log.has_failed:
            own_start = min(own_start, self.future_log.start_offset)
        return min((own_start, *followers))

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a request with an older (74) or newer (75) leader epoch than ours; −1 is not checked (KIP-320)."""
        if epoch == NO_LEADER_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise PartitionRefused(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition}: leader epoch {epoch} is fenced, the current one is {self.leader_epoch}",
            )
        raise PartitionRefused(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition}: leader epoch {epoch} is newer than the known one, {self.leader_epoch}",
        )

    # ---- roles

    def make_leader(self, state: LeaderAndIsr, assignment: ReplicaAssignment) -> bool:
        """Become leader with this state; the log must be set. True where this broker did not lead before.

        Only a newer *leader epoch* resets what is known of followers. The partition epoch is taken as it is: lower
        only where somebody deleted the state znode and wrote it anew, so that its versions start over.
        """
        own_log = self.hosted_log
        context = self.context
        was_leader = self.is_leader
        self.controller_epoch = state.controller_epoch
        self.assignment = assignment
        self.isr_state = Committed(state.isr)  # a change still pending is thereby discarded
        followers = [b for b in assignment.replicas if b != context.broker_id]
        self.replicas = {b: self.replicas.get(b) or RemoteReplica(b) for b in followers}
        if state.leader_epoch > self.leader_epoch:
            start = own_log.end_offset
            # at once, before any record: a follower may ask for this epoch first of all (KAFKA-7415)
            own_log.epochs.assign(state.leader_epoch, start)
            now_ms = context.now_ms()
            for replica in self.replicas.values():
                in_isr = replica.broker_id in state.isr
                replica.reset(in_isr=in_isr, was_leader=was_leader, epoch_start_offset=start, now_ms=now_ms)
            self.leader_epoch = state.leader_epoch
            self.leader_epoch_start = start
        self.partition_epoch = state.partition_epoch
        self.leader_id = context.broker_id
        self.is_leader = True
        self._on_role_changed()
        if self.advance_high_watermark():
            self.on_high_watermark_moved()
        return not was_leader

    def make_follower(self, state: LeaderAndIsr, assignment: ReplicaAssignment) -> bool:
        """Become follower; whether the leader epoch is newer, so that fetching must start over (KAFKA-13161)."""
        newer = state.leader_epoch > self.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.is_leader = False
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.leader_epoch_start = None
        self.partition_epoch = state.partition_epoch
        self.assignment = assignment
        self.isr_state = Committed(())
        self.replicas = {}
        self._on_role_changed()
        return newer

    def replace_log(self, new_log: Log) -> None:
        """The replica moved to another log directory; requests that wait on it are checked again."""
        self.log, self.future_log = new_log, None
        new_log.on_start_moved = self.on_log_start_moved
        self._on_role_changed()

    def stop_hosting(self) -> None:
        """Drop the replica's state and wake the requests that wait on it.

        Called when it is deleted or its directory failed.
        """
        self.is_leader = False
        self.log = self.future_log = None
        self.isr_state = Committed(())
        self.replicas = {}
        watchers = [*self._followers, *self._consumers]
        for watcher in watchers:
            watcher.unsubscribe()
            watcher.mark_changed(wakes=True)
        self._check_waiting_requests()

    # ---- appending

    def append_as_leader(self, records: Buffer | CheckedBatch, acks: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append a client's batch. Raises PartitionRefused (6, 19), AppendRefused."""
        own_log = self.leader_log
        if acks == -1 and self.is_under_min_isr:
            in_sync, needed = len(self.isr_state.isr), self.effective_min_isr
            why = (
                f"{self.topic_partition} has {in_sync} in-sync replicas, min.insync.replicas is {needed}. Start the "
                "brokers that have the other replicas."
            )
            raise PartitionRefused(ErrorCode.NOT_ENOUGH_REPLICAS, why)
        old_end = own_log.end_offset
        info = own_log.append_as_leader(records, self.leader_epoch, origin)
        if own_log.end_offset != old_end:
            self._on_log_end_moved(old_end)
            if self.advance_high_watermark():
                self.on_high_watermark_moved()
        return info

    def delete_records(self, offset: int) -> int:
        """Raise the log start to `offset`, -1 meaning the high watermark; returns the offset.

        The segments below it go with the next run of retention. Raises PartitionRefused (1, 6, 44), OffsetOutOfRange.
        """
        own_log = self.leader_log
        if not own_log.config.is_deleted:
            raise PartitionRefused(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition} is only compacted. Add delete to its cleanup.policy to delete records.",
            )
        target = own_log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
        if target < 0:
            raise PartitionRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {offset} is not valid. Give an offset from 0 to the high watermark, "
                f"{own_log.high_watermark}, or {UP_TO_HIGH_WATERMARK} for the high watermark itself.",
            )
        own_log.advance_start_offset(target)
        return target

    def append_as_follower(self, records: Buffer) -> None:
        """Append what the leader sent, offsets and epochs as they are.

        An empty log may have been told to start in the middle of the leader's first batch: it then starts with it.
        Raises UnexpectedOffset, CorruptRecords, StorageFailed.
        """
        own_log = self.hosted_log
        try:
            own_log.append_as_follower(records)
        except UnexpectedOffset as error:
            is_empty = own_log.start_offset == own_log.end_offset
            if not (is_empty and error.first_offset < own_log.start_offset <= error.last_offset):
                raise
            own_log.truncate_fully_and_start_at(error.first_offset)
            own_log.append_as_follower(records)

    def update_from_leader(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Take over the leader's high watermark, bounded by our own log (it may go down), and its log start."""
        own_log = self.hosted_log
        bounded = max(own_log.start_offset, min(leader_high_watermark, own_log.end_offset))
        if bounded != own_log.high_watermark:
            own_log.update_high_watermark(bounded)
            self.on_high_watermark_moved()
        if own_log.start_offset < leader_log_start <= own_log.high_watermark:
            own_log.advance_start_offset(leader_log_start)

    def truncate_to(self, offset: int) -> None:
        """Truncate the log's end; below the high watermark only an unclean election makes that necessary."""
        own_log = self.hosted_log
        if offset < own_log.high_watermark:
            log.warning(
                "log truncated below the high watermark, after an unclean election: records are lost",
                partition=str(self.topic_partition),
                offset=offset,
                high_watermark=own_log.high_watermark,
            )
        own_log.truncate_to(offset)
        self._on_role_changed()

    def restart_at(self, offset: int) -> None:
        """Drop all records; the next one has `offset`."""
        self.hosted_log.truncate_fully_and_start_at(offset)
        self._on_role_changed()

    def recheck_high_watermark(self) -> None:
        """Advance the high watermark if it waited for a replica that is now dead or lags for too long."""
        if self.is_leader and self.advance_high_watermark():
            self.on_high_watermark_moved()

    # ---- high watermark

    def advance_high_watermark(self) -> bool:
        """Raise the high watermark as far as the ISR allows; whether it moved. Not under min ISR (KAFKA-15583)."""
        own_log = self.log
        if own_log is None or not self.is_leader or self.is_under_min_isr:
            return False
        context = self.context
        offset = next_high_watermark(
            self.isr_state,
            self.replicas,
            own_log.end_offset,
            own_id=context.broker_id,
            now_ms=context.now_ms(),
            lag_time_max_ms=context.lag_time_max_ms,
            is_alive=context.metadata.is_alive,
        )
        if offset <= own_log.high_watermark:
            return False
        own_log.update_high_watermark(offset)
        return True

    def acks_all_result(self, required_offset: int) -> ErrorCode | None:
        """The error code of an acks=all append up to `required_offset`; None while the high watermark is below it."""
        if not self.is_leader or self.log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        enough = self.effective_min_isr <= len(self.isr_state.maximal)
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # ---- watchers

    def add_watcher(self, watcher: CachedPartition) -> None:
        """From now on, mark this entry of a fetch session as changed whenever the partition changes."""
        (self._followers if watcher.waiter.is_follower else self._consumers)[watcher] = None

    def remove_watcher(self, watcher: CachedPartition) -> None:
        """Stop marking this entry of a fetch session."""
        if watcher in self._followers:
            if self.log is not None:
                self._record_implicit_fetch(watcher, self.log.end_offset)
            del self._followers[watcher]
        self._consumers.pop(watcher, None)

    def _record_implicit_fetch(self, watcher: CachedPartition, end: int) -> None:
        """Count a follower as caught up at its last fetch, where its incremental fetch session left the partition out.

        A partition that is marked changed was not compared since its log or leader epoch moved: it proves nothing.
        """
        if watcher in watcher.waiter.changed:
            return
        replica = self.replicas.get(watcher.waiter.replica_id)
        if replica is not None:
            replica.record_implicit_fetch(end, watcher.waiter.fetched_at_ms)

    def _on_log_end_moved(self, old_end: int) -> None:
        """Mark the partition as changed in the followers' fetches, and wake them."""
        for watcher in self._followers:
            self._record_implicit_fetch(watcher, old_end)
            watcher.mark_changed(wakes=True)

    def on_high_watermark_moved(self) -> None:
        """Complete produce requests and wake fetches that waited for the high watermark."""
        for watcher in self._consumers:
            watcher.mark_changed(wakes=True)
        for watcher in self._followers:
            watcher.mark_changed(wakes=False)
        self.check_waiting_produces()

    def on_log_start_moved(self) -> None:
        """Fetches below the new start fail at once; followers learn it."""
        for watcher in (*self._followers, *self._consumers):
            watcher.mark_changed(wakes=True)

    def _on_role_changed(self) -> None:
        """Wake all requests that wait on the partition: they must be checked again."""
        for watcher in (*self._followers, *self._consumers):
            watcher.mark_changed(wakes=True)
        self._check_waiting_requests()

    def _check_waiting_requests(self) -> None:
        """Answer the waiting Produce and DeleteRecords requests that the new state of the partition completes."""
        self.check_waiting_produces()
        self.check_waiting_deletes()

    def check_waiting_produces(self) -> None:
        """Complete the acks=all produce requests whose records are replicated now."""
        self.context.produces.check(self.topic_partition)

    def check_waiting_deletes(self) -> None:
        """Complete the DeleteRecords requests that every live replica has carried out now."""
        self.context.deletes.check(self.topic_partition)
