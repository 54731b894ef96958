"""Deleted logs whose directories are renamed, but not durably: a power loss would bring the logs back."""

import asyncio
from typing import NamedTuple

from klamm.log.directory import LogDirectory
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk


class FailedSync(NamedTuple):
    """A log directory could not be synced; these partitions may be back after a power loss."""

    home: LogDirectory
    reason: str
    partitions: list[TopicPartition]


class UnsyncedDeletions:
    """One sync of a log directory makes all its deletions durable."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._renamed: dict[LogDirectory, list[TopicPartition]] = {}
        self._syncing = asyncio.Lock()

    def add(self, home: LogDirectory, partition: TopicPartition) -> None:
        """Record that a log of this partition was renamed for deletion in its log directory."""
        self._renamed.setdefault(home, []).append(partition)

    async def sync(self) -> list[FailedSync]:
        """Make all deletions so far durable; returns the log directories that could not be synced."""
        failed: list[FailedSync] = []
        async with self._syncing:
            while self._renamed:
                home, partitions = self._renamed.popitem()
                try:
                    if home.is_online:
                        await self._disk.in_thread(self._disk.sync_directory, home.path)
                except OSError as error:
                    failed.append(FailedSync(home, str(error), partitions))
                else:
                    if home.offline_reason is not None:
                        failed.append(FailedSync(home, home.offline_reason, partitions))
        return failed
