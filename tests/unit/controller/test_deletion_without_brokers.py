"""Topic deletion while brokers are dead: their replicas become pending deletions, done when they return."""

import uuid

from tests.unit.controller.deleting import (
    NO_WAITING,
    Deleting,
    deleted_offline_then_created_again,
    leader_and_isr_answer,
)

from klamm.controller.control_requests import StopReplicaItem
from klamm.controller.events import (
    DeadBrokerTimeout,
    PartitionModifications,
    TopicChange,
)
from klamm.controller.handlers.pending_deletions import schedule_deletion_of_moved
from klamm.controller.handlers.topic_deletion import (
    on_dead_broker_timeout,
)
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.zk import znodes
from klamm.zk.operations import Create, Set


async def test_topic_deletion_does_not_wait_for_a_long_dead_broker_whose_replicas_are_deleted_later() -> None:
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


async def test_a_topic_with_only_dead_replicas_is_deleted_and_live_brokers_are_notified() -> None:
    cluster = await Deleting.open({"a": [(2, 3)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.kill(3)

    assert any(r.startswith("UMR a-0=-2/") for r in await cluster.delete("a"))

    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 2


async def test_a_topic_deletion_waits_for_a_dead_broker_only_until_the_dead_broker_timeout() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    assert cluster.znodes_of("a")

    cluster.room.term.context.gone_since[BrokerId(2)] -= 60
    await cluster.do(on_dead_broker_timeout, DeadBrokerTimeout(BrokerId(2)))

    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 1


async def test_the_dead_broker_timeout_of_a_broker_that_died_before_the_failover_ends() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.room.become_controller()
    await cluster.delete("a")
    await cluster.answer(1)
    assert cluster.why("a").startswith("brokers 2 are not alive")
    assert ("gone", BrokerId(2)) in cluster.room.term.timers

    cluster.room.term.context.gone_since[BrokerId(2)] -= 60
    await cluster.do(on_dead_broker_timeout, DeadBrokerTimeout(BrokerId(2)))

    assert cluster.znodes_of("a") == []


async def test_a_broker_that_returns_in_time_cancels_its_dead_broker_timeout() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.kill(2)
    await cluster.delete("a")
    timers, waiting = cluster.room.term.timers, ("gone", BrokerId(2))
    assert waiting in timers

    await cluster.start(2)

    assert waiting not in timers
    await cluster.answer(1)
    await cluster.answer(2)
    assert cluster.znodes_of("a") == []


async def test_deletion_of_a_topic_without_a_topic_id_waits_for_its_dead_brokers() -> None:
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


async def test_topic_deletion_waits_for_dead_brokers_if_requests_carry_no_topic_ids() -> None:
    """It could not tell a later topic from the one that it has; one that was only cut off even goes on with that."""
    settings = ControllerSettings(BrokerId(1), ibp=(2, 6, 0), dead_broker_timeout_ms=0)
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=settings)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    assert "without a topic id" in cluster.why("a")
    assert cluster.znodes_of("a")


async def test_the_next_controller_deletes_replicas_recorded_as_pending_deletions() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert "SR a-0@-2+delete -> 2" in cluster.room.channels.take()


async def test_a_replica_of_a_recreated_topic_is_created_while_a_reassignment_delays_the_topics_deletion() -> None:
    """Which waits for this very replica: without it neither would end."""
    cluster = await deleted_offline_then_created_again()
    partition = cluster.room.partition("a-0")
    cluster.room.term.context.put_assignment(partition, ReplicaAssignment((BrokerId(1), BrokerId(2)), (BrokerId(2),)))
    await cluster.start(2)
    await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR)
    await cluster.delete("a")
    assert cluster.why("a").startswith("partitions 0 are being reassigned")

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    assert [r for r in await cluster.answer(2) if r.startswith("LISR")] == ["LISR a-0=1/[1]/2/2+new -> 2"]


async def test_a_replica_of_a_recreated_topic_is_not_created_once_that_topics_deletion_started() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR)
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    await cluster.delete("a")

    assert not any(r.startswith("LISR") for r in await cluster.answer(2))


async def test_a_broker_that_holds_only_the_recreated_topic_gets_no_stop_replica_with_deletion() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)

    requests = await leader_and_isr_answer(cluster, 2, ErrorCode.NONE)

    assert not any(r.startswith("SR") for r in requests)
    assert cluster.pending_deletions() == []
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == []


