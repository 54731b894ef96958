"""All logs of a node: over a restart, a deletion and a failing directory."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.clean_shutdown import clean_shutdown_epochs
from tests.support.managed_logs import get_or_create
from tests.unit.log.support import ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import BadLogDirectory
from klamm.log.manager import LogManager
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.runtime.world import World

CONFIG = TopicConfig.parse()


def manager(world: World, *paths: Path, broker_id: int = 1) -> LogManager:
    return LogManager(world, [str(path) for path in paths], broker_id, "a-cluster-id-of-22-chr")


async def test_a_restart_restores_logs_high_watermarks_and_leader_epochs(world: World, tmp_path: Path) -> None:
    first = manager(world, tmp_path)
    await first.load()
    first.start()
    log = get_or_create(first, ORDERS, CONFIG, None, is_new=True)
    log.append_as_leader(batch("a", "b"), 5)
    log.update_high_watermark(1)
    await first.close(broker_epoch=77)

    second = manager(world, tmp_path)
    await second.load()

    back = second.get(ORDERS)
    assert back is not None
    assert (values_of(back), back.high_watermark, back.epochs.entries) == (["a", "b"], 1, ((5, 0),))
    assert clean_shutdown_epochs(second) == {77}
    await second.close()


async def test_a_log_directory_of_another_broker_id_is_refused(world: World, tmp_path: Path) -> None:
    first = manager(world, tmp_path)
    await first.load()
    await first.close()

    with pytest.raises(BadLogDirectory, match="belongs to broker 1, but this node is broker 2"):
        await manager(world, tmp_path, broker_id=2).load()


class HeldDisk(RealDisk):
    """Another process holds every lock."""

    def lock(self, path: str) -> None:
        return


async def test_a_second_start_on_a_locked_log_directory_changes_no_checkpoints(world: World, tmp_path: Path) -> None:
    """It knows no log of that directory: what it would write there are empty lists."""
    running = manager(world, tmp_path)
    await running.load()
    log = get_or_create(running, ORDERS, CONFIG, None, is_new=True)
    log.append_as_leader(batch("a", "b"), 5)
    log.update_high_watermark(2)
    log.advance_start_offset(1)
    await log.flush()
    await running.write_high_watermarks()
    await running.write_recovery_points()
    await running.write_log_starts()
    names = [name for name in world.disk.list_directory(str(tmp_path)) if name.endswith("-checkpoint")]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    assert len(before) == 3

    refused = manager(replace(world, disk=HeldDisk()), tmp_path)
    with pytest.raises(BadLogDirectory, match="in use by another process"):
        await refused.load()
    await refused.close()

    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    await running.close()


async def test_a_deleted_log_can_be_created_again_at_once(world: World, tmp_path: Path) -> None:
    logs = manager(world, tmp_path)
    await logs.load()
    get_or_create(logs, ORDERS, CONFIG, None, is_new=True).append_as_leader(batch("old"), 0)

    assert logs.delete(ORDERS)

    again = get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    assert (again.end_offset, logs.get(TopicPartition("orders", 1))) == (0, None)
    assert any(name.endswith("-delete") for name in world.disk.list_directory(str(tmp_path)))
    await logs.close()


class BusyDisk(RealDisk):
    """Counts the threads that replace a checkpoint at the same time; from `hold` on each waits for `may_end`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.writing = 0
        self.most = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self.writing += 1
            self.most = max(self.most, self.writing)
        self._loop.call_soon_threadsafe(self.begun.set)
        self.may_end.wait(20)
        try:
            super().rename(source, target)
        finally:
            with self._lock:
                self.writing -= 1

    def hold(self) -> None:
        self.begun.clear()
        self.may_end.clear()


async def test_checkpoints_of_a_log_directory_are_written_one_at_a_time(world: World, tmp_path: Path) -> None:
    """Replication writes them on its interval, a deletion at once: a directory must not fail of that."""
    disk = BusyDisk()
    logs = manager(replace(world, disk=disk), tmp_path)
    await logs.load()
    disk.hold()

    both = asyncio.gather(logs.write_high_watermarks(), logs.write_high_watermarks(), logs.write_recovery_points())
    await disk.begun.wait()
    disk.may_end.set()
    await both

    assert disk.most == 1
    assert logs.offline_directories == {}
    await logs.close()


