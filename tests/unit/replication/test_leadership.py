"""Each row of the LeaderAndIsr table."""

import asyncio
import uuid
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.memory_log import MemoryLog, batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr
from tests.unit.replication.control_requests import order, stop
from tests.unit.replication.runs import Run

from klamm.log.errors import StorageFailed
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.leadership import LeadershipChange
from klamm.wire.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from klamm.wire.records import NewRecord, build_batch, header_at

NONE = ErrorCode.NONE
IDS = (1, 2, 3)


def test_a_leader_and_isr_with_an_older_broker_epoch_gets_stale_broker_epoch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 1, 0, broker_epoch=99) == (ErrorCode.STALE_BROKER_EPOCH, None)
        assert cluster.brokers[1].partition(P0) is None

    run(scenario)


@pytest.mark.parametrize("broker_epoch", [-1, 100, 101])
def test_a_leader_and_isr_with_an_equal_newer_or_no_broker_epoch_is_accepted(run: Run, broker_epoch: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 1, 0, broker_epoch=broker_epoch) == (NONE, NONE)

    run(scenario)


def test_a_leader_and_isr_of_an_older_controller_epoch_is_rejected_for_every_partition(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 1, 0, controller_epoch=5) == (NONE, NONE)
        stale = ErrorCode.STALE_CONTROLLER_EPOCH
        assert await order(cluster, 2, 1, controller_epoch=4) == (stale, stale)
        assert cluster.partition(1).is_leader
        assert cluster.brokers[1].check_update_metadata(-1, 4) is stale
        assert cluster.brokers[1].check_update_metadata(-1, 6) is NONE
        assert await order(cluster, 2, 1, controller_epoch=5) == (stale, stale)

    run(scenario)


def test_a_leader_and_isr_for_an_offline_partition_gets_kafka_storage_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.brokers[1].set_offline([P0])
        assert await order(cluster, 1, 0) == (NONE, ErrorCode.KAFKA_STORAGE_ERROR)

    run(scenario)


def test_a_leader_and_isr_with_another_topic_id_than_the_log_is_rejected(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.logs[1].logs[P0] = MemoryLog(topic_id=uuid.UUID(int=1))
        with capture_logs() as told:
            assert await order(cluster, 1, 0) == (NONE, ErrorCode.INCONSISTENT_TOPIC_ID)
        [line] = [entry for entry in told if entry["event"].startswith("LeaderAndIsr refused")]
        assert (line["partition"], line["topic_id_of_log"]) == (str(P0), "AAAAAAAAAAAAAAAAAAAAAQ")
        assert await order(cluster, 1, 0, topic_id=ZERO_ID) == (NONE, NONE)

    run(scenario)


def test_a_leader_and_isr_with_a_newer_leader_epoch_makes_the_named_broker_leader(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 1, 4, partition_epoch=9) == (NONE, NONE)
        partition = cluster.partition(1)
        assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (True, 1, 4)
        assert (partition.partition_epoch, partition.isr_state.isr) == (9, (1, 2, 3))
        assert sorted(partition.replicas) == [2, 3]

    run(scenario)


def test_a_leader_and_isr_that_names_another_leader_makes_the_broker_a_follower(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 2, 4, partition_epoch=9) == (NONE, NONE)
        partition = cluster.partition(1)
        assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, 2, 4)
        assert (partition.partition_epoch, partition.isr_state.isr, partition.replicas) == (9, (), {})
        assert cluster.brokers[1].fetchers.leader_of(P0) == 2

    run(scenario)


