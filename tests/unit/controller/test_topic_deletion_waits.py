"""What a topic deletion waits for, and what is not done any more for a queued topic."""

import pytest
from tests.unit.controller.deleting import Deleting
from tests.unit.controller.reassigning import ask, join

from klamm.controller.control_requests import StopReplicaItem
from klamm.controller.events import (
    BrokerChange,
    ControlledShutdown,
    DeadBrokerTimeout,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    UncleanLeaderElectionEnable,
)
from klamm.controller.handlers.brokers import on_broker_change, on_controlled_shutdown
from klamm.controller.handlers.elections import on_unclean_enabled
from klamm.controller.handlers.topic_deletion import (
    on_dead_broker_timeout,
    on_replica_deletion_answer,
    on_topic_deletion,
    resume_deletions,
)
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.states import ReplicaState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.zk import znodes
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.znodes import encode_topic

# ---- held back


async def test_topic_deletion_waits_for_a_dead_broker_to_return() -> None:
    cluster = await Deleting.open({"a": [(1, 2), (2, 1)]})
    await cluster.kill(2)

    assert "SR a-0@-2+delete a-1@-2+delete -> 1" in await cluster.delete("a")
    await cluster.answer(1)

    assert cluster.why("a").startswith(
        "brokers 2 are not alive; the deletion continues when they return, or without them"
    )
    requests = await cluster.start(2)
    assert "SR a-0@-2+delete a-1@-2+delete -> 2" in requests
    assert not any(r.startswith(("LISR", "UMR a")) and r.endswith("-> 2") for r in requests)
    await cluster.answer(2)
    assert cluster.znodes_of("a") == []
    assert cluster.pending_deletions() == []


async def test_a_broker_failure_causes_retries_only_of_that_brokers_replica_deletions() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)

    assert await cluster.kill(2) == ["UMR -> 1,3"]
    assert cluster.room.term.context.replicas_on(BrokerId(2))[cluster.room.partition("a-0")] == (
        ReplicaState.DELETION_INELIGIBLE
    )

    requests = await cluster.start(2)
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@-2+delete -> 2"]


async def test_replica_deletions_on_a_returning_broker_wait_for_the_topics_deletions_in_progress() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.delete("a")

    assert not any(r.startswith("SR") for r in await cluster.start(2))
    assert "SR a-0@-2+delete -> 2" in await cluster.answer(1)


async def test_a_failed_replica_deletion_is_retried_when_its_broker_restarts() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)

    assert await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR) == []
    assert (
        cluster.why("a")
        == "broker 2 answered KAFKA_STORAGE_ERROR to StopReplica; the deletion continues when that broker is restarted"
    )

    cluster.room.kill(2)
    requests = await cluster.start(2)
    assert [r for r in requests if r.startswith("SR")] == ["SR a-0@-2+delete -> 2"]


async def test_a_stop_replica_response_from_before_a_broker_died_is_ignored() -> None:
    cluster = await Deleting.open({"a": [(1,)]})
    await cluster.delete("a")
    [(_, item)] = cluster.stops
    epoch = cluster.room.term.context.registered[BrokerId(1)].epoch

    late = TopicDeletionStopReplicaResponseReceived(BrokerId(1), epoch - 1, dict.fromkeys(item.stops, ErrorCode.NONE))
    await cluster.do(on_replica_deletion_answer, late)

    assert cluster.znodes_of("a")


async def test_a_stop_replica_response_for_a_replica_not_in_deletion_changes_nothing() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    epoch = cluster.room.term.context.registered[BrokerId(1)].epoch
    cluster.room.term.context.queue_deletion(["a"])

    for error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
        errors = {cluster.room.partition("a-0"): error}
        answer = TopicDeletionStopReplicaResponseReceived(BrokerId(1), epoch, errors)
        assert await cluster.do(on_replica_deletion_answer, answer) == []

    assert cluster.room.term.context.replicas_on(BrokerId(1))[cluster.room.partition("a-0")] is ReplicaState.ONLINE
    assert cluster.room.term.context.topics_ineligible_for_deletion == {}


async def test_controller_failover_restores_topics_to_delete_and_topics_ineligible_for_deletion() -> None:
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


async def test_topic_deletion_waits_until_the_topics_reassignment_has_ended() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    partition = cluster.room.partition("a-0")
    moving = partition.assignment.reassign_to((BrokerId(2), BrokerId(3)))
    cluster.room.term.context.put_assignment(partition, moving)

    assert await cluster.delete("a") == []
    assert cluster.why("a") == "partitions 0 are being reassigned; the deletion continues after that"
    assert not any(r.startswith("SR") for r in await cluster.do(on_broker_change, BrokerChange()))

    cluster.room.term.context.put_assignment(partition, ReplicaAssignment(partition.assignment.target))
    cluster.room.term.context.forget_replica(BrokerId(1), partition)
    await resume_deletions(cluster.room.term, ["a"])
    assert "SR a-0@-2+delete -> 2,3" in cluster.room.channels.take()


