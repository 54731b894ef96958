"""Topics are deleted: queued, begun, held back, resumed, completed; what gone brokers hold goes when they return."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from tests.support.controller_room import Room

from klamm.controller.control_requests import StopReplicaItem, deletion_errors
from klamm.controller.events import (
    BrokerChange,
    ControlledShutdown,
    DeadBrokerTimeout,
    LeaderAndIsrResponseReceived,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    UncleanLeaderElectionEnable,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.elections import on_unclean_enabled
from klamm.controller.handlers.pending_deletions import schedule_deletion_of_moved
from klamm.controller.handlers.responses import on_leader_and_isr_response
from klamm.controller.handlers.shutdown import on_controlled_shutdown
from klamm.controller.handlers.topic_deletion import (
    on_dead_broker_timeout,
    on_replica_deletion_answer,
    on_topic_deletion,
    resume_deletions,
)
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from klamm.zk import znodes
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.znodes import encode_topic

NO_WAITING = ControllerSettings(BrokerId(1), dead_broker_timeout_ms=0)
Handler = Callable[[TermContext, object], Awaitable[None]]


class Deleting:
    """A room in which topics are deleted, and brokers that answer StopReplica when told to."""

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

    async def do(self, handler: Handler, event: object) -> list[str]:
        self.room.term.cause = self.room.journal.event(type(event).__name__)
        await handler(self.room.term, event)
        self.stops += [(b, item) for b, item in self.room.channels.items if isinstance(item, StopReplicaItem)]
        return self.room.channels.take()

    async def delete(self, *topics: str) -> list[str]:
        self.room.ensemble.apply([Create(znodes.delete_topic_path(t)) for t in topics])
        return await self.do(on_topic_deletion, TopicDeletion())

    async def answer(self, broker: int, error: ErrorCode = ErrorCode.NONE) -> list[str]:
        """One broker answers all that it was told to stop."""
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
        self.room.kill(broker)
        self.stops = [(b, item) for b, item in self.stops if b != broker]
        return await self.do(on_broker_change, BrokerChange())

    async def start(self, broker: int) -> list[str]:
        await self.room.register(broker)
        return await self.do(on_broker_change, BrokerChange())

    def znodes_of(self, topic: str) -> list[str]:
        paths = (znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic))
        return [p for p in self.room.ensemble.nodes if any(p == q or p.startswith(f"{q}/") for q in paths)]

    def pending_deletions(self) -> list[str]:
        return [p for p in self.room.ensemble.nodes if p.startswith("/klamm/condemned_replicas/") and p.count("/") == 4]

    def why(self, topic: str) -> str:
        return self.room.term.context.topics_ineligible_for_deletion[topic]


async def test_brokers_forget_the_topic_and_delete_then_its_znodes_go() -> None:
    cluster = await Deleting.open({"a": [(1, 2), (2, 3)], "b": [(1, 2)]})

    requests = await cluster.delete("a")

    assert requests == [
        "UMR a-0=-2/[1,2]/0/0 a-1=-2/[2,3]/0/0 -> 1,2,3",
        "SR a-0@-2+delete -> 1",
        "SR a-0@-2+delete a-1@-2+delete -> 2",
        "SR a-1@-2+delete -> 3",
    ]
    await cluster.answer(1)
    await cluster.answer(2)
    assert znodes.topic_path("a") in cluster.znodes_of("a")
    assert await cluster.answer(3) == []
    assert cluster.znodes_of("a") == []
    assert "a" not in cluster.room.term.context.topics
    assert cluster.room.term.context.topics_to_be_deleted == {}
    assert cluster.room.now("b-0") == "1 / [1,2] / 0 / 0"


async def test_the_request_goes_last_and_the_topic_before_it() -> None:
    cluster = await Deleting.open({"a": [(1,)]})
    await cluster.delete("a")
    cluster.room.ensemble.multis.clear()

    await cluster.answer(1)

    gone = [op.path for multi in cluster.room.ensemble.multis for op in multi if isinstance(op, Delete)]
    assert gone[-1] == "/admin/delete_topics/a"
    assert gone.index("/brokers/topics/a") > gone.index("/brokers/topics/a/partitions/0/state")
    assert set(gone[-3:-1]) == {"/brokers/topics/a", "/config/topics/a"}


async def test_a_topic_whose_znodes_cannot_go_holds_up_no_other() -> None:
    cluster = await Deleting.open({"a": [(1,)], "b": [(1,)], "c": [(1,)]})
    await cluster.delete("a", "b")

    def put_something_below(ops: Sequence[Op]) -> None:
        if any(op.path == znodes.topic_path("a") for op in ops):
            cluster.room.ensemble.apply([Create("/brokers/topics/a/mine")])

    cluster.room.ensemble.before_multi = put_something_below
    await cluster.answer(1)

    assert cluster.znodes_of("b") == []
    assert znodes.delete_topic_path("a") in cluster.znodes_of("a")
    assert cluster.why("a") == "/brokers/topics/a cannot be deleted: NOT_EMPTY; it is tried again"

    cluster.room.ensemble.before_multi = lambda ops: None
    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    await cluster.answer(1)
    assert cluster.znodes_of("a") == []


async def test_a_topic_without_partitions_is_deleted_at_once() -> None:
    cluster = await Deleting.open({"a": []})

    await cluster.delete("a")

    assert cluster.znodes_of("a") == []


async def test_requests_for_topics_that_do_not_exist_are_removed() -> None:
    cluster = await Deleting.open({"a": [(1,)]})

    await cluster.delete("nobody")

    assert cluster.znodes_of("nobody") == []
    assert cluster.room.entries("refused")[-1].facts["topics"] == ["nobody"]


async def test_a_topic_so_new_that_its_creation_waits_behind_the_request_is_deleted_all_the_same() -> None:
    cluster = await Deleting.open({})
    await cluster.room.write_topic("a", [(1, 2)])

    requests = await cluster.delete("a")

    assert "SR a-0@-2+delete -> 1,2" in requests


async def test_with_deletion_disabled_requests_are_removed_and_topics_stay() -> None:
    settings = ControllerSettings(BrokerId(1), delete_topic_enable=False)
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=settings)

    assert await cluster.delete("a") == []

    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes
    assert cluster.room.now("a-0") == "1 / [1,2] / 0 / 0"
    cluster.room.ensemble.apply([Create(znodes.delete_topic_path("a"))])
    await cluster.room.become_controller()
    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes


# ---- held back


async def test_a_dead_broker_holds_the_topic_back_until_it_returns() -> None:
    cluster = await Deleting.open({"a": [(1, 2), (2, 1)]})
    await cluster.kill(2)

    assert "SR a-0@-2+delete a-1@-2+delete -> 1" in await cluster.delete("a")
    await cluster.answer(1)

    assert cluster.why("a").startswith("brokers 2 are gone; it goes on when they return, or without them once")
    requests = await cluster.start(2)
    assert "SR a-0@-2+delete a-1@-2+delete -> 2" in requests
    assert not any(r.startswith(("LISR", "UMR a")) and r.endswith("-> 2") for r in requests)
    await cluster.answer(2)
    assert cluster.znodes_of("a") == []
    assert cluster.pending_deletions() == []


async def test_what_a_broker_died_over_is_asked_again_and_the_others_not() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)

    assert await cluster.kill(2) == ["UMR -> 1,3"]
    assert cluster.room.term.context.replicas_on(BrokerId(2))[cluster.room.partition("a-0")] == (
        ReplicaState.DELETION_INELIGIBLE
    )

    requests = await cluster.start(2)
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@-2+delete -> 2"]


async def test_on_a_brokers_return_its_replicas_wait_for_the_others_that_are_under_way() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.delete("a")

    assert not any(r.startswith("SR") for r in await cluster.start(2))
    assert "SR a-0@-2+delete -> 2" in await cluster.answer(1)


async def test_a_replica_that_cannot_be_deleted_is_tried_again_when_its_broker_starts_again() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)

    assert await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR) == []
    assert cluster.why("a") == "broker 2 answered KAFKA_STORAGE_ERROR; it goes on when that broker starts again"

    cluster.room.kill(2)
    requests = await cluster.start(2)
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@-2+delete -> 2"]


async def test_an_answer_from_before_a_broker_went_counts_for_nothing() -> None:
    cluster = await Deleting.open({"a": [(1,)]})
    await cluster.delete("a")
    [(_, item)] = cluster.stops
    epoch = cluster.room.term.context.registered[BrokerId(1)].epoch

    late = TopicDeletionStopReplicaResponseReceived(BrokerId(1), epoch - 1, dict.fromkeys(item.stops, ErrorCode.NONE))
    await cluster.do(on_replica_deletion_answer, late)

    assert cluster.znodes_of("a")


async def test_an_answer_for_a_replica_that_is_not_being_deleted_changes_nothing() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    epoch = cluster.room.term.context.registered[BrokerId(1)].epoch
    cluster.room.term.context.queue_deletion(["a"])

    for error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
        errors = {cluster.room.partition("a-0"): error}
        answer = TopicDeletionStopReplicaResponseReceived(BrokerId(1), epoch, errors)
        assert await cluster.do(on_replica_deletion_answer, answer) == []

    assert cluster.room.term.context.replicas_on(BrokerId(1))[cluster.room.partition("a-0")] is ReplicaState.ONLINE
    assert cluster.room.term.context.topics_ineligible_for_deletion == {}


async def test_a_new_controller_knows_what_is_to_be_deleted_and_which_of_it_has_to_wait() -> None:
    cluster = await Deleting.open({"foo": [(1, 2)], "bar": [(1, 2)], "baz": [(1, 2)], "more": [(1, 2)]})
    for name in ("bar", "baz"):
        moving = encode_topic(
            cluster.room.term.context.topics[name].id,
            {0: ReplicaAssignment((BrokerId(3), BrokerId(1), BrokerId(2)), (BrokerId(3),), (BrokerId(2),))},
        )
        cluster.room.ensemble.apply([Set(znodes.topic_path(name), moving)])
    cluster.room.ensemble.apply([Create(znodes.delete_topic_path(t)) for t in ("foo", "bar")])

    await cluster.room.become_controller()

    context = cluster.room.term.context
    assert set(context.topics_to_be_deleted) == {"foo", "bar"}
    assert set(context.topics_ineligible_for_deletion) == {"bar"}
    assert context.topics_with_deletion_started == {"foo"}


async def test_a_reassignment_holds_the_topic_back_until_it_has_ended() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    partition = cluster.room.partition("a-0")
    moving = partition.assignment.reassign_to((BrokerId(2), BrokerId(3)))
    cluster.room.term.context.put_assignment(partition, moving)

    assert await cluster.delete("a") == []
    assert cluster.why("a") == "partitions 0 are being reassigned; it goes on when that has ended"
    assert not any(r.startswith("SR") for r in await cluster.do(on_broker_change, BrokerChange()))

    cluster.room.term.context.put_assignment(partition, ReplicaAssignment(partition.assignment.target))
    cluster.room.term.context.forget_replica(BrokerId(1), partition)
    await resume_deletions(cluster.room.term, ["a"])
    assert "SR a-0@-2+delete -> 2,3" in cluster.room.channels.take()


async def test_a_reassignment_to_a_broker_that_is_gone_for_long_is_not_waited_for() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    partition = cluster.room.partition("a-0")
    moving = partition.assignment.reassign_to((BrokerId(2), BrokerId(3)))
    cluster.room.term.context.put_assignment(partition, moving)
    await cluster.kill(3)
    await cluster.delete("a")
    assert cluster.why("a").startswith("partitions 0 are being reassigned")
    await cluster.do(on_dead_broker_timeout, DeadBrokerTimeout(BrokerId(3)))
    assert [e.facts["step"] for e in cluster.room.entries("deletion")] == ["waits"]  # told once

    cluster.room.term.context.gone_since[BrokerId(3)] -= 60
    requests = await cluster.do(on_dead_broker_timeout, DeadBrokerTimeout(BrokerId(3)))

    assert "SR a-0@-2+delete -> 1,2" in requests
    await cluster.answer(1)
    await cluster.answer(2)
    assert cluster.znodes_of("a") == []
    assert [p.split("/")[3] for p in cluster.pending_deletions()] == ["3"]


async def test_a_reassignment_whose_leader_died_is_not_waited_for() -> None:
    """Nobody is elected in a topic that is to be deleted: it would wait for ever, and does so in Kafka."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    partition = cluster.room.partition("a-0")
    cluster.room.term.context.put_assignment(partition, partition.assignment.reassign_to((BrokerId(2), BrokerId(3))))
    assert await cluster.delete("a") == []

    assert "SR a-0@-2+delete -> 2,3" in await cluster.kill(1)


