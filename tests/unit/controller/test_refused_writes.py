"""A write that ZooKeeper refuses, for example by an ACL: work that depends on it waits and is retried."""

from collections.abc import Callable

import pytest
from tests.support.controller_nodes import Nodes
from tests.support.controller_room import Room
from tests.unit.controller.deleting import (
    NO_WAITING,
    Deleting,
    deleted_offline_then_created_again,
    leader_and_isr_answer,
)
from tests.unit.controller.reassigning import ask, assigned, join, room_with

from klamm.controller import events
from klamm.controller.controller import Controller
from klamm.controller.events import ApiPartitionReassignment, BrokerChange, Event, ResumeAfterFailure
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.controller.sent_states import leader_and_isr_state
from klamm.controller.watches import retry_events_for
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.errors import MalformedReply, WriteRefused
from klamm.zk.operations import Create, Delete
from klamm.zk.znodes import CONTROLLER, DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, PENDING_DELETIONS

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
A0 = parse_topic_partition("a-0")
STATE = znodes.state_path(A0)


async def resume(room: Room) -> list[str]:
    return await room.handle(on_resume_after_failure, ResumeAfterFailure())


class Late:
    """Collects the controller's timers, and fires them when the test calls `come`."""

    def __init__(self, nodes: Nodes, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes = nodes
        self._controller = controller
        self._events: list[Event] = []
        self.pauses: list[float] = []
        monkeypatch.setattr(controller._timers, "after", self._after)

    def _after(self, name: object, seconds: float, event: Event) -> None:
        self.pauses.append(seconds)
        self._events.append(event)

    async def come(self) -> None:
        """Fire the timers."""
        events, self._events = self._events, []
        for event in events:
            self._controller._queue.put(event)
        await self._nodes.settle()


@pytest.fixture
async def late(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Late:
    controller = await nodes.start(1)
    await nodes.settle()
    return Late(nodes, controller, monkeypatch)


async def test_a_partition_gets_its_leader_once_the_retried_state_write_succeeds(nodes: Nodes, late: Late) -> None:
    nodes.ensemble.unwritable.add(STATE)
    await nodes.topic("a", [(1,)])
    for _ in range(3):
        await late.come()
    [told] = [e for e in nodes.journal(1, "refused") if e.facts["what"] == "first leader"]
    assert told.facts["why"] == "ZooKeeper answered NO_AUTH"

    nodes.ensemble.unwritable.clear()
    await late.come()
    assert STATE in nodes.ensemble.nodes


async def test_refused_zookeeper_writes_are_retried_with_growing_backoff_until_all_succeed(
    nodes: Nodes, late: Late
) -> None:
    nodes.ensemble.unwritable.add(STATE)
    await nodes.topic("a", [(1,)])
    for _ in range(5):
        await late.come()
    assert late.pauses == [1, 2, 4, 8, 16, 16]

    nodes.ensemble.unwritable.clear()
    await late.come()
    await nodes.topic("b", [(1,)])
    nodes.ensemble.unwritable.add(znodes.state_path(parse_topic_partition("c-0")))
    await nodes.topic("c", [(1,)])
    assert late.pauses[6:] == [1]


RETRIED_BY = {
    f"{ISR_CHANGES}/isr_change_0": events.IsrChangeNotification,
    f"{LOG_DIR_EVENTS}/log_dir_event_0": events.LogDirEventNotification,
    f"{DELETE_TOPICS}/a": events.TopicDeletion,
    znodes.REASSIGN_PARTITIONS: events.ZkPartitionReassignment,
    STATE: events.ResumeAfterFailure,
    "/brokers/topics/a": events.ResumeAfterFailure,
    f"{PENDING_DELETIONS}/1": events.ResumeAfterFailure,
}


@pytest.mark.parametrize(("path", "event"), RETRIED_BY.items())
async def test_a_refused_zookeeper_write_is_retried_by_the_event_that_handles_its_path(
    path: str, event: Callable[[], events.Event]
) -> None:
    assert list(retry_events_for([path, path])) == [event().retry_key]


async def test_a_refused_removal_of_an_election_request_is_retried_by_a_preferred_election() -> None:
    [retried] = retry_events_for([znodes.PREFERRED_ELECTION]).values()
    assert isinstance(retried, events.ReplicaLeaderElection)
    assert (retried.partitions, retried.unclean) == (None, False)


def test_controller_events_with_different_retry_keys_are_retried_separately() -> None:
    keys = {events.PartitionModifications(topic).retry_key for topic in ("a", "b", "a")}
    assert len(keys) == 2
    assert events.TopicChange().retry_key == events.TopicChange().retry_key != events.TopicDeletion().retry_key


async def test_removing_a_notification_znode_is_retried_after_a_refusal(nodes: Nodes, late: Late) -> None:
    left = f"{LOG_DIR_EVENTS}/log_dir_event_0"
    nodes.ensemble.unwritable.add(left)
    nodes.ensemble.apply([Create(left, b'{"version":1,"broker":1,"event":1}')])
    await nodes.settle()
    assert left in nodes.ensemble.nodes

    nodes.ensemble.unwritable.clear()
    await late.come()
    assert left not in nodes.ensemble.nodes


async def test_a_dead_broker_leaves_the_isr_once_the_retried_state_write_succeeds() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(3, 2)]})
    room.ensemble.unwritable.add(STATE)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    assert (room.stored("a-0").isr, room.stored("b-0").isr) == ((ONE, TWO), (THREE,))

    room.ensemble.unwritable.clear()
    requests = await resume(room)

    assert room.now("a-0") == "1 / [1] / 1 / 1"
    assert "LISR a-0=1/[1]/1/1 -> 1" in requests
    assert not any("b-0" in r for r in requests)


