"""Deleted logs: what leaves the disk at once, what after a delay, and after a restart."""

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import pytest
from tests.unit.log.managed_node import Node, created
from tests.unit.log.support import ORDERS, Partition, batch

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoint_writer import OFFSETS_OF
from klamm.log.checkpoints import LOG_STARTS, OffsetCheckpoint
from klamm.log.manager import LogManager, LogRequest
from klamm.model.ids import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
SIZE = len(batch("0"))


def test_a_deleted_log_leaves_checkpoints_at_once_and_the_disk_after_a_delay(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        gone, kept = created(logs), created(logs, "kept")
        for log in (gone, kept):
            log.append_as_leader(batch("a"), 0)
            log.update_high_watermark(1)
        await logs.write_high_watermarks()
        assert logs.delete(ORDERS)
        assert not logs.delete(ORDERS)
        await node.pass_time(0.1)
        assert node.checkpoint("replication-offset-checkpoint") == {TopicPartition("kept", 0): 1}
        left = [p.name for p in node.directory.iterdir() if p.is_dir()]
        assert len(left) == 2
        await node.pass_time(61)
        assert [p.name for p in node.directory.iterdir() if p.is_dir()] == ["kept-0"]

    node.run(main)


def test_a_created_log_is_not_in_checkpoints_with_offsets_of_a_deleted_log_of_the_partition(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after a power loss would take unflushed records for flushed, and tombstones for compacted."""

    async def main(logs: LogManager) -> None:
        log = created(logs)
        for _ in range(4):
            log.append_as_leader(batch("a"), 0)
        log.update_high_watermark(4)
        log.advance_start_offset(1)
        log.cleaning.first_dirty = 2
        await log.flush()
        for write in (logs.write_recovery_points, logs.write_high_watermarks, logs.write_log_starts):
            await write()
        await logs.write_cleaned_offsets()
        monkeypatch.setattr(logs._housekeeping, "on_logs_changed", lambda _: None)  # it may be busy for long
        assert logs.delete(ORDERS)

        await logs.get_or_create_many([LogRequest(ORDERS, TopicConfig.parse(), is_new=True)])

        assert [node.checkpoint(name).get(ORDERS, 0) for name in OFFSETS_OF] == [0, 0, 0, 0]

    node.run(main)


def test_the_deletion_of_a_log_writes_no_checkpoint_on_the_event_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write waits for the device: a topic may have thousands of logs here."""

    async def main(logs: LogManager) -> None:
        log = created(logs)
        log.append_as_leader(batch("a"), 0)
        log.append_as_leader(batch("a"), 0)
        log.update_high_watermark(2)
        log.advance_start_offset(1)
        await logs.write_log_starts()
        assert node.checkpoint(LOG_STARTS) == {ORDERS: 1}
        with monkeypatch.context() as patched:
            patched.setattr(OffsetCheckpoint, "write", lambda *_: pytest.fail("the event loop writes a checkpoint"))
            assert logs.delete(ORDERS)

        await node.pass_time(0.1)

        assert node.checkpoint(LOG_STARTS) == {}

    node.run(main)


def test_removals_of_many_deleted_logs_leave_threads_for_other_work(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0
    in_thread = node.disk.in_thread

    async def count_removals(call: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal running, most
        is_removal = node.disk.remove_tree in arguments
        running += is_removal
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= is_removal
        return await in_thread(call, *arguments)

    async def main(logs: LogManager) -> None:
        monkeypatch.setattr(node.disk, "in_thread", count_removals)
        for number in range(20):
            created(logs, f"topic-{number}")
            logs.delete(TopicPartition(f"topic-{number}", 0))
        await node.pass_time(65)
        assert not [p for p in node.directory.iterdir() if p.is_dir()]

    node.run(main)
    assert most == 1


def test_a_log_deletion_interrupted_by_a_restart_is_finished_afterwards(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        created(logs).append_as_leader(batch("a"), 0)
        logs.delete(ORDERS)

    node.run(main)

    async def again(logs: LogManager) -> None:
        assert logs.get(ORDERS) is None
        await node.pass_time(61)
        assert not [p for p in node.directory.iterdir() if p.is_dir()]

    node.run(again)


def test_the_log_of_a_topic_with_the_longest_name_can_be_deleted(node: Node) -> None:
    name = "x" * 249

    async def main(logs: LogManager) -> None:
        created(logs, name)
        assert logs.delete(TopicPartition(name, 0))
        (left,) = [p.name for p in node.directory.iterdir() if p.is_dir()]
        assert len(left) == 255

    node.run(main)
    node.run(lambda logs: node.pass_time(1))


def test_a_thread_that_misses_files_of_a_deleted_log_takes_no_new_log_offline(node: Node) -> None:
    """Its producers were being read again after a truncation; a topic of the same name has the directory now."""

    async def main(logs: LogManager) -> None:
        deleted = created(logs)
        deleted.append_as_leader(batch("a"), 0)
        deleted.roll()
        for sequence in range(100):
            deleted.append_as_leader(batch("x" * 1000, producer=(1, 0, sequence)), 0)
        await node.pass_time(1)
        node.disk.delay_s = 1.0
        deleted.truncate_to(90)
        assert deleted.is_restoring_producers
        await node.pass_time(0.5)

        logs.delete(ORDERS)
        new = created(logs)
        await node.pass_time(5)

        assert (logs.get(ORDERS), new.has_failed) == (new, False)

    node.run(main)
    assert node.failures == []


def test_emptying_a_log_ends_its_compaction_also_below_its_log_start(orders: Partition) -> None:
    """DeleteRecords may have moved the log start behind the segments that are being replaced."""
    log = orders.open()
    log.append_as_leader(batch("a"), 0)
    log.roll()
    log.append_as_leader(batch("b"), 0)
    log.update_high_watermark(2)
    log.cleaning.begin(1)
    log.advance_start_offset(2)

    log.truncate_fully_and_start_at(5)

    assert log.cleaning.is_void


def test_a_late_flush_of_a_deleted_log_leaves_the_files_of_the_next_log_as_they_are(node: Node) -> None:
    """Its thread may have waited while the topic was deleted and created again: the two have the same path."""

    async def main(logs: LogManager) -> None:
        def wanted(number: int) -> LogRequest:
            return LogRequest(ORDERS, TopicConfig.parse(), UUID(int=number), is_new=True)

        await logs.get_or_create_many([wanted(1)])
        deleted = logs.logs[ORDERS]
        deleted.append_as_leader(batch("a"), 3)
        late = deleted.flush_job()
        assert late is not None
        logs.delete(ORDERS)
        await logs.get_or_create_many([wanted(2)])
        log = logs.logs[ORDERS]
        log.append_as_leader(batch("b"), 7)
        await logs.write_small_files()
        directory = node.directory / str(ORDERS)
        before = {path.name: path.read_bytes() for path in directory.iterdir()}

        late.run(node.disk)

        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before

    node.run(main)
