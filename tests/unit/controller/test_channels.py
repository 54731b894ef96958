"""Channels: one request in flight per broker, in order, repeated until answered; none after the end of the term."""

import asyncio
from typing import Any

import pytest
from tests.support.controller_nodes import FakeConnection, Nodes, Receiver
from tests.support.controller_room import FixedClock, ListSink, broker
from tests.support.waiting import settle

from klamm.controller import controller
from klamm.controller.channels import ChannelPorts, Channels
from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import StopReplicaItem
from klamm.controller.events import Event, TopicDeletionStopReplicaResponseReceived
from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import CountedSlices
from klamm.telemetry.journal import Journal
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionState,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from klamm.zk.operations import Create, Delete
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.znodes import broker_path


async def test_control_requests_go_to_every_broker_including_the_controllers_own(nodes: Nodes) -> None:
    for number in (1, 2):
        await nodes.start(number)
    await nodes.topic("a", [(1, 2)])

    for receiver in nodes.receivers.values():
        [request] = receiver.take("LeaderAndIsr")
        assert request.controller_epoch == 1
        assert request.broker_epoch == nodes.ensemble.nodes[f"/brokers/ids/{receiver.number}"].czxid
        assert [s.is_new for t in request.topic_states for s in t.partition_states] == [True]
        assert receiver.take("UpdateMetadata")


