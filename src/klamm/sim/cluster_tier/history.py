"""What clients and disks told so far, as invariants may know it. An invariant sees it as it was before its event."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.cluster_tier.keyed_records import key_of
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    Assigned,
    CommitEnded,
    MemberGone,
    Polled,
    PositionLost,
    PowerLost,
    ProducerStarted,
    RecordsDeleted,
    Send,
    SendState,
    Transaction,
)
from klamm.sim.history.history import History
from klamm.sim.world import SimulatedClock

ACKS_ALL: Final = -1
_NEVER: Final = float("inf")
_MAX_REBALANCE_S: Final = 10.0
"""Between the first and the last member that gets its partitions in a generation."""


class TopicFacts(NamedTuple):
    """What an operator configured."""

    replication: int
    min_isr: int
    is_synced: bool
    """klamm.sync.before.ack: a record is on the device before it is acknowledged."""
    has_retention: bool
    may_be_unclean: bool = False
    is_gone: bool = False
    """Its deletion was asked for: what becomes of its records has no meaning."""


class Recreation(NamedTuple):
    """A topic is created under the name of one that was deleted."""

    czxid: int
    """Of the earlier topic."""
    asked_s: float
    """When its creation was asked for."""


OFFSETS_TOPIC: Final = TopicPartition("__consumer_offsets", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
"""The partition of the topic with `cleanup.policy=compact`, which only keyed producers write."""
TRANSACTIONS_TOPIC: Final = TopicPartition("__transaction_state", 0)
"""The nodes are configured with one partition of each."""


@dataclass(slots=True)
class GroupCommits:
    """What a client knows of the offsets that it committed for one partition."""

    stored: int = -1
    """The newest that the coordinator said to be stored."""
    generation: int = -1
    """Of the member that committed it."""
    open: set[int] = field(default_factory=set)
    """Those without an answer: any of them may be stored, also after a newer one."""
    deleted: int = -1
    """The offset that the last acknowledged deletion removed; -1 once another was stored."""
    deleted_in: int = -1
    """The leader epoch of `__consumer_offsets` at the answer."""

    def allows(self, offset: int, leader_epoch: int) -> bool:
        """Whether this may be the committed offset: of the last acknowledged commit, or of one without an answer.

        A deleted offset may be back under the next leader: as in Kafka no replica is waited for before the answer.
        """
        is_back = 0 <= self.deleted == offset and leader_epoch != self.deleted_in
        return offset == self.stored or offset in self.open or is_back

    def delete(self, leader_epoch: int) -> None:
        """Record that the coordinator said that it has deleted the offset."""
        if self.stored >= 0:
            self.deleted = self.stored
        self.stored, self.deleted_in = -1, leader_epoch


@dataclass(slots=True)
class TierHistory:
    zookeeper: History
    disks: Mapping[int, DiskLogs]
    topics: dict[str, TopicFacts] = field(default_factory=dict)
    sends: dict[bytes, Send] = field(default_factory=dict)
    """By each of their values."""
    committed: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    """The value at each offset that a client has reason to rely on: acknowledged with acks=all, or read."""
    acknowledged: dict[TopicPartition, dict[bytes, int]] = field(default_factory=dict)
    """The values acknowledged with acks=all, and their offsets; -1 where the answer did not tell."""
    last_offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """Of each producer: the offset of the batch that was acknowledged last."""
    positions: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """Of each consumer: the offset after the last record."""
    high_watermarks: dict[tuple[str, TopicPartition, int, int, int], int] = field(default_factory=dict)
    """What a process of a leader last told a consumer in a leader epoch."""
    runs: dict[BrokerId, int] = field(default_factory=dict)
    """How often each node was started."""
    exposed: dict[TopicPartition, int] = field(default_factory=dict)
    """From this offset on a device lost what some replica had: no promise without a sync covers it."""
    destroyed: dict[TopicPartition, int] = field(default_factory=dict)
    """From this offset on a device destroyed what some replica had synced."""
    commits: dict[tuple[str, TopicPartition], GroupCommits] = field(default_factory=dict)
    """By group and partition."""
    transactions: list[Transaction] = field(default_factory=list)
    """In the order in which their first records were sent."""
    newest_producers: dict[str, ProducerStarted] = field(default_factory=dict)
    """By transactional id."""
    generations: dict[str, dict[int, list[Assigned]]] = field(default_factory=dict)
    """By group and generation: what its members were assigned."""
    gone_members: set[tuple[str, str]] = field(default_factory=set)
    """Group and member id of those that read nothing any more."""
    lost: int = 0
    """Records that a power loss took, as no promise forbids."""
    newest_of_key: dict[bytes, bytes] = field(default_factory=dict)
    """By key of the compacted topic: the name of the record that was sent last."""
    compacted_isrs: list[tuple[float, tuple[BrokerId, ...]]] = field(default_factory=list)
    """When the compacted partition had which ISR from then on, in order."""
    moves: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    """By node and partition: the log directory that an operator chose last; empty where it is not known."""
    is_throttled: bool = False
    """Whether an operator limited how fast replicas are copied."""
    logs_replaced: int = 0
    """How often a log was replaced by its copy in another log directory."""
    deleted_before: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest offset before which an operator asked to delete records, whether the request was answered or not."""
    deletions: dict[TopicPartition, RecordsDeleted] = field(default_factory=dict)
    """The acknowledged deletion of records with the highest offset."""
    recreations: dict[str, Recreation] = field(default_factory=dict)
    """By name: topics that operators wanted to create again. `revive_topics` tells which of them there are."""
    failed_disks: set[int] = field(default_factory=set)
    """The nodes whose devices refused a call."""
    delete_retention_s: float = _NEVER
    """delete.retention.ms of the compacted topic."""
    compaction_lag_s: float = 0.0
    """min.compaction.lag.ms of the compacted topic."""
    clocks: Mapping[str, SimulatedClock] = field(default_factory=dict)
    """The clocks of all machines."""
    tables_read: int = 0
    """How often a client read the compacted topic to its end."""
    removed_by_compaction: int = 0
    """Acknowledged records of the compacted topic that the log cleaner removed."""
    read_from_followers: int = 0
    """Records that followers served to consumers."""
    sound_since_s: float = _NEVER
    """From when on nothing disturbs the cluster, and answers are timed."""
    changed_s: dict[TopicPartition, float] = field(default_factory=dict)
    """When the leader, leader epoch or ISR of each partition was written last."""

    # ---- what is promised

    def is_promised(self, p: TopicPartition) -> bool:
        """Whether committed records of the partition must survive faults of processes and networks."""
        facts = self.topics.get(p.topic)
        return facts is not None and not facts.is_gone and not facts.may_be_unclean

    def promised_end(self, p: TopicPartition) -> float:
        """The first offset of the partition whose record may be lost by the faults injected so far."""
        if not self.is_promised(p):
            return 0
        end = self.destroyed.get(p, _NEVER)
        return end if self.topics[p.topic].is_synced else min(end, self.exposed.get(p, _NEVER))

    def promised(self, p: TopicPartition) -> Iterator[tuple[int, bytes]]:
        """Offset and value of each record that must not be lost."""
        end = self.promised_end(p)
        for offset, value in self.committed.get(p, {}).items():
            if offset < end:
                yield offset, value

    def state(self, p: TopicPartition) -> LeaderAndIsr | None:
        """Return the newest leader and ISR of the partition in ZooKeeper; None where it has none."""
        return self.zookeeper.states.newest(p)

    def isr(self, p: TopicPartition) -> tuple[BrokerId, ...]:
        """Return the newest ISR of the partition in ZooKeeper; empty where it has none."""
        state = self.state(p)
        return state.isr if state is not None else ()

    # ---- what happens

    def on_send(self, send: Send) -> None:
        """Record which send has each value."""
        for value in send.values:
            self.sends[value] = send
            if send.partition == COMPACTED:
                self.newest_of_key[key_of(value)] = value
        if send.transaction is not None and send.transaction.sends == [send]:
            self.transactions.append(send.transaction)

    def on_acknowledged(self, event: Acknowledged) -> None:
        """Record the values and offsets of an acknowledged send; with acks=all they count as committed."""
        send = event.send
        if send.offset >= 0:
            self.last_offsets[send.producer, send.partition] = send.offset
        if send.acks != ACKS_ALL:
            return
        for index, value in enumerate(send.values):
            at = send.offset + index if send.offset >= 0 else -1
            self.acknowledged.setdefault(send.partition, {})[value] = at
            if at >= 0:
                self.committed.setdefault(send.partition, {})[at] = value

    def on_records_deleted(self, event: RecordsDeleted) -> None:
        """Record that the records before an offset are deleted, by the processes that run now."""
        known = self.deletions.get(event.partition)
        if known is None or known.offset < event.offset:
            self.deletions[event.partition] = event

    def on_move(self, node: int, p: TopicPartition, directory: str, *, is_accepted: bool) -> None:
        """Record the log directory that an operator chose for a replica; not known where the answer is missing."""
        was = self.moves.get((node, p), directory)
        facts = self.topics.get(p.topic)
        is_known = is_accepted and bool(was) and not (facts is not None and facts.is_gone)
        self.moves[node, p] = directory if is_known else ""

    def forget_moves(self, p: TopicPartition) -> None:
        """Forget the chosen log directories of a partition whose replicas change."""
        for key in [key for key in self.moves if key[1] == p]:
            self.moves[key] = ""

    def on_isr(self, p: TopicPartition, isr: tuple[BrokerId, ...], at_s: float) -> None:
        """Record when the state of a partition was written, and the ISR of the compacted partition."""
        self.changed_s[p] = at_s
        if p == COMPACTED:
            self.compacted_isrs.append((at_s, isr))

    def on_polled(self, event: Polled) -> None:
        """Record the records that a consumer read as committed, its position and the high watermark it got."""
        committed = self.committed.setdefault(event.partition, {})
        committed.update(event.records)
        self.positions[event.consumer, event.partition] = event.records[-1][0] + 1 if event.records else event.position
        if event.follower is not None:
            self.read_from_followers += len(event.records)
        else:
            self.high_watermarks[self.key_of_high_watermark(event)] = event.high_watermark

    def key_of_high_watermark(self, event: Polled) -> tuple[str, TopicPartition, int, int, int]:
        """Consumer, partition, leader, leader epoch, and the run of the leader's process."""
        run = self.runs.get(BrokerId(event.leader), 0)
        return event.consumer, event.partition, event.leader, event.leader_epoch, run

    def on_started(self, node: BrokerId) -> None:
        """Count a start of the node's process."""
        self.runs[node] = self.runs.get(node, 0) + 1

    def on_commit_ended(self, event: CommitEnded) -> None:
        """Record the offset of a group's commit, as stored or, where the answer is missing, as possibly stored."""
        known = self.commits.setdefault((event.group, event.partition), GroupCommits())
        if event.is_stored and event.offset < 0:
            known.delete(self.offsets_epoch)
        elif event.is_stored:
            if event.generation >= known.generation:  # else the answer is late: the next owner has committed since
                known.stored, known.generation, known.deleted = event.offset, event.generation, -1
        else:
            known.open.add(event.offset)

    @property
    def offsets_epoch(self) -> int:
        """The leader epoch of `__consumer_offsets`; -1 before it is there."""
        state = self.state(OFFSETS_TOPIC)
        return state.leader_epoch if state is not None else -1

    def on_assigned(self, event: Assigned) -> None:
        """Note what a member of a group was assigned in a generation."""
        self.generations.setdefault(event.group, {}).setdefault(event.generation, []).append(event)

    def has_other_members(self, assigned: Assigned) -> bool:
        """Whether another member got its partitions in the same generation, and is still there.

        After a power loss a coordinator may count generations from less: one of that number may have been before.
        """
        same = self.generations[assigned.group][assigned.generation]
        members = {a.member for a in same if a.at_s > assigned.at_s - _MAX_REBALANCE_S} - {assigned.member}
        return any((assigned.group, member) not in self.gone_members for member in members)

    def on_member_gone(self, event: MemberGone) -> None:
        """Note that a member reads nothing any more."""
        self.gone_members.add((event.group, event.member))

    def on_producer_started(self, event: ProducerStarted) -> None:
        """Record which epoch of the transactional id fences the lower ones, and from when on."""
        newest = self.newest_producers.get(event.transactional_id)
        if newest is None or newest.epoch < event.epoch:
            self.newest_producers[event.transactional_id] = event

    def on_position_lost(self, event: PositionLost) -> None:
        """Forget the consumer's position in the partition."""
        self.positions.pop((event.consumer, event.partition), None)

    def on_power_lost(self, event: PowerLost) -> None:
        """Record from which offset of each partition the power loss may have lost records, and moves of logs."""
        for key in [key for key in self.moves if key[0] == event.node]:
            self.moves[key] = ""
        for p, start in event.changed.items():
            self.exposed[p] = min(self.exposed.get(p, start), start)

    def on_destroyed(self, p: TopicPartition, offset: int) -> None:
        """Record that an in-sync replica lost its records from this offset on, synced or not."""
        self.destroyed[p] = min(self.destroyed.get(p, offset), offset)

    def count_removed(self, p: TopicPartition, records: Iterable[tuple[int, bytes]]) -> int:
        """How many acknowledged values of the partition are not among these records."""
        return len(self.acknowledged.get(p, {}).keys() - {value for _, value in records})

    def is_compacted(self, p: TopicPartition) -> bool:
        """Whether the log cleaner may remove records of the partition: offsets have gaps, and replicas differ."""
        return p == COMPACTED

    @property
    def clocks_are_right(self) -> bool:
        """Whether no machine ever had a wrong clock, so that what depends on time happens in time."""
        return not any(clock.was_shifted for clock in self.clocks.values())

    def may_start_later(self, p: TopicPartition) -> bool:
        """Whether retention or an operator may have deleted the first records of the partition."""
        facts = self.topics.get(p.topic)
        return p in self.deleted_before or (facts is not None and (facts.has_retention or facts.is_gone))

    def may_lack_batches_before(self, send: Send) -> bool:
        """Whether all that the producer of a transactional batch wrote to the partition before it may be deleted.

        That is so where its last batch lies below the log start that DeleteRecords or retention may have set.
        """
        sent = [s for t in self.transactions for s in t.sends if s.partition == send.partition and s is not send]
        before = [s.offset + len(s.values) for s in sent if s.producer == send.producer and s.offset >= 0]
        return bool(before) and send.transaction is not None and max(before) <= self._highest_log_start(send.partition)

    def _highest_log_start(self, p: TopicPartition) -> int:
        """The highest offset before which an operator asked to delete records, or a replica did so by retention."""
        facts = self.topics.get(p.topic)
        logs = [log for disk in self.disks.values() if (log := disk.of(p)) is not None]
        expired = [log.start for log in logs if facts is not None and facts.has_retention]
        return max([self.deleted_before.get(p, 0), *expired])

    def is_untouched(self, p: TopicPartition) -> bool:
        """Whether no device has lost or changed data of the partition."""
        return p not in self.exposed and p not in self.destroyed

    def forget_topics(self, names: Sequence[str]) -> None:
        """Forget what was acknowledged or read of these topics, because they are being deleted."""
        for name in names:
            if name in self.topics:
                self.topics[name] = self.topics[name]._replace(is_gone=True)
        for p in {p for _, p in self.moves if p.topic in names}:
            self.forget_moves(p)

    def revive_topics(self) -> None:
        """From now on take topics that were created again for new ones, to which clients write, and which are judged.

        Nobody may send anything to an earlier topic of the name any more: what was acknowledged there is forgotten.
        """
        for name, recreation in self.recreations.items():
            znode = self.zookeeper.topics.znodes.get(name)
            if znode is None or znode.czxid <= recreation.czxid:
                continue  # the earlier one was not deleted, or no new one was created
            self.topics[name] = TopicFacts(len(znode.partitions[0].replicas), 1, is_synced=False, has_retention=False)
            for p in [p for p in (*self.committed, *self.acknowledged, *self.deleted_before) if p.topic == name]:
                for known in (self.committed, self.acknowledged, self.deletions, self.deleted_before):
                    known.pop(p, None)
            self.last_offsets = {key: at for key, at in self.last_offsets.items() if key[1].topic != name}
            self.high_watermarks = {key: at for key, at in self.high_watermarks.items() if key[1].topic != name}


def records_told(event: Acknowledged | Polled) -> list[tuple[int, bytes]]:
    """Offset and value of the records that an acknowledgement or a poll shows to be committed."""
    if isinstance(event, Polled):
        return list(event.records)
    send = event.send
    if send.acks != ACKS_ALL or send.offset < 0:
        return []
    return [(send.offset + n, value) for n, value in enumerate(send.values)]


def was_refused(send: Send) -> bool:
    """Whether the brokers refused the send."""
    return send.state is SendState.REFUSED
