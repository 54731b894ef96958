"""Changes of a partition's ISR that its leader proposes, and what the controller answers.

Source: Partition.scala (updateFollowerFetchState, maybeExpandIsr, maybeShrinkIsr, submitAlterPartition).
"""

from functools import partial

import structlog

from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.isr import (
    BACK_TO_COMMITTED,
    WAIT_FOR_LEADER_AND_ISR,
    Committed,
    Pending,
    PendingExpand,
    PendingShrink,
    may_join,
    out_of_sync,
)
from klamm.replication.partition import Partition
from klamm.replication.ports import IsrAnswer, IsrProposal
from klamm.replication.replica import RemoteReplica

log = structlog.get_logger("replication")


def record_follower_fetch(
    partition: Partition, replica: RemoteReplica, offset: int, log_start: int, leader_end: int
) -> None:
    """Record a follower's progress from its fetch; then expand the ISR and advance the high watermark if possible."""
    context = partition.context
    previous, previous_start = replica.log_end_offset, replica.log_start_offset
    replica.record_fetch(offset, log_start, leader_end, context.now_ms())
    if replica.broker_id not in partition.isr_state.isr:
        maybe_expand_isr(partition, replica)
    if previous != offset and partition.advance_high_watermark():
        partition.on_high_watermark_moved()
    if previous_start != log_start:
        partition.check_waiting_deletes()


def maybe_expand_isr(partition: Partition, replica: RemoteReplica) -> None:
    """Propose the follower as an ISR member if it has caught up."""
    if may_join(
        partition.isr_state,
        replica,
        alive=partition.context.metadata.is_alive(replica.broker_id),
        high_watermark=partition.leader_log.high_watermark,
        epoch_start_offset=partition.leader_epoch_start,
    ):
        _propose_isr(partition, PendingExpand(partition.isr_state.isr, replica.broker_id, replica.broker_epoch))


def maybe_shrink_isr(partition: Partition) -> None:
    """Propose an ISR without the members that lag; called every half `replica.lag.time.max.ms`."""
    state, own_log = partition.isr_state, partition.log
    if not partition.is_leader or own_log is None or not isinstance(state, Committed):
        return
    context = partition.context
    out = out_of_sync(
        state,
        partition.replicas,
        own_log.end_offset,
        own_id=context.broker_id,
        now_ms=context.now_ms(),
        lag_time_max_ms=context.lag_time_max_ms,
    )
    if out:
        _propose_isr(partition, PendingShrink(state.isr, out))


def _propose_isr(partition: Partition, pending: Pending) -> None:
    """Queue a proposed ISR for the controller."""
    partition.isr_state = pending
    epochs = {pending.new: pending.broker_epoch} if isinstance(pending, PendingExpand) else {}
    proposal = IsrProposal(
        partition.topic_partition,
        partition.topic_id or ZERO_ID,
        partition.leader_epoch,
        partition.partition_epoch,
        pending.proposed,
        epochs,
        partial(on_isr_answer, partition, pending),
    )
    if partition.context.alter_partition.submit(proposal):
        log.debug("ISR change proposed", partition=str(partition.topic_partition), isr=pending.isr, to=pending.proposed)
    else:
        partition.isr_state = Committed(pending.isr)


def on_isr_answer(partition: Partition, pending: Pending, answer: IsrAnswer) -> None:
    """Apply the controller's answer to `pending`; ignored once a LeaderAndIsr has replaced that proposal."""
    if partition.isr_state is not pending:
        return
    counts = partition.context.counts
    is_stale = answer.leader_epoch != partition.leader_epoch or answer.partition_epoch < partition.partition_epoch
    if answer.error or is_stale:
        counts.failed_isr_updates += 1
    if answer.error in BACK_TO_COMMITTED:
        _set_committed_isr(partition, pending.isr)
    elif answer.error in WAIT_FOR_LEADER_AND_ISR:
        log.debug("ISR change refused", partition=str(partition.topic_partition), error=answer.error.name)
    elif answer.error:
        _propose_isr(partition, pending)
    elif not is_stale:
        if isinstance(pending, PendingShrink):
            counts.isr_shrinks += 1
        else:
            counts.isr_expands += 1
        _commit_isr(partition, answer)


def _commit_isr(partition: Partition, answer: IsrAnswer) -> None:
    """Set the ISR that the controller confirmed."""
    partition.partition_epoch = answer.partition_epoch
    log.debug("ISR changed", partition=str(partition.topic_partition), isr=answer.isr, epoch=answer.partition_epoch)
    _set_committed_isr(partition, answer.isr)


def _set_committed_isr(partition: Partition, isr: tuple[BrokerId, ...]) -> None:
    """Set the ISR and end a pending change.

    The high watermark then no longer waits for joining or leaving members.
    """
    partition.isr_state = Committed(isr)
    partition.on_isr_committed()
    if partition.advance_high_watermark():
        partition.on_high_watermark_moved()
    else:
        partition.check_waiting_produces()
