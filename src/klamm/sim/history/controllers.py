"""Who was controller, and which event each controller handles."""

from dataclasses import dataclass, field

from klamm.controller.events import TopicDeletion
from klamm.model.ids import BrokerId
from klamm.sim.history.position import Position
from klamm.sim.history.trace import ControllerElected, EventBegan, EventEnded, Term, TermBegan, TermEnded


@dataclass(slots=True)
class ControllerHistory:
    at: Position
    epoch: int = 0
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
    handling: dict[tuple[BrokerId, int], EventBegan] = field(default_factory=dict)
    """(broker, incarnation) -> the event that its controller is busy with."""
    began_at: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """The same -> the zxid when the last event began."""
    deletion_scans: dict[int, int] = field(default_factory=dict)
    """Controller epoch -> zxid at which its controller last began to look which topics are to be deleted."""
    maybe_unclean: set[tuple[BrokerId, int]] = field(default_factory=set)
    """Runs of brokers in whose event unclean elections were allowed by default, and are not any more."""

    @property
    def active(self) -> Term | None:
        """The term of the newest epoch, if its controller has begun to act."""
        return self.terms.get(self.epoch)

    def has_ended(self, term: Term) -> bool:
        return (term.broker, term.incarnation, term.epoch) in self.ended

    def forbid_unclean_by_default(self) -> None:
        """From now on; what current events decided while it was allowed may still be on its way to ZooKeeper."""
        for run, event in self.handling.items():
            if event.term is None or event.term.settings.unclean_leader_election:
                self.maybe_unclean.add(run)

    def on_elected(self, event: ControllerElected) -> None:
        self.epoch = event.epoch
        self.winners[event.epoch] = event.broker, event.session
        self.sessions.add(event.session)
        self.elected_at[event.epoch] = self.at.zxid

    def on_term_began(self, event: TermBegan) -> None:
        self.terms[event.term.epoch] = event.term

    def on_term_ended(self, event: TermEnded) -> None:
        self.ended.add((event.term.broker, event.term.incarnation, event.term.epoch))

    def on_event_began(self, event: EventBegan) -> None:
        self.handling[event.broker, event.incarnation] = event
        self.refused.discard(event.broker)
        self.began_at[event.broker, event.incarnation] = self.at.zxid
        if event.term is not None and isinstance(event.event, TopicDeletion):
            self.deletion_scans[event.term.epoch] = self.at.zxid

    def on_event_ended(self, event: EventEnded) -> None:
        self.handling.pop((event.broker, event.incarnation), None)
        self.maybe_unclean.discard((event.broker, event.incarnation))
