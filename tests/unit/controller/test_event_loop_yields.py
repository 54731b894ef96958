"""Large work is done in pieces over several passes of the event loop, and unneeded work is not done."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

from tests.support.controller_nodes import Nodes
from tests.support.controller_room import Room

from klamm.controller import metrics
from klamm.controller.channels import Channel
from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    RequestBuilder,
    UpdateMetadataItem,
)
from klamm.controller.handlers.tool_requests import remove_finished_entries
from klamm.controller.request_batch import RequestBatch
from klamm.controller.sent_states import leader_and_isr_state
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import INITIAL_REPLICA_STATE
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.time_slices import PIECE, CountedSlices

ONE, TWO = BrokerId(1), BrokerId(2)
BOTH = ReplicaAssignment((ONE, TWO))


@asynccontextmanager
async def changes_in_a_pass(count: Callable[[], int]) -> AsyncIterator[list[int]]:
    """The differences of `count` between passes of the loop."""
    changes: list[int] = []

    async def look() -> None:
        before = count()
        while True:
            await asyncio.sleep(0)
            now = count()
            changes.append(abs(now - before))
            before = now

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    yield changes
    await asyncio.sleep(0)
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


def led(context: ControllerContext, topic: str, count: int) -> list[Partition]:
    """Partitions of a topic that have a leader."""
    partitions = []
    known = context.add_topic(topic, None)
    for number in range(count):
        partitions.append(context.add_partition(known, number, BOTH))
        context.put_leadership(partitions[-1], LeaderAndIsr(ONE, 0, (ONE, TWO), 1))
    return partitions


class Outbox:
    def __init__(self) -> None:
        self.items: list[ControlItem] = []

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        self.items.append(item)


# ---- what is let go


def large_request(partitions: int) -> LeaderAndIsrItem:
    context = ControllerContext(1)
    states = {p: leader_and_isr_state(p, False, False, brief=True) for p in led(context, "a", partitions)}
    return LeaderAndIsrItem(states, ("c",), 1)


async def test_a_large_leader_and_isr_is_encoded_in_several_event_loop_iterations() -> None:
    builder = RequestBuilder(ControllerContext(1), ControllerSettings(ONE), CountedSlices(PIECE))
    item = large_request(3 * PIECE)

    async with changes_in_a_pass(lambda: len(item.states)) as changes:
        await builder.free_states(item)

    assert not item.states
    assert max(changes) == PIECE


async def test_the_states_of_an_answered_control_request_are_released_before_the_next_request() -> None:
    nodes = Nodes()
    await nodes.start(1)
    await nodes.settle()
    term = nodes.controllers[1].term
    assert term is not None
    states = {p: leader_and_isr_state(p, False, False, brief=True) for p in led(term.context, "a", 2)}
    item = LeaderAndIsrItem(states, ("c",), 1)

    term.channels.send(ONE, item)
    await nodes.settle()

    assert not item.states
    [request] = nodes.receivers[1].take("LeaderAndIsr")
    assert [len(t.partition_states) for t in request.topic_states] == [2]
    await nodes.close()


async def test_queued_requests_to_a_removed_broker_are_released_one_per_loop_iteration() -> None:
    taken: list[ControlItem] = []

    class Counting(RequestBuilder):
        async def free_states(self, item: ControlItem) -> None:
            taken.append(item)
            await super().free_states(item)

    context = ControllerContext(1)
    builder = Counting(context, ControllerSettings(ONE), CountedSlices(PIECE))
    channel = Channel(Broker(TWO, ()), None, builder, None, None, None)  # type: ignore[arg-type]
    many = dict.fromkeys(led(context, "a", PIECE + 1))
    for _ in range(5):
        channel.put(UpdateMetadataItem(many, ("c",), 1, deletes=True))  # type: ignore[arg-type]

    async with changes_in_a_pass(lambda: len(taken)) as changes:
        await channel.close()

    assert len(taken) == 4  # and one is under way
    assert max(changes) == 1


async def test_encoded_partition_states_are_released_in_several_event_loop_iterations() -> None:
    context = ControllerContext(1)
    context.add_brokers([Broker(ONE, ())])
    batch = RequestBatch(context, ControllerSettings(ONE), Outbox(), CountedSlices(PIECE))
    partitions = led(context, "a", 3 * PIECE)
    batch.add_changes(partitions, {ONE: partitions})

    async with changes_in_a_pass(lambda: sum(p.shared_state is not None for p in partitions)) as changes:
        await batch.send("c")

    assert not any(p.shared_state for p in partitions)
    assert [c for c in changes if c] == [PIECE] * 6  # made, and let go


# ---- what is looked at


async def test_controller_failover_starts_a_dead_brokers_replicas_in_several_event_loop_iterations() -> None:
    room = await Room.open(brokers=(1, 2), topics={"a": [(1, 2)] * (2 * PIECE)})
    room.kill(2)

    def started() -> int:
        replicas = room.term.context.replicas_on(TWO)
        return sum(state is not INITIAL_REPLICA_STATE for state in replicas.values())

    async with changes_in_a_pass(started) as changes:
        await room.become_controller()

    assert started() == 2 * PIECE
    assert max(changes) == PIECE


async def test_controller_failover_lists_replicas_of_one_broker_per_event_loop_iteration() -> None:
    room = await Room.open(brokers=(1, 2, 3), topics={"a": [(1, 2, 3)] * (PIECE + 1)})

    def listed() -> int:
        return sum(map(len, room.term.context.replica_states.values()))

    room.term.context.replica_states.clear()
    async with changes_in_a_pass(listed) as changes:
        await room.become_controller()

    assert listed() == 3 * (PIECE + 1)
    assert max(changes) == PIECE + 1


def test_partitions_without_a_leader_are_collected_without_blocking_the_event_loop() -> None:
    context = ControllerContext(1)
    first, *_ = led(context, "a", 3)
    seen: list[Partition] = []

    class Watched(dict[Partition, None]):
        def __iter__(self) -> Iterator[Partition]:
            for p in super().__iter__():
                seen.append(p)
                yield p

    context.led_by[ONE] = Watched(context.led_by[ONE])

    assert next(context.without_online_leader()) is first
    assert seen == [first]


class RecordedSlices(CountedSlices):
    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[int] = []

    async def checkpoint(self, items: int = 1) -> None:
        self.checkpoints.append(items)
        await super().checkpoint(items)


async def test_replicas_to_be_deleted_are_counted_for_one_topic_per_event_loop_iteration() -> None:
    slices, context = RecordedSlices(), ControllerContext(1)
    for number in range(9):
        led(context, f"t{number}", 3)
    context.queue_deletion(list(context.topics))

    assert await metrics.count_deletion(context, slices) == (9 * 3 * 2, 0)
    assert slices.checkpoints == [3] * 9


# ---- what nobody needs


class Unasked(Partition):
    """A partition whose leader epoch and key must not be read."""

    @property
    def leader_epoch(self) -> int:
        raise AssertionError("nobody is told of it")

    @property
    def key(self) -> TopicPartition:
        raise AssertionError("nobody looks for it")


async def test_no_control_requests_are_built_for_dead_brokers() -> None:
    context, outbox = ControllerContext(1), Outbox()
    batch = RequestBatch(context, ControllerSettings(ONE), outbox, CountedSlices())
    context.add_topic("a", None).partitions[0] = gone = Unasked("a", 0, BOTH)

    batch.add_stop_replica((ONE, TWO), gone, delete=False)
    await batch.send("c")

    assert not outbox.items


async def test_removing_entries_of_completed_reassignments_skips_a_missing_reassign_partitions_znode() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    finished = Unasked("a", 0, BOTH)

    await remove_finished_entries(room.term, [finished])
