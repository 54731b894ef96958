"""What ZooKeeper held of partitions and brokers when a controller began to judge an ISR change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm.controller.events import AlterPartitionReceived, ControlledShutdown
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.broker_views import Answer, BrokerViews
from klamm.sim.history.controllers import ControllerHistory, Run
from klamm.sim.history.states import StateHistory
from klamm.sim.history.topics import TopicHistory
from klamm.sim.history.trace import EventBegan, EventEnded, Term

FIRST_WITH_TOPIC_IDS: Final = 2
FIRST_WITH_BROKER_EPOCHS: Final = 3


class StoredPartition(NamedTuple):
    """A partition as ZooKeeper had it."""

    replicas: tuple[BrokerId, ...]
    leadership: LeaderAndIsr | None


class JudgedFrom(NamedTuple):
    """The facts from which a controller has to answer a broker."""

    sender_epochs: frozenset[int]
    """Broker epochs of who asks, of which the controller may know."""
    live: Mapping[BrokerId, Answer]
    """Of each broker that is asked for, or is in an ISR: whether it is live."""
    epochs: Mapping[BrokerId, frozenset[int]]
    """Of the same brokers, the broker epochs of which the controller may know."""
    topics: Mapping[Any, str]
    """Topics of the request that are there: their names by what it calls them: an id, or once a name."""
    partitions: Mapping[tuple[str, int], StoredPartition]
    is_newest: bool
    """Nobody was elected since this controller, and its `/controller` is still there."""


@dataclass(slots=True)
class IsrRequestHistory:
    topics: TopicHistory
    states: StateHistory
    views: BrokerViews
    controllers: ControllerHistory
    judged_from: dict[Run, JudgedFrom] = field(default_factory=dict)
    """(broker, incarnation) -> what was there when its controller began the request that it handles."""

    def on_event_began(self, event: EventBegan) -> None:
        """Record the facts from which the controller must decide this AlterPartition or ControlledShutdown."""
        if event.term is None:
            return
        run = event.broker, event.incarnation
        if isinstance(event.event, AlterPartitionReceived):
            self.judged_from[run] = self._facts(event.term, event.event)
        elif isinstance(event.event, ControlledShutdown):
            self.judged_from[run] = self._judged_from(
                event.term, event.event.broker, {}, {}, self.views.registrations.current
            )

    def on_event_ended(self, event: EventEnded) -> None:
        """Forget the facts of the event that has been handled."""
        self.judged_from.pop((event.broker, event.incarnation), None)

    def _facts(self, term: Term, requested: AlterPartitionReceived) -> JudgedFrom:
        """The facts from which the controller must decide an AlterPartition: topics, states, live brokers."""
        names: dict[Any, str] = {}
        partitions: dict[tuple[str, int], StoredPartition] = {}
        brokers: dict[BrokerId, None] = {}
        for topic in requested.request.topics:
            by_id = requested.version >= FIRST_WITH_TOPIC_IDS
            name = self.topics.ids.get(topic.topic_id, "") if by_id else topic.topic_name
            stored = self.topics.znodes.get(name)
            if stored is None or (by_id and stored.id != topic.topic_id):
                continue
            names[topic.topic_id if by_id else name] = name
            for data in topic.partitions:
                brokers |= dict.fromkeys(new_isr(data, requested.version))
                assignment = stored.partitions.get(data.partition_index)
                if assignment is not None:
                    state = self.states.newest(TopicPartition(name, data.partition_index))
                    partitions[name, data.partition_index] = StoredPartition(assignment.replicas, state)
        return self._judged_from(term, BrokerId(requested.request.broker_id), names, partitions, brokers)

    def _judged_from(
        self,
        term: Term,
        sender: BrokerId,
        names: Mapping[Any, str],
        partitions: Mapping[tuple[str, int], StoredPartition],
        brokers: Mapping[BrokerId, object],
    ) -> JudgedFrom:
        """Return the facts that decide the AlterPartition request, with what the controller may know of the brokers."""
        live = {b: self.views.is_live(term, b) for b in brokers}
        epochs = frozenset(self.views.epochs(term, sender))
        is_newest = term.epoch == self.controllers.epoch and self.controllers.has_controller_znode
        its_epochs = {b: frozenset(self.views.epochs(term, b)) for b in brokers}
        return JudgedFrom(epochs, live, its_epochs, names, partitions, is_newest)


def new_isr(requested: Any, version: int) -> tuple[BrokerId, ...]:
    """The proposed ISR in the request, from the field that its version uses."""
    if version >= FIRST_WITH_BROKER_EPOCHS:
        return tuple(BrokerId(member.broker_id) for member in requested.new_isr_with_epochs)
    return tuple(map(BrokerId, requested.new_isr))