async def test_a_leader_that_died_and_returned_leads_no_reassignment_to_its_end() -> None:
    """It was told nothing of a topic that is to be deleted: what it led is not waited for, what others lead is."""
    cluster = await Deleting.open({"a": [(1, 2), (2, 1)]})
    first, second = cluster.room.partition("a-0"), cluster.room.partition("a-1")
    for p in (first, second):
        cluster.room.term.context.put_assignment(p, p.assignment.reassign_to((BrokerId(2), BrokerId(3))))
    await cluster.delete("a")
    await cluster.kill(1)
    await cluster.start(1)
    assert cluster.why("a").startswith("partitions 1 are being reassigned")

    cluster.room.term.context.put_assignment(second, ReplicaAssignment(second.assignment.target))
    await resume_deletions(cluster.room.term, ["a"])

    assert any(r.startswith("SR a-0@-2+delete") for r in cluster.room.channels.take())


# ---- what being queued means


async def test_a_topic_to_be_deleted_is_not_elected_nor_held_against_a_shutdown() -> None:
    cluster = await Deleting.open({"a": [(1, 2)], "b": [(1, 2)]})
    await cluster.delete("a")

    shutdown = ControlledShutdown(BrokerId(1), cluster.room.term.context.registered[BrokerId(1)].epoch)
    requests = await cluster.do(on_controlled_shutdown, shutdown)

    assert shutdown.reply.result().remaining == ()
    assert not any("a-0" in r for r in requests)
    assert cluster.room.stored("a-0").leader == 1
    await cluster.kill(1)
    assert await cluster.do(on_unclean_enabled, UncleanLeaderElectionEnable()) == []
    assert cluster.room.stored("a-0").leader_epoch == 0


