"""The work beside the appends, in simulated time: flush, checkpoints, retention, delayed removal."""

import asyncio
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.support.failing import fail_once
from tests.support.managed_logs import get_or_create
from tests.unit.log.managed_node import Node, created
from tests.unit.log.support import NOW_MS, ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.epochs import parse_epochs
from klamm.log.errors import StorageFailed
from klamm.log.manager import LogManager, LogRequest
from klamm.log.producers import Producers

P = ParamSpec("P")
T = TypeVar("T")
SIZE = len(batch("0"))


def test_changed_leader_epochs_and_topic_ids_are_written_to_disk_soon(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), UUID(int=9), is_new=True)
        log.append_as_leader(batch("a"), 7)
        await node.pass_time(0.1)

        stored = (Path(log.directory) / "leader-epoch-checkpoint").read_bytes()
        assert parse_epochs(stored, "") == [(7, 0)]
        assert (
            Path(log.directory) / "partition.metadata"
        ).read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ"

    node.run(main)

    async def again(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert log.topic_id == UUID(int=9)
        assert get_or_create(logs, ORDERS, TopicConfig.parse(), UUID(int=9)) is log

    node.run(again)


def test_a_leader_epoch_that_begins_while_small_files_are_written_is_written_after_that(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        await node.pass_time(0.1)
        node.disk.delay_s = 1.0
        log.append_as_leader(batch("a"), 7)
        await node.pass_time(0.5)  # the thread has the content of epoch 7
        log.append_as_leader(batch("b"), 8)
        await node.pass_time(3.0)

        stored = (Path(log.directory) / "leader-epoch-checkpoint").read_bytes()
        assert parse_epochs(stored, "") == [(7, 0), (8, 1)]

    node.run(main)


def test_changed_leader_epochs_are_written_to_disk_before_a_clean_shutdown(node: Node) -> None:
    """The end is marked as clean: nobody would read them from the batches again."""

    async def main(logs: LogManager) -> None:
        log = created(logs)
        log.append_as_leader(batch("a"), 7)
        node.disk.delay_s = 1.0  # all threads are busy
        await node.pass_time(0.1)
        node.disk.delay_s = 0.0
        await logs.close()
        stored = (Path(log.directory) / "leader-epoch-checkpoint").read_bytes()
        assert parse_epochs(stored, "") == [(7, 0)]

    node.run(main)


def test_a_rolled_segment_is_flushed_and_the_recovery_point_checkpointed(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, segment_bytes=2 * SIZE)
        for _ in range(5):
            log.append_as_leader(batch("a"), 0)
        await node.pass_time(0.1)
        assert log.recovery_point == 4

        await node.pass_time(100)
        assert node.checkpoint("recovery-point-offset-checkpoint") == {ORDERS: 4}

    node.run(main)


def test_a_log_is_flushed_after_flush_ms(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        slow, fast = created(logs, "slow"), created(logs, "fast", flush_ms=50_000)
        for log in (slow, fast):
            log.append_as_leader(batch("a"), 0)
        await node.pass_time(31)
        assert fast.recovery_point == 0
        await node.pass_time(30)
        assert (slow.recovery_point, fast.recovery_point) == (0, 1)

    node.run(main, flush_scheduler_interval_ms=10_000)


def test_a_log_with_flush_messages_flushes_before_the_acknowledgement(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, flush_messages=3)
        points = []
        for _ in range(7):
            log.append_as_leader(batch("a"), 0)
            await log.flush_before_ack()
            points.append(log.recovery_point)
        assert points == [0, 0, 3, 3, 3, 6, 6]
        log.append_as_follower(batch(*"abc", base_offset=7))
        await log.flush_before_ack()
        assert log.recovery_point == 10

    node.run(main)


def test_appends_during_a_log_flush_share_the_next_flush(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, flush_messages=1)
        node.disk.delay_s = 1.0
        acknowledged: list[int] = []

        async def produce() -> None:
            end = log.append_as_leader(batch("a"), 0).last_offset + 1
            await log.flush_before_ack()
            assert log.recovery_point >= end
            acknowledged.append(end)

        began = asyncio.get_running_loop().time()
        first = asyncio.create_task(produce())
        await node.pass_time(0.5)
        later = [asyncio.create_task(produce()) for _ in range(20)]
        await asyncio.gather(first, *later)

        assert acknowledged == list(range(1, 22)), "in the order of the appends"
        assert asyncio.get_running_loop().time() - began < 2.5, "20 appends share one flush"

    node.run(main)


def test_a_failed_log_flush_raises_storage_failed_in_all_waiting_appends(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, flush_messages=1)
        node.disk.delay_s = 1.0
        log.append_as_leader(batch("a"), 0)
        waiting = [asyncio.create_task(log.flush_before_ack()) for _ in range(3)]
        await node.pass_time(0.1)
        node.disk.fail_from_here(OSError(5, "broken"), prefix=log.directory)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFailed] * 3
        node.disk.fail_at = None

    node.run(main)


def test_an_io_error_during_log_retention_takes_the_log_directory_offline(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> int:
        raise OSError(5, "Input/output error")

    async def main(logs: LogManager) -> None:
        log = created(logs, retention_ms=200_000)
        log.append_as_leader(batch("0", timestamp=-1), 0)  # its age is that of the file
        log.update_high_watermark(1)
        monkeypatch.setattr(node.disk, "modified_ms", refuse)
        with pytest.raises(StorageFailed):
            log.delete_old_segments()
        assert [failure.partitions for failure in node.failures] == [(ORDERS,)]

    node.run(main)


def test_log_retention_renames_segments_and_deletes_the_files_after_file_delete_delay(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, segment_bytes=SIZE, retention_ms=200_000)
        for number in range(3):
            log.append_as_leader(batch("0", timestamp=NOW_MS + number), 0)
        log.update_high_watermark(3)
        await node.pass_time(320)  # the first look at 30 s finds them too young, the second comes at 330 s
        assert values_of(log) == ["0"] * 3
        await node.pass_time(20)
        assert log.start_offset == 3
        assert sum(name.endswith(".log.deleted") for name in node.files_of(log)) == 3
        await node.pass_time(61)
        assert not [name for name in node.files_of(log) if name.endswith(".deleted")]

    node.run(main)


def test_log_retention_of_many_segments_lets_others_run_between_its_steps(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, segment_bytes=SIZE, retention_ms=1, file_delete_delay_ms=0)
        for _ in range(250):
            log.append_as_leader(batch("0", timestamp=NOW_MS - 1_000), 0)
        log.update_high_watermark(250)
        starts, is_done = [], asyncio.Event()

        async def watch() -> None:
            while not is_done.is_set():
                starts.append(log.start_offset)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await logs._housekeeping.delete_old_segments()
        is_done.set()
        await watching
        assert list(dict.fromkeys(starts)) == [100, 200, 250]

    node.run(main)


def test_only_log_start_offsets_inside_a_segment_are_checkpointed(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        moved, plain = created(logs), created(logs, "plain")
        for log in (moved, plain):
            log.append_as_leader(batch("a"), 0)
            log.append_as_leader(batch("b"), 0)
            log.update_high_watermark(2)
        moved.advance_start_offset(1)
        await node.pass_time(91)
        assert node.checkpoint("log-start-offset-checkpoint") == {ORDERS: 1}

    node.run(main)

    async def after_crash(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert (log.start_offset, values_of(log)) == (1, ["b"])

        logs.delete(ORDERS)
        await logs.get_or_create_many([LogRequest(ORDERS, TopicConfig.parse(), is_new=True)])
        assert node.checkpoint("log-start-offset-checkpoint") == {}, "a new log of that name must not inherit it"

    node.run(after_crash)


def test_idle_producer_ids_are_removed_after_the_expiration_time(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        log.append_as_leader(batch("a", producer=(5, 0, 0)), 0)
        await node.pass_time(40)
        assert len(log.producers) == 1
        await node.pass_time(90_000)
        assert len(log.producers) == 0

    node.run(main)


def test_background_work_on_logs_continues_after_an_unexpected_error(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs)
        log.append_as_leader(batch("a", producer=(5, 0, 0)), 0)
        fail_once(monkeypatch, Producers, "expire")
        fail_once(monkeypatch, LogManager, "sync_deletions")
        with capture_logs() as lines:
            logs._housekeeping.on_logs_changed(next(iter(logs._registry.directories.values())))
            await node.pass_time(90_100)
            assert len(log.producers) == 0
            log.append_as_leader(batch("b"), 7)
            await node.pass_time(0.1)
        assert parse_epochs((Path(log.directory) / "leader-epoch-checkpoint").read_bytes(), "")[-1].epoch == 7
        unexpected = [line["work"] for line in lines if line["event"].startswith("unexpected error")]
        assert unexpected == ["requested by logs", "Housekeeping.expire_producers"]

    node.run(main)


@pytest.mark.parametrize("prefix", ["orders-0/leader", "orders-0/0"])
def test_a_failed_background_write_takes_the_log_directory_offline(node: Node, prefix: str) -> None:
    async def main(logs: LogManager) -> None:
        log = created(logs, segment_bytes=SIZE)
        log.append_as_leader(batch("a"), 0)
        log.append_as_leader(batch("a"), 0)
        node.disk.fail_from_here(OSError(5, "broken"), prefix=f"{node.directory}/{prefix}")
        await node.pass_time(0.1)
        assert [failure.partitions for failure in node.failures] == [(ORDERS,)]
        assert log.has_failed
        node.disk.fail_at = None

    node.run(main)


def test_a_topic_config_update_applies_only_to_the_logs_of_that_topic(node: Node) -> None:
    async def main(logs: LogManager) -> None:
        log, other = created(logs), created(logs, "other")
        logs.update_topic_configs({"orders": TopicConfig.parse({"retention.ms": "5"})})
        assert (log.config.retention_ms, other.config.retention_ms) == (5, 604_800_000)

    node.run(main)


@pytest.mark.parametrize("is_whole", [False, True], ids=["a part of the log", "the whole log"])
def test_a_crash_after_a_truncation_below_the_log_start_deletes_no_newer_record(node: Node, is_whole: bool) -> None:
    """After an unclean election the new leader may begin before the log start that this replica has checkpointed."""

    async def truncate(logs: LogManager) -> None:
        log = created(logs)
        for value in "abcd":
            log.append_as_leader(batch(value), 0)
        log.update_high_watermark(4)
        log.advance_start_offset(4)
        await logs.write_log_starts()
        if is_whole:
            log.truncate_fully_and_start_at(1)
        else:
            log.truncate_to(1)
        log.append_as_leader(batch("new"), 1)
        await node.pass_time(1)

    node.run(truncate)

    async def after_crash(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert (values_of(log, 1), log.end_offset) == (["new"], 2)

    node.run(after_crash)


def test_small_files_of_a_deleted_log_are_not_written_into_the_next_log_of_the_partition(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(logs: LogManager) -> None:
        for name in ("orders", *(f"other{number}" for number in range(20))):
            created(logs, name).append_as_leader(batch("a"), 3)

        def delete_meanwhile(_: str) -> None:
            monkeypatch.undo()
            logs.delete(ORDERS)
            created(logs)

        monkeypatch.setattr(node.disk, "sync_filesystem", delete_meanwhile)
        await logs.write_small_files()
        assert "leader-epoch-checkpoint" not in node.files_of(logs.logs[ORDERS])

    node.run(main)
