"""Moves of replicas between log directories that are killed, restarted, or meet a failing disk.

Facts: ReplicaAlterLogDirsThreadTest, LogManagerTest (3.9).
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster, ids
from tests.unit.replication.log_dir_moves import (
    NONE,
    SMALL_CHUNKS,
    alter,
    directories,
    log_of,
    names_in,
    wait_until_moved,
    with_records,
    with_two_directories,
)
from tests.unit.replication.runs import Run

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaning_state import CleaningState
from klamm.log.errors import BadLogDirectory
from klamm.log.flushing import FlushJob
from klamm.log.log import Log
from klamm.log.names import future_directory
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition


@pytest.fixture
def run(run_on_disk: Run) -> Run:
    """Plays a scenario on brokers with two log directories each."""
    return with_two_directories(run_on_disk)


@pytest.mark.parametrize("config", ["klamm.sync.before.ack=true", "flush.messages=1", "flush by an operator"])
def test_a_moved_replica_has_fsynced_what_was_acknowledged_at_the_end_of_its_move(
    run: Run, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """What is appended while the copy is flushed is copied afterwards, and was acknowledged because the log has it."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        name, _, value = config.partition("=")
        if value:
            cluster.logs[1].manager.update_topic_configs({"orders": TopicConfig.parse({name: value})})
        disk, second = cluster.logs[1]._world.disk, directories(cluster)[1]
        at_once, is_flushing, may_flush = disk.in_thread, asyncio.Event(), asyncio.Event()

        async def wait(call: Callable[..., Any], *args: Any) -> Any:
            job = getattr(call, "__self__", None)
            if isinstance(job, FlushJob) and any(path.startswith(second) for path in job.paths):
                is_flushing.set()
                await may_flush.wait()
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", wait)
        assert await alter(cluster, second) is NONE
        await is_flushing.wait()
        assert await cluster.produce(1, b"late") is NONE
        if not value:
            log_of(cluster).flush_now()
        may_flush.set()
        await wait_until_moved(cluster, second)

        assert log_of(cluster).end_offset == 21
        assert (log_of(cluster).durable_end if "sync" in config else log_of(cluster).recovery_point) == 21

    run(scenario)


