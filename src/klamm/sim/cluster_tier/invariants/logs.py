"""What must be on the disks; judged from the files and from what clients were told, not from the memory of nodes."""

from collections.abc import Iterable

from klamm.log.checkpoints import checkpoint_lines
from klamm.log.errors import CorruptFile
from klamm.log.names import LEADER_EPOCHS
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.cluster_tier.history import TierHistory, records_told
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs, ReplicaLog
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    Expired,
    NodeStarted,
    Polled,
    PowerLost,
    Truncated,
    WrittenAfterError,
)
from klamm.sim.history.trace import StateWritten

Records = Iterable[tuple[int, bytes]]


def in_sync_replicas_have_what_is_committed(
    history: TierHistory, event: StateWritten | Acknowledged | Polled
) -> str | None:
    """Every member of the ISR has every committed record on its disk, the same at the same offset.

    Records before the beginning of its log count as deleted only where an operator or retention may have deleted some.
    """
    if isinstance(event, StateWritten):
        return _lacking(history, event.partition, event.after.isr, history.promised(event.partition))
    p = event.send.partition if isinstance(event, Acknowledged) else event.partition
    end = history.promised_end(p)
    return _lacking(history, p, history.isr(p), [record for record in records_told(event) if record[0] < end])


def _lacking(history: TierHistory, p: TopicPartition, isr: Iterable[int], expected: Records) -> str | None:
    """Why a member of the ISR does not have all of these records; None if all have them."""
    records, may_start_later = list(expected), history.may_start_later(p)
    for broker in isr if records else ():
        disk = history.disks[broker]
        log = disk.of(p)
        if log is None:
            if not disk.has_failed_directory:
                return f"{p}: replica {broker}, in ISR {tuple(isr)}, has no log; offset {records[-1][0]} is committed"
            continue
        for offset, value in records:
            if may_start_later and offset < log.start:
                continue
            if (found := log.value_at(offset)) != value:
                there = f"has {found!r} there" if found is not None else f"ends at {log.end}"
                return f"{p}: {value!r} is committed at {offset}; replica {broker}, in ISR {tuple(isr)}, {there}"
    return None


def acknowledged_records_are_on_min_isr_disks(history: TierHistory, event: Acknowledged) -> str | None:
    """A record is acknowledged with acks=all only once min.insync.replicas replicas have it on disk."""
    p = event.send.partition
    facts = history.topics.get(p.topic)
    if facts is None or not history.is_promised(p) or not history.is_untouched(p):
        return None
    logs = [log for disk in history.disks.values() if (log := disk.of(p)) is not None]
    # a device may have died after its replica fetched the record, and before the producer got the answer
    unknown = sum(disk.has_failed_directory and disk.of(p) is None for disk in history.disks.values())
    for offset, value in records_told(event):
        if offset < history.deleted_before.get(p, 0):
            continue
        count = unknown + sum(log.value_at(offset) == value for log in logs)
        if count < min(facts.min_isr, facts.replication):
            return f"{p}: {value!r} is acknowledged at {offset}, and is on {count} disks; {facts.min_isr} are required"
    return None


def synced_records_are_on_devices(history: TierHistory, event: Acknowledged) -> str | None:
    """With klamm.sync.before.ack, min.insync.replicas replicas have an acknowledged record on their devices."""
    p = event.send.partition
    facts = history.topics.get(p.topic)
    if facts is None or not facts.is_synced or not history.is_promised(p) or p in history.destroyed:
        return None
    logs = {broker: log for broker in history.isr(p) if (log := history.disks[broker].of(p)) is not None}
    for offset, value in records_told(event):
        if offset < history.deleted_before.get(p, 0):
            continue
        having = [b for b, log in logs.items() if log.value_at(offset) == value]
        synced = [b for b in having if logs[b].is_on_device(history.disks[b].disk, offset)]
        if len(synced) < min(len(having), facts.min_isr, facts.replication):
            return f"{p}: {value!r} is acknowledged at {offset}; of replicas {having}, only {synced} have synced it"
    return None


def joining_replicas_have_the_leaders_epoch(history: TierHistory, event: StateWritten) -> str | None:
    """A replica enters the ISR only with all records the leader had when its leader epoch began (KAFKA-7128)."""
    before, after, p = event.before, event.after, event.partition
    if before is None or not after.has_leader or before.leader_epoch != after.leader_epoch:
        return None
    leader = history.disks[after.leader].of(p)
    if leader is None or not history.is_promised(p) or not history.is_untouched(p):
        return None
    start = leader.start_of_epoch(after.leader_epoch)
    for broker in after.isr:
        log = history.disks[broker].of(p)
        if broker not in before.isr and log is not None and log.end < start:
            return (
                f"{p}: replica {broker} enters ISR {before.isr} and ends at {log.end}; leader {after.leader} began"
                f" epoch {after.leader_epoch} at {start}"
            )
    return None


