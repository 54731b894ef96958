"""What happened so far, as invariants may know it, in parts by subject.

An invariant sees the history as it was before the event it is asked about; `absorb` takes the event in afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history import trace
from klamm.sim.history.assignments import AssignmentHistory
from klamm.sim.history.broker_views import BrokerViews
from klamm.sim.history.configs import ConfigHistory
from klamm.sim.history.controllers import AnswerHistory, ControllerHistory
from klamm.sim.history.isr_requests import IsrRequestHistory
from klamm.sim.history.journals import JournalHistory
from klamm.sim.history.registrations import RegistrationHistory
from klamm.sim.history.replicas import ReplicaHistory
from klamm.sim.history.requests import RequestHistory
from klamm.sim.history.retries import RetryHistory
from klamm.sim.history.states import StateHistory
from klamm.sim.history.topics import TopicHistory
from klamm.sim.history.trace import Event, Position, TopicZnode
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, SetChange, Transaction, Tree
from klamm.zk import znodes
from klamm.zk.operations import Check, Op
from klamm.zk.znodes import MalformedZnode

_TOPIC_PREFIX: Final = znodes.TOPICS + "/"
_BROKER_PREFIX: Final = znodes.BROKER_IDS + "/"


class History:
    """All parts; `events_of` says what a transaction means, `absorb` takes an event in."""

    def __init__(self) -> None:
        self.at = Position()
        self.tree = Tree()
        """The znodes as the ensemble has them now; who runs an ensemble sets its tree here."""
        self.controllers = ControllerHistory(self.at)
        self.states = StateHistory(self.at)
        self.topics = TopicHistory(self.at, self.states)
        self.assignments = AssignmentHistory(self.at, self.states)
        self.registrations = RegistrationHistory(self.at)
        self.broker_views = BrokerViews(self.controllers, self.registrations, self.topics)
        self.requests = RequestHistory(self.topics, self.broker_views)
        self.replicas = ReplicaHistory(self.topics)
        self.isr_requests = IsrRequestHistory(self.topics, self.states, self.broker_views, self.controllers)
        self.retries = retries = RetryHistory(self.at)
        controllers, requests, replicas = self.controllers, self.requests, self.replicas
        self.answers = AnswerHistory(controllers)
        self.configs = ConfigHistory(self.at)
        self.journals = journals = JournalHistory(self.at, controllers)
        views, requested = self.broker_views, self.isr_requests
        self._absorb: dict[type[Any], Sequence[Callable[[Any], None]]] = {
            trace.TransactionCommitted: (
                self._on_transaction, self.topics.on_transaction, self.assignments.on_transaction,
                self.registrations.on_transaction, self.configs.on_transaction, controllers.on_transaction,
            ),
            trace.ControllerElected: (controllers.on_elected, requests.on_elected, self.states.on_elected),
            trace.StateWritten: (
                self.states.on_state_written, requests.on_state_written, replicas.on_state_written,
                journals.on_state_written,
            ),
            trace.TopicWritten: (
                views.on_topic_written, self.topics.on_topic_written, self.assignments.on_topic_written,
                requests.on_topic_written, replicas.on_topic_written, self.answers.on_topic_written,
                journals.on_topic_written,
            ),
            trace.RegistrationChanged: (self.registrations.on_changed,),
            trace.RegistrationWritten: (self.registrations.on_written,),
            trace.TermBegan: (
                controllers.on_term_began, views.on_term_began, journals.on_term_began, retries.on_term,
            ),
            trace.TermEnded: (controllers.on_term_ended, journals.on_term_ended, retries.on_term),
            trace.EventBegan: (
                controllers.on_event_began, views.on_event_began, requested.on_event_began, journals.on_event_began,
            ),
            trace.EventEnded: (
                controllers.on_event_ended, views.on_event_ended, requests.on_event_ended, requested.on_event_ended,
                self.answers.on_event_ended, journals.on_event_ended, retries.on_event_ended,
            ),
            trace.ConfigsApplied: (self.configs.on_applied,),
            trace.UncleanDefaultChanged: (controllers.on_unclean_default,),
            trace.RequestQueued: (requests.on_queued,),
            trace.ConnectionOpened: (views.on_connection_opened,),
            trace.RequestSent: (requests.on_sent, views.on_sent),
            trace.RequestAnswered: (requests.on_answered, journals.on_answered),
            trace.JournalWritten: (journals.on_written,),
            trace.RequestReceived: (self.registrations.on_request_received, requests.on_received),
            trace.LeaderAndIsrApplied: (replicas.on_roles,),
            trace.LogsDestroyed: (replicas.on_destroyed,),
            trace.ReplicaRolesChanged: (replicas.on_roles,),
            trace.NodeStopped: (self.registrations.on_stopped,),
        }  # fmt: skip

    def absorb(self, event: Event) -> None:
        """Add the event to all parts of the history that record this kind of event."""
        for take_in in self._absorb.get(type(event), ()):
            take_in(event)

    def _on_transaction(self, event: trace.TransactionCommitted) -> None:
        """Set the zxid of the history to that of the transaction."""
        self.at.zxid = event.zxid

    # ---- what a transaction means

    def events_of(self, transaction: Transaction, ops: Sequence[Op]) -> Iterator[Event]:
        """Yield the events that a ZooKeeper transaction means.

        The caller must pass each event to `absorb` before it takes the next.
        """
        fence = next((o.version for o in ops if isinstance(o, Check) and o.path == znodes.CONTROLLER_EPOCH), None)
        yield trace.TransactionCommitted(transaction.zxid, transaction.session, fence, transaction.changes)
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
        """The event of a controller election, from a transaction that raises the controller epoch."""
        created = (c for c in transaction.changes if isinstance(c, CreateChange) and c.path == znodes.CONTROLLER)
        won = next((znodes.decode_controller(c.data) for c in created), None)
        epoch = znodes.decode_controller_epoch(change.data)
        return trace.ControllerElected(epoch, self.controllers.epoch, won.broker if won else None, transaction.session)

    def _topic_event(self, parts: list[str], change: Change, transaction: Transaction) -> Iterator[Event]:
        """The events of a change below `/brokers/topics`: a topic or a partition state was written or deleted."""
        name = parts[0]
        if len(parts) == 1:
            before, after = self.topics.znodes.get(name), None
            if isinstance(change, CreateChange | SetChange):
                try:
                    znode = znodes.decode_topic(name, change.data)
                except MalformedZnode:
                    return  # somebody's nonsense: what the topic was is known no better than before
                czxid = before.czxid if before else transaction.zxid
                after = TopicZnode(znode.topic_id, dict(znode.partitions), czxid)
            yield trace.TopicWritten(name, before, after, transaction.session)
        elif len(parts) == 4 and parts[3] == "state":
            p = TopicPartition(name, int(parts[2]))
            if isinstance(change, DeleteChange):
                self.states.on_state_deleted(p)
            elif isinstance(change, CreateChange | SetChange):
                versions = self.states.versions.get(p, [])
                after_state = znodes.decode_state(p, change.data, len(versions))
                before_state = versions[-1] if versions else None
                yield trace.StateWritten(p, before_state, after_state, self.topics.replicas(p), transaction.session)


def _registration_events(broker: BrokerId, change: Change, transaction: Transaction) -> Iterator[Event]:
    """The events of a change of a broker's registration."""
    if not isinstance(change, SetChange):
        epoch = transaction.zxid if isinstance(change, CreateChange) else -1
        yield trace.RegistrationChanged(broker, epoch, transaction.session)
    if isinstance(change, CreateChange | SetChange):
        yield trace.RegistrationWritten(broker, change.data)
