"""Requests that a simulated broker handles late, or whose connection breaks before or after they take effect."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm.broker.dispatch import Handle, Request
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.net.server import CloseConnection
from klamm.replication.instructions import (
    PartitionInstruction,
    instructions_of,
    stop_instructions_of,
)
from klamm.sim.faults.injection_points import Injection, Step, StepKind
from klamm.sim.nodes.replicas import Replicas
from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.wire.api import ApiKey

_MAX_RECEIVED_KEPT: Final = 8


class ReceivedRequest(NamedTuple):
    """A control request that reached a broker."""

    request: Request
    message: Any


@dataclass(slots=True, eq=False)
class ControlRequestQueue:
    """Delayed control requests of one controller epoch; the lock keeps their order of arrival."""

    length: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class FaultyRequests:
    """Wraps the handlers of one broker with the faults that are injected into its requests."""

    def __init__(self, number: BrokerId, step: Injection) -> None:
        """`step` is asked before each request."""
        self._number = number
        self._step = step
        self.received: deque[ReceivedRequest] = deque(maxlen=_MAX_RECEIVED_KEPT)
        """The last control requests that reached the broker, or an earlier run of its process."""
        self.delay_s = 0.0
        """How long the broker takes for each control request."""
        self._queues: dict[int, ControlRequestQueue] = {}
        """Delayed control requests by controller epoch."""
        self._numbers = itertools.count()
        self.unanswered: dict[int, str] = {}
        """The names of requests to this broker's controller that have no response yet."""

    def on_control_request(self, handler: Handle) -> Handle:
        """Wrap a handler of control requests: faults may delay them or break the connection."""

        def handle(request: Request, message: Any) -> Any:
            """Record the request and answer it, late where earlier requests of this controller epoch are late."""
            self.received.append(ReceivedRequest(request, message))
            is_late = self.delay_s or message.controller_epoch in self._queues
            return handle_late(request, message) if is_late else handle_now(request, message)

        async def handle_late(request: Request, message: Any) -> Any:
            """Answer the request after `delay_s`, in the order of arrival."""
            async with self._in_arrival_order(message.controller_epoch):
                await asyncio.sleep(self.delay_s)
                return handle_now(request, message)

        def handle_now(request: Request, message: Any) -> Any:
            """Answer the request; an injected fault may disconnect before or after it takes effect."""
            loss = self._step(Step(StepKind.CONTROL_REQUEST, message.controller_id, self._number, request.api_key.name))
            _disconnect_if(loss, InjectedFailure.BEFORE)
            answer = handler(request, message)
            _disconnect_if(loss, InjectedFailure.AFTER)
            return answer

        return handle

    @asynccontextmanager
    async def _in_arrival_order(self, controller_epoch: int) -> AsyncIterator[None]:
        """Wait until earlier control requests of the same controller epoch are handled.

        Requests of another controller may overtake: epochs fence them.
        """
        backlog = self._queues.setdefault(controller_epoch, ControlRequestQueue())
        backlog.length += 1
        try:
            async with backlog.turn:
                yield
        finally:
            backlog.length -= 1
            if not backlog.length:
                del self._queues[controller_epoch]

    def on_broker_request(self, handler: Handle) -> Handle:
        """Wrap a handler of requests to this controller: faults may break the connection before or after it."""

        async def handle(request: Request, message: Any) -> Any:
            """Answer a request of another broker; an injected fault may disconnect before or after it takes effect."""
            loss = self._step(Step(StepKind.BROKER_REQUEST, message.broker_id, self._number, request.api_key.name))
            _disconnect_if(loss, InjectedFailure.BEFORE)
            number = next(self._numbers)
            self.unanswered[number] = request.api_key.name
            try:
                answer = await handler(request, message)
            finally:
                del self.unanswered[number]
            _disconnect_if(loss, InjectedFailure.AFTER)
            return answer

        return handle


def _disconnect_if(loss: InjectedFailure | None, moment: InjectedFailure) -> None:
    """Break the connection if the injected failure is of this moment."""
    if loss is moment:
        raise CloseConnection(f"injected failure: the connection is broken {moment.value} a request")


def can_detect_staleness(replicas: Replicas, repeated: ReceivedRequest) -> bool:
    """Whether the broker can detect that this redelivered control request of the current controller epoch is stale.

    It cannot for UpdateMetadata, for replicas that it no longer hosts, for StopReplica without a leader epoch, and
    for LeaderAndIsr without topic ids for a recreated topic, because its leader epochs began again.
    """
    request, message = repeated
    match request.api_key:
        case ApiKey.LEADER_AND_ISR:
            return all(
                _instruction_can_detect_staleness(replicas, o) for o in instructions_of(message, request.version)
            )
        case ApiKey.STOP_REPLICA:
            stops = stop_instructions_of(message, request.version)
            return all(s.leader_epoch >= 0 and s.topic_partition in replicas.hosted for s in stops)
        case _:
            return False


def _instruction_can_detect_staleness(replicas: Replicas, repeated: PartitionInstruction) -> bool:
    """Whether the leader epoch or topic id of this LeaderAndIsr partition shows that it is stale."""
    p = repeated.topic_partition
    is_newer = repeated.state.leader_epoch > replicas.leader_epoch(p)
    return p in replicas.hosted and (repeated.topic_id != ZERO_ID or not is_newer)
