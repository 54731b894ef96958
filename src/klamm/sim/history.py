"""What happened so far, as checkers may know it: elections, states of partitions, topics, registrations, orders.

An invariant sees the history as it was before the event it is asked about; the event is taken in afterwards.
"""

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from klamm.controller.control_requests import LeaderAndIsrItem, StopReplicaItem
from klamm.controller.events import ControlledShutdown, TopicDeletion
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH, LeaderAndIsr
from klamm.sim import trace
from klamm.sim.messages_told import states_told, stops_told
from klamm.sim.trace import Event, Term, TopicSeen
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, SetChange, Transaction
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_config
from klamm.zk.operations import Check, Op
from klamm.zk.pending_deletions import PendingDeletion, decode_pending_deletion
from klamm.zk.znodes import MalformedZnode

_TOPIC_PREFIX = znodes.TOPICS + "/"
_BROKER_PREFIX = znodes.BROKER_IDS + "/"
_MARKER_PREFIX = znodes.DELETE_TOPICS + "/"
_CONFIG_PREFIX = znodes.topic_config_path("")
_RECORD_DEPTH = znodes.PENDING_DELETIONS.count("/") + 2
_UNCLEAN = "unclean.leader.election.enable"

Versions = list[LeaderAndIsr]

_STOP_REPLICA_WITH_EPOCHS: Final = 3


class Queued(NamedTuple):
    """One partition's state, or its end, as it waits for a broker."""

    is_stop: bool
    leader_epoch: int
    partition_epoch: int
    """Of an end: 1 where it deletes."""

    def covers(self, stop: "Queued") -> bool:
        """Whether this end brings about what that one would."""
        return self.is_stop and self.partition_epoch >= stop.partition_epoch


