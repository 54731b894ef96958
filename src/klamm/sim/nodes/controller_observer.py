"""Reports what a controller does to the simulation: terms, events, transitions, requests queued, sent and answered."""

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from klamm.client.ports import BrokerConnection
from klamm.controller import events
from klamm.controller.context import ControllerContext, Partition
from klamm.controller.control_requests import ControlItem
from klamm.controller.encoded_bodies import BodyForBroker, EncodedBody
from klamm.controller.observer import Observer
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.trace import (
    Event,
    EventBegan,
    EventEnded,
    PartitionMoved,
    ReplicaMoved,
    RequestAnswered,
    RequestQueued,
    RequestSent,
    Term,
    TermBegan,
    TermEnded,
    UnexpectedError,
)
from klamm.wire.api import ApiKey
from klamm.wire.messages import LeaderAndIsrRequest

OnEvent = Callable[[Event], None]

_HOST_PREFIX: Final = "node-"
_TRACEBACK_LINES: Final = 3
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 2


class KnownPartition(NamedTuple):
    """What the controller knew of a partition when it began to handle AlterPartition for it."""

    replicas: tuple[BrokerId, ...]
    leadership: LeaderAndIsr | None


class ControllerKnowledge(NamedTuple):
    """What a controller knew when it began to handle a broker's request."""

    registered: dict[BrokerId, int]
    """Broker -> broker epoch."""
    live: frozenset[BrokerId]
    leaving: frozenset[BrokerId]
    topics: dict[Any, str]
    """Topics of the request that are known: their names by what it calls them: an id, or once a name."""
    partitions: dict[tuple[str, int], KnownPartition]


class BrokerKnowledge(NamedTuple):
    """The registered brokers that a controller knew when it began to handle a broker change."""

    registered: dict[BrokerId, int]
    """Broker -> broker epoch."""
    zxid: int
    """How far its session had seen by then."""


class ControllerObserver(Observer):
    """Reports what a controller does as events: terms, transitions, and requests queued, sent and answered."""

    def __init__(self, broker: BrokerId, incarnation: int, on_event: OnEvent) -> None:
        self._broker = broker
        self._incarnation = incarnation
        self._on_event = on_event
        self._term: Term | None = None
        self._began_in: Term | None = None
        self._knowledge_before: ControllerKnowledge | BrokerKnowledge | None = None
        self._newest: dict[BrokerId, Any] = {}
        self._in_flight: dict[BrokerId, int] = {}

    # ---- controller.observer.Observer

    def on_term_begin(self, term: TermContext) -> None:
        self._term = Term(self._broker, self._incarnation, term)
        self._on_event(TermBegan(self._term))

    def on_term_end(self, term: TermContext) -> None:
        ended, self._term = self._term, None
        if ended is not None:
            self._on_event(TermEnded(ended))

    def on_event_begin(self, event: events.Event, waiting: Iterable[events.Event]) -> None:
        self._knowledge_before = _knowledge_before(self._term.internals, event) if self._term is not None else None
        self._began_in = self._term
        queued = tuple(type(e) for e in waiting)
        self._on_event(EventBegan(self._broker, self._incarnation, self._term, event, queued))

    def on_event_end(self, event: events.Event) -> None:
        is_cut_short = isinstance(sys.exception(), asyncio.CancelledError)
        self._on_event(
            EventEnded(self._broker, self._incarnation, self._began_in, event, self._knowledge_before, is_cut_short)
        )
        self._knowledge_before = None

    def on_unexpected_error(self, error: Exception) -> None:
        lines = traceback.extract_tb(error.__traceback__)[-_TRACEBACK_LINES:]
        where = ", ".join(f"{line.filename.rpartition('/')[2]}:{line.lineno} {line.name}" for line in lines)
        self._on_event(UnexpectedError(self._broker, error, where))

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        if self._term is not None:
            self._on_event(PartitionMoved(self._term, partition, before, after))

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        if self._term is not None:
            self._on_event(ReplicaMoved(self._term, broker, partition, before, after))

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        if self._term is not None:
            self._on_event(RequestQueued(self._term, broker, item))

    # ---- connections

    def watch(self, host: str, connection: BrokerConnection) -> BrokerConnection:
        """Wrap the controller's connection to a broker so that its requests are reported."""
        return _ObservedConnection(self, BrokerId(int(host.removeprefix(_HOST_PREFIX))), connection)

    def on_request_sent(self, target: BrokerId, message: Any, version: int) -> None:
        """Report a control request that is sent to this broker."""
        again = self._newest.get(target) is message
        self._newest[target] = message
        count = self._in_flight.get(target, 0)
        self._in_flight[target] = count + 1
        content = _decoded(message, version)
        self._on_event(RequestSent(self._broker, self._incarnation, target, content, again, count))

    def answered(self, target: BrokerId, message: Any, response: Any) -> None:
        """Report a broker's response to a control request."""
        self._on_event(RequestAnswered(self._broker, target, message, response))

    def on_request_ended(self, target: BrokerId) -> None:
        """Count one request in flight to this broker less."""
        self._in_flight[target] -= 1


class _ObservedConnection:
    """A connection from the controller to a broker that reports its requests and responses."""

    def __init__(self, observer: ControllerObserver, target: BrokerId, connection: BrokerConnection) -> None:
        self._observer = observer
        self._target = target
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        self._observer.on_request_sent(self._target, message, version)
        try:
            response = await self._connection.request(api_key, version, message, timeout_s)
        finally:
            self._observer.on_request_ended(self._target)
        self._observer.answered(self._target, message, response)
        return response

    def close(self) -> None:
        self._connection.close()


def _decoded(message: Any, version: int) -> Any:
    """The message as an object, decoded if it is bytes."""
    if isinstance(message, BodyForBroker):
        return message.request
    if isinstance(message, EncodedBody):
        return LeaderAndIsrRequest.decode(b"".join(message.encode_pieces(version)), version)
    return message


def _knowledge_before(term: TermContext, event: events.Event) -> ControllerKnowledge | BrokerKnowledge | None:
    """What the controller knew before this event, to check its result; None for events that no invariant checks."""
    context = term.context
    if isinstance(event, events.BrokerChange):
        return BrokerKnowledge({b.id: b.epoch for b in context.registered.values()}, term.store.client.seen_zxid)
    if isinstance(event, events.ControlledShutdown):
        return _controller_knowledge(context, {}, {})
    if not isinstance(event, events.AlterPartitionReceived):
        return None
    topics: dict[Any, str] = {}
    partitions: dict[tuple[str, int], KnownPartition] = {}
    for asked in event.request.topics:
        by_name = event.version < _FIRST_VERSION_WITH_TOPIC_IDS
        found = context.topics.get(asked.topic_name) if by_name else context.topic_with_id(asked.topic_id)
        if found is None:
            continue
        topics[asked.topic_name if by_name else asked.topic_id] = found.name
        for data in asked.partitions:
            partition = found.partitions.get(data.partition_index)
            if partition is not None:
                known = KnownPartition(partition.replicas, partition.leadership)
                partitions[found.name, data.partition_index] = known
    return _controller_knowledge(context, topics, partitions)


def _controller_knowledge(
    context: ControllerContext, topics: dict[Any, str], partitions: dict[tuple[str, int], KnownPartition]
) -> ControllerKnowledge:
    """The controller's knowledge of brokers, with these topics and partitions."""
    registered = {b.id: b.epoch for b in context.registered.values()}
    return ControllerKnowledge(registered, context.live, context.leaving, topics, partitions)
