"""A start that is cancelled, or fails, while logs are opened."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from klamm.log.manager import LogManager
from klamm.log.settings import LogManagerSettings
from klamm.runtime.disk import DirectoryLock, RealDisk
from klamm.runtime.world import World

NAMES = ("orders-0", "orders-1", "orders-2")


class GatedDisk(RealDisk):
    """A disk whose threads that open logs begin when `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.is_waiting = asyncio.Event()

    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call.__name__ == "_open_logs":
            self.is_waiting.set()
            await self.gate.wait()
        return call(*args, **kwargs)


async def test_a_cancelled_start_ends_with_its_threads_and_opens_no_further_logs(world: World, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
    disk = GatedDisk()
    logs = LogManager(replace(world, disk=disk), [str(tmp_path)], 1, "mine")
    loading = asyncio.create_task(logs.load())
    await disk.is_waiting.wait()

    loading.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not loading.done()  # its thread may be writing to the log directory

    disk.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await loading
    opened = [name for name in NAMES if disk.list_directory(f"{tmp_path}/{name}")]
    assert opened == ["orders-0"]
    await logs.close()
    assert not disk.exists(f"{tmp_path}/.kafka_cleanshutdown")


@dataclass
class WatchedLock:
    """A lock that leaves `locked` when it is released."""

    locked: set[str]
    path: str

    def release(self) -> None:
        self.locked.remove(self.path)


class DiskWithAFailedLog(GatedDisk):
    """The thread that opens orders-0 fails at once; the others begin when `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.locked: set[str] = set()

    def lock(self, path: str) -> DirectoryLock | None:
        self.locked.add(path)
        return WatchedLock(self.locked, path)

    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call.__name__ == "_open_logs" and any(name.endswith("orders-0") for _, name in args[1]):
            return call(*args, **kwargs)
        return await super().in_thread(call, *args, **kwargs)

    def list_directory(self, path: str) -> list[str]:
        if path.endswith("orders-0"):
            raise OSError(errno.EIO, "broken", path)
        return super().list_directory(path)


async def test_a_directory_that_fails_stays_locked_until_each_thread_that_opens_its_logs_has_ended(
    world: World, tmp_path: Path
) -> None:
    for name in NAMES:
        (tmp_path / "one" / name).mkdir(parents=True)
    (tmp_path / "two").mkdir()
    disk = DiskWithAFailedLog()
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    settings = LogManagerSettings(recovery_threads_per_directory=2)
    logs = LogManager(replace(world, disk=disk), paths, 1, "mine", settings=settings)
    loading = asyncio.create_task(logs.load())
    await disk.is_waiting.wait()
    for _ in range(10):
        await asyncio.sleep(0)

    assert f"{paths[0]}/.lock" in disk.locked

    disk.gate.set()
    await loading
    assert list(logs.offline_directories) == paths[:1]
    opened = [name for name in NAMES[1:] if (tmp_path / "one" / name / "00000000000000000000.log").exists()]
    assert opened == ["orders-1"]  # the thread learns of the failure after its first log
    assert disk.locked == {f"{paths[1]}/.lock"}
    await logs.close()
