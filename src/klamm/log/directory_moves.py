"""Moves of logs between log directories: the future log is made, replaces its log, or is deleted (KIP-113).

Source: LogManager.scala (maybeUpdatePreferredLogDir, replaceCurrentWithFutureLog).
"""

from collections.abc import Mapping
from contextlib import suppress
from posixpath import dirname
from typing import Final

import structlog

from klamm.log.errors import REPAIR, StorageFailed
from klamm.log.future_logs import FutureLogs
from klamm.log.housekeeping import Housekeeping
from klamm.log.log import Log
from klamm.log.names import REPLACED_BY
from klamm.log.registry import LogRegistry
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.wire.records import CorruptRecords

logger = structlog.get_logger("logs")

_MAX_PREFERRED: Final = 100_000


class DirectoryMoves:
    """Future logs, and the directories that operators prefer for logs; used by the event loop only."""

    def __init__(self, world: World, registry: LogRegistry, futures: FutureLogs, housekeeping: Housekeeping) -> None:
        self._world = world
        self._registry = registry
        self._futures = futures
        self._housekeeping = housekeeping
        self._preferred: dict[TopicPartition, str] = {}

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def directories(self) -> list[str]:
        """The paths of all configured log directories, offline ones included."""
        return list(self._registry.directories)

    @property
    def offline_directories(self) -> dict[str, str]:
        """Why each offline directory failed, by path."""
        return self._registry.offline_directories

    def directory_of(self, partition: TopicPartition) -> str | None:
        """Return the log directory of the partition's log; None where it has no log here."""
        return self._registry.directory_of(partition)

    @property
    def futures(self) -> Mapping[TopicPartition, Log]:
        """The future logs: copies under way in another log directory."""
        return self._futures.logs

    def future_directory_of(self, partition: TopicPartition) -> str | None:
        """Return the log directory of the partition's future log; None where it has none."""
        home = self._futures.home_of(partition)
        return None if home is None else home.path

    # -- preferred directories -----------------------------------------------------------------------------------------

    def prefer_directory(self, partition: TopicPartition, directory: str) -> None:
        """Create the partition's log in this log directory, if it is created here at all."""
        if directory in (self.directory_of(partition), self.future_directory_of(partition)):
            return
        if len(self._preferred) < _MAX_PREFERRED or partition in self._preferred:
            self._preferred[partition] = directory

    def take_preferred(self, partition: TopicPartition) -> str | None:
        """Return and forget the directory preferred for the partition's log; None where there is none."""
        return self._preferred.pop(partition, None)

    # -- future logs ---------------------------------------------------------------------------------------------------

    def match_futures(self) -> None:
        """After loading, continue to copy each future log whose log is in another directory; delete the others."""
        self._leave_out_replaced_logs()
        for partition in list(self._futures.logs):
            if partition in self._registry.logs:  # else its directory is offline, or the first LeaderAndIsr creates it
                self.match_future(partition)

    def match_future(self, partition: TopicPartition) -> None:
        """Continue to copy the partition's log, or delete the copy if it is in the log's own directory.

        Call it for a log that was created, too: the one that was copied may have been lost with its disk.
        """
        copy, log = self._futures.logs.get(partition), self._registry.logs[partition]
        if copy is None:
            return
        if self._futures.home_of(partition) is self._registry.homes[partition]:
            self.delete_future(partition)
            return
        self._pause_cleaning(log)
        self._restart_outdated(log, copy)

    def _pause_cleaning(self, log: Log) -> None:
        """Allow no cleaning of the log while it is copied. Raises StorageFailed."""
        try:
            log.cleaning.pause()
        except OSError as error:
            home = self._registry.homes[log.partition]
            raise self._registry.failure(home, f"cannot copy {log.partition}", error) from error

    def _restart_outdated(self, log: Log, copy: Log) -> None:
        """Empty the copy of a log that was compacted since, while the directory of the copy was offline.

        The copy has records that the log lost, also values whose tombstones are gone: deleted keys would return.
        """
        if not log.config.is_compacted:
            return
        with suppress(StorageFailed, CorruptRecords):  # a directory that failed is offline; damage stops the copy
            if log.bytes_before(copy.end_offset) == copy.size:
                return
            logger.info(
                "a log was compacted since its copy to another log directory began: the copy begins again",
                partition=str(log.partition),
                directory=copy.directory,
            )
            copy.truncate_fully_and_start_at(log.start_offset)

    def _leave_out_replaced_logs(self) -> None:
        """Take partitions offline whose log is back after a power loss, while its successor is offline or unreadable.

        The log lacks all that was appended since. This replica may still be in the ISR, and would lead without that.
        Where the other log is in no log directory any more, the mark goes: a later start must not delete this log.
        """
        disk, offline = self._world.disk, self._registry.offline_directories
        for partition, log in list(self._registry.logs.items()):
            mark = f"{log.directory}/{REPLACED_BY}"
            try:
                if not disk.exists(mark):
                    continue
                replaced_by = dirname(disk.read(mark).decode(errors="replace").strip())
                if replaced_by in offline or partition in self._registry.unreadable:
                    self._registry.leave_out(partition, replaced_by)
                else:
                    disk.remove(mark)
                    disk.sync_directory(log.directory)
            except OSError as error:
                self._registry.take_offline(self._registry.homes[partition], str(error))

    def create_future(self, partition: TopicPartition, directory: str) -> Log:
        """Begin a copy of the partition's log in another log directory. Raises StorageFailed.

        Not while a directory is offline: it may have such a copy already.
        """
        log, home = self._registry.logs[partition], self._registry.directories[directory]
        assert home is not self._registry.homes[partition], f"{partition} is in {directory} already"
        assert partition not in self._futures.logs, f"{partition} has a future log already"
        if self._registry.offline_directories:
            offline = ", ".join(self._registry.offline_directories)
            raise StorageFailed(f"cannot move {partition} while a log directory is offline: {offline}. {REPAIR}")
        self._preferred.pop(partition, None)
        self._pause_cleaning(log)
        try:
            copy = self._futures.create(partition, home, log.config, log.topic_id)
        except OSError as error:
            log.cleaning.resume()
            raise self._registry.failure(home, f"cannot copy {partition}", error) from error
        # a checkpoint may have, or get by a write under way, an offset of an earlier copy: a start would take this one
        # for flushed up to there
        if home.knows(partition) or home.writing.locked():
            copy.report_lowered_checkpoints()
        return copy

    def delete_future(self, partition: TopicPartition) -> None:
        """Delete the copy of the partition's log, if there is one. A directory that fails is taken offline."""
        removed = self._futures.remove(partition)
        if removed is None:
            return
        if (log := self._registry.logs.get(partition)) is not None:
            log.cleaning.resume()
        try:
            self._registry.retire(*removed)
        except OSError as error:
            self._registry.take_offline(removed[1], str(error))

    def promote_future(self, partition: TopicPartition) -> Log:
        """Replace the partition's log by its complete and flushed copy, which is returned. Raises StorageFailed.

        The log that is replaced gets a mark before, so that a start after a crash knows which of two logs is the old
        one.
        """
        old, old_home = self._registry.logs[partition], self._registry.homes[partition]
        new, new_home = self._futures.logs[partition], self._futures.home_of(partition)
        assert new_home is not None
        disk, path = self._world.disk, f"{new_home.path}/{partition}"
        try:
            disk.write_atomically(f"{old.directory}/{REPLACED_BY}", f"{path}\n".encode())
        except OSError as error:
            raise self._registry.failure(old_home, f"cannot move {partition}", error) from error
        try:
            disk.rename(new.directory, path)
            disk.sync_directory(new_home.path)
        except OSError as error:
            self._keep_replaced(old, path, new.directory)
            raise self._registry.failure(new_home, f"cannot move {partition}", error) from error
        new.move_to(path, self._housekeeping)
        new.update_high_watermark(old.high_watermark)
        new.producers.take_verifications(old.producers)
        new.cleaning.first_dirty = old.cleaning.first_dirty
        self._futures.remove(partition)
        self._registry.logs[partition], self._registry.homes[partition] = new, new_home
        self._housekeeping.on_logs_changed(new_home)
        try:
            self._registry.retire(old, old_home)
        except OSError as error:
            self._registry.take_offline(old_home, str(error))
        return new

    def _keep_replaced(self, old: Log, path: str, future_path: str) -> None:
        """Undo a promotion that failed in the new directory: the old log stays in use, so no start may delete it."""
        disk, mark = self._world.disk, f"{old.directory}/{REPLACED_BY}"
        with suppress(OSError):
            if disk.exists(path):
                disk.rename(path, future_path)
        try:
            disk.remove(mark)
            disk.sync_directory(old.directory)
        except OSError as error:
            self._registry.take_offline(self._registry.homes[old.partition], str(error))
