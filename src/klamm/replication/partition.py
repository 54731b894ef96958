"""One hosted replica: its role, its ISR, its high watermark. Source: Partition.scala (Kafka 3.9).

Nothing here awaits: each method is one step that no other step can interrupt.
"""

import uuid
from collections.abc import Container
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
        "leadership",
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
        self.leadership = object()
        """Another object each time this broker becomes leader: what it appended before may have been truncated."""
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
        """The log of the replica. Raises PartitionRefused where it could not be created yet."""
        if self.log is None:
            raise PartitionRefused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} has no log on this broker yet. Refresh the metadata.",
            )
        return self.log

    @property
    def leader_log(self) -> Log:
        """The log of the replica. Raises PartitionRefused unless this broker leads the partition."""
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

        A follower's log start offset is the one in its last fetch.
        """
        is_alive = self.context.metadata.is_alive
        followers = (replica.log_start_offset for b, replica in self.replicas.items() if is_alive(b))
        own_start = self.leader_log.start_offset
        if self.future_log is not None and not self.future_log.has_failed:
            own_start = min(own_start, self.future_log.start_offset)
        return min((own_start, *followers))

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a request with another leader epoch than ours; −1 is not checked (KIP-320).

        Raises PartitionRefused with FENCED_LEADER_EPOCH for an older, UNKNOWN_LEADER_EPOCH for a newer epoch.
        """
        if epoch == NO_LEADER_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise PartitionRefused(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition}: leader epoch {epoch} is fenced, the current one is {self.leader_epoch}",
            )
        raise PartitionRefused(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition}: leader epoch {epoch} is newer than the one this broker knows, "
            f"{self.leader_epoch}",
        )

    # ---- roles

    def make_leader(self, state: LeaderAndIsr, assignment: ReplicaAssignment) -> bool:
        """Become leader with this state; returns whether this broker did not lead before. The log must be set.

        Only a newer leader epoch resets what is known of followers. The partition epoch is not compared: it is only
        lower if somebody deleted the state znode and created it again.
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
        if not was_leader:
            self.leadership = object()
        own_log.possible_loss = None  # a later leader has copied this log as it is
        own_log.sync_soon()
        self._on_role_changed()
        if self.advance_high_watermark():
            self.on_high_watermark_moved()
        return not was_leader

    def make_follower(self, state: LeaderAndIsr, assignment: ReplicaAssignment) -> bool:
        """Become follower.

        Returns whether the leader epoch is newer, so that fetching must start over (KAFKA-13161).
        """
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

    def use_log(self, own_log: Log) -> None:
        """Host this log; it reports when its log start moves and when records are synced to disk."""
        self.log = own_log
        own_log.on_start_moved = self.on_log_start_moved
        own_log.on_synced = self.recheck_high_watermark

    def replace_log(self, new_log: Log) -> None:
        """Use the log in another log directory, to which the replica moved; waiting requests are checked again."""
        self.future_log = None
        self.use_log(new_log)
        self._on_role_changed()

    def stop_hosting(self) -> None:
        """Drop the replica's state, because it is deleted or its directory failed, and wake waiting requests."""
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
        """Append a client's batch.

        Raises PartitionRefused (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS), AppendRefused.
        """
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
            own_log.sync_soon()
            self._on_log_end_moved(old_end)
            if self.advance_high_watermark():
                self.on_high_watermark_moved()
        return info

    def delete_records(self, offset: int) -> int:
        """Raise the log start to `offset`, -1 meaning the high watermark; returns the log start.

        Segments below it are removed by the next run of retention. Raises PartitionRefused, OffsetOutOfRange.
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
        """Append what the leader sent, with its offsets and epochs.

        An empty log that was told to start in the middle of the leader's first batch starts at that batch instead.
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
        """Apply the leader's high watermark, bounded by our own log (it may fall), and its log start."""
        own_log = self.hosted_log
        bounded = max(own_log.start_offset, min(leader_high_watermark, own_log.end_offset))
        if bounded != own_log.high_watermark:
            own_log.update_high_watermark(bounded)
            self.on_high_watermark_moved()
        if own_log.start_offset < leader_log_start <= own_log.high_watermark:
            own_log.advance_start_offset(leader_log_start)

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`; only an unclean election can make that necessary below the high watermark."""
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

    def truncate_possible_loss(self, offset: int) -> None:
        """Truncate a follower's log at `offset`, where a power loss may have taken records.

        Call it when the leader has answered: the follower fetches the records from it, with all that comes after.
        Raises StorageFailed.
        """
        own_log = self.hosted_log
        log.warning(
            "records may have been lost in a power loss: the log was truncated there, and is copied from its leader",
            partition=str(self.topic_partition),
            offset=offset,
            log_end=own_log.end_offset,
        )
        own_log.truncate_to(offset)
        self._on_role_changed()

    def restart_at(self, offset: int) -> None:
        """Remove all records; the next record gets `offset`."""
        self.hosted_log.truncate_fully_and_start_at(offset)
        self._on_role_changed()

    def recheck_high_watermark(self) -> None:
        """Advance the high watermark if it waited for a sync, or for a replica that is now dead or lags."""
        if self.is_leader and self.advance_high_watermark():
            self.on_high_watermark_moved()

    # ---- high watermark

    def advance_high_watermark(self) -> bool:
        """Raise the high watermark as far as the ISR allows, but not below min ISR (KAFKA-15583).

        Returns whether it moved.
        """
        own_log = self.log
        if own_log is None or not self.is_leader or own_log.high_watermark == own_log.end_offset:
            return False
        if self.is_under_min_isr:
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
        offset = min(offset, own_log.durable_end)
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
        """Mark this entry of a fetch session as changed whenever the partition changes, from now on."""
        (self._followers if watcher.waiter.is_follower else self._consumers)[watcher] = None

    def remove_watcher(self, watcher: CachedPartition) -> None:
        """Stop marking this entry of a fetch session as changed when the partition changes."""
        if watcher in self._followers:
            if self.log is not None:
                self._record_implicit_fetch(watcher, self.log.end_offset)
            del self._followers[watcher]
        self._consumers.pop(watcher, None)

    def unheard_members(self, since: float) -> list[BrokerId]:
        """The other members of the maximal ISR that have not fetched since this answer, in this leader epoch."""
        known = (self.leader_epoch, NO_LEADER_EPOCH)
        heard = {
            watcher.waiter.replica_id
            for watcher in self._followers
            if watcher.waiter.fetched_after > since and watcher.request.current_leader_epoch in known
        }
        return [b for b in self.isr_state.maximal if b != self.context.broker_id and b not in heard]

    def answer_fetches_at_once(self, brokers: Container[BrokerId]) -> None:
        """Answer the fetches of these followers at once, so that they fetch again."""
        for watcher in self._followers:
            if watcher.waiter.replica_id in brokers:
                watcher.waiter.answer_at_once()

    def _record_implicit_fetch(self, watcher: CachedPartition, end: int) -> None:
        """Count a follower as caught up whose incremental fetch left the partition out, since nothing had changed.

        A partition that is marked changed since its log or leader epoch moved was not compared, and is not counted.
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

    def on_isr_committed(self) -> None:
        """Have the next fetch of each follower outside the ISR checked: it may be caught up by now.

        Followers are not proposed for the ISR while a change of it is pending, and a fetch without news would not be
        looked at.
        """
        for watcher in self._followers:
            if watcher.waiter.replica_id not in self.isr_state.isr:
                watcher.mark_changed(wakes=False)

    def on_high_watermark_moved(self) -> None:
        """Complete produce requests and wake fetches that waited for the high watermark."""
        for watcher in self._consumers:
            watcher.mark_changed(wakes=True)
        for watcher in self._followers:
            watcher.mark_changed(wakes=False)
        self.check_waiting_produces()

    def on_log_start_moved(self) -> None:
        """Wake all waiting fetches of the partition: those below the new log start fail, the others return it."""
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