def committed_records_are_not_truncated(history: TierHistory, event: Truncated) -> str | None:
    """No replica truncates a committed record that the leader still has, whether the replica is in sync or not.

    Each replica applies retention on its own: a follower that was told of the former leader's log start removes what
    lies before it, although the next leader may still have those records.
    """
    p = event.partition
    log, state = history.disks[event.node].of(p), history.state(p)
    if log is None or state is None:
        return None
    leader = history.disks[state.leader].of(p) if state.has_leader else None
    start = max(event.offset, _log_start(history, p, state), history.deleted_before.get(p, 0))
    for offset, value in history.promised(p):
        if not start <= offset < event.end or log.value_at(offset) != value:
            continue
        if leader is None or leader.epoch_at(offset) in (None, log.epoch_at(offset)):
            return f"{p}: replica {event.node} cuts its log at {event.offset}; {value!r} is committed at {offset}"
    return None


def _log_start(history: TierHistory, p: TopicPartition, state: LeaderAndIsr) -> int:
    """The log start of the leader; where it may move the highest in the ISR, as any member may have led."""
    members = state.isr if history.may_start_later(p) else (state.leader,) if state.has_leader else ()
    return max((log.start for b in members if (log := history.disks[b].of(p)) is not None), default=0)


def retention_keeps_what_is_not_replicated(history: TierHistory, event: Expired) -> str | None:
    """Retention removes no record that a member of the ISR lacks: it is at or above the high watermark (KAFKA-5634)."""
    p = event.partition
    if not history.is_promised(p) or not history.is_untouched(p):
        return None
    for broker in history.isr(p):
        log = history.disks[broker].of(p)
        if log is not None and log.end < event.end:
            return (
                f"{p}: replica {event.node} removes a segment that ends at {event.end}; replica {broker}, in ISR"
                f" {history.isr(p)}, ends at {log.end}"
            )
    return None


def nothing_is_appended_after_an_error(history: TierHistory, event: WrittenAfterError) -> str | None:
    """After a failed write or sync of a log, the same process does not write to that log again (KAFKA-10778)."""
    return f"node {event.node} writes to {event.path} again, of which the device refused a write or sync"


def recovery_points_are_on_the_device(history: TierHistory, event: PowerLost) -> str | None:
    """Everything below the offset in the recovery point checkpoint survives a power loss.

    Partitions with a flipped bit are left out: nothing is read after it, and a power loss may bring it back.
    """
    for p, after in event.ends.items():
        if p not in history.destroyed and event.recovery_points.get(p, 0) > after:
            point = event.recovery_points[p]
            return f"{p}: node {event.node} keeps its log up to {after}; the recovery point is {point}"
    return None


def recovery_keeps_what_was_written(history: TierHistory, event: NodeStarted) -> str | None:
    """After a start every log can be read to its end: no gap, no incomplete batch, no falling leader epoch.

    Logs in a directory that failed while it was loaded are recovered at a later start.
    """
    disk = history.disks[event.node]
    for p in disk.partitions():
        log = disk.of(p)
        if log is None or log.directory.rpartition("/")[0] not in event.directories:
            continue
        if p not in history.destroyed and (wrong := problem_of(log, has_gaps=history.is_compacted(p))):
            return f"{p}: replica {event.node}, just started: {wrong}"
    return None


def problem_of(log: ReplicaLog, *, has_gaps: bool = False) -> str | None:
    """What is wrong with the log of one replica; None if it is intact. The log of a compacted topic has gaps."""
    if log.damage is not None:
        return log.damage
    expected, epoch = log.start, -1
    for batch in log.batches():
        header = batch.header
        if header.base_offset < expected or (header.base_offset > expected and not has_gaps):
            return f"offset {header.base_offset} follows where {expected} is next"
        if header.partition_leader_epoch < epoch:
            return f"leader epoch {header.partition_leader_epoch} at offset {header.base_offset} follows epoch {epoch}"
        expected, epoch = header.next_offset, header.partition_leader_epoch
    return None


def epoch_entries_of(disk: DiskLogs, log: ReplicaLog) -> list[tuple[int, int]]:
    """Leader epochs and start offsets in the replica's `leader-epoch-checkpoint`."""
    inode = disk.disk.inode(f"{log.directory}/{LEADER_EPOCHS}")
    if inode is None:
        return []
    try:
        lines = checkpoint_lines(bytes(inode.content), LEADER_EPOCHS)
    except CorruptFile:
        return []
    return [(int(epoch), int(offset)) for epoch, offset in lines]
