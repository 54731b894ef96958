"""The memory of the active controller: topics, partitions, replicas, brokers, and indexes over them.

The indexes make the cost of an event depend on what changed, not on how many partitions exist. Only handlers write
here, after ZooKeeper accepted the change. Partitions are compared by identity. Dicts serve as ordered sets, so that two
runs iterate in the same order. Source: ControllerContext.scala (3.9).
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from klamm.controller.states import PartitionState, ReplicaState, can_all_move, can_move, can_move_replica
from klamm.controller.topic import Partition, Topic
from klamm.model.assignment import ReplicaAssignment, assignment_of
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId, shared_ids
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.store import Unreadable

_DELETION_STATES = frozenset(
    (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE)
)
"""The replica states that only topic deletion enters."""

Partitions = dict[Partition, None]  # an ordered set


class TransitionObserver(Protocol):
    """Is notified of every state that a partition or a replica enters, and when a new term has read the context."""

    def on_context_read(self, since: int) -> None:
        """The context has brokers, topics and partition states as of the zxid `since` or later; nothing is decided."""

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        """Take note that the state of the partition changed from `before` to `after`: called after each change."""

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        """Take note that the state of the replica changed from `before` to `after`: called after each change."""


class ReplicasInDeletion(NamedTuple):
    """Numbers of replicas of topics queued for deletion: not yet deleted, and ineligible for deletion."""

    left: int
    ineligible: int


@dataclass(slots=True, eq=False)
class ReplicasPendingDeletion:
    """Replicas that one broker may still hold and has to delete: of a deleted topic, or moved away.

    See `decisions/pending_deletions.py`.
    """

    broker: BrokerId
    topic: str
    topic_id: uuid.UUID
    partitions: dict[int, Partition]
    """By partition number. These are only names for requests, and no longer partitions of the cluster."""
    unanswered: set[int] = field(default_factory=set)
    """The partition numbers whose deletion was sent since the broker registered, and not answered yet."""


@dataclass(slots=True, eq=False)
class ControllerContext:
    """The state of one term."""

    epoch: int
    """The controller epoch won in the election."""
    topics: dict[str, Topic] = field(default_factory=dict)
    registered: dict[BrokerId, Broker] = field(default_factory=dict)
    """Live or shutting down, by id, in order of ids."""
    shutting_down: set[BrokerId] = field(default_factory=set)
    live: frozenset[BrokerId] = frozenset()
    """Registered and not shutting down."""
    leaving: frozenset[BrokerId] = frozenset()
    """Registered and shutting down."""
    leaders_write_isrs: bool = False
    """Whether a registered broker, as leader, writes its ISRs to ZooKeeper: the protocol is being raised."""
    brokers_in_transition: dict[BrokerId, None] = field(default_factory=dict)
    """Brokers that registered or died, and whose handling is not finished."""
    finalized: Mapping[str, int] = field(default_factory=dict)
    """Finalized feature levels; a broker that does not support them is ignored."""
    broker_list_version: int = 0
    """Grows with each change of `registered`."""
    offline_dirs: dict[BrokerId, Partitions] = field(default_factory=dict)
    """Replicas on failed log directories, as their brokers answered."""
    led_by: dict[BrokerId, Partitions] = field(default_factory=dict)
    """Partitions by leader; key -1 has those that lost their leader."""
    in_state: dict[PartitionState, Partitions] = field(
        default_factory=lambda: {PartitionState.NEW: {}, PartitionState.OFFLINE: {}}
    )
    """Partitions in state New or Offline, the two states that need work."""
    replica_states: dict[BrokerId, dict[Partition, ReplicaState]] = field(default_factory=dict)
    """By broker, the states of all replicas assigned to it, NonExistent ones included."""
    unreadable_topics: dict[str, Unreadable] = field(default_factory=dict)
    """Topics whose znode cannot be read. Their replicas are unknown, so nothing under their names may be deleted."""
    topics_to_be_deleted: dict[str, None] = field(default_factory=dict)
    """Queued for deletion, in order of arrival."""
    topics_with_deletion_started: set[str] = field(default_factory=set)
    half_deleted: Partitions = field(default_factory=dict)
    """Queued for deletion and without a state znode when the term began: an earlier controller may have deleted the
    znode, and failed before it notified all brokers."""
    topics_ineligible_for_deletion: dict[str, str] = field(default_factory=dict)
    """Topics whose deletion waits, with the reason."""
    started_deletions: dict[str, int] = field(default_factory=dict)
    """By topic, how many of its replicas are in state ReplicaDeletionStarted."""
    gone_since: dict[BrokerId, float] = field(default_factory=dict)
    """The loop time at which each dead broker was found to be gone."""
    pending_deletions: dict[BrokerId, dict[uuid.UUID, ReplicasPendingDeletion]] = field(default_factory=dict)
    """By broker and topic id, replicas that the broker has to delete and may still hold."""
    pending_by_topic: dict[str, dict[tuple[BrokerId, uuid.UUID], ReplicasPendingDeletion]] = field(default_factory=dict)
    """The same by topic name."""
    records_to_remove: dict[tuple[BrokerId, uuid.UUID], None] = field(default_factory=dict)
    """Records of pending deletions that are finished, and still stored in ZooKeeper."""
    reassigning: Partitions = field(default_factory=dict)
    """Partitions with replicas to add or to remove."""
    to_complete: Partitions = field(default_factory=dict)
    """Partitions that have their target, while ZooKeeper refused the rest of phase B: their leader may not know it."""
    foreign_states: Partitions = field(default_factory=dict)
    """Partitions whose state another client wrote; their leader does not know it, and cannot change the ISR."""
    restarted_members: dict[Partition, tuple[BrokerId, ...]] = field(default_factory=dict)
    """ISR members that restarted before the term began, and could not be removed from the ISR yet."""
    last_sent_assignments: dict[Partition, tuple[ReplicaAssignment, int]] = field(default_factory=dict)
    """The assignment and leader epoch last sent to all replicas of a moving partition. A retry of the same step does
    not send them again. Cleared when a broker starts."""
    imbalanced_count: int = 0
    """Partitions that are not led by their preferred replica; without those of topics to be deleted."""
    partition_count: int = 0
    _offline_in_deletion: int = 0
    """The number of offline partitions that belong to topics to be deleted."""
    observer: TransitionObserver | None = None
    """Is notified of state transitions, if it is set."""
    _topics_by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)

    # ---- brokers

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        """Add the brokers to those registered; the live brokers follow from them."""
        self.registered.update((b.id, b) for b in brokers)
        self.registered = dict(sorted(self.registered.items()))
        self._brokers_changed()

    def remove_brokers(self, brokers: Collection[BrokerId]) -> None:
        """Remove the brokers from those registered; unknown ones are ignored."""
        for broker in brokers:
            self.registered.pop(broker, None)
        self._brokers_changed()

    def begin_shutdown(self, broker: BrokerId) -> None:
        """Mark the broker as shutting down: it is no longer elected, nor added to an ISR."""
        self.shutting_down.add(broker)
        self._brokers_changed()

    def end_shutdown(self, brokers: Collection[BrokerId]) -> None:
        """Mark these brokers as no longer shutting down."""
        self.shutting_down.difference_update(brokers)
        self._brokers_changed()

    def _brokers_changed(self) -> None:
        """Recompute the live brokers and those in controlled shutdown; raise the version of the broker list."""
        self.broker_list_version += 1
        self.live = frozenset(b for b in self.registered if b not in self.shutting_down)
        self.leaving = frozenset(b for b in self.registered if b in self.shutting_down)
        self.leaders_write_isrs = any(b.writes_isrs for b in self.registered.values())

    def is_online(self, broker: BrokerId, partition: Partition) -> bool:
        """Whether the broker is live and its log directory with this partition works."""
        return broker in self.live and partition not in self.offline_dirs.get(broker, ())

    def live_for(self, partition: Partition) -> frozenset[BrokerId]:
        """The live brokers, without those whose log directory with this partition failed."""
        return self.live if not self.offline_dirs else self.live - self._brokers_with_failed_dir(partition)

    def leaving_for(self, partition: Partition) -> frozenset[BrokerId]:
        """The brokers shutting down, without those whose log directory with this partition failed."""
        return self.leaving if not self.offline_dirs else self.leaving - self._brokers_with_failed_dir(partition)

    def _brokers_with_failed_dir(self, partition: Partition) -> set[BrokerId]:
        """The brokers whose log directory with this partition failed."""
        return {b for b, partitions in self.offline_dirs.items() if partition in partitions}

    # ---- replicas pending deletion

    def add_pending_deletion(self, record: ReplicasPendingDeletion) -> None:
        """Add these replicas; they replace those of the same broker and topic id."""
        self.pending_deletions.setdefault(record.broker, {})[record.topic_id] = record
        self.pending_by_topic.setdefault(record.topic, {})[record.broker, record.topic_id] = record

    def remove_pending_deletion(self, record: ReplicasPendingDeletion) -> None:
        """Remove these replicas, which are no longer to be deleted."""
        of_broker, of_topic = self.pending_deletions[record.broker], self.pending_by_topic[record.topic]
        del of_broker[record.topic_id], of_topic[record.broker, record.topic_id]
        if not of_broker:
            del self.pending_deletions[record.broker]
        if not of_topic:
            del self.pending_by_topic[record.topic]

    def brokers_with_earlier_log(self, partition: Partition, isr: Collection[BrokerId] = ()) -> frozenset[BrokerId]:
        """The brokers that may still have a log of an earlier topic in the place of this partition's.

        A member of the ISR has this partition's log, whatever a record says.
        """
        records, topic = self.pending_by_topic.get(partition.topic), self.topics.get(partition.topic)
        if records is None or topic is None:
            return frozenset()
        topic_id, number = topic.id, partition.partition
        known = partition.leadership.isr if partition.leadership is not None else ()
        earlier = (r.broker for r in records.values() if r.topic_id != topic_id and number in r.partitions)
        return frozenset(b for b in earlier if b not in isr and b not in known)

    # ---- topics and partitions

    @property
    def offline_count(self) -> int:
        """The number of offline partitions, without those of topics to be deleted."""
        return len(self.in_state[PartitionState.OFFLINE]) - self._offline_in_deletion

    def replicas_in_deletion(self, name: str) -> ReplicasInDeletion:
        """Count the replicas of a topic that is queued for deletion."""
        topic = self.topics.get(name)
        partitions = topic.partitions.values() if topic is not None else ()
        states = [self.replica_states.get(broker, {}).get(p) for p in partitions for broker in p.replicas]
        left = len(states) - states.count(ReplicaState.DELETION_SUCCESSFUL)
        return ReplicasInDeletion(left, states.count(ReplicaState.DELETION_INELIGIBLE))

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return the partition; None where topic or number is unknown."""
        found = self.topics.get(topic)
        return found.partitions.get(number) if found else None

    def is_to_be_deleted(self, partition: Partition) -> bool:
        """Whether the partition's topic is queued for deletion; such a partition is not elected or reassigned."""
        return partition.topic in self.topics_to_be_deleted

    def is_deletion_started(self, partition: Partition) -> bool:
        """Whether the deletion of the partition's topic has begun: one that waits for a reassignment has not."""
        return partition.topic in self.topics_with_deletion_started

    def queue_deletion(self, topics: Iterable[str]) -> list[str]:
        """Queue these topics for deletion; returns those that were not queued yet."""
        new = [t for t in topics if t in self.topics and t not in self.topics_to_be_deleted]
        self.topics_to_be_deleted.update(dict.fromkeys(new))
        for topic in new:
            for p in self.topics[topic].partitions.values():
                self._clear_imbalance(p)
                self._offline_in_deletion += p.state is PartitionState.OFFLINE
        return new

    def topic_with_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with this id; None where there is none."""
        return self._topics_by_id.get(topic_id)

    def add_topic(self, name: str, topic_id: uuid.UUID | None, czxid: int = 0) -> Topic:
        """Add a topic without partitions; it replaces the entry of an unreadable topic with the same name."""
        topic = self.topics[name] = Topic(name, topic_id, czxid)
        self.unreadable_topics.pop(name, None)
        if topic_id is not None:
            self._topics_by_id[topic_id] = topic
        return topic

    def add_partition(self, topic: Topic, number: int, assignment: ReplicaAssignment) -> Partition:
        """Add a partition in state NonExistent, with NonExistent replicas."""
        partition = self.make_partition(topic, number, assignment)
        for broker in assignment.replicas:
            self.list_replicas(broker, (partition,))
        return partition

    def make_partition(self, topic: Topic, number: int, assignment: ReplicaAssignment) -> Partition:
        """Add a partition, but not its replicas: call `list_replicas` for each broker afterwards."""
        partition = topic.partitions[number] = Partition(topic.name, number, assignment)
        if assignment.adding or assignment.removing:
            self.reassigning[partition] = None
        self.partition_count += 1
        return partition

    def list_replicas(
        self, broker: BrokerId, partitions: Iterable[Partition], state: ReplicaState = ReplicaState.NON_EXISTENT
    ) -> None:
        """Add these partitions to the broker's replicas, in this state."""
        self.replica_states.setdefault(broker, {}).update(dict.fromkeys(partitions, state))

    def put_assignment(self, partition: Partition, assignment: ReplicaAssignment) -> None:
        """Replace the partition's assignment.

        Replicas that are new to it are NonExistent; replicas that it loses keep their states until `forget_replica`.
        """
        partition.assignment = assignment_of(*assignment)
        partition.completing = None
        partition.encoded = b""
        self._update_imbalance(partition)
        for broker in assignment.replicas:
            self.replica_states.setdefault(broker, {}).setdefault(partition, ReplicaState.NON_EXISTENT)
        if assignment.is_being_reassigned:
            self.reassigning[partition] = None
        else:
            self.reassigning.pop(partition, None)

    def begin_completing(self, partition: Partition) -> None:
        """Make control requests carry the target assignment of a reassignment that completes.

        `put_assignment` follows once ZooKeeper has stored the target.
        """
        partition.completing = assignment_of(partition.assignment.target)

    def record_sent_assignments(self, partitions: Iterable[Partition]) -> None:
        """Record that these partitions' assignments were sent to their replicas, with the current leader epochs."""
        self.last_sent_assignments.update((p, (p.announced, p.leader_epoch)) for p in partitions)

    def is_last_sent_assignment(self, partition: Partition, assignment: ReplicaAssignment) -> bool:
        """Whether this assignment was the last one sent, with the current leader epoch."""
        return self.last_sent_assignments.get(partition) == (assignment, partition.leader_epoch)

    def forget_replica(self, broker: BrokerId, partition: Partition) -> None:
        """Remove a replica that is no longer assigned: its state and its mark of a failed log directory."""
        self.replica_states.get(broker, {}).pop(partition, None)
        self.offline_dirs.get(broker, {}).pop(partition, None)

    def remove_topic(self, name: str) -> None:
        """Remove a topic with its partitions, their states and its queued deletion."""
        self.remove_partitions(list(self.topics[name].partitions.values()))
        topic = self.topics.pop(name)
        if topic.id is not None:
            self._topics_by_id.pop(topic.id, None)
        self.topics_to_be_deleted.pop(name, None)
        self.topics_with_deletion_started.discard(name)
        self.topics_ineligible_for_deletion.pop(name, None)
        self.started_deletions.pop(name, None)

    def remove_partitions(self, partitions: Iterable[Partition]) -> None:
        """Remove some partitions with all states, as a first step of removing their topic."""
        for partition in partitions:
            topic = self.topics[partition.topic]
            topic.partitions.pop(partition.partition)
            topic.removals += 1
            self.partition_count -= 1
            self._clear_imbalance(partition)
            if partition.state is PartitionState.OFFLINE and self.is_to_be_deleted(partition):
                self._offline_in_deletion -= 1
            for broker in partition.replicas:
                self.replica_states[broker].pop(partition, None)
                self.offline_dirs.get(broker, {}).pop(partition, None)
            self.reassigning.pop(partition, None)
            self.to_complete.pop(partition, None)
            self.foreign_states.pop(partition, None)
            self.restarted_members.pop(partition, None)
            self.last_sent_assignments.pop(partition, None)
            self.half_deleted.pop(partition, None)
            self.led_by.get(partition.leader, {}).pop(partition, None)
            for listed in self.in_state.values():
                listed.pop(partition, None)

    def put_leadership(self, partition: Partition, leadership: LeaderAndIsr) -> None:
        """Set the leader, ISR and epochs of a partition, and update the indexes over leaders."""
        isr = shared_ids(leadership.isr)
        if isr is not leadership.isr:
            leader, leader_epoch, _, controller_epoch, partition_epoch, recovery = leadership
            leadership = LeaderAndIsr(leader, leader_epoch, isr, controller_epoch, partition_epoch, recovery)
        before = partition.leadership
        partition.leadership = leadership
        partition.encoded = b""
        if before is None or before.leader != leadership.leader:
            if before is not None:
                self.led_by[before.leader].pop(partition, None)
            self.led_by.setdefault(leadership.leader, {})[partition] = None
            self._update_imbalance(partition)

    def forget_leadership(self, partition: Partition) -> None:
        """Remove the leader, ISR and epochs of a partition whose state znode is gone or cannot be read."""
        if partition.leadership is not None:
            self.led_by[partition.leader].pop(partition, None)
            partition.leadership = None
            partition.encoded = b""
            self._clear_imbalance(partition)

    def take_over(self, mirror: "ControllerContext") -> None:
        """Use the topics, partitions and indexes of a standby's mirror as this context's own; it must have none yet."""
        assert not self.topics, "a term begins with an empty context"
        self.topics, self._topics_by_id = mirror.topics, mirror._topics_by_id
        self.led_by = {leader: led for leader, led in mirror.led_by.items() if led}
        self.replica_states = {broker: held for broker, held in mirror.replica_states.items() if held}
        self.reassigning = mirror.reassigning
        self.imbalanced_count, self.partition_count = mirror.imbalanced_count, mirror.partition_count

    def _update_imbalance(self, partition: Partition) -> None:
        """Count the partition as imbalanced if another broker than its preferred replica leads."""
        replicas = partition.assignment.replicas
        leadership = partition.leadership
        if leadership is None or not replicas or leadership.leader == replicas[0]:
            self._clear_imbalance(partition)
        elif not partition.is_imbalanced and not self.is_to_be_deleted(partition):
            partition.is_imbalanced = True
            self.imbalanced_count += 1

    def _clear_imbalance(self, partition: Partition) -> None:
        """Stop counting the partition as imbalanced."""
        self.imbalanced_count -= partition.is_imbalanced
        partition.is_imbalanced = False

    # ---- states

    def move(self, partitions: Iterable[Partition], target: PartitionState) -> list[Partition]:
        """Move partitions to state `target` where the transition is valid; return those where it is not."""
        refused = []
        for p in partitions:
            if not can_move(p.state, target):
                refused.append(p)
            elif p.state is not target:
                if (listed := self.in_state.get(p.state)) is not None:
                    listed.pop(p, None)
                if (listed := self.in_state.get(target)) is not None:
                    listed[p] = None
                if self.topics_to_be_deleted and self.is_to_be_deleted(p):
                    self._offline_in_deletion += (target is PartitionState.OFFLINE) - (
                        p.state is PartitionState.OFFLINE
                    )
                if self.observer is not None:
                    self.observer.on_partition_transition(p, p.state, target)
                p.state = target
        return refused

    def start(self, partition: Partition, state: PartitionState) -> None:
        """Set the state of a partition at the beginning of a controller's term, without checking a transition."""
        partition.state = state
        if (listed := self.in_state.get(state)) is not None:
            listed[partition] = None
        if state is PartitionState.OFFLINE and self.is_to_be_deleted(partition):
            self._offline_in_deletion += 1

    def move_replicas(
        self, broker: BrokerId, partitions: Collection[Partition], target: ReplicaState
    ) -> list[Partition]:
        """Move the broker's replicas to state `target` where the transition is valid; return those where it is not."""
        states = self.replica_states.setdefault(broker, {})
        before_all = set(map(states.get, partitions))
        if target not in _DELETION_STATES and can_all_move(before_all, target):
            if self.observer is not None:
                for p in partitions:
                    self.observer.on_replica_transition(broker, p, states.get(p, ReplicaState.NON_EXISTENT), target)
            if before_all != {target}:  # a failover moves all replicas, most of them to the state that they have
                states.update(dict.fromkeys(partitions, target))
            return []
        refused = []
        for p in partitions:
            before = states.get(p, ReplicaState.NON_EXISTENT)
            if not can_move_replica(before, target):
                refused.append(p)
                continue
            if self.observer is not None:
                self.observer.on_replica_transition(broker, p, before, target)
            states[p] = target
            if target in _DELETION_STATES:
                self._count_deletion(p.topic, before, target)
        return refused

    def _count_deletion(self, topic: str, before: ReplicaState, target: ReplicaState) -> None:
        """Update the number of the topic's replicas in state ReplicaDeletionStarted."""
        change = (target is ReplicaState.DELETION_STARTED) - (before is ReplicaState.DELETION_STARTED)
        if change:
            self.started_deletions[topic] = self.started_deletions.get(topic, 0) + change

    def can_replica_move(self, broker: BrokerId, partition: Partition, target: ReplicaState) -> bool:
        """Whether the broker's replica may enter state `target` now."""
        return can_move_replica(self.replicas_on(broker).get(partition, ReplicaState.NON_EXISTENT), target)

    def replicas_on(self, broker: BrokerId) -> Mapping[Partition, ReplicaState]:
        """The states of all replicas assigned to the broker."""
        return self.replica_states.get(broker, {})

    def without_online_leader(self) -> Iterator[Partition]:
        """All partitions whose last known leader is not online."""
        for broker, led in self.led_by.items():
            if broker not in self.live:
                yield from led
        for broker, failed in self.offline_dirs.items():
            if broker in self.live:
                yield from (p for p in failed if p.leader == broker)
