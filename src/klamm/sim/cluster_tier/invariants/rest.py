"""Invariants of a healed cluster at rest: nothing is lost, replicas are equal, no work is stuck."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.logs import epoch_entries_of, problem_of
from klamm.sim.cluster_tier.logs_on_disk import BatchIdentity, ReplicaLog
from klamm.sim.zookeeper.tree import Tree
from klamm.zk.znodes import BROKER_IDS, CONTROLLER, DELETE_TOPICS, REASSIGN_PARTITIONS, broker_id_of, decode_controller


class FinalRead:
    """All that a consumer read of a partition after everything came to rest."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.control: frozenset[int] = frozenset()
        """Offsets of markers of transactions."""
        self.committed: list[tuple[int, bytes]] = []
        """What a consumer of committed data gets: data without that of aborted transactions."""
        self.log_start = 0
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.is_damaged = False
        """A batch of it does not match its CRC."""
        self.timestamps: list[int] = []
        """Of `records`, in ms."""
        self.offsets_by_time: dict[int, int] = {}
        """What the leader answers for a time: the first offset at or after it, -1 for none."""
        self.at_s = 0.0
        """When it was read."""
        self.error = ""
        """Why it could not be read, or not written to."""
        self.fenced: dict[str, ErrorCode] = {}
        """What the leader answers to an older and to a newer leader epoch."""


class RestingCluster(Protocol):
    """What invariants look at."""

    tier: TierHistory

    @property
    def final_reads(self) -> Mapping[TopicPartition, FinalRead]:
        """What was read of each partition at the end of the run."""
        ...

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """By group: the topic that its members read."""
        ...

    @property
    def copied_offsets(self) -> Mapping[tuple[str, TopicPartition], int]:
        """By copier and source: the offset that is committed in the end."""
        ...

    @property
    def unread_groups(self) -> Mapping[str, str]:
        """Groups whose committed offsets could not be read, and why."""
        ...

    @property
    def tree(self) -> Tree:
        """The znodes that ZooKeeper has committed."""
        ...

    @property
    def mistakes(self) -> Sequence[str]:
        """Unexpected errors in the logs of the nodes."""
        ...


def every_partition_is_led(cluster: RestingCluster) -> str | None:
    """Every partition has a leader to which a record can be written with acks=all and read again."""
    for p, read in cluster.final_reads.items():
        if (
            read.error
            and not (read.is_damaged and p in cluster.tier.destroyed)
            and not _is_stuck_behind_damage(cluster, p)
        ):
            return f"{p}: {cluster.tier.state(p)}: {read.error}"
    return None


def isrs_are_whole(cluster: RestingCluster) -> str | None:
    """The ISR of every partition contains all replicas."""
    for p, versions in cluster.tier.zookeeper.states.versions.items():
        replicas = cluster.tier.zookeeper.topics.replicas(p)
        if set(versions[-1].isr) != set(replicas) and not _is_stuck_behind_damage(cluster, p):
            return f"{p}: ISR {versions[-1].isr} of replicas {replicas}: {versions[-1]}"
    return None


def _is_stuck_behind_damage(cluster: RestingCluster, p: TopicPartition) -> bool:
    """Whether a bit flipped in the leader's log, or in the leader epoch of a follower's batch, which no CRC covers.

    Followers refuse such a batch of the leader for ever, and the leader refuses fetches in such an epoch, in Kafka as
    well.
    """
    state = cluster.tier.state(p)
    if p not in cluster.tier.destroyed or state is None or not state.has_leader:
        return False
    logs = [log for b in cluster.tier.zookeeper.topics.replicas(p) if (log := cluster.tier.disks[b].of(p)) is not None]
    if any(batch.header.partition_leader_epoch > state.leader_epoch for log in logs for batch in log.batches()):
        return True
    own_log = cluster.tier.disks[state.leader].of(p)
    return own_log is not None and problem_of(own_log) is not None


def one_controller_is_registered(cluster: RestingCluster) -> str | None:
    """`/controller` names a registered broker: the one that won the newest election."""
    node, controllers = cluster.tree.get(CONTROLLER), cluster.tier.zookeeper.controllers
    found = decode_controller(node.data) if node is not None else None
    if found is None:
        return f"no {CONTROLLER}"
    winner, _ = controllers.winners.get(controllers.epoch, (None, 0))
    if found.broker != winner or found.broker not in _registered(cluster):
        return f"{CONTROLLER} names {found.broker}; {winner} won epoch {controllers.epoch}"
    return None


def every_node_is_registered(cluster: RestingCluster) -> str | None:
    """Every node is registered, also one that has no replica."""
    missing = sorted(cluster.tier.disks.keys() - _registered(cluster))
    return f"not registered: {missing}" if missing else None


def _registered(cluster: RestingCluster) -> set[int | None]:
    """The ids of the registered brokers."""
    node = cluster.tree.get(BROKER_IDS)
    return {broker_id_of(child) for child in node.children} if node is not None else set()


