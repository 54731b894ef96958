"""Brokers: when they were registered, what their registrations said, and who left in order."""

from collections import defaultdict
from dataclasses import dataclass, field

from klamm.controller.events import ControlledShutdown
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.sim.history.position import Position
from klamm.sim.history.trace import (
    EventEnded,
    NodeStopped,
    RegistrationChanged,
    RegistrationWritten,
    RequestReceived,
)


@dataclass(slots=True)
class RegistrationHistory:
    at: Position
    current: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Broker -> (broker epoch, session) of its registration."""
    changes: dict[BrokerId, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Broker -> (zxid, broker epoch) of each time its registration came, or went with -1 for an epoch."""
    contents: dict[BrokerId, dict[int, bytes | None]] = field(default_factory=lambda: defaultdict(dict))
    """Broker -> zxid -> what its registration said from then on."""
    leaving: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Broker -> (its epoch, controller epoch) of a shutdown that the controller of that epoch knows of."""
    newest_run: dict[BrokerId, int] = field(default_factory=dict)
    """Broker -> its latest run that took an order."""
    stopped: set[tuple[BrokerId, int]] = field(default_factory=set)
    """(broker, incarnation) of those that left in order."""

    def on_changed(self, event: RegistrationChanged) -> None:
        self.changes[event.broker].append((self.at.zxid, event.epoch))
        if event.epoch < 0:
            self.current.pop(event.broker, None)
        else:
            self.current[event.broker] = event.epoch, event.session

    def on_written(self, event: RegistrationWritten) -> None:
        self.contents[event.broker][self.at.zxid] = event.data

    def on_event_ended(self, event: EventEnded) -> None:
        asked = event.event
        if isinstance(asked, ControlledShutdown) and event.term is not None and event.known is not None:
            registered = event.known.registered.get(asked.broker)
            if registered is not None and asked.reply.result().error is ErrorCode.NONE:
                self.leaving[asked.broker] = registered, event.term.epoch

    def on_request_received(self, event: RequestReceived) -> None:
        if not event.refusal:
            self.newest_run[event.broker] = max(event.incarnation, self.newest_run.get(event.broker, 0))

    def on_stopped(self, event: NodeStopped) -> None:
        self.stopped.add((event.broker, event.incarnation))