async def test_a_topic_to_be_deleted_does_not_grow() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    topic_id = cluster.room.term.context.topics["a"].id
    grown = {n: ReplicaAssignment((BrokerId(1), BrokerId(2))) for n in range(3)}
    cluster.room.ensemble.apply([Set(znodes.topic_path("a"), znodes.encode_topic(topic_id, grown))])

    assert await cluster.do(on_partition_modifications, PartitionModifications("a")) == []

    stored = znodes.decode_topic("a", cluster.room.ensemble.nodes[znodes.topic_path("a")].data)
    assert (stored.topic_id, list(stored.partitions)) == (topic_id, [0])


async def test_a_topic_removed_by_hand_while_it_is_deleted_takes_its_request_along() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    for path in sorted(cluster.znodes_of("a"), reverse=True):
        if path.startswith("/brokers"):
            cluster.room.ensemble.apply([Delete(path)])

    await cluster.do(on_topic_change, TopicChange())

    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes
    assert await cluster.answer(1) == []


async def test_a_new_controller_takes_the_deletion_up_and_wakes_no_replica() -> None:
    cluster = await Deleting.open({"a": [(1, 2)], "b": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)
    cluster.stops.clear()

    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    requests = cluster.room.channels.take()

    assert not any(r.startswith("LISR") and "a-0" in r for r in requests)
    assert "SR a-0@-2+delete -> 1,2" in requests
    await cluster.answer(1)
    await cluster.answer(2)
    assert cluster.znodes_of("a") == []


async def test_a_topic_that_was_half_deleted_while_it_moved_is_not_brought_up_again() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    room = cluster.room
    moving = ReplicaAssignment((BrokerId(2), BrokerId(3), BrokerId(1)), (BrokerId(3),), (BrokerId(1),))
    topic = encode_topic(room.term.context.topics["a"].id, {0: moving})
    state, above = znodes.state_path(room.partition("a-0")), znodes.partition_path(room.partition("a-0"))
    request = znodes.delete_topic_path("a")
    room.ensemble.apply([Create(request), Set(znodes.topic_path("a"), topic), Delete(state), Delete(above)])

    await room.become_controller()

    assert state not in room.ensemble.nodes
    cluster.stops = [(b, i) for b, i in room.channels.items if isinstance(i, StopReplicaItem)]
    for broker in (1, 2, 3):
        await cluster.answer(broker)
    assert cluster.znodes_of("a") == []


async def test_brokers_forget_a_topic_whose_states_an_earlier_controller_deleted_already() -> None:
    """It fell before all of them had heard: broker 3, which holds nothing of it, would name it for ever."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    room = cluster.room
    room.ensemble.apply([Create(znodes.delete_topic_path("a")), Delete(znodes.state_path(room.partition("a-0")))])
    room.channels.take()

    await room.become_controller()

    assert "UMR a-0=-2/[]/0/0 -> 1,2,3" in room.channels.take()


async def test_a_controller_that_was_replaced_unheard_tells_nobody_to_delete() -> None:
    """The next one may have called the deletion off, and brokers may not know the next one."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    room = cluster.room
    room.ensemble.apply([Set("/controller_epoch", b"2"), Create(znodes.delete_topic_path("a"))])

    with pytest.raises(ControllerMoved):
        await cluster.do(on_topic_deletion, TopicDeletion())

    assert room.channels.take() == []


# ---- without a broker that is gone


async def test_a_broker_gone_for_long_is_not_waited_for_and_deletes_when_it_returns() -> None:
    cluster = await Deleting.open({"a": [(1, 2), (2, 1)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 1

    requests = await cluster.start(2)
    assert "SR a-0@-2+delete a-1@-2+delete -> 2" in requests
    await cluster.answer(2)
    assert cluster.pending_deletions() == []
    assert cluster.room.term.context.pending_deletions == {}


async def test_a_topic_whose_brokers_are_all_gone_is_deleted_and_everybody_told() -> None:
    cluster = await Deleting.open({"a": [(2, 3)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.kill(3)

    assert any(r.startswith("UMR a-0=-2/") for r in await cluster.delete("a"))

    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 2


async def test_patience_ends_with_an_event() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    assert cluster.znodes_of("a")

    cluster.room.term.context.gone_since[BrokerId(2)] -= 60
    await cluster.do(on_dead_broker_timeout, DeadBrokerTimeout(BrokerId(2)))

    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 1


async def test_without_a_topic_id_a_gone_broker_is_waited_for() -> None:
    settings = ControllerSettings(BrokerId(1), ibp=(2, 6, 0), dead_broker_timeout_ms=0)
    cluster = await Deleting.open({}, settings=settings)
    payload = znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))})
    cluster.room.ensemble.apply([Create(znodes.topic_path("a"), payload)])
    await cluster.do(on_topic_change, TopicChange())
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    assert "without a topic id" in cluster.why("a")
    assert cluster.znodes_of("a")


async def test_where_orders_carry_no_topic_ids_a_gone_broker_is_waited_for() -> None:
    """It could not tell a later topic from the one that it has; one that was only cut off even goes on with that."""
    settings = ControllerSettings(BrokerId(1), ibp=(2, 6, 0), dead_broker_timeout_ms=0)
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=settings)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    assert "without a topic id" in cluster.why("a")
    assert cluster.znodes_of("a")


async def test_pending_deletions_outlive_the_controller() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert "SR a-0@-2+delete -> 2" in cluster.room.channels.take()


async def deleted_offline_then_created_again() -> Deleting:
    """`a` was deleted while broker 2 was gone, and is there again, on brokers 1 and 2."""
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    again = {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))}
    await cluster.room.store.create_topic("a", again, uuid.UUID(int=77), {})
    await cluster.do(on_topic_change, TopicChange())
    return cluster