def nothing_is_pending(cluster: RestingCluster) -> str | None:
    """No topic deletion and no reassignment is in progress."""
    for path in (DELETE_TOPICS, REASSIGN_PARTITIONS):
        node = cluster.tree.get(path)
        if path == DELETE_TOPICS and node is not None and node.children:
            return f"{path} still has {sorted(node.children)}"
        if path == REASSIGN_PARTITIONS and node is not None:
            return f"{path} is still there"
    for name, znode in cluster.tier.zookeeper.topics.znodes.items():
        for number, assignment in znode.partitions.items():
            is_moving = assignment.adding or assignment.removing
            if is_moving and not _is_stuck_behind_damage(cluster, TopicPartition(name, number)):
                return f"{name}-{number} still moves: {assignment}"
    return None


def acknowledged_records_are_read(cluster: RestingCluster) -> str | None:
    """Every record that was acknowledged with acks=all, or read by a consumer, can be read at the end of the run."""
    history = cluster.tier
    for p, read in cluster.final_reads.items():
        if read.error:
            continue  # `every_partition_is_led` judges that
        end, found = history.promised_end(p), dict(read.records)
        start = read.log_start if history.may_start_later(p) else 0
        values = {value: offset for offset, value in read.records}
        for value, offset in history.acknowledged.get(p, {}).items():
            if value in values:
                continue
            if offset < 0 and (start or not history.is_promised(p) or not history.is_untouched(p)):
                continue  # it is not known where it was
            if start <= offset < end or offset < 0:
                return f"{p}: {value!r}, acknowledged at {offset}, is lost; the log ends at {read.high_watermark}"
            history.lost += start <= offset
        for offset, value in history.promised(p):
            if offset >= start and found.get(offset) != value:
                return f"{p}: {value!r} was at {offset}; now {found.get(offset)!r} is"
    return None


def groups_have_a_coordinator(cluster: RestingCluster) -> str | None:
    """The committed offsets of every group can be read, where `__consumer_offsets` is undamaged."""
    if OFFSETS_TOPIC in cluster.tier.destroyed:
        return None
    return next((f"group {group}: {why}" for group, why in cluster.unread_groups.items()), None)


def idempotent_records_are_there_once(cluster: RestingCluster) -> str | None:
    """Every record of an idempotent producer is in the log at most once."""
    history = cluster.tier
    for p, read in cluster.final_reads.items():
        if not history.is_promised(p) or not history.is_untouched(p):
            continue
        times = Counter(value for _, value in read.records)
        for value, count in times.items():
            if count > 1 and (send := history.sends.get(value)) is not None and send.is_idempotent:
                where = [offset for offset, found in read.records if found == value]
                return f"{p}: {value!r} of {send.producer} is there {count} times, at {where}"
    return None


def every_replica_has_a_log(cluster: RestingCluster) -> str | None:
    """Every replica has a log: from offset 0 on, where nothing may be deleted, and up to the high watermark."""
    history = cluster.tier
    for p, read in cluster.final_reads.items():
        if read.error or p in history.destroyed:
            continue
        for broker in history.zookeeper.topics.replicas(p):
            log = history.disks[broker].of(p)
            if log is None:
                return f"{p}: replica {broker} has no log"
            if log.end < read.high_watermark or (log.start and not history.may_start_later(p)):
                return f"{p}: the log of replica {broker} is {log.start} to {log.end}, of {read.high_watermark} records"
    return None


def replicas_are_identical(cluster: RestingCluster) -> str | None:
    """Below the high watermark, all replicas have the same batches with the same leader epochs, unless compacted."""
    for p, logs in _replicas(cluster):
        if p in cluster.tier.destroyed or cluster.tier.is_compacted(p) or not logs:
            continue
        end = min(log.end for log in logs.values())
        start = max(log.start for log in logs.values())
        contents = {broker: _identities(log, start, end) for broker, log in logs.items()}
        first, *others = contents.items()
        for broker, content in others:
            for one, other in zip(first[1], content, strict=False):
                if one != other:
                    return f"{p}: replica {first[0]} has batch {tuple(one)}, replica {broker} has {tuple(other)}"
            if len(content) != len(first[1]):
                return f"{p}: replicas {first[0]} and {broker} have {len(first[1])} and {len(content)} batches"
    return None


def _identities(log: ReplicaLog, start: int, end: int) -> list[BatchIdentity]:
    """The batches between two offsets."""
    return [batch for batch in log.identities() if batch.base_offset >= start and batch.last_offset < end]


def logs_are_whole(cluster: RestingCluster) -> str | None:
    """Every log can be read completely, without gaps and with rising leader epochs."""
    for p, logs in _replicas(cluster):
        for broker, log in logs.items():
            if p not in cluster.tier.destroyed and (wrong := problem_of(log, has_gaps=cluster.tier.is_compacted(p))):
                return f"{p}: replica {broker}: {wrong}"
    return None


