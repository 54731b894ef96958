"""Replicas that move between log directories of a broker, under load, throttled and cancelled.

Facts: ReplicaManagerTest, ReplicaAlterLogDirsThreadTest, AlterReplicaLogDirsRequestTest, LogManagerTest (3.9).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.real_logs import real_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.log.compaction import COMPACTED, cleaner, committed
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
from klamm.log.flushing import FlushJob
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.log_copy import LogCopy
from klamm.replication.quota import UNLIMITED
from klamm.replication.replica_manager import ReplicationSettings
from klamm.runtime.workers import InlineWorkers
from klamm.wire.records import NewRecord, build_batch


@pytest.fixture
def run(run_on_disk: Run) -> Run:
    """Plays a scenario on brokers with two log directories each."""
    return with_two_directories(run_on_disk)


@pytest.mark.parametrize("broker", [1, 2])
def test_a_replica_moves_to_another_log_directory_while_records_are_produced(run: Run, broker: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        first, second = directories(cluster, broker)
        assert await alter(cluster, second, broker) is NONE
        for number in range(20, 40):
            assert await cluster.produce(1, b"%d" % number) is NONE
        await wait_until_moved(cluster, second, broker)
        for number in range(40, 45):
            assert await cluster.produce(1, b"%d" % number) is NONE
        await asyncio.sleep(1)

        assert cluster.values(broker) == [b"%d" % number for number in range(45)]
        assert cluster.partition(broker).log is log_of(cluster, broker)
        assert (names_in(first), names_in(second)) == (["orders-0-delete"], ["orders-0-0"])
        assert cluster.isr(1) == (1, 2, 3)

    run(scenario, settings=SMALL_CHUNKS)


@pytest.mark.parametrize(("busy_step", "arriving"), [("copy", 1), ("flush", 30)])
def test_a_replica_of_a_busy_partition_moves_although_records_arrive_during_each_step(
    run: Run, monkeypatch: pytest.MonkeyPatch, busy_step: str, arriving: int
) -> None:
    """While the copy is flushed, more arrives than one chunk has."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        disk, source, second = cluster.logs[1]._world.disk, log_of(cluster), directories(cluster)[1]
        at_once = disk.in_thread

        async def append_meanwhile(call: Callable[..., Any], *args: Any) -> Any:
            step = "flush" if isinstance(getattr(call, "__self__", None), FlushJob) else "copy"
            if step == busy_step and cluster.logs[1].manager.directory_of(P0) != second:
                for _ in range(arriving):
                    source.append_as_leader(real_batch(), 0)
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", append_meanwhile)
        assert await alter(cluster, second) is NONE
        await wait_until_moved(cluster, second)
        assert log_of(cluster).end_offset == source.end_offset > 20

    run(scenario, settings=ReplicationSettings(replica_fetch_max_bytes=1_000))


def test_a_log_with_a_possible_loss_is_replaced_by_its_copy_once_the_loss_is_settled(run: Run) -> None:
    """The copy would not know of it: the replica would keep the gap. Meanwhile the move waits between two looks."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        log = log_of(cluster)
        log.possible_loss = 5
        assert await alter(cluster, directories(cluster)[1]) is NONE
        copies = 0

        async def count(copying: LogCopy) -> int:
            nonlocal copies
            copies += 1
            return await copy_chunk(copying)

        copy_chunk = LogCopy.copy_chunk
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LogCopy, "copy_chunk", count)
            await asyncio.sleep(10)
        assert (log_of(cluster), copies <= 12) == (log, True)
        log.possible_loss = None
        await wait_until_moved(cluster, directories(cluster)[1])

    run(scenario)


def test_a_move_of_a_log_whose_last_record_was_compacted_away_waits_for_the_next_record(run: Run) -> None:
    """The copy cannot reach the log end, where nothing is left to copy."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        log, manager = log_of(cluster), cluster.logs[1].manager
        manager.update_topic_configs({"orders": TopicConfig.parse(COMPACTED | {"delete.retention.ms": "0"})})
        for value in (b"1", None):
            log.append_as_leader(build_batch([NewRecord(value, b"a", 0)]), cluster.partition(1).leader_epoch)
            log.roll()
        log.update_high_watermark(log.end_offset)
        log.flush_now()
        compaction = cleaner(cluster.logs[1]._world, manager)
        for _ in range(2):  # the first notes since when the tombstone may go
            log.cleaning.first_dirty = 0
            assert await compaction.clean_next(InlineWorkers())
        assert (log.start_offset, log.end_offset, committed(log)) == (0, 2, {})

        assert await alter(cluster, directories(cluster)[1]) is NONE
        copies = 0

        async def count(copying: LogCopy) -> int:
            nonlocal copies
            copies += 1
            if copies > 20:  # else the simulated time would stand still
                await asyncio.sleep(1)
            return await copy_chunk(copying)

        copy_chunk = LogCopy.copy_chunk
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LogCopy, "copy_chunk", count)
            await asyncio.sleep(10)
        assert (log_of(cluster), copies <= 12) == (log, True)
        log.append_as_leader(build_batch([NewRecord(b"next", b"a", 0)]), cluster.partition(1).leader_epoch)
        await wait_until_moved(cluster, directories(cluster)[1])

    run(scenario)


