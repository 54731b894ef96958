"""A cluster in memory with a controller, and the mirror of a standby."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.controller_room import Room
from tests.support.memory_zookeeper import MemoryZooKeeper
from tests.support.waiting import settle

from klamm.controller.mirror import Mirror
from klamm.controller.observer import Observer
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.time_slices import CountedSlices
from klamm.sim.invariants.contexts import describe, read_from_scratch
from klamm.zk import znodes

TOPICS: dict[str, list[tuple[int, ...]]] = {"a": [(1, 2, 3), (2, 3, 1)], "b": [(3, 1)], "c": [(1,)]}
STATE = znodes.state_path(TopicPartition("a", 0))
CHANGED = LeaderAndIsr(BrokerId(2), 7, (BrokerId(2), BrokerId(3)), 1)


class Comparison(Observer):
    """Compares the context of each new term with one that is read from the same znodes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.compared = 0

    def on_context_read(self, since: int) -> None:
        term = self._room.term
        scratch = read_from_scratch(self._room.ensemble.tree, term.context, 1 << 62, term.settings)
        assert describe(term.context) == describe(scratch)
        self.compared += 1


def payload(*replicas: tuple[int, ...], topic_id: uuid.UUID | None = None) -> bytes:
    """The znode of a topic with these replicas."""
    partitions = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    return znodes.encode_topic(topic_id or uuid.UUID(int=5), partitions)


def topic_id(room: Room, topic: str) -> uuid.UUID:
    found = room.term.context.topics[topic].id
    assert found is not None
    return found


async def room_with_mirror() -> tuple[Room, Mirror, MemoryZooKeeper]:
    """A cluster with a controller, and a mirror that was read by another session."""
    room = await Room.open(topics=TOPICS)
    room.observer = Comparison(room)
    session = room.ensemble.client()
    room.mirror = Mirror(session, CountedSlices(), ControllerSettings(BrokerId(1)))
    await room.mirror.load()
    return room, room.mirror, session


@asynccontextmanager
async def following(mirror: Mirror) -> AsyncIterator[None]:
    """Follow the mirror meanwhile."""
    task = asyncio.create_task(mirror.follow())
    await settle()
    try:
        yield
        await settle()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