def test_a_moved_replica_has_all_records_epochs_and_offsets_after_a_restart(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await cluster.brokers[1].delete_records({P0: 5}, 1_000)
        epochs = log_of(cluster).epochs.entries
        await alter(cluster, directories(cluster)[1])
        await wait_until_moved(cluster, directories(cluster)[1])
        assert log_of(cluster).epochs.entries == epochs
        await cluster.logs[1].manager.write_log_starts()
        await cluster.logs[1].manager.write_high_watermarks()

        await cluster.crash(1)
        await cluster.start(1)

        moved = log_of(cluster)
        assert cluster.values(1) == [b"%d" % number for number in range(5, 20)]
        assert (moved.start_offset, moved.high_watermark, moved.end_offset) == (5, 20, 20)
        assert moved.epochs.entries == epochs
        assert moved.directory == f"{directories(cluster)[1]}/{P0}"

    run(scenario)


def test_a_failure_of_the_target_log_directory_leaves_the_replica_in_place(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.brokers[1].quotas.log_dir_moves.set_limit(1)
        await alter(cluster, directories(cluster)[1])
        await asyncio.sleep(0.1)
        manager = cluster.logs[1].manager
        manager._registry.take_offline(manager._registry.directories[directories(cluster)[1]], "it failed")
        cluster.brokers[1].quotas.log_dir_moves.set_limit(1_000_000)
        await asyncio.sleep(30)

        assert await cluster.produce(1, b"more") is NONE
        assert not log_of(cluster).cleaning.is_paused
        assert (await cluster.brokers[1].delete_records({P0: 3}, 1_000))[P0].error is NONE

    run(scenario, settings=SMALL_CHUNKS)


def test_a_log_is_compacted_on_if_its_copy_cannot_be_created(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 1)
        first, second = directories(cluster)
        manager = cluster.logs[1].manager

        def create(*_: object) -> Log:
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(manager._futures, "create", create)

        assert await alter(cluster, second) is ErrorCode.KAFKA_STORAGE_ERROR

        assert (manager.directory_of(P0), manager.live_directories) == (first, [first])
        assert not log_of(cluster).cleaning.is_paused

    run(scenario)


def test_a_log_whose_compaction_cannot_be_cancelled_goes_offline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 1)
        second = directories(cluster)[1]
        monkeypatch.setattr(CleaningState, "pause", Mock(side_effect=OSError(errno.EIO, "broken")))
        assert await alter(cluster, second) is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.logs[1].manager.live_directories == [second]

    run(scenario)


STEPS = ["write_atomically", "rename", "sync_directory", "retire"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_of_replacing_a_log_by_its_moved_copy_loses_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    class Killed(BaseException):
        pass

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        manager = cluster.logs[1].manager
        target = manager._registry if step == "retire" else manager._world.disk
        real = getattr(target, step)
        promote = manager.moves.promote_future

        def kill(*arguments: object) -> None:
            if is_after:
                real(*arguments)
            raise Killed

        def promote_and_die(partition: TopicPartition) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(target, step, kill)
                with pytest.raises(Killed):
                    promote(partition)
            manager.moves.promote_future = promote
            raise asyncio.CancelledError

        manager.moves.promote_future = promote_and_die
        await alter(cluster, directories(cluster)[1])
        await asyncio.sleep(1)
        manager._files.close()
        await cluster.crash(1)

        await cluster.start(1)
        assert cluster.values(1) == [b"%d" % number for number in range(20)]
        await cluster.elect(1)
        await wait_until_moved(cluster, directories(cluster)[1])
        assert cluster.values(1) == [b"%d" % number for number in range(20)]
        assert "orders-0-0" not in names_in(directories(cluster)[0])
        assert ids(1, 2, 3) == cluster.isr(1)

    run(scenario)


@pytest.mark.parametrize("step", ["rename", "sync_directory"])
def test_a_log_whose_moved_copy_could_not_replace_it_is_not_deleted_at_the_next_start(
    run: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        first, second = directories(cluster)
        disk = cluster.logs[1].manager._world.disk
        real = getattr(disk, step)

        def fail_in_second(path: str, *arguments: str) -> None:
            real(path, *arguments)
            is_promotion = path == second or f"{second}/{P0}" in arguments
            if is_promotion:
                raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(disk, step, fail_in_second)
            await alter(cluster, second)
            await asyncio.sleep(1)
        assert cluster.logs[1].manager.live_directories == [first]
        assert await cluster.produce(1, b"20") is NONE
        await cluster.crash(1)
        await cluster.start(1)

        assert cluster.values(1) == [b"%d" % number for number in range(21)]
        assert cluster.logs[1].manager.directory_of(P0) == first

    run(scenario)


def test_a_move_between_log_directories_continues_after_a_restart(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.brokers[1].quotas.log_dir_moves.set_limit(1)
        await alter(cluster, directories(cluster)[1])
        await asyncio.sleep(0.1)
        copied = cluster.logs[1].manager.moves.futures[P0].end_offset
        assert 0 < copied < 20

        await cluster.crash(1)
        await cluster.start(1)
        assert cluster.logs[1].manager.moves.futures[P0].end_offset == copied
        assert log_of(cluster).cleaning.is_paused
        await cluster.elect(1)
        await wait_until_moved(cluster, directories(cluster)[1])

        cluster.brokers[1].quotas.log_dir_moves.set_limit(1)
        cluster.brokers[1].quotas.log_dir_moves.record(1000)
        await alter(cluster, directories(cluster)[0])
        cluster.logs[1].manager.delete(P0)
        assert [n for d in directories(cluster) for n in names_in(d)] == ["orders-0-delete"] * 3

    run(scenario, settings=SMALL_CHUNKS)


def test_a_future_log_in_the_same_directory_as_its_log_is_deleted_at_startup(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        first, second = directories(cluster)
        await cluster.crash(1)
        shutil.copytree(f"{first}/{P0}", f"{first}/{future_directory(P0, '0' * 32)}")

        await cluster.start(1)
        assert cluster.logs[1].manager.moves.futures == {}
        assert (names_in(first), names_in(second)) == (["orders-0-0", "orders-0-delete"], [])
        assert not log_of(cluster).cleaning.is_paused
        assert cluster.values(1) == [b"%d" % number for number in range(20)]

    run(scenario)


def test_a_partition_with_logs_in_two_directories_is_refused_at_startup(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await cluster.crash(1)
        os.makedirs(f"{directories(cluster)[1]}/{P0}")
        with pytest.raises(BadLogDirectory, match="is in two log directories"):
            await cluster.start(1)

    run(scenario)