async def test_a_control_request_waits_for_the_previous_response_and_queued_requests_are_merged(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    receiver = nodes.receivers[1]
    receiver.hold = asyncio.Event()
    receiver.received.clear()

    for name in ("a", "b", "c"):
        await nodes.topic(name, [(1,)])
    assert len(receiver.received) == 1

    receiver.hold.set()
    await nodes.settle()
    requests = [request for kind, request in receiver.received if kind == "LeaderAndIsr"]
    assert [[t.topic_name for t in request.topic_states] for request in requests] == [["a"], ["b", "c"]]
    assert len(receiver.received) < 6  # Kafka would have sent six


async def test_a_control_request_is_retried_until_the_broker_responds(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    receiver = nodes.receivers[1]
    receiver.received.clear()
    receiver.refuses_connections = True
    await nodes.topic("a", [(1,)])
    assert nodes.controllers[1].term is not None
    assert nodes.controllers[1].term.channels.waiting == 2

    receiver.refuses_connections = False
    await nodes.eventually(lambda: bool(receiver.take("UpdateMetadata")))

    first, *again = receiver.take("LeaderAndIsr")
    assert all(request == first for request in again)
    [failure] = [e for e in nodes.journal(1, "response") if "failed" in e.facts]
    assert "connection" in failure.facts["failed"]


async def test_queued_replica_deletions_for_a_removed_broker_are_reported_as_failed() -> None:
    told: list[Any] = []
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "node-2", 9092)
    broker = Broker(BrokerId(2), (endpoint,), epoch=40)
    unused: Any = None
    context, settings = ControllerContext(1), ControllerSettings(BrokerId(1))
    channels = Channels(context, settings, ChannelPorts(unused, told.append), unused, CountedSlices())
    assert channels.add(broker) is None
    deleted, stopped = (Partition("a", n, ReplicaAssignment((BrokerId(1),))) for n in (0, 1))
    states = {deleted: StopReplicaPartitionState(0, 5, True), stopped: StopReplicaPartitionState(1, 5, False)}
    channels.send(broker.id, StopReplicaItem(states, ("1.1.1",), 1))

    channels.remove(broker.id)
    await channels.close()

    [event] = told
    assert (event.broker, event.broker_epoch, event.errors) == (2, 40, {deleted: ErrorCode.NETWORK_EXCEPTION})


async def test_an_unreadable_response_of_a_broker_does_not_stop_later_control_requests(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.topic("a", [(1,)])
    receiver = nodes.receivers[1]
    receiver.answer = lambda key, _: StopReplicaResponse(error_code=9_999) if key is ApiKey.STOP_REPLICA else None
    nodes.ensemble.apply([Create("/admin/delete_topics/a", b"")])
    await nodes.settle()
    receiver.received.clear()

    await nodes.topic("b", [(1,)])

    [told] = receiver.take("LeaderAndIsr")
    assert [t.topic_name for t in told.topic_states] == ["b"]
    assert [e.facts["what"] for e in nodes.journal(1, "failed")] == ["StopReplicaItem to broker 1"]
    [held] = [e for e in nodes.journal(1, "deletion") if e.facts["step"] == "held back"]
    assert "UNKNOWN_SERVER_ERROR" in held.facts["why"]


async def test_a_control_request_that_cannot_be_encoded_is_dropped_and_later_requests_are_sent() -> None:
    receiver, sink = Receiver(1), ListSink()
    context, settings = ControllerContext(1), ControllerSettings(BrokerId(1))
    replicas = [Partition("a", n, ReplicaAssignment((BrokerId(1),))) for n in range(2)]

    async def connect(host: str, port: int, client_id: str, timeout_s: float) -> FakeConnection:
        return FakeConnection(receiver, lambda: None)

    journal = Journal(sink, 1, FixedClock())
    channels = Channels(context, settings, ChannelPorts(connect, lambda event: None), journal, CountedSlices())
    channels.add(Broker(BrokerId(1), (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "h", 9092),)))
    beyond = StopReplicaPartitionState(0, 2**31, False)  # no field has room for this leader epoch
    channels.send(BrokerId(1), StopReplicaItem({replicas[0]: beyond}, ("1.1.0", "1.1.1"), 1))
    await asyncio.sleep(0)  # it is on its way: what comes next is not merged with it
    channels.send(BrokerId(1), StopReplicaItem({replicas[1]: StopReplicaPartitionState(1, 5, False)}, ("1.1.2",), 1))
    await settle()

    told = [
        state for request in receiver.take("StopReplica") for t in request.topic_states for state in t.partition_states
    ]
    assert [state.partition_index for state in told] == [1]
    [failed] = [line for line in sink.content.splitlines() if b'"kind":"failed"' in line]
    assert b"StopReplicaItem to broker 1" in failed
    assert b"UnencodableField" in failed
    assert b'"cause":"1.1.1"' in failed  # the last of its causes
    await channels.close()


async def test_retries_of_control_requests_stop_when_their_broker_dies(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.start(2)
    await nodes.settle()
    [active] = nodes.active
    other = 3 - active
    nodes.receivers[other].refuses_connections = True
    await nodes.topic("a", [(1, 2)])

    await nodes.stop(other)
    await nodes.settle()

    term = nodes.controllers[active].term
    assert term is not None
    assert (len(term.channels), term.channels.waiting) == (1, 0)


async def test_no_control_request_is_sent_after_the_controllers_resignation(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    receiver = nodes.receivers[1]
    receiver.hold = asyncio.Event()
    await nodes.topic("a", [(1,)])
    before = len(receiver.received)

    await nodes.stop(1)
    receiver.hold.set()
    await settle()

    assert len(receiver.received) == before
    assert controller.term is None


async def test_an_error_in_an_update_metadata_response_becomes_a_controller_event(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    stale = UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    nodes.receivers[1].answer = lambda key, request: stale if key.name == "UPDATE_METADATA" else None

    await nodes.topic("a", [(1,)])

    assert "UpdateMetadataResponseReceived" in {e.facts["event"] for e in nodes.journal(1, "event")}
    assert ErrorCode.STALE_BROKER_EPOCH in {e.facts.get("error") for e in nodes.journal(1, "response")}


async def test_a_leader_and_isr_response_becomes_a_controller_event_with_that_response(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    failed = ErrorCode.KAFKA_STORAGE_ERROR

    def answer(key: ApiKey, request: Any) -> LeaderAndIsrResponse | None:
        if key is not ApiKey.LEADER_AND_ISR:
            return None
        errors = [LeaderAndIsrPartitionError(partition_index=0, error_code=failed)]
        return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(t.topic_id, errors) for t in request.topic_states])

    nodes.receivers[1].answer = answer
    await nodes.topic("a", [(1,)])

    assert controller.term is not None
    assert [str(p) for p in controller.term.context.offline_dirs[BrokerId(1)]] == ["a-0"]


async def test_a_stop_replica_response_becomes_a_controller_event_only_for_deleted_replicas(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.topic("a", [(1,), (1,)])
    await nodes.topic("b", [(1,)])
    term = controller.term
    assert term is not None
    deleted, stopped, other = (term.context.partition(t, n) for t, n in (("a", 0), ("a", 1), ("b", 0)))
    heard: list[Event] = []
    ports = ChannelPorts(nodes._connect_to, heard.append)
    channels = Channels(term.context, term.settings, ports, term.journal, term.slices)
    assert channels.add(term.context.registered[BrokerId(1)]) is None

    for stops in ({stopped: False, other: False}, {deleted: True, stopped: False}):
        items = {p: StopReplicaPartitionState(p.partition, 0, d) for p, d in stops.items() if p is not None}
        channels.send(BrokerId(1), StopReplicaItem(items, ("c",), 0))
    assert channels.waiting_deletions(BrokerId(1)) == {TopicPartition("a", 0)}
    await nodes.eventually(lambda: channels.waiting == 0)
    assert channels.waiting_deletions(BrokerId(1)) == set()

    [event] = heard
    assert isinstance(event, TopicDeletionStopReplicaResponseReceived)
    assert list(event.errors) == [deleted]
    await channels.close()


async def test_control_requests_go_only_to_the_control_plane_listener() -> None:
    called: list[tuple[str, int]] = []

    async def refuse(host: str, port: int, client_id: str, timeout_s: float) -> FakeConnection:
        called.append((host, port))
        raise KlammError("nobody is there")

    settings = ControllerSettings(BrokerId(1), control_plane_listener="CONTROLLER")
    endpoints = [
        Endpoint(n, SecurityProtocol.PLAINTEXT, "h", p) for n, p in (("PLAINTEXT", 9092), ("CONTROLLER", 9093))
    ]
    context, journal = ControllerContext(1), Journal(ListSink(), 1, FixedClock())
    channels = Channels(context, settings, ChannelPorts(refuse, lambda event: None), journal, CountedSlices())

    assert channels.add(Broker(BrokerId(1), tuple(endpoints))) is None
    assert "no listener CONTROLLER" in (channels.add(Broker(BrokerId(2), tuple(endpoints[:1]))) or "")
    channels.send(BrokerId(1), StopReplicaItem({}, ("c",), 0))
    await settle()

    assert set(called) == {("h", 9093)}
    await channels.close()


async def test_the_journal_names_the_event_that_caused_each_control_request_and_response(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])

    [event] = [e for e in nodes.journal(1, "event") if e.facts["event"] == "TopicChange"]
    requests = [e for e in nodes.journal(1, "request") if e.cause == event.cause]
    answers = [e for e in nodes.journal(1, "response") if e.cause == event.cause]

    assert [r.facts["api"] for r in requests] == ["LEADER_AND_ISR", "UPDATE_METADATA"]
    assert requests[0].facts["partitions"] == {"a": [0]}
    assert [a.facts["api"] for a in answers] == ["LEADER_AND_ISR", "UPDATE_METADATA"]


async def test_update_metadata_announces_a_bounced_brokers_failure_before_its_return(nodes: Nodes) -> None:
    await nodes.start(1)
    nodes.receivers[2] = Receiver(2)
    session = nodes.ensemble.client()
    await BrokerRegistrar(broker(2)).register(session, 0)
    await nodes.settle()
    nodes.receivers[1].received.clear()

    registration = broker_path(BrokerId(2))
    data = nodes.ensemble.nodes[registration].data
    nodes.ensemble.apply([Delete(registration), Create(registration, data, ephemeral=True)], session.session_id)
    await nodes.settle()

    listed = [sorted(b.id for b in request.live_brokers) for request in nodes.receivers[1].take("UpdateMetadata")]
    assert listed[0] == [1]
    assert listed[-1] == [1, 2]


async def test_a_controlled_shutdown_is_answered_once_the_brokers_have_answered_its_requests(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        await nodes.start(number)
    await nodes.topic("a", [(2, 3)])
    nodes.receivers[3].hold = asyncio.Event()
    asked = asyncio.ensure_future(nodes.controllers[1].controlled_shutdown(BrokerId(2), -1))
    await nodes.settle()
    assert nodes.receivers[3].take("LeaderAndIsr")
    assert not asked.done()

    nodes.receivers[3].hold.set()
    await nodes.settle()

    assert asked.done()
    assert (await asked).error is ErrorCode.NONE


async def test_a_broker_that_does_not_answer_delays_a_controlled_shutdown_for_a_limited_time(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "MAX_SHUTDOWN_DELAY_S", 0.01)
    for number in (1, 2, 3):
        await nodes.start(number)
    await nodes.topic("a", [(2, 3)])
    nodes.receivers[3].hold = asyncio.Event()

    answer = await nodes.controllers[1].controlled_shutdown(BrokerId(2), -1)

    assert (answer.error, answer.remaining) == (ErrorCode.NONE, ())
    nodes.receivers[3].hold.set()