def test_a_leader_and_isr_to_an_unassigned_broker_gets_unknown_topic_or_partition(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 2, 0, replicas=(2, 3)) == (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert P0 not in cluster.logs[1].logs

    run(scenario)


def test_a_leader_and_isr_with_an_older_leader_epoch_is_rejected(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert await order(cluster, 2, 3) == (NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        assert cluster.partition(1).is_leader

    run(scenario)


def test_a_leader_and_isr_with_the_same_leader_epoch_does_not_change_the_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert await order(cluster, 1, 4, isr=(1,), partition_epoch=2) == (NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario)


def test_a_leader_and_isr_with_the_same_leader_epoch_adds_a_missing_topic_id(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 2, 4, topic_id=ZERO_ID)
        await asyncio.sleep(2)
        assert await order(cluster, 2, 4) == (NONE, NONE)
        assert cluster.log(1).topic_id == TOPIC_ID
        await asyncio.sleep(2)
        assert {version for *_, version in cluster.sent} == {12, 17}  # by name first, then by id
        assert await order(cluster, 2, 4) == (NONE, ErrorCode.STALE_CONTROLLER_EPOCH)

    run(scenario)


def test_a_leader_and_isr_without_topic_id_makes_a_follower_fetch_by_topic_name(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 2, 4)
        assert await order(cluster, 2, 4, topic_id=ZERO_ID) == (NONE, NONE)
        await asyncio.sleep(2)
        assert cluster.sent[-1][-1] == 12
        assert cluster.log(1).topic_id == TOPIC_ID

    run(scenario)


def test_a_leader_rejects_a_leader_and_isr_that_omits_its_topic_id(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert await order(cluster, 1, 4, topic_id=ZERO_ID) == (NONE, ErrorCode.STALE_CONTROLLER_EPOCH)

    run(scenario)


def test_a_leader_and_isr_with_newer_leader_epoch_but_lower_partition_epoch_is_accepted(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4, partition_epoch=9)
        assert await order(cluster, 2, 5, partition_epoch=0) == (NONE, NONE)
        assert (cluster.partition(1).is_leader, cluster.partition(1).leader_id) == (False, 2)
        assert await order(cluster, 1, 6, partition_epoch=0, isr=(1,)) == (NONE, NONE)
        partition = cluster.partition(1)
        assert (partition.leader_epoch, partition.partition_epoch, cluster.isr(1)) == (6, 0, (1,))

    run(scenario)


def test_a_leader_and_isr_can_be_repeated_after_the_log_could_not_be_created(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.logs[1].refused[P0] = KlammError("ZooKeeper does not answer")
        await order(cluster, 1, 4)
        assert cluster.partition(1).leader_epoch == -1
        cluster.logs[1].refused.clear()
        assert await order(cluster, 1, 4) == (NONE, NONE)
        assert cluster.partition(1).is_leader

    run(scenario)


@pytest.mark.parametrize("trouble", [OSError(5, "I/O error"), StorageFailed("out of use")])
def test_a_storage_error_while_creating_the_log_takes_the_partition_offline(run: Run, trouble: Exception) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.logs[1].refused[P0] = trouble
        assert await order(cluster, 1, 4) == (NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        assert cluster.brokers[1].offline_partitions == {P0}

    run(scenario)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_partition_that_goes_offline_while_its_log_is_opened_gets_no_role(
    run: Run, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        opened = cluster.logs[1].get_or_create_many

        async def open_and_fail(wanted: Any) -> Any:
            found = await opened(wanted)
            orphans.append(cluster.brokers[1]._hosted.get(P0))
            cluster.brokers[1].set_offline([P0])
            return found

        orphans: list[Any] = []
        monkeypatch.setattr(cluster.logs[1], "get_or_create_many", open_and_fail)
        await order(cluster, leader, 4)
        assert cluster.brokers[1].offline_partitions == {P0}
        assert [(p.log, p.is_leader, p.leader_epoch) for p in orphans] == [(None, False, -1)]
        assert len(cluster.brokers[1]._fetchers) == 0

    run(scenario)


def test_a_follower_starts_fetching_once_its_leader_appears_in_the_metadata(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.metadata.alive.discard(2)
        assert await order(cluster, 2, 0) == (NONE, NONE)
        assert P0 in cluster.logs[1].logs
        await asyncio.sleep(3)
        assert cluster.sent == []
        cluster.metadata.alive.add(BrokerId(2))
        await asyncio.sleep(2)
        assert cluster.sent[0][:2] == (1, 2)

    run(scenario)


def test_a_follower_of_a_partition_without_leader_stops_fetching(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 2, 0)
        assert await order(cluster, -1, 1, isr=(2,)) == (NONE, NONE)
        assert cluster.brokers[1].fetchers.leader_of(P0) is None

    run(scenario)


def test_a_follower_that_becomes_leader_stops_fetching(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 2, 0)
        await asyncio.sleep(1)
        await order(cluster, 1, 1, partition_epoch=2)
        assert cluster.brokers[1].fetchers.leader_of(P0) is None
        assert len(cluster.brokers[1].fetchers) == 0  # idle ones end

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 4])
def test_a_leader_and_isr_below_version_5_is_answered_by_topic_name(run: Run, version: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        request = leader_and_isr(1, (1,), (1,), 0, 1, topic_id=ZERO_ID)
        if version < 2:
            state = LeaderAndIsrPartitionState("orders", 0, 1, 1, 0, (1,), 1, (1,))
            request = LeaderAndIsrRequest(controller_epoch=1, ungrouped_partition_states=[state])
        response = await cluster.brokers[1].become_leader_or_follower(request, version)
        assert [(p.topic_name, p.error_code) for p in response.partition_errors] == [("orders", 0)]
        assert response.topics == []

    run(scenario)


def test_a_leader_and_isr_of_version_5_is_answered_by_topic_id(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        request = leader_and_isr(1, (1,), (1,), 0, 1)
        response = await cluster.brokers[1].become_leader_or_follower(request, 5)
        assert [t.topic_id for t in response.topics] == [TOPIC_ID]
        assert response.partition_errors == []

    run(scenario)


@pytest.mark.parametrize(
    ("assigned", "isr", "expected"),
    [
        ({"adding": (4,), "removing": (3,)}, (1, 2, 3), (1, 0)),  # who is on the way is not missed yet
        ({"adding": (4,)}, (1, 2), (1, 1)),
        ({"removing": (4,)}, (1, 2, 3), (1, 1)),
        ({}, (1, 2, 3), (0, 1)),
        ({}, (1, 2, 3, 4), (0, 0)),
    ],
)
def test_adding_replicas_of_a_reassigning_partition_do_not_count_as_under_replicated(
    run: Run, assigned: dict[str, Any], isr: tuple[int, ...], expected: tuple[int, int]
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 5, isr=isr, replicas=(1, 2, 3, 4), **assigned)
        health = await cluster.brokers[1].partition_health()
        assert (health.reassigning, health.under_replicated) == expected

    run(scenario)


@pytest.mark.parametrize(("leader", "late"), [(1, 1), (2, 0)])
def test_producers_are_counted_at_all_replicas_and_late_transactions_at_the_leader(
    run: Run, leader: int, late: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, leader, 5)
        producers = cluster.log(1).producers
        header = header_at(build_batch([NewRecord(b"x")], producer_id=7, producer_epoch=0, transactional=True))
        producers.on_batch_written(header, 0, max_timestamp=1_000)
        for late_before_ms, expected in ((1_000, 0), (1_001, late)):
            health = await cluster.brokers[1].partition_health(late_before_ms)
            assert (health.producer_ids, health.with_late_transactions) == (1, expected)

    run(scenario)


def test_high_watermark_checkpoints_are_written_only_after_the_first_leader_and_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await asyncio.sleep(6)
        assert cluster.logs[1].checkpoints == []
        await order(cluster, 1, 0, isr=(1,), replicas=(1,))
        await cluster.brokers[1].append(1, 0, {P0: batch()})
        await asyncio.sleep(6)
        assert cluster.logs[1].checkpoints == [{P0: 1}]
        await cluster.brokers[1].close()
        assert len(cluster.logs[1].checkpoints) == 2

    run(scenario)


# ---- make leader


def test_a_new_leader_stores_its_leader_epoch_before_any_record(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await order(cluster, 1, 4)
        assert cluster.log(1).epoch_list() == [(4, 0)]
        assert cluster.partition(1).leader_epoch_start == 0

    run(scenario)


def test_a_leader_reelected_in_a_new_epoch_keeps_its_followers_log_ends(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        assert cluster.partition(1).replicas[BrokerId(2)].log_end_offset == 1
        await cluster.elect(1, (1, 2), (1, 2, 4))
        partition = cluster.partition(1)
        assert partition.replicas[BrokerId(2)].log_end_offset == 1
        assert sorted(partition.replicas) == [2, 4]
        assert partition.leader_epoch_start == 1

    run(scenario)


def test_a_follower_that_becomes_leader_knows_no_follower_log_end(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await cluster.elect(2, tell=[1, 2])
        assert cluster.partition(2).replicas[BrokerId(3)].log_end_offset == -1
        assert cluster.partition(1).leader_epoch_start is None

    run(scenario)


def test_a_leader_that_becomes_the_only_replica_advances_the_high_watermark(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        assert await cluster.produce(1, acks=1) is NONE
        assert cluster.log(1).high_watermark == 0
        await cluster.elect(1, (1,), (1,), tell=[1])
        assert cluster.log(1).high_watermark == 1

    run(scenario)


def test_the_leadership_change_callback_gets_new_leaders_followers_and_deletions(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        heard: list[LeadershipChange] = []
        cluster.brokers[1]._leadership._on_change = heard.append
        await order(cluster, 1, 0)
        await order(cluster, 2, 1, partition_epoch=2)
        await stop(cluster, -2, deletes=True)
        assert [([p.topic_partition for p in h.leaders], len(h.followers), h.deleted) for h in heard] == [
            ([P0], 0, ()),
            ([], 1, ()),
            ([], 0, (P0,)),
        ]

    run(scenario)


def test_other_tasks_run_while_a_leader_and_isr_of_many_known_partitions_is_checked(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        requests = [leader_and_isr(2, IDS, IDS, 4, 1, TopicPartition("orders", n)) for n in range(3_000)]
        request = requests[0]
        request.topic_states[0].partition_states = [r.topic_states[0].partition_states[0] for r in requests]
        await cluster.brokers[1].become_leader_or_follower(request, 7)
        answering = asyncio.create_task(cluster.brokers[1].become_leader_or_follower(request, 7))

        passes = 0
        while not answering.done():
            await asyncio.sleep(0)
            passes += 1

        errors = {p.error_code for t in answering.result().topics for p in t.partition_errors}
        assert errors == {ErrorCode.STALE_CONTROLLER_EPOCH}  # each was known already
        assert passes > 20

    run(scenario)
