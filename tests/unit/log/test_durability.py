"""What is on the device: syncs before acknowledgements, truncations, and the checkpoints that they lower."""

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest
from tests.support.managed_logs import get_or_create
from tests.unit.log.managed_node import Node, created
from tests.unit.log.simulated_node import SimulatedNode
from tests.unit.log.support import ORDERS, batch

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import OffsetCheckpoint
from klamm.log.errors import StorageFailed
from klamm.log.flushing import FlushJob
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.model.ids import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
SIZE = len(batch("0"))


def append(log: Log, count: int) -> None:
    """Append so many batches with one record each."""
    for _ in range(count):
        log.append_as_leader(batch("a"), 0)


def slow_checkpoints(node: Node, monkeypatch: pytest.MonkeyPatch, blocked: str = "no directory") -> None:
    """From now on a checkpoint takes a second, and flushes of the log in the directory `blocked` do not end."""
    work = node.disk.in_thread

    async def slow(call: Callable[..., Any], *args: Any) -> Any:
        job = getattr(call, "__self__", None)
        if isinstance(job, FlushJob) and any(path.startswith(blocked) for path in job.paths):
            await asyncio.Event().wait()
        if isinstance(job, OffsetCheckpoint):
            await asyncio.sleep(1)
        return await work(call, *args)

    monkeypatch.setattr(node.disk, "in_thread", slow)


def test_appends_during_an_fsync_share_the_next_fsync_if_sync_before_ack_is_set(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, klamm_sync_before_ack="true")
        ends: list[int] = []
        log.on_synced = lambda: ends.append(log.durable_end)
        node.disk.delay_s = 1.0
        log.append_as_leader(batch("a"), 0)
        log.sync_soon()
        await node.pass_time(0.5)
        for _ in range(20):
            log.append_as_leader(batch("a"), 0)
            log.sync_soon()
        assert log.durable_end == 0
        await log.wait_until_durable()
        assert ends == [1, 21]

    node.run(main)


def test_all_records_count_as_durable_without_fsync_unless_sync_before_ack_is_set(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        log.append_as_leader(batch("a"), 0)
        log.sync_soon()
        await log.wait_until_durable()
        assert (log.durable_end, log.recovery_point) == (1, 0)
        log.update_config(TopicConfig.parse({"klamm.sync.before.ack": "true"}))
        assert log.durable_end == 0
        await log.wait_until_durable()
        assert log.durable_end == 1

    node.run(main)


def test_an_fsync_before_ack_covers_segments_topic_id_and_new_directory_entries_but_no_indexes(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, klamm_sync_before_ack="true")
        durability, above = log._durability, log.directory.rpartition("/")[0]

        def next_sync() -> tuple[list[str], list[str]]:
            """The names of the files that the next sync writes, and the directories."""
            log.append_as_leader(batch("a"), 0)
            job = durability.sync_job(log.segments, log.directory, log.end_offset)
            assert job is not None
            durability.on_synced(job)
            return [path.rpartition("/")[2] for path in job.paths], list(job.directories)

        first = f"{0:020}.log"
        assert next_sync() == (["partition.metadata", first], [log.directory, above])
        assert next_sync() == ([first], [])
        log.roll()
        assert next_sync() == ([f"{2:020}.log"], [log.directory])
        assert next_sync() == ([f"{2:020}.log"], [])
        log.append_as_leader(batch("a"), 0)
        log.roll()
        assert next_sync() == ([f"{2:020}.log", f"{5:020}.log"], [log.directory])
        log.truncate_to(3)
        assert next_sync() == ([f"{2:020}.log"], [log.directory])

    node.run(main)


def test_an_fsync_overtaken_by_a_truncation_does_not_make_records_durable(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, klamm_sync_before_ack="true")
        append(log, 10)
        node.disk.delay_s = 1.0
        log.sync_soon()
        await node.pass_time(0.5)
        log.truncate_to(5)
        log.append_as_leader(batch("b"), 0)
        await node.pass_time(0.7)
        assert log.durable_end == 0
        await log.wait_until_durable()
        assert log.durable_end == 6

    node.run(main)


def test_records_appended_after_a_durable_truncation_are_durable_only_after_an_fsync(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, klamm_sync_before_ack="true")
        append(log, 10)
        await log.wait_until_durable()
        log.truncate_to(5)
        await log.wait_until_durable()

        log.append_as_leader(batch("b"), 0)

        assert log.durable_end == 5
        await log.wait_until_durable()
        assert log.durable_end == 6

    node.run(main)


def test_a_failed_fsync_takes_the_log_offline_and_ends_the_wait_for_durability(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, klamm_sync_before_ack="true")
        node.disk.delay_s = 1.0
        log.append_as_leader(batch("a"), 0)
        waiting = [asyncio.create_task(log.wait_until_durable()) for _ in range(3)]
        await node.pass_time(0.1)
        node.disk.fail_from_here(OSError(5, "broken"), prefix=log.directory)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFailed] * 3
        assert log.has_failed
        node.disk.fail_at = None

    node.run(main)


