"""Deletions of logs that are not durable yet, while a sync of their directory is cancelled."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.support import ORDERS

from klamm.log.directory import LogDirectory
from klamm.log.unsynced_deletions import FailedSync, UnsyncedDeletions
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk

LAMPS = TopicPartition("lamps", 0)


class BlockedDisk(RealDisk):
    """Syncs of directories that `broken` has fail; all others never end while `is_blocked`."""

    def __init__(self, broken: set[str]) -> None:
        super().__init__()
        self.broken = broken
        self.is_blocked = True
        self.synced: list[str] = []

    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if args[0] in self.broken:
            raise OSError(5, "broken")
        if self.is_blocked:
            await asyncio.Event().wait()
        self.synced.append(args[0])


async def test_a_cancelled_sync_leaves_its_deletions_to_the_next_one() -> None:
    disk = BlockedDisk({"/broken"})
    deletions = UnsyncedDeletions(disk)
    good, broken = LogDirectory(disk, "/good"), LogDirectory(disk, "/broken")
    deletions.add(good, ORDERS)
    deletions.add(broken, LAMPS)  # the last one is synced first
    syncing = asyncio.create_task(deletions.sync())
    await asyncio.sleep(0)
    syncing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await syncing

    disk.is_blocked = False
    failed = await deletions.sync()

    assert disk.synced == ["/good"]
    assert failed == [FailedSync(broken, "[Errno 5] broken", [LAMPS])]
    assert await deletions.sync() == []
