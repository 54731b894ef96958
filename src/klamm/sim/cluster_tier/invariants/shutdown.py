"""What a node leaves on its disks when it was stopped in order: the next start takes it as it is, and checks nothing.

Partitions with a flipped bit are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from klamm.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, parse_offsets
from klamm.log.errors import CorruptFile
from klamm.log.meta_properties import CLEAN_SHUTDOWN
from klamm.log.names import LOG, SNAPSHOT, DirectoryKind, segment_file
from klamm.log.snapshots import parse_snapshot
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs, ReplicaLog


class NodeStopped(NamedTuple):
    """How a node ended that was stopped after the last read."""

    took_s: float
    error: str
    """What its stop raised, or that it did not end; empty where it ended."""
    directories: tuple[str, ...]
    """The log directories that it used."""


class StoppedCluster(Protocol):
    """What invariants look at."""

    tier: TierHistory

    @property
    def stops(self) -> Mapping[int, NodeStopped]:
        """By broker: how it ended."""
        ...

    @property
    def final_reads(self) -> Mapping[TopicPartition, FinalRead]:
        """What was read of each partition at the end of the run."""
        ...


_MAX_STOP_S = 5.0
"""Connections are drained, and everything is written and synced; nothing is left to wait for."""


def nodes_stop_in_time(cluster: StoppedCluster) -> str | None:
    """A node that is stopped ends soon, without an error."""
    for broker, stopped in cluster.stops.items():
        if stopped.error:
            return f"node {broker} was stopped: {stopped.error}"
        if stopped.took_s > _MAX_STOP_S:
            return f"node {broker} was stopped, and ended after {stopped.took_s:.3f} s"
    return None


def directories_are_marked_clean(cluster: StoppedCluster) -> str | None:
    """Each log directory in use has the marker of a clean shutdown."""
    for broker, stopped in cluster.stops.items():
        disk = cluster.tier.disks[broker].disk
        for directory in stopped.directories:
            if not disk.inode_exists(f"{directory}/{CLEAN_SHUTDOWN}"):
                return f"node {broker} was stopped in order; {directory} has no {CLEAN_SHUTDOWN}"
    return None


def stopped_logs_are_on_the_device(cluster: StoppedCluster) -> str | None:
    """A power loss after the stop takes no record."""
    for broker, stopped in cluster.stops.items():
        disk = cluster.tier.disks[broker].disk
        for path, p in _logs(cluster.tier.disks[broker], stopped):
            for name in disk.children(path):
                inode = disk.inode(f"{path}/{name}")
                if p in cluster.tier.destroyed or not name.endswith(LOG) or inode is None or not inode.content:
                    continue  # the name of an empty file may be lost
                if not disk.is_on_device(f"{path}/{name}"):
                    return f"node {broker} was stopped in order; {path}/{name} is not on the device"
    return None


def recovery_points_are_log_ends(cluster: StoppedCluster) -> str | None:
    """The recovery point of each log is its end: nothing is recovered at the next start."""

    def expected(p: TopicPartition, log: ReplicaLog, found: int | None) -> str | None:
        """Why the recovery point is wrong."""
        return None if found == log.end else f"the recovery point is {found}, its end {log.end}"

    return _judge_checkpoints(cluster, RECOVERY_POINTS, expected)


def high_watermarks_are_stored(cluster: StoppedCluster) -> str | None:
    """The high watermark of each replica is stored: what consumers were told, which lies within its log."""

    def expected(p: TopicPartition, log: ReplicaLog, found: int | None) -> str | None:
        """Why the high watermark is wrong."""
        read = cluster.final_reads.get(p)
        least = 0 if read is None or read.error else read.high_watermark
        if found is not None and least <= found <= log.end:
            return None
        return f"the stored high watermark is {found}; consumers were told {least}, the log ends at {log.end}"

    return _judge_checkpoints(cluster, HIGH_WATERMARKS, expected)


def log_starts_are_stored(cluster: StoppedCluster) -> str | None:
    """A log start after the beginning of the first segment is stored, as consumers were told it."""

    def expected(p: TopicPartition, log: ReplicaLog, found: int | None) -> str | None:
        """Why the log start is wrong."""
        read = cluster.final_reads.get(p)
        if read is None or read.error or p in cluster.tier.exposed:
            return None
        start = log.start if found is None else found
        return (
            None
            if start >= read.log_start
            else f"the stored log start is {found}, consumers were told {read.log_start}"
        )

    return _judge_checkpoints(cluster, LOG_STARTS, expected)


def producers_are_stored(cluster: StoppedCluster) -> str | None:
    """The newest snapshot of a log is at its end, and has the last sequence of each producer with records in it."""
    for broker, stopped in cluster.stops.items():
        disk = cluster.tier.disks[broker]
        for path, p in _logs(disk, stopped):
            log = disk.read(path)
            if p in cluster.tier.destroyed or cluster.tier.is_compacted(p) or p.topic.startswith("__"):
                continue
            last = {h.producer_id: h for b in log.batches() if (h := b.header).has_producer and not h.is_control}
            if not last:
                continue
            inode = disk.disk.inode(f"{path}/{segment_file(log.end, SNAPSHOT)}")
            if inode is None:
                return f"node {broker} was stopped in order; {path} has no snapshot of producers at its end, {log.end}"
            stored = {found.producer_id: found for found in parse_snapshot(bytes(inode.content), path)}
            for producer_id, header in last.items():
                known = stored.get(producer_id)
                if known is None or (
                    known.epoch == header.producer_epoch and known.last_sequence != header.last_sequence
                ):
                    return f"node {broker}: the snapshot in {path} says of producer {producer_id}: {known}; {header}"
    return None


def _judge_checkpoints(
    cluster: StoppedCluster, name: str, wrong: Callable[[TopicPartition, ReplicaLog, int | None], str | None]
) -> str | None:
    """What is wrong in a checkpoint of some log directory; None where it agrees with the logs in it."""
    for broker, stopped in cluster.stops.items():
        disk = cluster.tier.disks[broker]
        offsets = {directory: _offsets(disk, directory, name) for directory in stopped.directories}
        for path, p in _logs(disk, stopped):
            found = offsets[path.rpartition("/")[0]].get(p)
            if p not in cluster.tier.destroyed and (why := wrong(p, disk.read(path), found)):
                return f"node {broker} was stopped in order; {path}: {why}"
    return None


def _offsets(disk: DiskLogs, directory: str, name: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint of a log directory; none where it cannot be read."""
    inode = disk.disk.inode(f"{directory}/{name}")
    try:
        return parse_offsets(bytes(inode.content), name) if inode is not None else {}
    except CorruptFile:
        return {}


def _logs(disk: DiskLogs, stopped: NodeStopped) -> Iterator[tuple[str, TopicPartition]]:
    """Path and partition of each log in the directories that the node used."""
    for path, found in disk.directories(DirectoryKind.LIVE):
        if path.rpartition("/")[0] in stopped.directories:
            yield path, found.partition
