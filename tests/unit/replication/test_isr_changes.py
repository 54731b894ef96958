"""When the leader proposes another ISR, and who holds the high watermark meanwhile."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.support.failing import fail_once
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, ids
from tests.unit.replication.lagging import LAG_S, lagging, shrunk
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication import replica_manager
from klamm.replication.fetch_session_client import FetchPosition
from klamm.replication.isr import Committed, PendingExpand
from klamm.replication.isr_changes import maybe_expand_isr


def test_a_lagging_follower_is_removed_from_the_isr_and_the_high_watermark_advances(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        assert cluster.log(1).high_watermark == 1
        produced = asyncio.create_task(cluster.produce(1, timeout_ms=60_000))
        await asyncio.sleep(1)
        assert not produced.done()
        await shrunk(cluster)
        assert cluster.controller.proposed == [(1, 2)]
        assert cluster.partition(1).isr_state == Committed(ids(1, 2))
        assert await produced is ErrorCode.NONE
        assert cluster.log(1).high_watermark == 3

    run(scenario)


def test_lagging_followers_are_looked_for_again_after_an_unexpected_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        fail_once(monkeypatch, replica_manager, "maybe_shrink_isr")
        with capture_logs() as lines:
            await asyncio.sleep(3 * LAG_S)
        assert cluster.controller.proposed == [(1, 2)]
        assert [line["work"] for line in lines if line["event"].startswith("unexpected error")]

    run(scenario)


def test_a_follower_stays_in_the_isr_until_replica_lag_time_max_ms_has_passed(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        await asyncio.sleep(LAG_S - 1)
        assert cluster.controller.requests == []

    run(scenario)


def test_a_partition_without_new_records_keeps_its_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await asyncio.sleep(10 * LAG_S)
        assert cluster.controller.requests == []

    run(scenario)


def test_followers_of_a_long_idle_partition_stay_in_sync_when_records_arrive_again(run: Run) -> None:
    """Its followers' fetches did not name it: they were level all the while (the sessions' implicit fetches)."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await asyncio.sleep(10 * LAG_S)
        cluster.cut |= {(3, 1)}
        await cluster.produce(1, acks=1)
        await asyncio.sleep(LAG_S - 2)
        assert cluster.controller.requests == []
        await asyncio.sleep(LAG_S)
        assert cluster.controller.proposed == [(1, 2)]

    run(scenario)


def test_the_replica_lag_time_starts_when_a_follower_drops_the_partition_from_its_session(run: Run) -> None:
    """The follower forgets the partition in its session: the lag time counts from there, not from long ago."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2))
        await cluster.produce(1)
        await asyncio.sleep(10 * LAG_S)
        cluster.brokers[2].fetchers.remove([cluster.partition(2).topic_partition])
        fetcher = next(iter(cluster.brokers[2].fetchers._fetchers.values()))
        fetcher._session.set_position(
            TopicPartition("orders", 9), FetchPosition(TOPIC_ID, 0, 0, -1, 0)
        )  # keeps the session going
        await asyncio.sleep(1)
        assert not cluster.partition(1)._followers
        await cluster.produce(1, acks=1)
        await asyncio.sleep(LAG_S - 3)
        assert cluster.controller.requests == []
        await asyncio.sleep(LAG_S)
        assert cluster.controller.proposed == [(1,)]

    run(scenario)


def test_a_replica_removed_from_the_isr_by_leader_and_isr_does_not_delay_acks_all(run: Run) -> None:
    """Its session is still open, but its last fetch in it was of the epoch before."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await asyncio.sleep(1)
        cluster.cut |= {(1, 3)}
        await asyncio.sleep(0.1)
        await cluster.elect(1, (1, 2), tell=[1, 2])
        start = asyncio.get_running_loop().time()
        assert await cluster.produce(1) is ErrorCode.NONE
        assert asyncio.get_running_loop().time() - start < 0.2

    run(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_dead_or_lagging_follower_outside_the_isr_does_not_hold_back_the_high_watermark(
    run: Run, is_told: bool
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.controller.answers = [ErrorCode.INELIGIBLE_REPLICA] * 1_000
        await cluster.elect(1, (1, 2))
        await cluster.produce(1)
        cluster.cut |= {(1, 3)}
        produced = asyncio.create_task(cluster.produce(1, timeout_ms=100_000))
        await asyncio.sleep(1)
        assert not produced.done()
        if is_told:
            cluster.metadata.alive.discard(3)
            cluster.brokers[1].on_live_brokers_changed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert produced.done()
        else:
            await asyncio.sleep(1.6 * LAG_S)
        assert await produced is ErrorCode.NONE

    run(scenario)


def test_a_follower_that_rejoins_the_isr_counts_for_acks_while_the_expansion_is_pending(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await lagging(cluster)
        await shrunk(cluster)
        cluster.controller.held = asyncio.Event()
        cluster.cut.clear()
        await asyncio.sleep(3)
        assert cluster.partition(1).isr_state == PendingExpand(ids(1, 2), BrokerId(3))
        assert cluster.isr(1) == (1, 2)
        cluster.controller.held.set()
        await asyncio.sleep(1)
        assert cluster.partition(1).isr_state == Committed(ids(1, 2, 3))
        assert cluster.partition(1).partition_epoch == 3
        assert await cluster.produce(1) is ErrorCode.NONE
        assert cluster.log(3).end_offset == 3

    run(scenario)


def test_a_follower_that_is_not_alive_in_the_metadata_does_not_join_the_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2))
        cluster.metadata.alive.discard(3)
        await asyncio.sleep(5)
        assert cluster.controller.requests == []
        cluster.metadata.alive.add(BrokerId(3))
        await asyncio.sleep(5)
        assert cluster.controller.proposed == [(1, 2, 3)]

    run(scenario)


def test_a_follower_below_the_leader_epoch_start_offset_does_not_join_the_isr(run: Run) -> None:
    """KAFKA-7128: at the high watermark, but below where the leader's own epoch starts."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1, b"a")
        cluster.cut |= {(3, 1), (3, 2)}
        await cluster.produce(1, b"b", acks=1)  # 2 has it; the high watermark does not move, 3 lacks it
        await asyncio.sleep(1)
        assert (cluster.log(2).end_offset, cluster.log(2).high_watermark) == (2, 1)
        await cluster.crash(1)
        await cluster.elect(2, (2,), tell=[2])
        partition = cluster.partition(2)
        assert partition.leader_epoch_start == 2
        cluster.log(2).high_watermark = 1  # as a leader that has not confirmed it yet
        partition.replicas[BrokerId(3)].log_end_offset = 1
        maybe_expand_isr(partition, partition.replicas[BrokerId(3)])
        assert cluster.controller.requests == []
        assert partition.isr_state == Committed(ids(2))

    run(scenario)


def test_a_proposed_isr_names_the_broker_epoch_in_which_the_new_member_fetched(run: Run) -> None:
    """The controller refuses it if the broker has registered again since; of the other members it knows that."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2))
        await asyncio.sleep(1)
        [request] = cluster.controller.requests
        [partition] = request.topics[0].partitions
        assert [(m.broker_id, m.broker_epoch) for m in partition.new_isr_with_epochs] == [(1, -1), (2, -1), (3, 100)]

    run(scenario)
