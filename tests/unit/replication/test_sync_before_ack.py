"""When records are on the devices: flush.messages and klamm.sync.before.ack."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.config.topic_config import TopicConfig
from klamm.log.flushing import FlushJob
from klamm.model.errors import ErrorCode


def test_a_topic_with_flush_messages_is_flushed_on_every_replica_before_the_acknowledgement(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await asyncio.sleep(2)
        for broker in (1, 2, 3):
            cluster.partition(broker).hosted_log.update_config(TopicConfig.parse({"flush.messages": "1"}))

        assert await cluster.produce(1, b"a", acks=1) is ErrorCode.NONE
        assert cluster.partition(1).hosted_log.recovery_point == 1
        assert await cluster.produce(1, b"b", acks=-1) is ErrorCode.NONE
        assert [cluster.partition(broker).hosted_log.recovery_point for broker in (1, 2, 3)] == [2, 2, 2]

    run_on_disk(scenario)


async def synced_cluster(cluster: ReplicaCluster) -> None:
    """Three replicas of a topic with klamm.sync.before.ack."""
    await cluster.elect(1)
    await asyncio.sleep(2)
    for broker in (1, 2, 3):
        sync_before_ack(cluster, broker)


def sync_before_ack(cluster: ReplicaCluster, broker: int) -> None:
    cluster.partition(broker).hosted_log.update_config(TopicConfig.parse({"klamm.sync.before.ack": "true"}))


@pytest.mark.parametrize("acks", [1, -1])
def test_records_of_a_topic_with_sync_before_ack_are_fsynced_before_the_acknowledgement(
    run_on_disk: Run, acks: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await synced_cluster(cluster)
        assert await cluster.produce(1, b"a", acks=acks) is ErrorCode.NONE
        brokers = (1, 2, 3) if acks == -1 else (1,)
        assert [cluster.partition(broker).hosted_log.durable_end for broker in brokers] == [1] * len(brokers)

    run_on_disk(scenario)


@pytest.mark.parametrize("slow", [1, 2])
def test_the_high_watermark_waits_for_the_fsync_of_every_in_sync_replica(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await synced_cluster(cluster)
        log, disk = cluster.partition(slow).hosted_log, cluster.logs[slow]._world.disk
        may_sync = asyncio.Event()
        at_once = disk.in_thread

        async def wait(call: Callable[..., Any], *args: Any) -> Any:
            await may_sync.wait()
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", wait)
        producing = asyncio.create_task(cluster.produce(1, b"a", timeout_ms=60_000))
        acknowledged = asyncio.create_task(cluster.produce(1, b"b", acks=1))
        await asyncio.sleep(5)
        assert cluster.partition(1).hosted_log.end_offset == 2
        assert cluster.partition(1).hosted_log.high_watermark == 0
        assert not producing.done()
        assert acknowledged.done() == (slow == 2)
        may_sync.set()
        assert await producing is await acknowledged is ErrorCode.NONE
        await asyncio.sleep(1)
        assert log.durable_end == 2

    run_on_disk(scenario)


@pytest.mark.parametrize("killed", [1, 2])
def test_a_killed_replica_fsyncs_unsynced_records_before_they_count_as_replicated(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(1, b"a", count=5) is ErrorCode.NONE
        await cluster.crash(killed)
        cluster.logs[killed]._overrides["klamm.sync.before.ack"] = "true"
        await cluster.start(killed)
        log, disk = cluster.logs[killed].manager.logs[P0], cluster.logs[killed]._world.disk
        assert log.durable_end < log.end_offset == 5
        may_sync, sync, cluster.sent[:] = asyncio.Event(), FlushJob.run, []
        at_once = disk.in_thread

        async def wait(call: Callable[..., Any], *args: Any) -> Any:
            if getattr(call, "__func__", None) is sync:
                await may_sync.wait()
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", wait)
        await cluster.elect(1)
        await asyncio.sleep(3)
        assert killed not in [source for source, *_ in cluster.sent]
        assert (log.durable_end, log.high_watermark) == (0, 0)
        may_sync.set()
        await asyncio.sleep(3)
        assert (log.durable_end, log.high_watermark) == (5, 5)

    run_on_disk(scenario)