async def test_a_dead_broker_whose_replica_was_being_added_leaves_the_isr_once_the_retried_write_succeeds() -> None:
    """A broker that only lost ZooKeeper goes on fetching: its leader would keep it in the ISR."""
    room = await room_with(1, brokers=(1, 2, 3))
    await ask(room, a_0=[1, 2, 3])
    await join(room, 1, 2)
    room.ensemble.unwritable.add(STATE)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    assert room.stored("a-0").isr == (ONE, TWO)

    room.ensemble.unwritable.clear()
    await resume(room)

    assert room.stored("a-0").isr == (ONE,)


async def test_a_retried_election_replaces_a_dead_leader_in_one_leader_epoch() -> None:
    """Were the dead leader taken out of the ISR first, the partition would be leaderless for a leader epoch."""
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.ensemble.unwritable.add(STATE)
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    assert room.stored("a-0").leader == ONE

    room.ensemble.unwritable.clear()
    requests = await resume(room)

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert "LISR a-0=2/[2,3]/1/1 -> 2,3" in requests


async def test_a_broker_dead_at_failover_leaves_the_isr_once_the_retried_write_succeeds() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.kill(2)
    room.ensemble.unwritable.add(STATE)
    await room.become_controller()
    assert room.stored("a-0").isr == (ONE, TWO)

    room.ensemble.unwritable.clear()
    requests = await resume(room)

    assert room.now("a-0") == "1 / [1] / 1 / 1"
    assert "LISR a-0=1/[1]/1/1 -> 1" in requests


