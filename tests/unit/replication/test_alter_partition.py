"""The leader's side of AlterPartition: the queue, each answer, and what it does to the partition."""

import asyncio
import uuid
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, alter_partition_response, ids, leader_and_isr
from tests.support.waiting import settle
from tests.unit.replication.lagging import LAG_S, Answer, lagging, shrunk
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.alter_partition import AlterPartitionManager
from klamm.replication.isr import Committed, PendingExpand, PendingShrink
from klamm.replication.isr_changes import on_isr_answer
from klamm.replication.ports import IsrAnswer, IsrProposal
from klamm.replication.replica_manager import ReplicationSettings
from klamm.wire.messages import AlterPartitionRequest, AlterPartitionResponse

# ---- answers, row by row


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 1),
        (IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION), 1),
        (IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR), 1),
        (IsrAnswer(ErrorCode.NONE, 0, ids(1, 2), 9), 1),  # of an earlier leader epoch
        (IsrAnswer(ErrorCode.NONE, 1, ids(1, 2), 0), 1),  # of an earlier version
        (IsrAnswer(ErrorCode.NONE, 1, ids(1, 2), 9), 0),
    ],
)
def test_metrics_count_failed_and_successful_isr_updates(run: Run, answer: IsrAnswer, failed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2, 3), tell=[1])
        partition, counts = cluster.partition(1), cluster.brokers[1].counts
        epoch = partition.leader_epoch
        pending = PendingShrink(ids(1, 2, 3), frozenset({BrokerId(3)}))
        partition.isr_state = pending
        on_isr_answer(partition, pending, answer._replace(leader_epoch=answer.leader_epoch + epoch - 1))
        assert (counts.failed_isr_updates, counts.isr_shrinks) == (failed, 1 - failed)
        on_isr_answer(
            partition, PendingShrink(ids(1, 2, 3), frozenset({BrokerId(2)})), answer
        )  # replaced meanwhile: nobody's
        assert counts.failed_isr_updates == failed

    run(scenario)


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_rejected_isr_expansion_is_rolled_back_and_proposed_again(run: Run, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.controller.answers = [error]
        await cluster.elect(1, (1, 2))
        await asyncio.sleep(0.3)
        assert cluster.partition(1).isr_state == Committed(ids(1, 2))
        await asyncio.sleep(2)
        assert cluster.controller.proposed == [(1, 2, 3), (1, 2, 3)]
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)


def test_the_high_watermark_advances_after_a_rejected_isr_expansion(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), tell=[1, 2])
        await cluster.produce(1, b"a")
        partition = cluster.partition(1)
        pending = PendingExpand(ids(1, 2), BrokerId(3))  # and 3 fell silent
        partition.isr_state = pending
        waiting = asyncio.create_task(cluster.produce(1, b"b"))
        await asyncio.sleep(1)
        assert not waiting.done()
        on_isr_answer(partition, pending, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))
        await asyncio.sleep(0)
        assert partition.hosted_log.high_watermark == 2
        await waiting

    run(scenario)


def test_a_broker_in_controlled_shutdown_starts_no_new_fetcher(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        cluster.brokers[1].begin_shutdown()
        await cluster.elect(2, (2, 3))
        await asyncio.sleep(5)
        assert len(cluster.brokers[1].fetchers) == 0
        assert cluster.controller.proposed == []

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_an_isr_change_rejected_for_a_stale_leader_stays_pending_until_leader_and_isr(
    run: Run, error: ErrorCode
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.controller.answers = [error]
        await cluster.elect(1, (1, 2))
        await asyncio.sleep(100)
        assert cluster.partition(1).isr_state == PendingExpand(ids(1, 2), BrokerId(3))
        assert len(cluster.controller.requests) == 1
        await cluster.elect(1, (1, 2))
        await asyncio.sleep(5)
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)


def test_an_isr_change_is_sent_again_after_an_unknown_server_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.controller.answers = [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
        await cluster.elect(1, (1, 2))
        await asyncio.sleep(1)
        assert len(cluster.controller.requests) == 4
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)


@pytest.mark.parametrize(
    "trouble",
    [
        ConnectionResetError("gone"),
        KlammError("lost"),
        TimeoutError(),
        lambda request: AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        lambda request: AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        lambda request: alter_partition_response(
            request, ErrorCode.UNKNOWN_SERVER_ERROR
        ),  # ZooKeeper refuses the write
        lambda request: AlterPartitionResponse(),  # our partition is not in it
        lambda request: AlterPartitionResponse(topics=alter_partition_response(request).topics[:0]),
    ],
)
def test_a_failed_alter_partition_request_is_sent_again_after_50_ms(run: Run, trouble: Answer) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster, *[trouble] * 10)
        await shrunk(cluster)
        times = cluster.controller.times
        assert len(times) == 11
        assert all(b - a >= 0.05 for a, b in pairwise(times))
        assert cluster.isr(1) == (1, 2)

    run(scenario)