@dataclass(slots=True)
class History:
    epoch: int = 0
    winners: dict[int, tuple[BrokerId | None, int]] = field(default_factory=dict)
    """Controller epoch -> (broker, session) that won it."""
    terms: dict[int, Term] = field(default_factory=dict)
    """Controller epoch -> who began to act in it."""
    elected_at: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> zxid of the election."""
    ended: set[tuple[BrokerId, int, int]] = field(default_factory=set)
    """(broker, incarnation, epoch) of terms that were given up."""
    zxid: int = 0
    topics: dict[str, TopicSeen] = field(default_factory=dict)
    topic_ids: dict[UUID, str] = field(default_factory=dict)
    """Every id there ever was."""
    marked: dict[str, int] = field(default_factory=dict)
    """Topics whose deletion is asked for, and since which zxid."""
    states: dict[TopicPartition, Versions] = field(default_factory=dict)
    """Every version a state znode had; the index is the partition epoch."""
    entered: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When a broker last came into the ISR of a partition: the zxid."""
    state_zxids: dict[TopicPartition, int] = field(default_factory=dict)
    """When the state znode was created."""
    buried: dict[TopicPartition, list[Versions]] = field(default_factory=dict)
    """The same of topics that are deleted by now."""
    leaders: dict[tuple[TopicPartition, UUID | None, int], BrokerId] = field(default_factory=dict)
    """(partition, topic id, leader epoch) -> the leader of that epoch."""
    registered: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Broker -> (broker epoch, session) of its registration."""
    registrations: dict[BrokerId, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Broker -> (zxid, broker epoch) of each time its registration came, or went with -1 for an epoch."""
    descriptions: dict[BrokerId, dict[int, bytes | None]] = field(default_factory=lambda: defaultdict(dict))
    """Broker -> zxid -> what its registration said from then on."""
    elected_sessions: set[int] = field(default_factory=set)
    """Sessions that won an election at some time."""
    applied: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """(broker, incarnation) -> the highest controller epoch it followed."""
    refused: set[BrokerId] = field(default_factory=set)
    """Controllers to whom ZooKeeper refused a write in the event that they handle, or handled last."""
    doing: dict[tuple[BrokerId, int], trace.EventBegan] = field(default_factory=dict)
    """(broker, incarnation) -> the event that its controller is busy with."""
    begun_at: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """The same -> the zxid when the last event began."""
    waiting: dict[tuple[int, BrokerId, int, str, int], deque[Queued]] = field(default_factory=dict)
    """What was queued for a partition on a broker and not sent yet, oldest first; see `queue_of`."""
    sent_last: dict[tuple[int, BrokerId, int, str, int], Queued] = field(default_factory=dict)
    """What went out last of such a queue."""
    contacts: dict[tuple[BrokerId, int, int], set[str]] = field(default_factory=dict)
    """(broker, broker epoch, controller epoch) -> kinds of orders it accepted."""
    leaving: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Broker -> (its epoch, controller epoch) of a shutdown that the controller of that epoch knows of."""
    newest_run: dict[BrokerId, int] = field(default_factory=dict)
    """Broker -> its latest run that took an order."""
    metadata_told: dict[tuple[int, BrokerId, TopicPartition, UUID | None], int] = field(default_factory=dict)
    """(controller epoch, broker, partition, topic id) -> the newest version that metadata told of."""
    unclean_topics: dict[str, bool] = field(default_factory=dict)
    """What topics' configs say of unclean elections."""
    unclean_before: dict[str, tuple[int, bool | None]] = field(default_factory=dict)
    """The zxid of the last change of a topic's config, and what it said of them before, if anything."""
    may_be_unclean: set[tuple[BrokerId, int]] = field(default_factory=set)
    """Runs of brokers in whose event unclean elections were allowed by default, and are not any more."""
    partitions_when_marked: dict[str, frozenset[int]] = field(default_factory=dict)
    """Topics that had come up when their deletion was asked for, and the partitions that they had at that time."""
    deletions_looked_at: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> zxid at which its controller last began to look which topics are to be deleted."""
    deleted: set[tuple[TopicPartition, BrokerId]] = field(default_factory=set)
    """Replicas of which a broker answered that it deleted them, since the topic came up."""
    came_up: dict[TopicPartition, int] = field(default_factory=dict)
    """When a partition of this name got its first state, also where it is gone by now: the zxid."""
    buried_replicas: dict[TopicPartition, tuple[BrokerId, ...]] = field(default_factory=dict)
    """Who had replicas of a partition when its topic was deleted."""
    pending_deletions: dict[BrokerId, dict[str, PendingDeletion]] = field(default_factory=lambda: defaultdict(dict))
    """By broker and path: the records of what gone brokers hold of deleted topics."""
    told_of: set[tuple[TopicPartition, BrokerId, int]] = field(default_factory=set)
    """(partition, broker, broker epoch) of which LeaderAndIsr was sent, since the topic came up."""
    other_ids: set[tuple[TopicPartition, BrokerId, int]] = field(default_factory=set)
    """(partition, broker, broker epoch) for which the broker said that its log is another topic's."""
    assigned: dict[TopicPartition, set[ReplicaAssignment]] = field(default_factory=dict)
    """Every assignment that was ever written, and the targets that these lead to."""
    dropped: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When a broker ceased to be a replica of a partition: the zxid."""
    added: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When it became one, also where it is none by now: the zxid."""
    untold: dict[BrokerId, dict[TopicPartition, int]] = field(default_factory=dict)
    """Broker -> partitions that it leads, or leads no more, by decisions of the acting controller that it was not yet
    told of, with the leader epoch. A broker that is stopped there need not know."""
    stances: dict[tuple[TopicPartition, BrokerId], tuple[int, trace.Stance]] = field(default_factory=dict)
    """(partition, broker) -> (incarnation, what its replica takes itself for), of topics that are there."""
    followed: set[tuple[TopicPartition, BrokerId, BrokerId, int]] = field(default_factory=set)
    """(partition, broker, leader, leader epoch): whom replicas have followed when, of topics that are there."""
    left: set[tuple[BrokerId, int]] = field(default_factory=set)
    """(broker, incarnation) of those that left in order."""
    reassignment_request: bytes | None = None
    """Content of the old tools' znode, as last seen."""
    _absorb: dict[type[Any], Callable[[Any], None]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._absorb = {
            trace.Mutation: self._mutated,
            trace.Elected: self._elected,
            trace.StateWritten: self._state_written,
            trace.TopicWritten: self._topic_written,
            trace.Registered: self._registered,
            trace.Described: self._described,
            trace.TermBegan: self._term_began,
            trace.TermEnded: self._term_ended,
            trace.EventBegan: self._event_began,
            trace.EventEnded: self._event_ended,
            trace.OrderQueued: self._order_queued,
            trace.OrderSent: self._order_sent,
            trace.OrderAnswered: self._order_answered,
            trace.OrderReceived: self._order_received,
            trace.OrdersTaken: self._stances_taken,
            trace.StancesTaken: self._stances_taken,
            trace.Left: self._left,
        }

    # ---- questions

    @property
    def actor(self) -> Term | None:
        """Whoever acts in the newest epoch."""
        return self.terms.get(self.epoch)

    def replicas(self, p: TopicPartition) -> tuple[BrokerId, ...]:
        """As the topic's znode has them; nobody for a partition that is not there."""
        topic = self.topics.get(p.topic)
        found = topic.partitions.get(p.partition) if topic else None
        return found.replicas if found else ()

    def ended_term(self, term: Term) -> bool:
        return (term.broker, term.incarnation, term.epoch) in self.ended

    def lives_of(self, p: TopicPartition) -> Iterator[Versions]:
        """All versions of its state, for each topic of that name; the newest first."""
        if (versions := self.states.get(p)) is not None:
            yield versions
        yield from reversed(self.buried.get(p, []))

    # ---- what ZooKeeper did

    def events_of(self, transaction: Transaction, ops: Sequence[Op]) -> Iterator[Event]:
        """What a transaction means; take each event in with `absorb` before asking for the next."""
        fence = next((o.version for o in ops if isinstance(o, Check) and o.path == znodes.CONTROLLER_EPOCH), None)
        yield trace.Mutation(transaction.zxid, transaction.session, fence, transaction.changes)
        for change in transaction.changes:
            path = change.path
            if path == znodes.CONTROLLER_EPOCH and isinstance(change, SetChange):
                yield self._election(change, transaction)
            elif path.startswith(_TOPIC_PREFIX):
                yield from self._topic_event(path[len(_TOPIC_PREFIX) :].split("/"), change, transaction)
            elif path.startswith(_BROKER_PREFIX):
                name = path[len(_BROKER_PREFIX) :]
                if not name.isdigit():
                    continue  # somebody's nonsense
                yield from _registration_events(BrokerId(int(name)), change, transaction)

    def _election(self, change: SetChange, transaction: Transaction) -> Event:
        created = (c for c in transaction.changes if isinstance(c, CreateChange) and c.path == znodes.CONTROLLER)
        won = next((znodes.decode_controller(c.data) for c in created), None)
        epoch = znodes.decode_controller_epoch(change.data)
        return trace.Elected(epoch, self.epoch, won.broker if won else None, transaction.session)

    def _topic_event(self, parts: list[str], change: Change, transaction: Transaction) -> Iterator[Event]:
        name = parts[0]
        if len(parts) == 1:
            before, after = self.topics.get(name), None
            if isinstance(change, CreateChange | SetChange):
                try:
                    znode = znodes.decode_topic(name, change.data)
                except MalformedZnode:
                    return  # somebody's nonsense: what the topic was is known no better than before
                czxid = before.czxid if before else transaction.zxid
                after = TopicSeen(znode.topic_id, dict(znode.partitions), czxid)
            yield trace.TopicWritten(name, before, after, transaction.session)
        elif len(parts) == 4 and parts[3] == "state":
            p = TopicPartition(name, int(parts[2]))
            if isinstance(change, DeleteChange):
                self.buried.setdefault(p, []).append(self.states.pop(p))
                self.state_zxids.pop(p, None)
            elif isinstance(change, CreateChange | SetChange):
                versions = self.states.get(p, [])
                after_state = znodes.decode_state(p, change.data, len(versions))
                before_state = versions[-1] if versions else None
                yield trace.StateWritten(p, before_state, after_state, self.replicas(p), transaction.session)

    # ---- taking in

    def absorb(self, event: Event) -> None:
        take_in = self._absorb.get(type(event))
        if take_in is not None:
            take_in(event)

    def _mutated(self, event: trace.Mutation) -> None:
        self.zxid = event.zxid
        for change in event.changes:
            path = change.path
            if path.startswith(_MARKER_PREFIX):
                self._marked(path[len(_MARKER_PREFIX) :], isinstance(change, DeleteChange))
            elif path.startswith(_CONFIG_PREFIX):
                self._configured(path, change)
            elif path.startswith(f"{znodes.PENDING_DELETIONS}/") and path.count("/") == _RECORD_DEPTH:
                self._on_pending_deletion(path, change)
            elif path == znodes.REASSIGN_PARTITIONS and isinstance(change, CreateChange | SetChange):
                self.reassignment_request = change.data

    def _marked(self, topic: str, is_deletion: bool) -> None:
        if is_deletion:
            self.marked.pop(topic, None)
            self.partitions_when_marked.pop(topic, None)
        else:
            self.marked[topic] = self.zxid
            seen = self.topics.get(topic)
            partitions = frozenset(seen.partitions if seen else ())
            if any(TopicPartition(topic, n) in self.states for n in partitions):
                self.partitions_when_marked[topic] = partitions

    def _on_pending_deletion(self, path: str, change: Change) -> None:
        broker = BrokerId(int(path.split("/")[3]))
        self.pending_deletions[broker].pop(path, None)
        if isinstance(change, CreateChange | SetChange):
            with contextlib.suppress(MalformedZnode):  # written by hand
                self.pending_deletions[broker][path] = decode_pending_deletion(path, change.data)

    def _configured(self, path: str, change: Change) -> None:
        topic = path[len(_CONFIG_PREFIX) :]
        self.unclean_before[topic] = self.zxid, self.unclean_topics.pop(topic, None)
        if isinstance(change, CreateChange | SetChange):
            try:
                config = decode_config("topics", topic, change.data)
            except MalformedZnode:
                return
            if _UNCLEAN in config:
                self.unclean_topics[topic] = config[_UNCLEAN].strip().lower() == "true"

    def default_forbids_unclean(self) -> None:
        """From now on; what events in work decided while it was allowed may still be on its way to ZooKeeper."""
        for run, event in self.doing.items():
            if event.term is None or event.term.internals.settings.unclean_leader_election:
                self.may_be_unclean.add(run)

    def _elected(self, event: trace.Elected) -> None:
        self.epoch = event.epoch
        self.winners[event.epoch] = event.broker, event.session
        self.elected_sessions.add(event.session)
        self.elected_at[event.epoch] = self.zxid
        self.untold.clear()

    def _state_written(self, event: trace.StateWritten) -> None:
        p = event.partition
        self.states.setdefault(p, []).append(event.after)
        for broker in event.after.isr:
            if event.before is None or broker not in event.before.isr:
                self.entered[p, broker] = self.zxid
        if event.before is None:
            self.state_zxids[p] = self.came_up[p] = self.zxid
        if event.before is not None and event.before.leader != event.after.leader:
            for broker in (event.before.leader, event.after.leader):
                if broker >= 0:
                    self.untold.setdefault(broker, {})[p] = event.after.leader_epoch
        if event.after.has_leader:
            topic = self.topics.get(p.topic)
            self.leaders[p, topic.id if topic else None, event.after.leader_epoch] = event.after.leader

    def _topic_written(self, event: trace.TopicWritten) -> None:
        before = event.before.partitions if event.before else {}
        after = event.after.partitions if event.after else {}
        if event.after is None:
            self.topics.pop(event.topic, None)
        else:
            self.topics[event.topic] = event.after
            if event.after.id is not None:
                self.topic_ids.setdefault(event.after.id, event.topic)
        if event.after is None:
            self.buried_replicas |= {TopicPartition(event.topic, n): a.replicas for n, a in before.items()}
            self.told_of = {told for told in self.told_of if told[0].topic != event.topic}
            self.followed = {seen for seen in self.followed if seen[0].topic != event.topic}
            self.stances = {key: stance for key, stance in self.stances.items() if key[0].topic != event.topic}
        for number in {**before, **after}:
            p, was, now = TopicPartition(event.topic, number), before.get(number), after.get(number)
            if now is not None and now != was:
                self.assigned.setdefault(p, set()).update((now, ReplicaAssignment(now.target)))
            for broker in was.replicas if was else ():
                if now is None or broker not in now.replicas:
                    self.dropped[p, broker] = self.zxid
            for broker in now.replicas if now else ():
                if was is None or broker not in was.replicas:
                    self.deleted.discard((p, broker))
                    self.dropped.pop((p, broker), None)
                    self.added[p, broker] = self.zxid

    def _registered(self, event: trace.Registered) -> None:
        self.registrations[event.broker].append((self.zxid, event.epoch))
        if event.epoch < 0:
            self.registered.pop(event.broker, None)
        else:
            self.registered[event.broker] = event.epoch, event.session

    def _described(self, event: trace.Described) -> None:
        self.descriptions[event.broker][self.zxid] = event.data

    def _term_began(self, event: trace.TermBegan) -> None:
        self.terms[event.term.epoch] = event.term

    def _term_ended(self, event: trace.TermEnded) -> None:
        self.ended.add((event.term.broker, event.term.incarnation, event.term.epoch))

    def _event_began(self, event: trace.EventBegan) -> None:
        self.doing[event.broker, event.incarnation] = event
        self.refused.discard(event.broker)
        self.begun_at[event.broker, event.incarnation] = self.zxid
        if event.term is not None and isinstance(event.event, TopicDeletion):
            self.deletions_looked_at[event.term.epoch] = self.zxid

    def _event_ended(self, event: trace.EventEnded) -> None:
        self.doing.pop((event.broker, event.incarnation), None)
        self.may_be_unclean.discard((event.broker, event.incarnation))
        asked = event.event
        leaving = event.term.internals.context.shutting_down if event.term is not None else ()
        for broker in [b for b in self.untold if b in leaving]:
            self.untold.pop(broker)  # it hears of no election but those that its own departure brought about
        if isinstance(asked, ControlledShutdown) and event.term is not None and event.known is not None:
            registered = event.known.registered.get(asked.broker)
            if registered is not None and asked.reply.result().error is ErrorCode.NONE:
                self.leaving[asked.broker] = registered, event.term.epoch

    def _order_queued(self, event: trace.OrderQueued) -> None:
        item, context = event.item, event.term.internals.context
        to = context.epoch, event.target, context.registered[event.target].epoch
        untold = self.untold.get(event.target, {})
        if isinstance(item, LeaderAndIsrItem):
            for p, state in item.states.items():
                queued = Queued(False, state.leader_epoch, state.partition_epoch)
                self.waiting.setdefault((*to, p.topic, p.partition), deque()).append(queued)
                if untold.get(p.key, 1 << 40) <= state.leader_epoch:
                    untold.pop(p.key)
        elif isinstance(item, StopReplicaItem):
            carries_epochs = event.term.internals.settings.versions.stop_replica >= _STOP_REPLICA_WITH_EPOCHS
            for p, stop in item.stops.items():
                told = stop.leader_epoch if carries_epochs else NO_EPOCH
                queued = Queued(True, told, int(stop.delete_partition))
                self.waiting.setdefault((*to, p.topic, p.partition), deque()).append(queued)
                untold.pop(p.key, None)

    def _order_sent(self, event: trace.OrderSent) -> None:
        """What was queued before is sent or outdated."""
        if event.again:
            return
        message = event.message
        if isinstance(message, LeaderAndIsrRequest):
            self.told_of |= {(p, event.target, message.broker_epoch) for p, _, _ in states_told(message)}
        if isinstance(message, UpdateMetadataRequest):
            for p, topic_id, state in states_told(message):
                self.metadata_told[message.controller_epoch, event.target, p, topic_id] = state.zk_version
            return
        for p, sent in queued_of(message):
            waiting = self.waiting.get(queue_of(event, p), deque())
            place = place_of(waiting, sent)
            for _ in range(0 if place is None else place + 1):
                waiting.popleft()
            self.sent_last[queue_of(event, p)] = sent

    def _order_answered(self, event: trace.OrderAnswered) -> None:
        if isinstance(event.message, LeaderAndIsrRequest):
            for topic in event.response.topics:
                name = self.topic_ids.get(topic.topic_id)
                for answer in topic.partition_errors:
                    if name is not None and answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
                        p = TopicPartition(name, answer.partition_index)
                        self.other_ids.add((p, event.target, event.message.broker_epoch))
        if not isinstance(event.message, StopReplicaRequest) or event.response.error_code:
            return
        failed = {(e.topic_name, e.partition_index) for e in event.response.partition_errors if e.error_code}
        for stop in stops_told(event.message):
            if stop.delete and stop.partition not in failed:
                self.deleted.add((stop.partition, event.target))
                self.other_ids.discard((stop.partition, event.target, event.message.broker_epoch))

    def _order_received(self, event: trace.OrderReceived) -> None:
        if event.refusal:
            return
        message = event.message
        self.newest_run[event.broker] = max(event.incarnation, self.newest_run.get(event.broker, 0))
        self.applied[event.broker, event.incarnation] = message.controller_epoch
        contact = event.broker, message.broker_epoch, message.controller_epoch
        self.contacts.setdefault(contact, set()).add(type(message).__name__)

    # ---- what brokers make of it

    def _stances_taken(self, event: trace.OrdersTaken | trace.StancesTaken) -> None:
        for p, stance in event.stances.items():
            self.stances[p, event.broker] = event.incarnation, stance
            if stance.leader not in (event.broker, NO_BROKER):
                self.followed.add((p, event.broker, stance.leader, stance.leader_epoch))

    def _left(self, event: trace.Left) -> None:
        self.left.add((event.broker, event.incarnation))


def _registration_events(broker: BrokerId, change: Change, transaction: Transaction) -> Iterator[Event]:
    if not isinstance(change, SetChange):
        epoch = transaction.zxid if isinstance(change, CreateChange) else -1
        yield trace.Registered(broker, epoch, transaction.session)
    if isinstance(change, CreateChange | SetChange):
        yield trace.Described(broker, change.data)


def queue_of(event: trace.OrderSent, p: TopicPartition) -> tuple[int, BrokerId, int, str, int]:
    """(controller epoch, broker, broker epoch, topic, partition): each run of a broker has a queue of its own."""
    return event.message.controller_epoch, event.target, event.message.broker_epoch, p.topic, p.partition


def place_of(waiting: Iterable[Queued], sent: Queued) -> int | None:
    """Where the first one stands that is sent; an end may be the last of several which became one.

    That deletes if any of them does, and has the leader epoch of the last one, or of a deletion in whatever epoch.
    """
    stops: list[Queued] = []
    for place, queued in enumerate(waiting):
        if queued == sent:
            return place
        if not queued.is_stop:
            continue
        stops.append(queued)
        forced = (s.leader_epoch for s in stops if s.partition_epoch and s.leader_epoch < 0)
        if sent == Queued(True, next(forced, queued.leader_epoch), max(s.partition_epoch for s in stops)):
            return place
    return None


def queued_of(message: Any) -> Iterator[tuple[TopicPartition, Queued]]:
    """What must have been queued for each partition of a LeaderAndIsr or StopReplica; nothing of other orders."""
    if isinstance(message, LeaderAndIsrRequest):
        for p, _, state in states_told(message):
            yield p, Queued(False, state.leader_epoch, state.partition_epoch)
    for stop in stops_told(message):
        yield stop.partition, Queued(True, stop.leader_epoch, int(stop.delete))