async def leader_and_isr_answer(cluster: Deleting, broker: int, error: ErrorCode) -> list[str]:
    answers = [LeaderAndIsrTopicError(uuid.UUID(int=77), [LeaderAndIsrPartitionError("", 0, error)])]
    epoch = cluster.room.term.context.registered[BrokerId(broker)].epoch
    event = LeaderAndIsrResponseReceived(LeaderAndIsrResponse(topics=answers), BrokerId(broker), epoch)
    return await cluster.do(on_leader_and_isr_response, event)


async def test_where_the_name_lives_again_the_broker_is_asked_before_anything_is_deleted() -> None:
    cluster = await deleted_offline_then_created_again()

    requests = await cluster.start(2)
    assert not any(r.startswith("SR") for r in requests)
    assert "LISR a-0=1/[1]/0/0 -> 2" in requests

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == []  # told once
    assert await cluster.answer(2) == ["LISR a-0=1/[1]/0/0+new -> 2", "UMR a-0=1/[1]/0/0 -> 1,2,3"]
    assert cluster.pending_deletions() == []


async def test_a_later_topics_replica_is_made_although_its_deletion_waits_for_its_reassignment() -> None:
    """Which waits for this very replica: without it neither would end."""
    cluster = await deleted_offline_then_created_again()
    partition = cluster.room.partition("a-0")
    cluster.room.term.context.put_assignment(partition, ReplicaAssignment((BrokerId(1), BrokerId(2)), (BrokerId(2),)))
    await cluster.start(2)
    await cluster.delete("a")
    assert cluster.why("a").startswith("partitions 0 are being reassigned")

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    assert [r for r in await cluster.answer(2) if r.startswith("LISR")] == ["LISR a-0=1/[1]/1/1+new -> 2"]


