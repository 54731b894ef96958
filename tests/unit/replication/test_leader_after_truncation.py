"""A replica that becomes leader right after it truncated its log."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory_log import MemoryLog
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.control_requests import order
from tests.unit.replication.runs import Run

from klamm.log.checkpoints import OffsetCheckpoint
from klamm.log.errors import StorageFailed
from klamm.log.flushing import FlushJob
from klamm.model.errors import ErrorCode


@pytest.mark.parametrize("delayed", [OffsetCheckpoint, FlushJob], ids=["checkpoint", "segment"])
def test_a_replica_leads_once_its_truncation_is_on_the_device(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch, delayed: type
) -> None:
    """What it appends before would count as flushed after a power loss, or stand behind what was removed."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(1, b"a", count=5) is ErrorCode.NONE
        assert await cluster.produce(1, b"b", count=5) is ErrorCode.NONE
        log, logs = cluster.partition(2).hosted_log, cluster.logs[2].manager
        await log.flush()
        await logs.write_recovery_points()
        disk, is_free = cluster.logs[2]._world.disk, asyncio.Event()
        at_once = disk.in_thread

        async def wait(call: Callable[..., Any], *args: Any) -> Any:
            if isinstance(getattr(call, "__self__", None), delayed):
                await is_free.wait()
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", wait)
        cluster.partition(2).truncate_to(5)
        electing = asyncio.create_task(cluster.elect(2, tell=[2]))
        await asyncio.sleep(1)
        assert not cluster.partition(2).is_leader
        is_free.set()
        await electing
        assert cluster.partition(2).is_leader
        assert log.is_durable
        assert logs._registry.homes[P0].checkpoint("recovery-point-offset-checkpoint").written[P0] == 5

    run_on_disk(scenario)


def test_a_log_directory_that_fails_before_its_replica_leads_is_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await order(cluster, 2, 0) == (ErrorCode.NONE, ErrorCode.NONE)

        async def fail(log: MemoryLog) -> None:
            log.on_failed()
            raise StorageFailed("I/O error")

        monkeypatch.setattr(MemoryLog, "wait_until_durable", fail)
        cluster.log(1).is_durable = False
        assert await order(cluster, 1, 1) == (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        assert cluster.brokers[1].partition(P0) is None

    run(scenario)
