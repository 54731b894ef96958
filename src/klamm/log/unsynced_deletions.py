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
        """Make all deletions so far durable; returns the log directories that could not be synced.

        If it is cancelled, the next call takes up all that this one took.
        """
        failed: list[FailedSync] = []
        async with self._syncing:
            try:
                while self._renamed:
                    if (failure := await self._sync_one(*self._renamed.popitem())) is not None:
                        failed.append(failure)
            except asyncio.CancelledError:
                for home, _, partitions in failed:
                    self._put_back(home, partitions)
                raise
        return failed

    async def _sync_one(self, home: LogDirectory, partitions: list[TopicPartition]) -> FailedSync | None:
        """Sync one log directory, in which these deletions are not durable; returns why that failed."""
        try:
            if home.is_online:
                await self._disk.in_thread(self._disk.sync_directory, home.path)
        except OSError as error:
            return FailedSync(home, str(error), partitions)
        except asyncio.CancelledError:
            self._put_back(home, partitions)
            raise
        return None if home.offline_reason is None else FailedSync(home, home.offline_reason, partitions)

    def _put_back(self, home: LogDirectory, partitions: list[TopicPartition]) -> None:
        """Record again deletions that were taken and may not be durable."""
        self._renamed.setdefault(home, [])[:0] = partitions