async def test_brokers_keep_the_metadata_of_a_topic_whose_deletion_waits_for_a_reassignment() -> None:
    """Where the leader does not know the topic id any more, the new replica cannot fetch, and both wait for ever."""
    cluster = await Deleting.open({"a": [(1,)]})
    await ask(cluster.room, a_0=[2, 3])
    await cluster.delete("a")

    requests = await join(cluster.room, 1, 2)

    assert [r for r in requests if r.startswith("UMR")] == ["UMR a-0=1/[1,2]/1/2 -> 1,2,3"]


async def test_topic_deletion_continues_when_the_topics_reassignment_has_its_target_in_sync() -> None:
    cluster = await Deleting.open({"a": [(1,)]})
    await ask(cluster.room, a_0=[2])
    assert await cluster.delete("a") == []
    assert cluster.why("a").startswith("partitions 0 are being reassigned")

    requests = await join(cluster.room, 1, 2)

    assert "SR a-0@-2+delete -> 2" in requests
    assert "a" in cluster.room.term.context.topics_with_deletion_started


async def test_topic_deletion_waits_for_a_broker_in_controlled_shutdown() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    shutdown = ControlledShutdown(BrokerId(2), cluster.room.term.context.registered[BrokerId(2)].epoch)
    await cluster.do(on_controlled_shutdown, shutdown)
    await cluster.delete("a")
    await cluster.answer(1)

    assert cluster.why("a").startswith("brokers 2 are shutting down")


async def test_topic_deletion_does_not_wait_for_a_reassignment_to_a_long_dead_broker() -> None:
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


async def test_topic_deletion_does_not_wait_for_a_reassignment_whose_leader_died() -> None:
    """Nobody is elected in a topic that is to be deleted: it would wait for ever, and does so in Kafka."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    partition = cluster.room.partition("a-0")
    cluster.room.term.context.put_assignment(partition, partition.assignment.reassign_to((BrokerId(2), BrokerId(3))))
    assert await cluster.delete("a") == []

    assert "SR a-0@-2+delete -> 2,3" in await cluster.kill(1)


async def test_topic_deletion_does_not_wait_for_a_reassignment_whose_leader_restarted() -> None:
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


async def test_a_topic_in_deletion_gets_no_leader_and_does_not_block_controlled_shutdown() -> None:
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


async def test_a_topic_in_deletion_gets_no_new_partitions() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    topic_id = cluster.room.term.context.topics["a"].id
    grown = {n: ReplicaAssignment((BrokerId(1), BrokerId(2))) for n in range(3)}
    cluster.room.ensemble.apply([Set(znodes.topic_path("a"), znodes.encode_topic(topic_id, grown))])

    assert await cluster.do(on_partition_modifications, PartitionModifications("a")) == []

    stored = znodes.decode_topic("a", cluster.room.ensemble.nodes[znodes.topic_path("a")].data)
    assert (stored.topic_id, list(stored.partitions)) == (topic_id, [0])


async def test_removing_a_topics_znodes_manually_also_removes_its_deletion_request() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    for path in sorted(cluster.znodes_of("a"), reverse=True):
        if path.startswith("/brokers"):
            cluster.room.ensemble.apply([Delete(path)])

    await cluster.do(on_topic_change, TopicChange())

    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes
    assert await cluster.answer(1) == []


async def test_a_new_controller_resumes_a_topic_deletion_without_bringing_replicas_online() -> None:
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


async def test_a_partly_deleted_topic_with_a_reassignment_is_not_brought_online_again() -> None:
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


async def test_brokers_are_told_to_drop_a_topic_whose_states_an_earlier_controller_deleted() -> None:
    """It fell before all of them had heard: broker 3, which holds nothing of it, would name it for ever."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    room = cluster.room
    room.ensemble.apply([Create(znodes.delete_topic_path("a")), Delete(znodes.state_path(room.partition("a-0")))])
    room.channels.take()

    await room.become_controller()

    assert "UMR a-0=-2/[]/0/0 -> 1,2,3" in room.channels.take()


async def test_a_replaced_controller_sends_no_replica_deletions() -> None:
    """The next one may have called the deletion off, and brokers may not know the next one."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    room = cluster.room
    room.ensemble.apply([Set("/controller_epoch", b"2"), Create(znodes.delete_topic_path("a"))])

    with pytest.raises(ControllerMoved):
        await cluster.do(on_topic_deletion, TopicDeletion())

    assert room.channels.take() == []