async def test_a_later_topics_replica_is_not_made_once_its_deletion_has_begun() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    await cluster.delete("a")

    assert not any(r.startswith("LISR") for r in await cluster.answer(2))


async def test_a_broker_that_holds_only_the_new_topic_is_told_to_delete_nothing() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.NONE) == []
    assert cluster.pending_deletions() == []
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == []


async def test_a_leader_and_isr_answer_settles_no_record_of_its_own_topic() -> None:
    """A replica of the later topic moves away meanwhile: only its own deletion says that it is gone."""
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    await schedule_deletion_of_moved(cluster.room.term, {BrokerId(2): [cluster.room.partition("a-0")]})
    assert len(cluster.pending_deletions()) == 2

    await leader_and_isr_answer(cluster, 2, ErrorCode.NONE)

    assert cluster.pending_deletions() == [znodes.pending_deletion_path(2, uuid.UUID(int=77))]


async def test_a_log_of_another_topic_id_without_a_pending_deletion_is_left_alone() -> None:
    cluster = await Deleting.open({})
    await cluster.room.store.create_topic("a", {0: ReplicaAssignment((BrokerId(1),))}, uuid.UUID(int=77), {})
    await cluster.do(on_topic_change, TopicChange())

    assert await leader_and_isr_answer(cluster, 1, ErrorCode.INCONSISTENT_TOPIC_ID) == []


