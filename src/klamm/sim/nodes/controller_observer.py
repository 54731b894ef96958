"""Reports what a controller does to the simulation: terms, events, transitions, requests queued, sent and answered."""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from klamm.client.ports import BrokerConnection
from klamm.controller import events
from klamm.controller.control_requests import ControlItem
from klamm.controller.encoded_bodies import BodyForBroker
from klamm.controller.observer import Observer
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.net.encoded_messages import EncodedMessage
from klamm.sim.history.trace import (
    ConnectionOpened,
    ContextRead,
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


class ControllerObserver(Observer):
    """Reports what a controller does as events: terms, transitions, and requests queued, sent and answered."""

    def __init__(self, broker: BrokerId, incarnation: int, settings: ControllerSettings, on_event: OnEvent) -> None:
        """`settings`: what the node is configured with when it starts."""
        self._broker = broker
        self._incarnation = incarnation
        self._settings = settings
        self._on_event = on_event
        self._term: Term | None = None
        self._began_in: Term | None = None
        self._memory: TermContext | None = None
        self._has_failed = False
        self._newest: dict[BrokerId, Any] = {}
        self._in_flight: dict[BrokerId, int] = {}

    # ---- controller.observer.Observer

    def on_term_begin(self, term: TermContext) -> None:
        """Report that the broker became controller."""
        self._term, self._memory = Term(self._broker, self._incarnation, term.context.epoch, self._settings), term
        self._on_event(TermBegan(self._term, term))

    def on_term_end(self, term: TermContext) -> None:
        """Report that the broker is no longer controller."""
        ended, self._term, self._memory = self._term, None, None
        if ended is not None:
            self._on_event(TermEnded(ended, term))

    def on_context_read(self, since: int) -> None:
        """Report that the new term has read brokers, topics and partition states."""
        if self._term is not None and self._memory is not None:
            self._on_event(ContextRead(self._term, self._memory, since))

    def on_event_begin(self, event: events.Event, waiting: Iterable[events.Event]) -> None:
        """Report that the controller begins to handle the event; `waiting` are the events queued after it."""
        self._began_in, self._has_failed = self._term, False
        queued = tuple(type(e) for e in waiting)
        seen = self._memory.store.seen_zxid if self._memory is not None else 0
        self._on_event(EventBegan(self._broker, self._incarnation, self._term, event, queued, seen))

    def on_event_failed(self, event: events.Event) -> None:
        """Record that the event has failed, for the report of its end."""
        self._has_failed = True

    def on_event_end(self, event: events.Event) -> None:
        """Report that the controller has handled the event, and whether it failed or was cancelled."""
        is_cut_short = isinstance(sys.exception(), asyncio.CancelledError)
        self._on_event(
            EventEnded(self._broker, self._incarnation, self._began_in, event, is_cut_short, self._has_failed)
        )

    def on_unexpected_error(self, error: Exception) -> None:
        """Report the error with the last lines of its stack trace."""
        lines = traceback.extract_tb(error.__traceback__)[-_TRACEBACK_LINES:]
        where = ", ".join(f"{line.filename.rpartition('/')[2]}:{line.lineno} {line.name}" for line in lines)
        self._on_event(UnexpectedError(self._broker, error, where))

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        """Report that a partition changed its state."""
        if self._term is not None:
            self._on_event(PartitionMoved(self._term, partition, before, after))

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        """Report that a replica changed its state."""
        if self._term is not None:
            self._on_event(ReplicaMoved(self._term, broker, partition, before, after))

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        """Report that a control request was queued for the broker."""
        if self._term is not None and self._memory is not None:
            self._on_event(RequestQueued(self._term, broker, self._memory.context.registered[broker].epoch, item))

    # ---- connections

    async def connect(self, host: str, open_connection: Callable[[], Awaitable[BrokerConnection]]) -> BrokerConnection:
        """Open the controller's connection to a broker, wrapped so that its requests are reported."""
        target = BrokerId(int(host.removeprefix(_HOST_PREFIX)))
        self._on_event(ConnectionOpened(self._broker, self._incarnation, target))
        return _ObservedConnection(self, target, await open_connection())

    def on_request_sent(self, target: BrokerId, message: Any, version: int) -> None:
        """Report a control request that is sent to this broker."""
        again = self._newest.get(target) is message
        self._newest[target] = message
        count = self._in_flight.get(target, 0)
        self._in_flight[target] = count + 1
        content = _decoded(message, version)
        self._on_event(RequestSent(self._broker, self._incarnation, target, content, again, count, version))

    def answered(self, target: BrokerId, message: Any, response: Any) -> None:
        """Report a broker's response to a control request."""
        self._on_event(RequestAnswered(self._broker, target, message, response, self._incarnation))

    def on_request_ended(self, target: BrokerId) -> None:
        """Decrease the number of requests in flight to this broker by one."""
        self._in_flight[target] -= 1


class _ObservedConnection:
    """A connection from the controller to a broker that reports its requests and responses."""

    def __init__(self, observer: ControllerObserver, target: BrokerId, connection: BrokerConnection) -> None:
        self._observer = observer
        self._target = target
        self._connection = connection

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._connection.closed

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        """Send the request and return the response; both are reported to the observer."""
        self._observer.on_request_sent(self._target, message, version)
        try:
            response = await self._connection.request(api_key, version, message, timeout_s)
        finally:
            self._observer.on_request_ended(self._target)
        self._observer.answered(self._target, message, response)
        return response

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _decoded(message: Any, version: int) -> Any:
    """The message as an object, decoded if it is bytes."""
    if isinstance(message, BodyForBroker):
        return message.request
    if isinstance(message, EncodedMessage):
        return LeaderAndIsrRequest.decode(b"".join(message.encode_pieces(version)), version)
    return message