def epoch_files_agree_with_batches(cluster: RestingCluster) -> str | None:
    """`leader-epoch-checkpoint` has rising epochs, each with the offset of its first record, unless compacted."""
    for p, logs in _replicas(cluster):
        if cluster.tier.is_compacted(p):
            continue
        start = max((log.start for log in logs.values()), default=0)  # a replica removes its segments later than others
        start = max(start, cluster.tier.deleted_before.get(p, 0))  # after a crash a leader may have these records again
        if p in cluster.final_reads:
            start = max(start, cluster.final_reads[p].log_start)
        for broker, log in logs.items():
            if p not in cluster.tier.destroyed and (wrong := _wrong_epochs(cluster, broker, log, start)):
                return f"{p}: replica {broker}: {wrong}"
    return None


def _wrong_epochs(cluster: RestingCluster, broker: int, log: ReplicaLog, log_start: int) -> str | None:
    """What is wrong in the replica's `leader-epoch-checkpoint`; None if it agrees with the batches.

    The epochs of batches before the log start are gone at once, their segments at the next run of retention.
    """
    entries = epoch_entries_of(cluster.tier.disks[broker], log)
    for (epoch, offset), (next_epoch, next_offset) in pairwise(entries):
        if next_epoch <= epoch or next_offset <= offset:
            return f"epoch {next_epoch} from {next_offset} follows epoch {epoch} from {offset}"
    starts = dict(entries)
    seen: set[int] = set()
    for batch in log.batches():
        if batch.header.next_offset <= log_start:
            continue
        epoch, offset = batch.header.partition_leader_epoch, batch.header.base_offset
        if epoch not in seen and starts.get(epoch, -1) != offset and (seen or epoch not in starts):
            return f"epoch {epoch} begins at {offset}, the file says {starts.get(epoch)}: {entries}"
        last = batch.header.last_offset
        if (of_file := max((e for e, o in entries if o <= last), default=-1)) != epoch:
            return f"offset {last} has epoch {epoch}, by the file {of_file}: {entries}"
        seen.add(epoch)
    if entries and entries[-1][1] > log.end:
        return f"the log ends at {log.end}, the file has an epoch after it: {entries}"
    return None


def offsets_by_time_are_right(cluster: RestingCluster) -> str | None:
    """ListOffsets finds the first record with a timestamp at or after the requested one, if there is any."""
    for p, read in cluster.final_reads.items():
        if read.error or p in cluster.tier.destroyed:
            continue
        times = [(offset, at_ms) for (offset, _), at_ms in zip(read.records, read.timestamps, strict=True)]
        for wanted_ms, found in read.offsets_by_time.items():
            expected = next((offset for offset, at_ms in times if at_ms >= wanted_ms), -1)
            if found != expected and not (expected < 0 and found >= read.high_watermark):
                return f"{p}: the first record at or after {wanted_ms} is at {expected}; ListOffsets answers {found}"
    return None


def leader_epochs_are_fenced(cluster: RestingCluster) -> str | None:
    """A Fetch with an older leader epoch gets FENCED_LEADER_EPOCH, with a newer one UNKNOWN_LEADER_EPOCH."""
    expected = {"older": ErrorCode.FENCED_LEADER_EPOCH, "newer": ErrorCode.UNKNOWN_LEADER_EPOCH}
    for p, read in cluster.final_reads.items():
        for which, error in read.fenced.items():
            if error is not expected[which]:
                return f"{p}: a Fetch in an {which} leader epoch is answered {error.name}"
    return None


def only_assigned_replicas_have_logs(cluster: RestingCluster) -> str | None:
    """A broker has logs only of the partitions that are assigned to it, with the topic's id.

    Where topics have no ids, a reassignment leaves the log of a broker that was away, as in Kafka, also when the topic
    is deleted afterwards: only its last replicas are asked to delete.
    """
    topics = cluster.tier.zookeeper.topics
    with_ids = set(topics.ids.values())
    for broker, disk in cluster.tier.disks.items():
        for p in disk.partitions():
            has_no_id = topics.id_of(p.topic) is None if p.topic in topics.znodes else p.topic not in with_ids
            if broker not in topics.replicas(p) and not has_no_id:
                return f"broker {broker} has a log of {p}, whose replicas are {topics.replicas(p)}"
    return None


def no_mistakes(cluster: RestingCluster) -> str | None:
    """No node logs an unexpected error."""
    return cluster.mistakes[0] if cluster.mistakes else None


def _replicas(cluster: RestingCluster) -> Iterator[tuple[TopicPartition, dict[int, ReplicaLog]]]:
    """The logs of each partition's replicas."""
    for p in cluster.tier.zookeeper.states.versions:
        logs = {b: cluster.tier.disks[b].of(p) for b in cluster.tier.zookeeper.topics.replicas(p)}
        yield p, {b: log for b, log in logs.items() if log is not None}