def test_an_isr_change_is_sent_again_after_an_unexpected_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster, ZeroDivisionError("a mistake in the code"))
        await shrunk(cluster)
        assert len(cluster.controller.times) == 2
        assert cluster.isr(1) == (1, 2)

    run(scenario)


def test_an_alter_partition_response_of_another_leader_epoch_is_ignored(run: Run) -> None:
    def other_epoch(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = alter_partition_response(request)
        response.topics[0].partitions[0].leader_epoch += 1
        return response

    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster, other_epoch)
        await shrunk(cluster)
        assert cluster.partition(1).isr_state == PendingShrink(ids(1, 2, 3), frozenset({BrokerId(3)}))

    run(scenario)


@pytest.mark.parametrize(("step", "counts"), [(-1, False), (0, True), (1, True)])
def test_an_alter_partition_response_with_an_older_partition_epoch_is_ignored(
    run: Run, step: int, counts: bool
) -> None:
    def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = alter_partition_response(request)
        response.topics[0].partitions[0].partition_epoch += step - 1
        return response

    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster, answer)
        await shrunk(cluster)
        assert isinstance(cluster.partition(1).isr_state, Committed) is counts

    run(scenario)


def test_an_alter_partition_response_is_ignored_after_a_newer_leader_and_isr(run: Run) -> None:
    """KAFKA-12686: and a change tried meanwhile is refused, because the first still has the partition's place."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        cluster.controller.held = asyncio.Event()
        await shrunk(cluster)
        assert cluster.partition(1).isr_state == PendingShrink(ids(1, 2, 3), frozenset({BrokerId(3)}))
        await cluster.elect(1, tell=[1])
        assert cluster.partition(1).isr_state == Committed(ids(1, 2, 3))
        await shrunk(cluster)
        assert cluster.partition(1).isr_state == Committed(ids(1, 2, 3))
        assert len(cluster.controller.requests) == 1
        cluster.controller.held.set()
        await asyncio.sleep(0.1)
        assert cluster.partition(1).isr_state == Committed(ids(1, 2, 3))
        await shrunk(cluster)
        assert cluster.isr(1) == (1, 2)  # 2 is level

    run(scenario)


def test_an_alter_partition_rejection_after_a_newer_leader_and_isr_restores_no_old_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster, ErrorCode.INELIGIBLE_REPLICA)
        cluster.controller.held = asyncio.Event()
        await shrunk(cluster)
        await cluster.elect(1, (1, 2), tell=[1])
        cluster.controller.held.set()
        await asyncio.sleep(0.1)
        assert cluster.partition(1).isr_state == Committed(ids(1, 2))

    run(scenario)


def test_a_former_leader_ignores_the_alter_partition_response(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        cluster.controller.held = asyncio.Event()
        await shrunk(cluster)
        await cluster.elect(2, (1, 2))
        cluster.controller.held.set()
        await asyncio.sleep(1)
        assert cluster.partition(1).isr_state == Committed(())

    run(scenario)


# ---- requests


def test_a_broker_sends_one_alter_partition_at_a_time_and_queues_later_isr_changes(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        manager = cluster.brokers[1]._alter_partition
        cluster.controller.held = asyncio.Event()
        answers = []

        def proposal(number: int, topic_id: uuid.UUID = TOPIC_ID) -> Any:
            return SimpleNamespace(
                topic_partition=TopicPartition("t", number),
                topic_id=topic_id,
                leader_epoch=4,
                partition_epoch=7,
                isr=(1, 2),
                broker_epochs={2: 44},
                answered=lambda answer: answers.append((number, answer.partition_epoch)),
            )

        assert manager.submit(proposal(0))
        assert not manager.submit(proposal(0))
        await asyncio.sleep(1)
        assert manager.submit(proposal(1))
        assert manager.submit(proposal(2))
        await asyncio.sleep(1)
        assert len(cluster.controller.requests) == 1
        cluster.controller.held.set()
        await asyncio.sleep(1)

        first, second = cluster.controller.requests
        assert [p.partition_index for t in second.topics for p in t.partitions] == [1, 2]
        assert (first.broker_id, first.broker_epoch) == (1, 100)
        sent = first.topics[0].partitions[0]
        assert (sent.leader_epoch, sent.partition_epoch, sent.leader_recovery_state) == (4, 7, 0)
        assert [(b.broker_id, b.broker_epoch) for b in sent.new_isr_with_epochs] == [(1, -1), (2, 44)]
        assert answers == [(0, 8), (1, 8), (2, 8)]

        assert manager.submit(proposal(3, ZERO_ID))  # one topic without id: names, and the plain ISR
        await asyncio.sleep(1)
        last = cluster.controller.requests[-1].topics[0]
        assert (last.topic_name, tuple(last.partitions[0].new_isr)) == ("t", (1, 2))

    run(scenario)


def test_a_follower_that_catches_up_while_its_removal_is_pending_returns_to_the_isr(run: Run) -> None:
    """With incremental fetch sessions nothing reads the partition again: no record comes, as min ISR forbids it."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        cluster.controller.held = asyncio.Event()
        await shrunk(cluster)
        cluster.cut.clear()
        await asyncio.sleep(LAG_S / 2)
        assert cluster.log(3).end_offset == cluster.log(1).end_offset == 2
        assert cluster.partition(1).isr_state == PendingShrink(ids(1, 2, 3), frozenset(ids(3)))

        cluster.controller.held.set()
        await asyncio.sleep(2)

        assert cluster.controller.proposed == [(1, 2), (1, 2, 3)]
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)