async def test_nothing_goes_under_the_name_of_a_topic_that_nobody_can_read() -> None:
    cluster = await deleted_offline_then_created_again()
    path = znodes.topic_path("a")
    payload = cluster.room.ensemble.nodes[path].data
    cluster.room.ensemble.apply([Set(path, b"{")])
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert not any(r.startswith("SR") for r in cluster.room.channels.take())
    assert len(cluster.pending_deletions()) == 1

    cluster.room.ensemble.apply([Set(path, payload)])  # mended
    requests = await cluster.do(on_partition_modifications, PartitionModifications("a"))
    assert any(r.startswith("LISR a-0=1/[1]/") for r in requests)
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]


async def test_nothing_of_a_topic_whose_deletion_was_called_off_is_destroyed() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    topic_id = cluster.room.term.context.topics["a"].id
    assert topic_id is not None
    await cluster.kill(2)
    path = znodes.pending_deletion_path(2, topic_id)
    cluster.room.ensemble.apply([Create("/klamm"), Create("/klamm/condemned_replicas"),
                                 Create("/klamm/condemned_replicas/2"),
                                 Create(path, b'{"version":1,"topic":"a","partitions":[0]}')])  # fmt: skip
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert not any(r.startswith("SR") and r.endswith("-> 2") for r in cluster.room.channels.take())
    assert cluster.pending_deletions() == []


