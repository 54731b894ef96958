"""Who was controller, which event each controller handled, and what controllers gave away or deleted permanently."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from klamm.controller.events import (
    AllocateProducerIds,
    AutoPreferredReplicaLeaderElection,
    ResumeAfterFailure,
    TopicDeletion,
)
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.sim.history.trace import (
    ControllerElected,
    EventBegan,
    EventEnded,
    Position,
    Term,
    TermBegan,
    TermEnded,
    TopicWritten,
    TransactionCommitted,
    UncleanDefaultChanged,
)
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.zk import znodes

Run = tuple[BrokerId, int]
"""A broker and its incarnation."""


@dataclass(slots=True)
class ControllerHistory:
    at: Position
    epoch: int = 0
    has_controller_znode: bool = False
    """Whether `/controller` is there that the newest election created."""
    winners: dict[int, tuple[BrokerId | None, int]] = field(default_factory=dict)
    """Controller epoch -> (broker, session) that won it."""
    terms: dict[int, Term] = field(default_factory=dict)
    """Controller epoch -> who began to act in it."""
    elected_at: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> zxid of the election."""
    ended: set[tuple[BrokerId, int, int]] = field(default_factory=set)
    """(broker, incarnation, epoch) of terms that were given up."""
    sessions: set[int] = field(default_factory=set)
    """Sessions that won an election at some time."""
    refused: set[BrokerId] = field(default_factory=set)
    """Controllers to whom ZooKeeper refused a write in the event that they handle, or handled last."""
    unretried: set[BrokerId] = field(default_factory=set)
    """Controllers that have not begun to repeat a write of partition states that ZooKeeper refused."""
    handling: dict[tuple[BrokerId, int], EventBegan] = field(default_factory=dict)
    """(broker, incarnation) -> the event that its controller is busy with."""
    began_at: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """The same -> the zxid when the last event began."""
    seen_at: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """The same -> the zxid that its ZooKeeper session had seen then; a server that lags may answer reads from there."""
    deletion_scans: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> zxid at which its controller last began to look which topics are to be deleted."""
    unclean_by_default: set[Run] = field(default_factory=set)
    """Runs of brokers that allow unclean elections where a topic says nothing else."""
    maybe_unclean: set[Run] = field(default_factory=set)
    """Runs of brokers in whose event unclean elections were allowed by default, and are not any more."""
    imbalance_checks: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> how often its controller began to look for imbalanced leaders."""
    handled: dict[Run, Counter[int]] = field(default_factory=dict)
    """How many events each process has handled, by the number of the controller state."""
    completed_failovers: set[int] = field(default_factory=set)
    """Epochs of terms in which an event ended without failing: the first one is failover."""

    @property
    def active(self) -> Term | None:
        """The term of the newest controller epoch, if its controller has begun to act."""
        return self.terms.get(self.epoch)

    def run_of(self, epoch: int) -> Run | None:
        """The process that acts, or acted, in this epoch."""
        term = self.terms.get(epoch)
        return (term.broker, term.incarnation) if term is not None else None

    def has_ended(self, term: Term) -> bool:
        """Whether the controller of this term has resigned."""
        return (term.broker, term.incarnation, term.epoch) in self.ended

    def acting(self, runs: Collection[Run]) -> list[Term]:
        """The terms of these processes that have not ended."""
        return [t for t in self.terms.values() if (t.broker, t.incarnation) in runs and not self.has_ended(t)]

    def on_unclean_default(self, event: UncleanDefaultChanged) -> None:
        """Record the brokers' new default for unclean elections.

        An event that is being handled may still write what it decided under the earlier default.
        """
        run = event.broker, event.incarnation
        if event.allowed:
            self.unclean_by_default.add(run)
            return
        if run in self.unclean_by_default and run in self.handling:
            self.maybe_unclean.add(run)
        self.unclean_by_default.discard(run)

    def on_transaction(self, event: TransactionCommitted) -> None:
        """Record that `/controller` was deleted."""
        if any(change.path == znodes.CONTROLLER and isinstance(change, DeleteChange) for change in event.changes):
            self.has_controller_znode = False

    def on_elected(self, event: ControllerElected) -> None:
        """Record the new controller epoch, its winner and when it was elected."""
        self.epoch = event.epoch
        self.has_controller_znode = True
        self.winners[event.epoch] = event.broker, event.session
        self.sessions.add(event.session)
        self.elected_at[event.epoch] = self.at.zxid

    def on_term_began(self, event: TermBegan) -> None:
        """Record the term that began."""
        self.terms[event.term.epoch] = event.term

    def on_term_ended(self, event: TermEnded) -> None:
        """Record that the term has ended."""
        self.ended.add((event.term.broker, event.term.incarnation, event.term.epoch))

    def on_event_began(self, event: EventBegan) -> None:
        """Record which event each controller is handling, and since which zxid."""
        self.handling[event.broker, event.incarnation] = event
        self.refused.discard(event.broker)
        if isinstance(event.event, ResumeAfterFailure):
            self.unretried.discard(event.broker)
        self.began_at[event.broker, event.incarnation] = self.at.zxid
        self.seen_at[event.broker, event.incarnation] = event.seen_zxid
        if event.term is not None and isinstance(event.event, TopicDeletion):
            self.deletion_scans[event.term.epoch] = self.at.zxid
        if event.term is not None and isinstance(event.event, AutoPreferredReplicaLeaderElection):
            self.imbalance_checks[event.term.epoch] = self.imbalance_checks.get(event.term.epoch, 0) + 1

    def on_event_ended(self, event: EventEnded) -> None:
        """Record that the event was handled; after the first success of a term, that its failover is complete."""
        run = event.broker, event.incarnation
        self.handling.pop(run, None)
        self.handled.setdefault(run, Counter())[int(event.event.state)] += 1
        term, is_done = self.active, not event.has_failed and not event.is_cut_short
        if term is not None and is_done and (term.broker, term.incarnation) == (event.broker, event.incarnation):
            self.completed_failovers.add(term.epoch)
        self.maybe_unclean.discard((event.broker, event.incarnation))


@dataclass(slots=True)
class AnswerHistory:
    controllers: ControllerHistory
    producer_id_blocks: dict[int, tuple[int, BrokerId]] = field(default_factory=dict)
    """First id -> (length, who got it)."""
    deleted_at: dict[str, int] = field(default_factory=dict)
    """Topics that a controller deleted, and are not there again: the zxid."""

    def on_event_ended(self, event: EventEnded) -> None:
        """Record the block of an AllocateProducerIds request that succeeded."""
        requested = event.event
        if isinstance(requested, AllocateProducerIds) and requested.reply.result().error is ErrorCode.NONE:
            answer = requested.reply.result()
            self.producer_id_blocks[answer.first] = answer.length, requested.broker

    def on_topic_written(self, event: TopicWritten) -> None:
        """Record when a controller deleted the topic; forget that once the topic exists again."""
        if event.after is not None:
            self.deleted_at.pop(event.topic, None)
        elif event.session in self.controllers.sessions:
            self.deleted_at[event.topic] = self.controllers.at.zxid