def test_no_isr_change_is_sent_after_the_alter_partition_manager_closes(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        await cluster.brokers[1]._alter_partition.close()
        await shrunk(cluster)
        assert cluster.controller.requests == []
        assert cluster.partition(1).isr_state == Committed(ids(1, 2, 3))

    run(scenario)


@pytest.mark.parametrize(("second", "newest"), [(TOPIC_ID, 3), (ZERO_ID, 1)], ids=["all have ids", "one has none"])
async def test_alter_partition_names_topics_by_id_only_if_all_have_one(second: uuid.UUID, newest: int) -> None:
    sent: list[int] = []

    async def send(build: Callable[[int], AlterPartitionRequest], newest: int) -> AlterPartitionResponse:
        sent.append(newest)
        return alter_partition_response(build(newest), ErrorCode.NONE)

    manager = AlterPartitionManager(BrokerId(1), lambda: 5, send)
    for topic, topic_id in (("a", TOPIC_ID), ("b", second)):
        proposal = IsrProposal(TopicPartition(topic, 0), topic_id, 1, 1, ids(1), {}, lambda answer: None)
        assert manager.submit(proposal)
    await settle()
    await manager.close()

    assert sent[0] == newest


def test_the_leader_removes_an_isr_member_that_is_not_an_assigned_replica(run: Run) -> None:
    """KAFKA-9672: it has no replica object, and never fetches."""

    async def scenario(cluster: ReplicaCluster) -> None:
        request = leader_and_isr(1, (1, 2, 9), (1, 2), 0, 1)
        for b in (1, 2):
            await cluster.brokers[b].become_leader_or_follower(request, 7)
        assert await cluster.produce(1, timeout_ms=10_000) is ErrorCode.NONE
        assert cluster.isr(1) == (1, 2)

    run(scenario, settings=ReplicationSettings(replica_lag_time_max_ms=10_000))