async def test_a_record_from_before_a_crash_goes_with_the_topic() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    topic_id = cluster.room.term.context.topics["a"].id
    assert topic_id is not None
    cluster.room.ensemble.apply([Create("/klamm"), Create("/klamm/condemned_replicas"),
                                 Create("/klamm/condemned_replicas/2"),
                                 Create(znodes.pending_deletion_path(2, topic_id), b'{"topic":"a","partitions":[0]}'),
                                 Create(znodes.delete_topic_path("a"))])  # fmt: skip

    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    assert "SR a-0@-2+delete -> 1,2" in cluster.room.channels.take()
    await cluster.answer(1)
    await cluster.answer(2)

    assert cluster.pending_deletions() == []
    assert cluster.znodes_of("a") == []


async def test_a_broker_with_a_failed_directory_cannot_prove_that_nothing_is_left() -> None:
    cluster = await Deleting.open({"a": [(1, 2)], "b": [(2, 1)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    await cluster.start(2)
    cluster.room.term.context.offline_dirs[BrokerId(2)] = {cluster.room.partition("b-0"): None}

    await cluster.answer(2)

    assert len(cluster.pending_deletions()) == 1


# ---- the journal, and answers


async def test_the_journal_tells_each_step_and_what_it_waits_for() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    steps = [(e.facts["step"], e.facts["partitions"]) for e in cluster.room.entries("deletion")]
    assert steps == [("begins", {"a": [0]}), ("completed", {"a": [0]})]
    assert cluster.room.entries("deletion")[-1].facts["replicas_pending_on"] == [2]


async def test_an_error_at_the_top_and_an_answer_left_out_both_mean_not_deleted() -> None:
    cluster = await Deleting.open({"a": [(1,), (1,)]})
    await cluster.delete("a")
    [(_, item)] = cluster.stops
    request = StopReplicaRequest(topic_states=[StopReplicaTopicState("a", [])])
    zero, one = item.stops

    stale = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert set(deletion_errors(item, request, stale).values()) == {ErrorCode.STALE_BROKER_EPOCH}
    half = StopReplicaResponse(partition_errors=[StopReplicaPartitionError("a", 1, ErrorCode.NONE)])
    assert deletion_errors(item, request, half) == {zero: ErrorCode.UNKNOWN_SERVER_ERROR, one: ErrorCode.NONE}
