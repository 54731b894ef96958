"""The open logs of a node, the log directory of each, and what cannot be used: failed directories, unreadable logs.

Source: LogManager.scala (currentLogs, offlineLogDirs, handleLogDirFailure).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from klamm.log.directory import LogDirectory, UnreadableLog
from klamm.log.errors import REPAIR, REPLACE_REPLICA, BadLogDirectory, StorageFailed
from klamm.log.future_logs import FutureLogs
from klamm.log.housekeeping import Housekeeping
from klamm.log.log import Log
from klamm.log.log_storage import LogStorage
from klamm.log.names import REPLACED_BY, deleted_directory
from klamm.log.unsynced_deletions import UnsyncedDeletions
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World

logger = structlog.get_logger("logs")


@dataclass(frozen=True, slots=True)
class DirectoryFailure:
    """A log directory went offline; `partitions` had their logs there."""

    directory: str
    reason: str
    partitions: tuple[TopicPartition, ...]


class LogRegistry:
    """What the parts of the log manager share; used by the event loop only."""

    def __init__(
        self,
        world: World,
        directories: Sequence[str],
        futures: FutureLogs,
        housekeeping: Housekeeping,
        on_directory_failed: Callable[[DirectoryFailure], None],
    ) -> None:
        self._world = world
        self._futures = futures
        self._housekeeping = housekeeping
        self._on_directory_failed = on_directory_failed
        self.directories = {path: LogDirectory(world.disk, path) for path in directories}
        self._deletions = UnsyncedDeletions(world.disk)
        self.logs: dict[TopicPartition, Log] = {}
        self.homes: dict[TopicPartition, LogDirectory] = {}
        """The log directory of each open log."""
        self.offline: dict[TopicPartition, str] = {}
        """The failed directory of each partition that had its log there."""
        self.unreadable: dict[TopicPartition, UnreadableLog] = {}

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[LogDirectory]:
        """The data directories that are online."""
        return [directory for directory in self.directories.values() if directory.is_online]

    @property
    def offline_directories(self) -> dict[str, str]:
        """Why each offline directory failed, by path."""
        return {p: d.offline_reason for p, d in self.directories.items() if d.offline_reason is not None}

    def directory_of(self, partition: TopicPartition) -> str | None:
        """Return the path of the log directory that holds the partition; None where the partition has no log here."""
        home = self.homes.get(partition)
        return None if home is None else home.path

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """The logs in this data directory, future ones as well."""
        own = [log for partition, log in self.logs.items() if self.homes[partition] is directory]
        return own + self._futures.logs_in(directory)

    def why_unavailable(self, partition: TopicPartition, is_new: bool) -> str | None:
        """Why the partition's log cannot be opened or created now; None if it can."""
        unreadable = self.unreadable.get(partition)
        if unreadable is not None:
            return (
                f"the log in {unreadable.path} cannot be read: {unreadable.reason}. Stop the node and move the "
                "directory away: the replica is then copied from the leader."
            )
        if partition in self.offline:
            return f"{partition} is in the offline log directory {self.offline[partition]}. {REPAIR}"
        if not is_new and self.offline_directories:
            return (
                f"{partition} is in no live log directory; it may be in an offline one: "
                f"{', '.join(self.offline_directories)}. {REPAIR}"
            )
        return None if self.live else f"{partition}: all log directories are offline. {REPAIR}"

    def why_not_deletable(self, partition: TopicPartition) -> str | None:
        """Why the log of a partition that is not listed may still exist; None if it certainly does not."""
        if partition in self.unreadable:
            return self.why_unavailable(partition, is_new=True)
        unknown = [path for path, directory in self.directories.items() if not directory.is_loaded]
        if not unknown:
            return None
        return f"{partition} may be in an offline log directory: {', '.join(unknown)}. {REPAIR}"

    # -- changes -------------------------------------------------------------------------------------------------------

    def register(self, log: Log, directory: LogDirectory) -> None:
        """Add an opened log to the manager; in a directory that failed meanwhile, it is offline."""
        if not directory.is_online:
            log.mark_failed()
            if log.partition not in self.logs:
                self.offline[log.partition] = directory.path
            return
        other = self.homes.get(log.partition)
        if other is not None:
            self._resolve_duplicate(log, directory, self.logs[log.partition], other)
            return
        self.logs[log.partition] = log
        self.homes[log.partition] = directory
        for note in log.notes:
            logger.warning("log repaired", partition=str(log.partition), directory=log.directory, note=note)
        if log.has_changed_small_files:
            self._housekeeping.on_small_files_changed(log)

    def _resolve_duplicate(self, log: Log, directory: LogDirectory, known: Log, home: LogDirectory) -> None:
        """Delete the log that the other log of the partition replaced. Raises BadLogDirectory where neither did."""
        if self._world.disk.exists(f"{log.directory}/{REPLACED_BY}"):
            self._retire_replaced(log, directory)
        elif self._world.disk.exists(f"{known.directory}/{REPLACED_BY}"):
            del self.logs[log.partition], self.homes[log.partition]
            self._retire_replaced(known, home)
            self.register(log, directory)
        else:
            raise BadLogDirectory(
                f"{log.partition} is in two log directories, {home.path} and {directory.path}. Move the older copy "
                "out of its log directory."
            )

    def _retire_replaced(self, log: Log, home: LogDirectory) -> None:
        """Delete a log that another replaced; a directory in which that fails is taken offline."""
        try:
            self.retire(log, home)
        except OSError as error:
            self.take_offline(home, str(error))

    def mark_unreadable(self, unreadable: UnreadableLog, directory: LogDirectory) -> None:
        """Make the partition of a log that cannot be opened offline."""
        self.unreadable[unreadable.partition] = unreadable
        directory.retain_checkpoints(unreadable.partition)
        logger.error(
            "the log of a replica cannot be read: the replica is offline",
            partition=str(unreadable.partition),
            directory=unreadable.path,
            reason=unreadable.reason,
            action=REPLACE_REPLICA,
        )

    def leave_out(self, partition: TopicPartition, directory: str) -> None:
        """Use no log of the partition: the one that was in use, in `directory`, is offline or cannot be read."""
        log, home = self.logs.pop(partition), self.homes.pop(partition)
        log.mark_failed()
        home.retain_checkpoints(partition)
        self.offline[partition] = directory
        logger.error(
            "an old log is not used: the log that replaced it is offline or cannot be read; the replica is offline",
            partition=str(partition),
            directory=log.directory,
            replaced_in=directory,
            action=f"{REPAIR} If the disk is lost, remove its directory from log.dirs: the old log is used then.",
        )

    def retire(self, log: Log, home: LogDirectory) -> None:
        """Rename the directory of a log that is no longer listed, and remove it later. Raises OSError."""
        target = f"{home.path}/{deleted_directory(log.partition, self._world.randomness.bytes(16).hex())}"
        log.discard()
        self._world.disk.rename(log.directory, target)
        self._deletions.add(home, log.partition)
        self._housekeeping.remove_tree_later(target, log.config.file_delete_delay_ms)
        self._housekeeping.on_logs_changed(home)

    async def sync_deletions(self) -> None:
        """Make all deletions so far durable; a log directory that cannot be synced is taken offline."""
        for failed in await self._deletions.sync():
            self.take_offline(failed.home, failed.reason)
            for partition in failed.partitions:
                if partition not in self.logs:
                    self.offline[partition] = failed.home.path

    # -- failure -------------------------------------------------------------------------------------------------------

    def on_log_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log's data directory offline.

        A deleted log has none: what a thread misses there must not count against a new log of the partition.
        """
        partition = log.partition
        if self._futures.logs.get(partition) is log:
            home = self._futures.home_of(partition)
        else:
            home = self.homes[partition] if self.logs.get(partition) is log else None
        if home is not None:
            self.take_offline(home, str(error))

    def on_path_failed(self, path: str, error: OSError) -> None:
        """Take the data directory that has this path offline."""
        above = [directory for directory in self.directories.values() if path.startswith(f"{directory.path}/")]
        self.take_offline(max(above, key=lambda directory: len(directory.path)), str(error))

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Take a data directory and its logs offline, and report the failure."""
        if not directory.is_online:
            return
        directory.offline_reason = reason
        for log in self._futures.logs_in(directory):
            log.mark_failed()
            self._futures.remove(log.partition)
            if (copied := self.logs.get(log.partition)) is not None:
                copied.cleaning.resume()
        lost = self.logs_in(directory)
        for log in lost:
            log.mark_failed()
            del self.logs[log.partition], self.homes[log.partition]
            self.offline[log.partition] = directory.path
        directory.unlock()
        self._on_directory_failed(DirectoryFailure(directory.path, reason, tuple(log.partition for log in lost)))

    def failure(self, home: LogDirectory, what: str, error: OSError) -> StorageFailed:
        """Take a directory offline after an I/O error; return the error for the caller.

        `what` says what failed, for example "cannot move orders-0".
        """
        self.take_offline(home, str(error))
        return StorageFailed(f"{what} in {home.path}: {error}. {REPAIR}")
