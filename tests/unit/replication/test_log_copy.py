"""A log that is copied while it is truncated, restarted or loses its start; and how far two logs agree."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.support.managed_logs import get_or_create
from tests.support.real_logs import real_batch, values
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.log.compaction import COMPACTED, Workload, cleaner, committed, compacted_log
from tests.unit.log.simulated_node import SimulatedNode
from tests.unit.log.support import ORDERS, batch
from tests.unit.replication.runs import Run

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import RECOVERY_POINTS
from klamm.log.epochs import EpochEntry, LeaderEpochs
from klamm.log.errors import AppendRefused
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.log_copy import LogCopy
from klamm.replication.truncation import common_end
from klamm.runtime.workers import InlineWorkers

CHUNK = 1 << 20
TOPIC_ID = UUID(int=9)


async def begun(cluster: ReplicaCluster) -> tuple[Log, Log]:
    """A log of ten records in epoch 0, and its complete copy; nothing else copies."""
    manager = cluster.logs[1].manager
    source = get_or_create(manager, P0, manager.topic_config(P0.topic), None, is_new=True)
    for number in range(10):
        source.append_as_leader(real_batch(filler=b"%d" % number), 0)
    copy = manager.moves.create_future(P0, cluster.logs[1].directories[1])
    assert await LogCopy(source, copy, CHUNK).copy_chunk() > 0
    return source, copy


async def catch_up(source: Log, copy: Log) -> None:
    copying = LogCopy(source, copy, CHUNK)
    for _ in range(5):
        await copying.copy_chunk()
    copying.copy_now()
    assert copying.is_complete
    assert values(copy) == values(source)
    assert copy.epochs.entries == source.epochs.entries


def test_a_log_copy_without_topic_id_starts_again_and_gets_the_id_of_its_source(run_on_disk: Run) -> None:
    """It may be of an earlier topic of this name, whose records have the same offsets and epochs."""

    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        source.truncate_fully_and_start_at(0)
        for number in range(10):
            source.append_as_leader(real_batch(filler=b"other %d" % number), 0)
        source.assign_topic_id(TOPIC_ID)
        assert not LogCopy(source, copy, CHUNK).is_complete
        await catch_up(source, copy)
        assert copy.topic_id == TOPIC_ID

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_log_copy_follows_a_truncation_and_the_records_of_the_next_leader(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        source.truncate_to(5)
        for _ in range(8):
            source.append_as_leader(real_batch(filler=b"next"), 3)
        assert not LogCopy(source, copy, CHUNK).is_complete
        await catch_up(source, copy)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_truncation_of_a_log_copy_is_durable_before_more_is_copied(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss, removed records could lie behind newer ones, and count as those of the newer leader epoch."""

    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        source.truncate_to(5)
        source.append_as_leader(real_batch(filler=b"next"), 3)
        append, was_durable = copy.append_as_follower, []

        def check(records: bytes) -> object:
            was_durable.append(copy.is_durable)
            return append(records)

        monkeypatch.setattr(Log, "append_as_follower", lambda _, records: check(records))
        await LogCopy(source, copy, CHUNK).copy_chunk()
        assert (was_durable, copy.end_offset) == ([True], 6)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_second_copy_is_not_taken_for_flushed_up_to_the_end_of_the_first(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        await copy.flush()
        manager = cluster.logs[1].manager
        await manager.write_recovery_points()
        home = manager._futures.home_of(P0)
        assert home is not None
        points = home.checkpoint(RECOVERY_POINTS)
        assert points.written == {P0: 10}
        manager.moves.delete_future(P0)

        again = manager.moves.create_future(P0, home.path)
        append, written = again.append_as_follower, []

        def check(records: bytes) -> object:
            written.append(dict(points.written))
            return append(records)

        monkeypatch.setattr(Log, "append_as_follower", lambda _, records: check(records))
        await LogCopy(source, again, CHUNK).copy_chunk()
        assert written == [{P0: 0}]

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_second_copy_waits_for_a_checkpoint_under_way_with_the_end_of_the_first(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        await copy.flush()
        manager = cluster.logs[1].manager
        home = manager._futures.home_of(P0)
        assert home is not None
        points, disk, is_free = home.checkpoint(RECOVERY_POINTS), cluster.logs[1]._world.disk, asyncio.Event()
        at_once = disk.in_thread

        async def wait(call: Callable[..., Any], *args: Any) -> Any:
            if getattr(call, "__self__", None) is points:
                await is_free.wait()
            return await at_once(call, *args)

        monkeypatch.setattr(disk, "in_thread", wait)
        writing = asyncio.create_task(manager.write_recovery_points())
        await asyncio.sleep(1)
        manager.moves.delete_future(P0)
        again = manager.moves.create_future(P0, home.path)
        copying = asyncio.create_task(LogCopy(source, again, CHUNK).copy_chunk())
        await asyncio.sleep(1)
        is_free.set()
        await asyncio.gather(copying, writing)
        assert (again.end_offset, points.written[P0]) == (10, 0)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_copy_that_is_truncated_last_replaces_the_log_once_that_is_on_the_device(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,), tell=[1])
        for _ in range(10):
            assert await cluster.produce(1, b"a") is ErrorCode.NONE
        manager: LogManager = cluster.logs[1].manager
        source, promoted = cluster.partition(1).hosted_log, []
        flush, promote = Log.flush, manager.moves.promote_future

        async def truncate(log: Log, up_to: int | None = None) -> None:
            await flush(log, up_to)
            if log is not source and source.end_offset == 10:
                source.truncate_to(5)

        def check(partition: TopicPartition) -> Log:
            promoted.append(manager.moves.futures[partition].has_unsynced_truncation)
            return promote(partition)

        monkeypatch.setattr(Log, "flush", truncate)
        monkeypatch.setattr(manager.moves, "promote_future", check)
        assert await cluster.brokers[1].alter_log_dirs({P0: cluster.logs[1].directories[1]}) == {P0: ErrorCode.NONE}
        await asyncio.sleep(5)
        assert (promoted, cluster.partition(1).hosted_log.end_offset) == ([False], 5)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_log_copy_restarts_when_the_source_is_emptied_or_its_next_records_deleted(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        source.truncate_fully_and_start_at(50)
        source.append_as_leader(real_batch(filler=b"fifty"), 4)
        await catch_up(source, copy)
        source.append_as_leader(real_batch(filler=b"later"), 4)
        source.update_high_watermark(52)
        source.advance_start_offset(52)
        await catch_up(source, copy)
        assert (copy.start_offset, copy.end_offset) == (52, 52)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_retention_of_a_log_copy_does_not_overtake_that_of_its_source(run_on_disk: Run) -> None:
    """The segments of the copy begin elsewhere: the copy could not replace a log that begins before it."""

    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        copy.roll()
        source.update_config(TopicConfig.parse({"retention.bytes": "0"}))
        copy.update_config(TopicConfig.parse({"retention.bytes": "0"}))
        source.update_high_watermark(10)
        source.advance_start_offset(1)
        source.append_as_leader(real_batch(filler=b"more"), 0)
        copying = LogCopy(source, copy, CHUNK)
        await copying.copy_chunk()

        assert (copy.start_offset, copying.is_complete) == (1, True)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


@pytest.mark.parametrize("is_compacted_meanwhile", [True, False])
def test_a_log_copy_begins_again_after_a_start_only_where_its_source_was_compacted_meanwhile(
    is_compacted_meanwhile: bool,
) -> None:
    """While the directory of the copy is offline, nothing pauses the cleaner: what it removes must not come back."""
    node, workload = SimulatedNode(1, "/data1", "/data2"), Workload(1)

    async def begin(logs: LogManager) -> None:
        logs.moves.prefer_directory(ORDERS, "/data1")
        source = compacted_log(logs)
        workload.append(source, 40, node.clock.ms)
        copy = logs.moves.create_future(ORDERS, "/data2")
        await LogCopy(source, copy, 2_000).copy_chunk()
        await copy.flush()
        await logs.write_small_files()

    async def compact(logs: LogManager) -> None:
        workload.append(logs.logs[ORDERS], 5, node.clock.ms)
        assert await cleaner(node.world, logs).clean_next(InlineWorkers())

    async def finish(logs: LogManager) -> None:
        source, copy = logs.logs[ORDERS], logs.moves.futures[ORDERS]
        begins_again = copy.end_offset == source.start_offset
        copying = LogCopy(source, copy, CHUNK)
        while not copying.is_complete:
            await copying.copy_chunk()
        assert committed(copy) == committed(source)
        assert begins_again is is_compacted_meanwhile

    node.run(begin, {"orders": COMPACTED})
    if is_compacted_meanwhile:
        node.disk.fail("/data2")
        node.run(compact, {"orders": COMPACTED})
        node.disk.repair("/data2")
    node.run(finish, {"orders": COMPACTED})


def test_a_moved_log_still_refuses_a_transaction_that_its_coordinator_has_not_confirmed(run_on_disk: Run) -> None:
    """A marker that is written before the move leaves the confirmation worthless for a late batch after it."""

    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        assert source.producers.start_verification(9, 0, 0, 0) is not None
        copying = LogCopy(source, copy, CHUNK)
        await copying.copy_chunk()
        await copy.flush()
        copying.copy_now()
        moved = cluster.logs[1].manager.moves.promote_future(P0)

        with pytest.raises(AppendRefused, match="was not confirmed"):
            moved.append_as_leader(batch("late", producer=(9, 0, 0), transactional=True), 0)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_copy_is_deleted_where_its_log_was_lost_and_is_created_in_the_same_directory(run_on_disk: Run) -> None:
    """It cannot replace a log in its own directory: the attempt would take the directory offline."""

    async def scenario(cluster: ReplicaCluster) -> None:
        _, copy = await begun(cluster)
        await copy.flush()
        await cluster.crash(1)
        del cluster.logs[1].directories[0]
        await cluster.start(1)
        manager = cluster.logs[1].manager
        assert P0 in manager.moves.futures

        await cluster.elect(1, (1,), (1,))
        assert await cluster.produce(1, b"new") is ErrorCode.NONE
        await asyncio.sleep(5)

        assert (manager.offline_directories, dict(manager.moves.futures)) == ({}, {})
        assert cluster.values(1) == [b"new"]
        assert not manager.logs[P0].cleaning.is_paused

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_log_that_is_created_while_its_copy_is_in_another_directory_is_not_compacted(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        _, copy = await begun(cluster)
        await copy.flush()
        await cluster.crash(1)
        logs = cluster.logs[1]
        logs.directories[0] += "new"
        logs.directories.reverse()
        await cluster.start(1)
        logs.manager.moves.prefer_directory(P0, logs.directories[1])

        source = get_or_create(logs.manager, P0, logs.manager.topic_config(P0.topic), None, is_new=True)

        assert (source.cleaning.is_paused, P0 in logs.manager.moves.futures) == (True, True)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


COMMON = {
    "the copy is behind": ([(0, 0)], 10, [(0, 0)], 4, 4),
    "the log was truncated": ([(0, 0)], 3, [(0, 0)], 10, 3),
    "another leader came": ([(0, 0), (3, 5)], 13, [(0, 0)], 10, 5),
    "the copy has an epoch that the log lost": ([(0, 0), (3, 5)], 13, [(0, 0), (1, 7)], 10, 5),
    "the log begins with a later epoch": ([(4, 50)], 51, [(0, 0)], 10, 10),
    "later epochs only in the copy": ([(1, 0)], 5, [(2, 0)], 9, None),
    "an empty copy": ([(0, 0)], 10, [], 0, 0),
    "no epochs": ([], 10, [], 8, 6),
}


@pytest.mark.parametrize(("source", "source_end", "copy", "copy_end", "expected"), COMMON.values(), ids=COMMON)
def test_the_common_end_of_two_logs_is_the_offset_where_their_leader_epochs_diverge(
    source: Sequence[tuple[int, int]],
    source_end: int,
    copy: Sequence[tuple[int, int]],
    copy_end: int,
    expected: int | None,
) -> None:
    logs = [LeaderEpochs([EpochEntry(*entry) for entry in entries]) for entries in (source, copy)]

    assert common_end(logs[0], source_end, logs[1], copy_end, without_epochs=6) == expected


def test_a_log_copy_is_truncated_where_a_power_loss_may_have_taken_records(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        copy.possible_loss = 4
        assert await LogCopy(source, copy, CHUNK).copy_chunk() > 0
        assert copy.possible_loss is None
        await catch_up(source, copy)

    run_on_disk(scenario, brokers=(1,), directory_count=2)


def test_a_log_copy_that_has_one_of_several_segments_is_not_nearly_complete(run_on_disk: Run) -> None:
    """Else the next one would be copied at once in the calling thread, whatever the throttle of moves says."""

    async def scenario(cluster: ReplicaCluster) -> None:
        source, copy = await begun(cluster)
        for filler in (b"second", b"third"):
            source.roll()
            source.append_as_leader(real_batch(filler=filler), 0)
        copying = LogCopy(source, copy, CHUNK)
        for is_nearly_complete in (False, True):
            assert await copying.copy_chunk() > 0
            assert copying.is_nearly_complete is is_nearly_complete
        source.append_as_leader(real_batch(filler=b"fourth"), 0)
        assert copying.copy_now() > 0
        assert copying.is_complete
        assert copying.copy_now() == 0

    run_on_disk(scenario, brokers=(1,), directory_count=2)
