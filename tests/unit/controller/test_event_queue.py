"""The event queue: order, clearing, capacity; an event is either handled or preempted."""

from klamm.controller.event_queue import EventQueue
from klamm.controller.events import (
    AllocateProducerIds,
    ApiPartitionReassignment,
    BrokerChange,
    ControlledShutdown,
    Event,
    Expire,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    ShutdownAnswer,
    ShutdownEventThread,
    TopicChange,
    UpdateFeatures,
)
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition


async def test_controller_events_are_taken_from_the_queue_in_the_order_they_were_put() -> None:
    queue = EventQueue()
    first, second = queue.put(BrokerChange()), queue.put(TopicChange())

    assert [await queue.take(), await queue.take()] == [first, second]
    assert len(queue) == 0


async def test_clearing_the_event_queue_preempts_and_refuses_all_queued_events() -> None:
    queue = EventQueue()
    asked = AllocateProducerIds(BrokerId(1), 1)
    waiting = queue.put(asked)

    expire = queue.clear_and_put(Expire())

    assert asked.reply.result().error is ErrorCode.NOT_CONTROLLER
    assert not waiting.begin()
    assert await queue.take() is expire


async def test_a_controller_event_begins_only_once_and_cannot_be_preempted_afterwards() -> None:
    queue = EventQueue()
    asked = AllocateProducerIds(BrokerId(1), 1)
    queued = queue.put(asked)

    assert queued.begin()
    assert not queued.begin()
    queued.preempt()
    assert queued.started.is_set()
    assert asked.owes_answer


async def test_a_full_event_queue_refuses_requests_but_accepts_events_without_a_caller() -> None:
    queue = EventQueue(capacity=1)
    queue.put(BrokerChange())
    asked = AllocateProducerIds(BrokerId(1), 1)
    queue.put(asked)
    queue.put(TopicChange())
    queue.put(ReplicaLeaderElection(None, unclean=False))  # a watch fired, and does so once

    assert asked.reply.result().error is ErrorCode.REQUEST_TIMED_OUT
    assert len(queue) == 3


async def test_a_closed_event_queue_refuses_requests_at_once() -> None:
    queue = EventQueue()
    queue.close(ShutdownEventThread())
    asked = ControlledShutdown(BrokerId(1), 1)
    queue.put(asked)

    assert asked.reply.result() == ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)
    assert isinstance((await queue.take()).event, ShutdownEventThread)
    assert len(queue) == 0


async def test_closing_the_event_queue_preempts_all_queued_events_except_the_shutdown_event() -> None:
    queue = EventQueue()
    partition = TopicPartition("a", 0)
    election = ReplicaLeaderElection([partition], unclean=False)
    shutdown = ControlledShutdown(BrokerId(1), 1)
    moves = ApiPartitionReassignment({partition: None}), ListPartitionReassignments([partition])
    waiting = [queue.put(event) for event in (TopicChange(), election, shutdown, moves[0], moves[1])]

    queue.close(ShutdownEventThread())

    assert election.reply.result().refused[partition].error is ErrorCode.NOT_CONTROLLER
    assert shutdown.reply.result() == ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)
    assert [moves[0].reply.result().error, moves[1].reply.result().error] == [ErrorCode.NOT_CONTROLLER] * 2
    assert not any(queued.begin() for queued in waiting)
    assert isinstance((await queue.take()).event, ShutdownEventThread)


async def test_a_session_expiry_in_a_closed_event_queue_does_not_replace_the_shutdown_event() -> None:
    queue = EventQueue()
    queue.close(ShutdownEventThread())

    expire = queue.clear_and_put(Expire())

    assert expire.started.is_set()
    assert not expire.begin()
    assert isinstance((await queue.take()).event, ShutdownEventThread)


async def test_waiting_for_the_start_of_a_preempted_event_ends() -> None:
    queue = EventQueue()
    first = queue.put(Expire())

    queue.clear_and_put(Expire())

    assert first.started.is_set()


async def test_every_request_event_can_be_refused_and_keeps_its_first_response() -> None:
    partition = TopicPartition("a", 0)
    election = ReplicaLeaderElection([partition], unclean=False)
    others = UpdateFeatures([], False), ApiPartitionReassignment({}), ListPartitionReassignments(None)
    events: tuple[Event, ...] = (election, *others)
    for event in events:
        event.refuse(ErrorCode.NOT_CONTROLLER)
        event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    assert election.reply.result().refused[partition].error is ErrorCode.NOT_CONTROLLER
    features, change, listing = (event.reply.result() for event in others)
    assert {features.error, change.error, listing.error} == {ErrorCode.NOT_CONTROLLER}
