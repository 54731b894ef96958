"""Shared by tests of topic deletion: a cluster that deletes topics, and the brokers' StopReplica responses."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tests.support.controller_room import EventT, Room

from klamm.controller.control_requests import StopReplicaItem
from klamm.controller.events import (
    BrokerChange,
    LeaderAndIsrResponseReceived,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.responses import on_leader_and_isr_response
from klamm.controller.handlers.topic_deletion import (
    on_replica_deletion_answer,
    on_topic_deletion,
)
from klamm.controller.handlers.topics import on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.controller.term_context import TermContext
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from klamm.zk import znodes
from klamm.zk.operations import Create

NO_WAITING = ControllerSettings(BrokerId(1), dead_broker_timeout_ms=0)


class Deleting:
    """A cluster with topics to delete; its brokers answer StopReplica when the test calls `answer`."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.stops: list[tuple[int, StopReplicaItem]] = []

    @classmethod
    async def open(
        cls,
        topics: Mapping[str, Sequence[Sequence[int]]],
        brokers: Sequence[int] = (1, 2, 3),
        settings: ControllerSettings | None = None,
    ) -> "Deleting":
        return cls(await Room.open(brokers, topics, settings))

    async def do(self, handler: Callable[[TermContext, EventT], Awaitable[None]], event: EventT) -> list[str]:
        """Run a handler for an event; returns the requests that it sent."""
        self.room.term.cause = self.room.journal.event(type(event).__name__)
        await handler(self.room.term, event)
        self.stops += [(b, item) for b, item in self.room.channels.items if isinstance(item, StopReplicaItem)]
        return self.room.channels.take()

    async def delete(self, *topics: str) -> list[str]:
        """Request the deletion of these topics and handle the event; returns the requests sent."""
        self.room.ensemble.apply([Create(znodes.delete_topic_path(t)) for t in topics])
        return await self.do(on_topic_deletion, TopicDeletion())

    async def answer(self, broker: int, error: ErrorCode = ErrorCode.NONE) -> list[str]:
        """Let a broker answer all StopReplica requests that it got; returns the requests sent then."""
        requests: list[str] = []
        waiting = [item for b, item in self.stops if b == broker]
        self.stops = [(b, item) for b, item in self.stops if b != broker]
        for item in waiting:
            errors = dict.fromkeys((p for p, s in item.stops.items() if s.delete_partition), error)
            epoch = self.room.term.context.registered[BrokerId(broker)].epoch
            event = TopicDeletionStopReplicaResponseReceived(BrokerId(broker), epoch, errors)
            requests += await self.do(on_replica_deletion_answer, event)
        return requests

    async def kill(self, broker: int) -> list[str]:
        """Remove the broker's registration and handle the event; returns the requests sent."""
        self.room.kill(broker)
        self.stops = [(b, item) for b, item in self.stops if b != broker]
        return await self.do(on_broker_change, BrokerChange())

    async def start(self, broker: int) -> list[str]:
        """Register the broker and handle the event; returns the requests sent."""
        await self.room.register(broker)
        return await self.do(on_broker_change, BrokerChange())

    def znodes_of(self, topic: str) -> list[str]:
        paths = (znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic))
        return [p for p in self.room.ensemble.nodes if any(p == q or p.startswith(f"{q}/") for q in paths)]

    def pending_deletions(self) -> list[str]:
        return [p for p in self.room.ensemble.nodes if p.startswith("/klamm/pending_deletions/") and p.count("/") == 4]

    def why(self, topic: str) -> str:
        """The reason why the topic's deletion waits."""
        return self.room.term.context.topics_ineligible_for_deletion[topic]


async def deleted_offline_then_created_again() -> Deleting:
    """A cluster where `a` was deleted while broker 2 was dead, and created again on brokers 1 and 2."""
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    again = {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))}
    await cluster.room.store.create_topic("a", again, uuid.UUID(int=77), {})
    await cluster.do(on_topic_change, TopicChange())
    return cluster


async def leader_and_isr_answer(cluster: Deleting, broker: int, error: ErrorCode) -> list[str]:
    """Handle a broker's LeaderAndIsr response with this error; returns the requests sent."""
    answers = [LeaderAndIsrTopicError(uuid.UUID(int=77), [LeaderAndIsrPartitionError("", 0, error)])]
    epoch = cluster.room.term.context.registered[BrokerId(broker)].epoch
    event = LeaderAndIsrResponseReceived(LeaderAndIsrResponse(topics=answers), BrokerId(broker), epoch)
    return await cluster.do(on_leader_and_isr_response, event)