def test_a_log_flush_overtaken_by_a_truncation_does_not_advance_the_recovery_point(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        append(log, 10)
        job = log.flush_job()
        assert job is not None
        log.truncate_to(5)
        for _ in range(5):
            log.append_as_leader(batch("b"), 1)
        job.run(node.disk)
        log.flushed(job)
        assert log.recovery_point == 0
        await log.flush()
        assert (log.recovery_point, log.flush_job()) == (10, None)

    node.run(main)


@pytest.mark.parametrize("is_whole", [False, True], ids=["a part of the log", "the whole log"])
def test_a_log_truncation_below_the_log_start_lowers_the_recovery_point(node: Node, is_whole: bool) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        append(log, 10)
        await log.flush()
        log.update_high_watermark(6)
        log.advance_start_offset(6)
        if is_whole:
            log.truncate_fully_and_start_at(4)
        else:
            log.truncate_to(4)
        assert (log.start_offset, log.end_offset, log.recovery_point) == (4, 4, 4)
        for _ in range(6):
            log.append_as_leader(batch("b"), 1)
        job = log.flush_job()
        assert job is not None, "what was appended since is not on the device"
        job.run(node.disk)
        log.flushed(job)
        assert log.recovery_point == 10

    node.run(main)


def test_a_log_truncation_below_the_recovery_point_lowers_the_checkpoint(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        append(log, 10)
        await log.flush()
        await logs.write_recovery_points()
        log.truncate_to(4)
        await node.pass_time(0.1)
        assert node.checkpoint("recovery-point-offset-checkpoint") == {ORDERS: 4}

    node.run(main)


def test_a_truncation_is_durable_once_the_recovery_point_checkpoint_is_lowered(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would take for flushed what is appended then and not synced: it keeps damaged batches there.

    The flush of another log does not delay it.
    """

    async def main(logs: LogManager) -> None:
        log, other = created(logs), created(logs, "other", segment_bytes=SIZE)
        append(log, 10)
        await log.flush()
        await logs.write_recovery_points()
        slow_checkpoints(node, monkeypatch, blocked=other.directory)
        for _ in range(2):
            other.append_as_leader(batch("a"), 0)
        await node.pass_time(0.1)
        log.truncate_to(4)
        await log.wait_until_durable()
        assert node.checkpoint("recovery-point-offset-checkpoint")[ORDERS] == 4

    node.run(main)


def test_a_truncation_is_not_durable_for_others_while_its_checkpoint_is_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetcher that waited for it may be replaced meanwhile: its successor waits, too."""

    async def main(logs: LogManager) -> None:
        log = created(logs)
        append(log, 10)
        await log.flush()
        await logs.write_recovery_points()
        slow_checkpoints(node, monkeypatch)
        log.truncate_to(4)
        first = asyncio.ensure_future(log.wait_until_durable())
        await node.pass_time(0.5)
        first.cancel()

        assert not log.is_durable
        await log.wait_until_durable()

        assert log.is_durable
        assert node.checkpoint("recovery-point-offset-checkpoint")[ORDERS] == 4

    node.run(main)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("others", [0, 20], ids=["a few logs", "many logs"])
@pytest.mark.parametrize("offset", [4, 5], ids=["in a segment", "at the start of a segment"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed, and stopped after the next start"])
def test_a_truncation_right_before_a_clean_shutdown_survives_power_loss(
    seed: int, others: int, offset: int, is_killed: bool
) -> None:
    """A start after a clean shutdown takes a log for what its files hold."""
    node = SimulatedNode(seed)
    config = TopicConfig.parse({"segment.bytes": str(5 * SIZE)})

    async def truncate(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, config, None, is_new=True)
        for _ in range(10):
            log.append_as_leader(batch("a"), 0)
        for number in range(others):
            other = get_or_create(logs, TopicPartition("others", number), config, None, is_new=True)
            other.append_as_leader(batch("a"), 0)
        await log.flush()
        node.disk.sync_filesystem("/")
        log.truncate_to(offset)
        assert (log.end_offset, log.recovery_point) == (offset, offset)
        if is_killed:
            await logs.write_recovery_points()
        else:
            await logs.close()

    async def close(logs: LogManager) -> None:
        await logs.close()

    node.run(truncate)
    if is_killed:
        node.run(close)
    node.disk.lose_power()

    async def end(logs: LogManager) -> int:
        return logs.logs[ORDERS].end_offset

    assert node.run(end) == offset


def test_a_start_that_finds_flushed_records_missing_lowers_the_recovery_point_before_appends() -> None:
    """Else another start would take for flushed what is appended in their place."""
    node = SimulatedNode()

    async def flush(logs: LogManager) -> str:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), None, is_new=True)
        for _ in range(10):
            log.append_as_leader(batch("a"), 0)
        await log.flush()
        await logs.write_recovery_points()
        return log.segments.active.log_path

    path = node.run(flush)
    node.overwrite(path, node.disk.read(path)[: 4 * SIZE])

    async def append(logs: LogManager) -> tuple[int, bool, bool]:
        log = logs.logs[ORDERS]
        before = log.is_durable
        await log.wait_until_durable()
        for _ in range(6):
            log.append_as_leader(batch("b"), 0)
        return log.recovery_point, before, log.is_durable

    assert node.run(append) == (4, False, True)

    async def recovery_point(logs: LogManager) -> int:
        return logs.logs[ORDERS].recovery_point

    assert node.run(recovery_point) == 4