async def test_closing_the_logs_waits_for_a_checkpoint_write_in_progress(world: World, tmp_path: Path) -> None:
    disk = BusyDisk()
    logs = manager(replace(world, disk=disk), tmp_path)
    await logs.load()
    disk.hold()

    periodic = asyncio.create_task(logs.write_high_watermarks())
    await disk.begun.wait()
    periodic.cancel()
    closing = asyncio.create_task(logs.close())
    await asyncio.gather(periodic, return_exceptions=True)
    disk.may_end.set()
    await closing

    assert disk.most == 1
    assert logs.offline_directories == {}


class SlowThreadDisk(RealDisk):
    """From `hold` on a thread that is about to write a temporary file waits for `may_end`."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def temporary_name(self, path: str) -> str:
        if threading.current_thread() is not threading.main_thread():
            self._loop.call_soon_threadsafe(self.begun.set)
            self.may_end.wait(20)
        return super().temporary_name(path)


@pytest.mark.parametrize("is_first_write", [True, False])
async def test_a_log_deleted_during_a_checkpoint_write_leaves_no_log_start_to_a_new_log(
    world: World, tmp_path: Path, is_first_write: bool
) -> None:
    disk = SlowThreadDisk()
    logs = manager(replace(world, disk=disk), tmp_path)
    await logs.load()
    log = get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    log.append_as_leader(batch("a", "b"), 0)
    log.update_high_watermark(2)
    log.advance_start_offset(1)
    if not is_first_write:
        await logs.write_log_starts()
    disk.begun.clear()
    disk.may_end.clear()

    periodic = asyncio.create_task(logs.write_log_starts())
    await disk.begun.wait()
    assert logs.delete(ORDERS)
    home = logs._registry.live[0]
    forgetting = asyncio.create_task(logs._checkpoints.forget_earlier_logs([(home, ORDERS)]))  # as a creation does
    for _ in range(5):
        await asyncio.sleep(0)
    disk.may_end.set()
    await asyncio.gather(forgetting, periodic)

    assert logs.offline_directories == {}
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    await logs.close()


class CountingDisk(RealDisk):
    """Counts syncs of directories and of filesystems."""

    def __init__(self) -> None:
        self.directories = 0
        self.filesystems = 0

    def sync_directory(self, path: str) -> None:
        self.directories += 1
        super().sync_directory(path)

    def sync_filesystem(self, path: str) -> None:
        self.filesystems += 1


async def test_a_stop_writes_the_changed_leader_epochs_of_many_logs_together(world: World, tmp_path: Path) -> None:
    disk = CountingDisk()
    logs = manager(replace(world, disk=disk), tmp_path)
    await logs.load()
    partitions = [TopicPartition("orders", n) for n in range(40)]
    for partition in partitions:
        get_or_create(logs, partition, CONFIG, None, is_new=True).append_as_leader(batch("a"), 7)
    disk.directories = 0

    await logs.close()

    assert disk.filesystems == 3  # before the renames, after them, and after the segments
    assert disk.directories < 10
    again = manager(world, tmp_path)
    await again.load()
    assert [again.logs[p].epochs.entries for p in partitions] == [((7, 0),)] * 40
    await again.close()


async def test_topics_without_overrides_share_one_config_until_the_defaults_change(
    world: World, tmp_path: Path
) -> None:
    logs = manager(world, tmp_path)
    shared = logs.topic_config("orders")
    assert logs.topic_config("flights") is shared
    assert logs.topic_config("orders", {"retention.ms": "5"}).retention_ms == 5
    assert logs.topic_config("__transaction_state").klamm_sync_before_ack
    assert not shared.klamm_sync_before_ack

    assert logs.update_default_configs({"log.retention.ms": "77"})

    assert logs.topic_config("orders").retention_ms == 77
    assert logs.topic_config("flights") is logs.topic_config("orders")

    assert logs.update_default_configs({"log.retention.ms": "77", "klamm.sync.before.ack": "false"})  # one topic's
    assert not logs.topic_config("__transaction_state").klamm_sync_before_ack
