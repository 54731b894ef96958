"""Moves of replicas between the log directories of a broker; judged from the disks."""

from klamm.log.names import DirectoryKind
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.invariants.rest import RestingCluster
from klamm.sim.cluster_tier.trace import LogReplaced


def copies_are_complete(history: TierHistory, event: LogReplaced) -> str | None:
    """A log is replaced by its copy in another log directory only if the copy has the same batches, and no other.

    The copy begins at the log start, of which segments before it may still be there.
    """
    p = event.partition
    if p in history.destroyed:
        return None
    start = event.start if history.may_start_later(p) else 0
    before = [batch for batch in event.before if batch.last_offset >= start]
    after = [batch for batch in event.after if batch.last_offset >= start]
    if before == after:
        return None
    missing, further = set(before) - set(after), set(after) - set(before)
    return (
        f"{p}: node {event.node} replaces its log by a copy that lacks {sorted(missing)[:3]} and also has"
        f" {sorted(further)[:3]}"
    )


def copies_are_on_the_device(history: TierHistory, event: LogReplaced) -> str | None:
    """What a power loss would have left of a log, it leaves of the copy that replaces the log."""
    if event.partition in history.destroyed or event.synced_after >= event.synced_before:
        return None
    return (
        f"{event.partition}: node {event.node} replaces its log, synced up to {event.synced_before}, by a copy that is"
        f" synced up to {event.synced_after}"
    )


def moves_finish(cluster: RestingCluster) -> str | None:
    """No copy of a log is left in another log directory, and no partition has two logs on one broker."""
    for broker, disk in cluster.tier.disks.items():
        for path, _ in disk.directories(DirectoryKind.FUTURE):
            return f"broker {broker} still has the copy {path}"
        paths: dict[object, str] = {}
        for path, found in disk.directories(DirectoryKind.LIVE):
            if (other := paths.setdefault(found.partition, path)) != path:
                return f"broker {broker} has {found.partition} in {other} and in {path}"
    return None


def replicas_are_where_they_were_moved(cluster: RestingCluster) -> str | None:
    """A replica is in the log directory that was chosen for it last, on brokers whose disks had no faults."""
    history = cluster.tier
    for (broker, p), directory in history.moves.items():
        log = history.disks[broker].of(p)
        if not directory or log is None or broker in history.failed_disks:
            continue
        if not log.directory.startswith(f"{directory}/"):
            return f"{p}: broker {broker} has its log in {log.directory}; {directory} was chosen"
    return None
