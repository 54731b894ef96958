"""Simulated brokers as leaders: AlterPartition, control requests, session expiry."""

import asyncio
import uuid
from typing import Any

import pytest

from klamm.broker.dispatch import Request
from klamm.controller.events import Expire
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.net.client_connection import ClientConnection, Peer
from klamm.runtime.time_slices import CountedSlices
from klamm.sim.history.trace import Event, EventBegan, RequestUnanswered
from klamm.sim.loop import SimulatedLoop
from klamm.sim.nodes.broker import NodeContext, StubBroker
from klamm.sim.nodes.faulty_requests import ReceivedRequest
from klamm.sim.nodes.replicas import Replica
from klamm.sim.nodes.settings import NodeSettings
from klamm.sim.world import Universe
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionResponse,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataRequest,
)

CONNECTION = ClientConnection(Peer("PLAINTEXT", "node-2", 0))
P = TopicPartition("orders", 0)
ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
TUNING = NodeSettings("zk-1:2181", 6_000, "3.9", 256, 30_000, 100, 300, 0, True, True, False, False)


class Forgetful:
    """A controller channel that builds the request twice, before and after the topic is recreated."""

    def __init__(self, logs: dict[TopicPartition, uuid.UUID]) -> None:
        self._logs = logs
        self.asked: list[Any] = []

    async def ask(self, api_key: int, newest: int, build: Any, *predicates: Any) -> AlterPartitionResponse:
        """Build the request, recreate the topic, build the request again; the response is empty."""
        self.asked.append(build(newest))
        self._logs[P] = OTHER_ID  # meanwhile the topic is deleted and made again
        self.asked.append(build(newest))
        return AlterPartitionResponse()


def test_a_simulated_brokers_repeated_alter_partition_keeps_the_first_topic_id() -> None:
    loop = SimulatedLoop()
    _, world = Universe.of(loop).start("node-1")
    logs = {P: ID}

    async def scenario() -> None:
        nobody = NodeContext(lambda event: None, lambda *asked: False, logs, lambda step: None)
        broker: Any = StubBroker(world, 1, 1, TUNING, nobody)
        broker._channel = channel = Forgetful(logs)
        await broker._propose({P: Replica(proposal=(BrokerId(1),))})
        first, second = channel.asked
        assert first == second
        assert [t.topic_id for t in second.topics] == [ID]

    loop.run(scenario())


def test_a_simulated_broker_does_not_send_an_isr_change_superseded_by_leader_and_isr() -> None:
    """It was sent as an ISR without members, which a broker of an old protocol level then wrote itself."""
    loop = SimulatedLoop()
    _, world = Universe.of(loop).start("node-1")

    async def scenario() -> None:
        nobody = NodeContext(lambda event: None, lambda *asked: False, {P: ID}, lambda step: None)
        broker: Any = StubBroker(world, 1, 1, TUNING, nobody)
        broker._channel = channel = Forgetful({P: ID})
        await broker._propose({P: Replica(proposal=None)})
        assert channel.asked == []

    loop.run(scenario())


def test_a_slow_simulated_broker_handles_requests_of_a_controller_in_arrival_order() -> None:
    """One on a connection that broke was overtaken by those sent after it, and made a log that had been deleted."""
    loop = SimulatedLoop()
    _, world = Universe.of(loop).start("node-1")
    taken: list[tuple[int, str]] = []

    async def scenario() -> None:
        nobody = NodeContext(lambda event: None, lambda *asked: False, {}, lambda step: None)
        broker: Any = StubBroker(world, 1, 1, TUNING, nobody)
        handle = broker.requests.on_control_request(
            lambda request, message: taken.append((message.controller_epoch, request.client_id))
        )

        async def order(controller_epoch: int, what: str) -> None:
            message = UpdateMetadataRequest(controller_id=2, controller_epoch=controller_epoch)
            answer = handle(Request(ApiKey.UPDATE_METADATA, 8, 0, what, CONNECTION, CountedSlices()), message)
            if asyncio.iscoroutine(answer):
                await answer

        broker.requests.delay_s = 2.0
        waiting = [asyncio.ensure_future(order(3, what)) for what in ("first", "second")]
        await asyncio.sleep(1.0)
        broker.requests.delay_s = 0.0
        await asyncio.gather(*waiting, order(3, "sent again"), order(4, "of the next controller"))
        await order(3, "last")
        assert not broker.requests._queues

    loop.run(scenario())
    assert taken == [(4, "of the next controller"), (3, "first"), (3, "second"), (3, "sent again"), (3, "last")]


LATE = {
    "it names its topic id": (ID, 0, 1, 1),
    "it names another topic id": (OTHER_ID, 0, 1, 0),
    "it names none, and is an old one": (ZERO_ID, 1, 0, 1),
    "it names none, and is of the topic before it was made again": (ZERO_ID, 0, 1, 0),
}


@pytest.mark.parametrize(("topic_id", "had", "comes", "is_then"), LATE.values(), ids=LATE)
def test_a_simulated_broker_skips_a_replayed_request_that_differs_only_in_topic_id(
    topic_id: uuid.UUID, had: int, comes: int, is_then: int
) -> None:
    loop = SimulatedLoop()
    _, world = Universe.of(loop).start("node-1")

    async def scenario() -> None:
        nobody = NodeContext(lambda event: None, lambda *asked: False, {P: ID}, lambda step: None)
        broker: Any = StubBroker(world, 1, 1, TUNING, nobody)
        broker.is_ready, broker.replicas.controller_epoch = True, 3
        broker.replicas.hosted[P] = Replica(leader=BrokerId(1), leader_epoch=had)

        broker.replay(
            ReceivedRequest(
                Request(ApiKey.LEADER_AND_ISR, 7, 0, "", CONNECTION, CountedSlices()),
                order(),
            )
        )

        assert broker.replicas.leader_epoch(P) == is_then

    def order() -> LeaderAndIsrRequest:
        me = (BrokerId(1),)
        state = LeaderAndIsrPartitionState(P.topic, 0, 3, BrokerId(1), comes, me, comes, me, (), ())
        message = LeaderAndIsrRequest(controller_id=2, controller_epoch=3)
        message.topic_states = [LeaderAndIsrTopicState(P.topic, topic_id, [state])]
        return message

    loop.run(scenario())


@pytest.mark.parametrize("answered_s", [0.3, None], ids=["a slow host answers", "nobody is answered"])
def test_the_simulation_reports_a_request_unanswered_after_session_expiry(answered_s: float | None) -> None:
    """On a host that takes 3 ms for each step the end of a term alone takes more than a tenth of a second."""
    loop = SimulatedLoop()
    _, world = Universe.of(loop).start("node-1")
    told: list[Event] = []

    async def scenario() -> None:
        node_context = NodeContext(told.append, lambda *asked: False, {}, lambda step: None)
        broker: Any = StubBroker(world, 1, 1, TUNING, node_context)
        broker.requests.unanswered[1] = ApiKey.ALTER_PARTITION.name
        broker._on_controller_event(EventBegan(BrokerId(1), 1, None, Expire(), ()))
        if answered_s is not None:
            asyncio.get_running_loop().call_later(answered_s, broker.requests.unanswered.pop, 1)
        await asyncio.sleep(5.0)

    loop.run(scenario())
    assert [e for e in told if isinstance(e, RequestUnanswered)] == (
        [] if answered_s else [RequestUnanswered(BrokerId(1), "ALTER_PARTITION")]
    )