async def test_a_leader_and_isr_response_does_not_clear_a_pending_deletion_of_the_same_topic_id() -> None:
    """A replica of the later topic moves away meanwhile: only its own deletion says that it is gone."""
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    await schedule_deletion_of_moved(cluster.room.term, {BrokerId(2): [cluster.room.partition("a-0")]})
    assert len(cluster.pending_deletions()) == 2

    await leader_and_isr_answer(cluster, 2, ErrorCode.NONE)

    assert cluster.pending_deletions() == [znodes.pending_deletion_path(2, uuid.UUID(int=77))]


async def test_a_log_of_another_topic_id_without_a_pending_deletion_is_not_deleted() -> None:
    cluster = await Deleting.open({})
    await cluster.room.store.create_topic("a", {0: ReplicaAssignment((BrokerId(1),))}, uuid.UUID(int=77), {})
    await cluster.do(on_topic_change, TopicChange())

    assert await leader_and_isr_answer(cluster, 1, ErrorCode.INCONSISTENT_TOPIC_ID) == []


async def test_pending_replica_deletions_are_kept_while_the_topic_of_that_name_is_unreadable() -> None:
    cluster = await deleted_offline_then_created_again()
    path = znodes.topic_path("a")
    payload = cluster.room.ensemble.nodes[path].data
    cluster.room.ensemble.apply([Set(path, b"{")])
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert not any(r.startswith("SR") for r in cluster.room.channels.take())
    assert len(cluster.pending_deletions()) == 1

    cluster.room.ensemble.apply([Set(path, payload)])  # repaired
    requests = await cluster.do(on_partition_modifications, PartitionModifications("a"))
    assert any(r.startswith("LISR a-0=1/[1]/") for r in requests)
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]


async def test_replicas_of_a_topic_with_a_cancelled_deletion_are_kept() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    topic_id = cluster.room.term.context.topics["a"].id
    assert topic_id is not None
    await cluster.kill(2)
    path = znodes.pending_deletion_path(2, topic_id)
    cluster.room.ensemble.apply([Create("/klamm"), Create("/klamm/pending_deletions"),
                                 Create("/klamm/pending_deletions/2"),
                                 Create(path, b'{"version":1,"topic":"a","partitions":[0]}')])  # fmt: skip
    await cluster.room.register(2)

    await cluster.room.become_controller()

    assert not any(r.startswith("SR") and r.endswith("-> 2") for r in cluster.room.channels.take())
    assert cluster.pending_deletions() == []


async def test_a_pending_deletion_znode_written_before_a_controller_crash_is_removed_with_its_topic() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    topic_id = cluster.room.term.context.topics["a"].id
    assert topic_id is not None
    cluster.room.ensemble.apply([Create("/klamm"), Create("/klamm/pending_deletions"),
                                 Create("/klamm/pending_deletions/2"),
                                 Create(znodes.pending_deletion_path(2, topic_id), b'{"topic":"a","partitions":[0]}'),
                                 Create(znodes.delete_topic_path("a"))])  # fmt: skip

    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    assert "SR a-0@-2+delete -> 1,2" in cluster.room.channels.take()
    await cluster.answer(1)
    await cluster.answer(2)

    assert cluster.pending_deletions() == []
    assert cluster.znodes_of("a") == []


async def test_a_completed_topic_deletion_keeps_records_of_brokers_with_a_failed_log_directory() -> None:
    """The broker confirmed the deletion, but the log may be where it cannot look."""
    cluster = await Deleting.open({"a": [(1, 2)], "b": [(2, 1)]}, settings=NO_WAITING)
    topic_id = cluster.room.term.context.topics["a"].id
    assert topic_id is not None
    record = znodes.pending_deletion_path(2, topic_id)
    cluster.room.ensemble.apply([Create("/klamm"), Create("/klamm/pending_deletions"),
                                 Create("/klamm/pending_deletions/2"),
                                 Create(record, b'{"topic":"a","partitions":[0]}'),
                                 Create(znodes.delete_topic_path("a"))])  # fmt: skip
    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    cluster.room.term.context.offline_dirs[BrokerId(2)] = {cluster.room.partition("b-0"): None}

    await cluster.answer(1)
    await cluster.answer(2)

    assert cluster.znodes_of("a") == []
    assert cluster.pending_deletions() == [record]


async def test_a_broker_with_any_failed_log_directory_keeps_its_pending_replica_deletions() -> None:
    cluster = await Deleting.open({"a": [(1, 2)], "b": [(2, 1)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    await cluster.start(2)
    cluster.room.term.context.offline_dirs[BrokerId(2)] = {cluster.room.partition("b-0"): None}

    await cluster.answer(2)

    assert len(cluster.pending_deletions()) == 1
