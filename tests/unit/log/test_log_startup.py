"""A start that is cancelled while logs are opened."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klamm.log.manager import LogManager
from klamm.runtime.disk import RealDisk
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