def test_a_leader_epoch_without_records_moves_with_the_log_to_another_directory(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await cluster.elect(1)
        epochs = log_of(cluster).epochs.entries
        assert epochs[-1].start_offset == 20
        await alter(cluster, directories(cluster)[1])
        await wait_until_moved(cluster, directories(cluster)[1])
        assert log_of(cluster).epochs.entries == epochs

    run(scenario)


def test_moving_a_replica_back_to_its_log_directory_cancels_the_move(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        cluster.brokers[1].quotas.log_dir_moves.set_limit(0)
        first, second = directories(cluster)
        cluster.brokers[1].quotas.log_dir_moves.record(1)
        assert await alter(cluster, second) is NONE
        await asyncio.sleep(0.1)
        assert names_in(second) == ["orders-0-future"]
        assert log_of(cluster).cleaning.is_paused

        assert await alter(cluster, first) is NONE

        assert (names_in(first), names_in(second)) == (["orders-0-0"], ["orders-0-delete"])
        assert not log_of(cluster).cleaning.is_paused
        assert cluster.partition(1).future_log is None

    run(scenario)


def test_a_throttle_limits_the_rate_of_a_move_between_log_directories(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 200)
        quota, target = cluster.brokers[1].quotas.log_dir_moves, directories(cluster)[1]
        size = log_of(cluster).size
        rate, batch = size // 20, size // 200
        quota.set_limit(rate)
        await alter(cluster, target)

        copied = []
        while (copy := cluster.logs[1].manager.moves.futures.get(P0)) is not None:
            copied.append(copy.size)
            await asyncio.sleep(1)

        # the rate is measured over one second at least: the first second's bytes may be copied at once
        assert all(at <= rate * (second + 1) + 2 * batch for second, at in enumerate(copied))
        assert all(at >= rate * (second - 1) for second, at in enumerate(copied))
        assert 18 <= len(copied) <= 22
        await wait_until_moved(cluster, target)

    run(scenario, settings=ReplicationSettings(replica_fetch_max_bytes=72))  # one batch at a time


REFUSED = {
    "an unknown log directory": ("/nowhere", P0, ErrorCode.LOG_DIR_NOT_FOUND),
    "a replica that is elsewhere": ("", TopicPartition("orders", 7), ErrorCode.REPLICA_NOT_AVAILABLE),
    "an unknown topic": ("", TopicPartition("unknown", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a topic name that is too long": ("", TopicPartition("x" * 215, 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_alter_replica_log_dirs_is_refused_with_kafkas_error(run: Run, case: str) -> None:
    directory, tp, error = REFUSED[case]

    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 1)
        assert await alter(cluster, directory or directories(cluster)[1], tp=tp) is error

    run(scenario)


def test_no_replica_move_begins_while_a_log_directory_is_offline(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 1)
        first, second = directories(cluster)
        manager = cluster.logs[1].manager
        manager._registry.take_offline(manager._registry.directories[second], "it failed")
        assert await alter(cluster, second) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await alter(cluster, first) is NONE
        assert cluster.partition(1).log is log_of(cluster)

    run(scenario)


def test_a_replica_created_later_gets_the_log_directory_requested_earlier(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        second = directories(cluster)[1]
        assert await alter(cluster, second) is ErrorCode.REPLICA_NOT_AVAILABLE
        await cluster.elect(1)
        assert cluster.logs[1].manager.directory_of(P0) == second

    run(scenario)


def test_truncating_a_log_that_is_moved_to_another_directory_truncates_the_copy(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster, 10)
        await cluster.elect(2, (2,), (1, 2, 3), tell=[2])
        cluster.cut |= {(1, 2), (2, 1), (1, 3)}
        assert await cluster.brokers[1].append(1, 0, {P0: cluster.make_batch(3, filler=b"lost")})
        quota = cluster.brokers[1].quotas.log_dir_moves
        await alter(cluster, directories(cluster)[1])
        await asyncio.sleep(0)
        quota.set_limit(1)
        cluster.cut.clear()
        await cluster.elect(2, (2,), tell=[2, 1, 3])
        assert await cluster.produce(2, b"kept") is NONE
        await asyncio.sleep(10)
        quota.set_limit(1_000_000)
        await wait_until_moved(cluster, directories(cluster)[1])
        await asyncio.sleep(1)
        assert cluster.values(1) == cluster.values(2)
        assert cluster.values(1)[-1] == b"kept"

    run(scenario)


def test_a_raised_throttle_speeds_up_a_move_between_log_directories_within_a_second(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        quota, second = cluster.brokers[1].quotas.log_dir_moves, directories(cluster)[1]
        quota.set_limit(1)
        await alter(cluster, second)
        await asyncio.sleep(5)
        assert P0 in cluster.logs[1].manager.moves.futures

        quota.set_limit(UNLIMITED)
        await asyncio.sleep(1.1)
        assert cluster.logs[1].manager.directory_of(P0) == second

    run(scenario, settings=SMALL_CHUNKS)