async def test_removing_an_empty_pending_deletion_znode_is_retried_until_zookeeper_allows_the_write() -> None:
    cluster = await Deleting.open({"a": [(2,)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    [record] = cluster.pending_deletions()
    cluster.room.ensemble.unwritable.add(record)
    await cluster.start(2)
    await cluster.answer(2)
    assert cluster.pending_deletions() == [record]

    cluster.room.ensemble.unwritable.clear()
    await cluster.do(on_resume_after_failure, ResumeAfterFailure())

    assert cluster.pending_deletions() == []


async def moved(room: Room) -> None:
    """Reassign a-0 from broker 1 to the in-sync broker 2, while no pending deletion can be written for broker 1."""
    room.ensemble.unwritable.add(PENDING_DELETIONS)
    await room.handle(on_api_reassignment, ApiPartitionReassignment({A0: [TWO]}))
    old = room.stored("a-0")
    room.write_state("a-0", old._replace(isr=(ONE, TWO)))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))


async def test_a_reassignment_that_cannot_complete_elects_its_leader_only_once() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    await moved(room)

    first = await resume(room)
    settled = room.now("a-0")
    assert settled == "2 / [1,2] / 2 / 3"
    assert "LISR a-0=2/[1,2]/2/3 -> 1" in first, "broker 1 leads no more, and stays for now"
    assert await resume(room) == await resume(room) == []
    assert room.now("a-0") == settled

    room.kill(3)
    await room.register(3)
    await room.handle(on_broker_change, BrokerChange())
    assert any(r.startswith("LISR a-0=2/[1,2]/3/4 -> 2") for r in await resume(room)), "whoever came may be part of it"
    assert await resume(room) == []

    room.ensemble.unwritable.clear()
    requests = await resume(room)
    assert room.partition("a-0").replicas == (TWO,)
    assert any(r.startswith("SR a-0") and r.endswith("+delete -> 1") for r in requests)


async def test_until_a_refused_completion_is_written_requests_carry_the_assignment_before_it() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    await moved(room)

    await resume(room)

    p = room.partition("a-0")
    assert p.announced == p.assignment
    assert p.announced.replicas == (TWO, ONE)
    state = leader_and_isr_state(p, is_new=False, with_recovery=True, brief=True)
    assert (state.replicas, state.removing_replicas) == ((TWO, ONE), (ONE,))


async def test_replicas_learn_the_state_written_for_a_replaced_reassignment_whose_assignment_was_refused() -> None:
    """Broker 2 left the ISR for it: with the old leader epoch, all later ISR changes of the leader would be refused."""
    room = await Room.open(topics={"a": [(1,)]})
    await room.handle(on_api_reassignment, ApiPartitionReassignment({A0: [TWO, THREE]}))
    room.write_state("a-0", room.stored("a-0")._replace(isr=(ONE, TWO)))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))
    room.ensemble.unwritable.add("/brokers/topics/a")

    requests = await room.handle(on_api_reassignment, ApiPartitionReassignment({A0: [THREE]}))

    assert room.partition("a-0").replicas == (TWO, THREE, ONE), "the assignment is as before"
    assert room.stored("a-0").isr == (ONE,)
    assert f"LISR a-0={room.now('a-0').replace(' ', '')} -> 1,2,3" in requests


async def test_the_leader_is_sent_the_assignment_of_a_cancelled_reassignment_once_its_epoch_is_written() -> None:
    """With its old leader epoch it would ignore the assignment, and keep the replicas that were cancelled."""
    room = await room_with(1, brokers=(1, 2))
    await ask(room, a_0=[2])
    room.ensemble.unwritable.add(STATE)
    answer, _ = await ask(room, a_0=None)
    assert (answer.refused, assigned(room)) == ({}, "[1] + [] - []")

    assert not any(r.startswith("LISR") for r in await resume(room))
    room.ensemble.unwritable.clear()
    requests = await resume(room)

    assert room.now("a-0") == "1 / [1] / 2 / 2"
    assert "LISR a-0=1/[1]/2/2 -> 1" in requests
    assert await resume(room) == []


async def test_a_cancelled_reassignment_is_not_finished_once_its_topic_is_deleted() -> None:
    room = await room_with(1, brokers=(1, 2))
    await ask(room, a_0=[2])
    room.ensemble.unwritable.add(STATE)
    await ask(room, a_0=None)
    room.ensemble.apply([Create(f"{DELETE_TOPICS}/a")])
    await room.handle(on_topic_deletion, events.TopicDeletion())
    room.ensemble.unwritable.clear()

    assert not any(r.startswith("LISR") for r in await resume(room))

    room.term.context.remove_topic("a")
    assert not room.term.context.to_complete


async def test_retrying_a_refused_write_does_not_restart_a_waiting_reassignment() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    await room.handle(on_api_reassignment, ApiPartitionReassignment({A0: [TWO]}))
    begun = room.now("a-0")

    assert await resume(room) == []
    assert room.now("a-0") == begun


async def test_a_controller_that_may_not_delete_its_controller_znode_journals_the_refusal() -> None:
    room = await Room.open()
    room.ensemble.unwritable.add(CONTROLLER)

    with pytest.raises(WriteRefused):
        await room.term.store.delete_controller()

    room.ensemble.unwritable.clear()
    room.ensemble.apply([Delete(CONTROLLER)])
    await room.term.store.delete_controller()  # somebody was faster


async def test_a_recreated_topics_replica_is_created_even_if_its_old_pending_deletion_remains() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID)
    cluster.room.fail_once(PENDING_DELETIONS)

    with pytest.raises(MalformedReply):
        await cluster.answer(2)

    await cluster.room.term.send_requests()  # as after every event that failed
    assert "LISR a-0=1/[1]/1/1+new -> 2" in cluster.room.channels.take()
    await cluster.do(on_resume_after_failure, ResumeAfterFailure())
    assert cluster.pending_deletions() == []
