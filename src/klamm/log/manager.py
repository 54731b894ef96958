"""All logs of a node: load, create, delete, and background work. Source: LogManager.scala."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import structlog

from klamm.config.topic_config import TopicConfig, correct_topic_config
from klamm.log.checkpoint_writer import CheckpointWriter, write_all, write_now
from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from klamm.log.directory import LogDirectory, UnreadableLog
from klamm.log.errors import REPLACE_REPLICA, BadLogDirectory, CorruptFile, StorageFailed
from klamm.log.future_logs import FutureLogs
from klamm.log.housekeeping import Housekeeping
from klamm.log.loaded_configs import LoadedConfigs
from klamm.log.log import Log
from klamm.log.log_storage import LogStorage
from klamm.log.meta_properties import read_all_meta
from klamm.log.names import REPLACED_BY, deleted_directory
from klamm.log.open_files import OpenFiles
from klamm.log.settings import LogManagerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World

T = TypeVar("T")
logger = structlog.get_logger("logs")

_REPAIR: Final = "Repair the disk and restart the node."
_MAX_CREATED_AT_ONCE: Final = 100
_MAX_PREFERRED: Final = 100_000
_MAX_SYNCED_SINGLY: Final = 16  # with more logs, one sync of the whole filesystem takes less time


@dataclass(frozen=True, slots=True)
class DirectoryFailure:
    """A log directory went offline; `partitions` had their logs there."""

    directory: str
    reason: str
    partitions: tuple[TopicPartition, ...]


class LogRequest(NamedTuple):
    """A log to open or create; `is_new`: it cannot lie in a directory that is offline."""

    partition: TopicPartition
    config: TopicConfig
    topic_id: UUID | None = None
    is_new: bool = False


class LogManager:
    """The logs of a node in all its data directories; used by the event loop only."""

    def __init__(
        self,
        world: World,
        directories: Sequence[str],
        broker_id: int,
        cluster_id: str,
        defaults: Mapping[str, str] | None = None,
        settings: LogManagerSettings | None = None,
        on_directory_failed: Callable[[DirectoryFailure], None] = lambda _failure: None,
    ) -> None:
        """`defaults`: the broker configs that give topics their defaults, as text."""
        assert directories, "a node has at least one log directory"
        self._world = world
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._defaults = dict(defaults or {})
        self.settings = settings or LogManagerSettings()
        self._on_directory_failed = on_directory_failed
        self._directories = {path: LogDirectory(world.disk, path) for path in directories}
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._unreadable: dict[TopicPartition, UnreadableLog] = {}
        self._files = OpenFiles(world.disk, self.settings.max_open_files)
        self._housekeeping = Housekeeping(world, self)
        self._futures = FutureLogs(world, self._files, self._housekeeping)
        self._preferred: dict[TopicPartition, str] = {}
        self._making = asyncio.Lock()
        self._checkpoints = CheckpointWriter(world.disk, self._live, self.logs_in, self._take_offline)
        self._closed = False

    # -- start ---------------------------------------------------------------------------------------------------------

    async def load(self, topic_overrides: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Lock the log directories and open every log; logs are recovered unless the last shutdown was clean.

        A directory that fails is taken offline. Raises BadLogDirectory where one is not ours, or none is left.
        """
        read_all_meta(self._world.disk, list(self._directories))
        configs = LoadedConfigs(topic_overrides or {}, self._defaults)
        results = await asyncio.gather(
            *(self._load_directory(directory, configs) for directory in self._directories.values()),
            return_exceptions=True,
        )
        for topic, reason in configs.problems.items():
            logger.error(
                "invalid topic config ignored, the broker's defaults apply",
                topic=topic,
                reason=reason,
                action=correct_topic_config(topic),
            )
        problem = next((result for result in results if isinstance(result, BaseException)), None)
        if problem is None and not self.live_directories:
            reasons = "; ".join(f"{d.path}: {str(d.offline_reason).rstrip('.')}" for d in self._directories.values())
            problem = BadLogDirectory(
                f"No log directory can be used: {reasons}. Repair one of them, or change log.dirs."
            )
        if problem is not None:
            for directory in self._directories.values():
                directory.unlock()
            raise problem
        self._match_futures()

    async def _load_directory(self, directory: LogDirectory, configs: LoadedConfigs) -> None:
        """Open all logs of one data directory."""
        disk = self._world.disk
        try:
            await disk.in_thread(directory.prepare, self._broker_id, self._cluster_id)
            inventory = await disk.in_thread(directory.inventory)
            pending = sorted(inventory.logs.items())
            threads = self.settings.recovery_threads_per_directory
            shares = [pending[start::threads] for start in range(threads)]
            loaded = await asyncio.gather(
                *(disk.in_thread(self._open_logs, directory, share, configs) for share in shares)
            )
            futures = await disk.in_thread(self._open_futures, directory, sorted(inventory.futures.items()), configs)
        except (OSError, CorruptFile) as error:
            self._take_offline(directory, str(error))
            return
        for result in (result for share in loaded for result in share):
            if isinstance(result, Log):
                self._register(result, directory)
            else:
                self._mark_unreadable(result, directory)
        for result in futures:
            if isinstance(result, Log) and result.partition not in self._futures.logs:
                self._futures.add(result, directory)
            else:
                inventory.to_delete.append(inventory.futures[result.partition])
        directory.is_loaded = True
        for path in inventory.to_delete:
            self._housekeeping.remove_tree_later(path, configs.default.file_delete_delay_ms)

    def _open_logs(
        self, directory: LogDirectory, share: Sequence[tuple[TopicPartition, str]], configs: LoadedConfigs
    ) -> list[Log | UnreadableLog]:
        """Open some logs of a directory in a thread."""
        return list(directory.load(self._world, share, configs.of, self._files, self._housekeeping))

    def _open_futures(
        self, directory: LogDirectory, futures: Sequence[tuple[TopicPartition, str]], configs: LoadedConfigs
    ) -> list[Log | UnreadableLog]:
        """Open the future logs of a directory in a thread."""
        return list(directory.load(self._world, futures, configs.of, self._files, self._futures.owner))

    def _match_futures(self) -> None:
        """After loading, continue to copy each future log whose log is in another directory; delete the others."""
        for partition in list(self._futures.logs):
            log = self._logs.get(partition)
            if log is None:
                continue  # its directory is offline, or it is created by the first LeaderAndIsr
            if self._futures.home_of(partition) is self._homes[partition]:
                self.delete_future(partition)
                continue
            try:
                self._begin_copying(log)
            except OSError as error:
                self._take_offline(self._homes[partition], str(error))

    def _begin_copying(self, log: Log) -> None:
        """Pause the log's cleaning; a promotion that a crash interrupted has not begun."""
        log.cleaning.pause()
        mark = f"{log.directory}/{REPLACED_BY}"
        if self._world.disk.exists(mark):
            self._world.disk.remove(mark)

    def _register(self, log: Log, directory: LogDirectory) -> None:
        """Add an opened log to the manager."""
        other = self._homes.get(log.partition)
        if other is not None:
            self._resolve_duplicate(log, directory, self._logs[log.partition], other)
            return
        self._logs[log.partition] = log
        self._homes[log.partition] = directory
        for note in log.notes:
            logger.warning("log repaired", partition=str(log.partition), directory=log.directory, note=note)
        if log.has_changed_small_files:
            self._housekeeping.on_small_files_changed(log)

    def _resolve_duplicate(self, log: Log, directory: LogDirectory, known: Log, home: LogDirectory) -> None:
        """Of two logs of a partition, delete the one that the other replaced. Raises BadLogDirectory where none is."""
        if self._world.disk.exists(f"{log.directory}/{REPLACED_BY}"):
            self._retire(log, directory)
        elif self._world.disk.exists(f"{known.directory}/{REPLACED_BY}"):
            del self._logs[log.partition], self._homes[log.partition]
            self._retire(known, home)
            self._register(log, directory)
        else:
            raise BadLogDirectory(
                f"{log.partition} is in two log directories, {home.path} and {directory.path}. Move the older copy "
                "out of its log directory."
            )

    def _mark_unreadable(self, unreadable: UnreadableLog, directory: LogDirectory) -> None:
        """Make the partition of a log that cannot be opened offline."""
        self._unreadable[unreadable.partition] = unreadable
        directory.retain_checkpoints(unreadable.partition)
        logger.error(
            "log cannot be read, the replica is offline",
            partition=str(unreadable.partition),
            directory=unreadable.path,
            reason=unreadable.reason,
            action=REPLACE_REPLICA,
        )

    def start(self) -> None:
        """Begin the periodic work: flush, checkpoints, retention, expiry of producers."""
        self._housekeeping.start()

    # -- what there is -------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log; None where there is none or its directory is offline."""
        return self._logs.get(partition)

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs by partition."""
        return self._logs

    @property
    def topics(self) -> set[str]:
        """Topics that have a log here."""
        return {partition.topic for partition in self._logs}

    @property
    def directories(self) -> list[str]:
        """The paths of all configured log directories, offline ones included."""
        return list(self._directories)

    @property
    def live_directories(self) -> list[str]:
        """The paths of the log directories that are online."""
        return [path for path, directory in self._directories.items() if directory.is_online]

    @property
    def offline_directories(self) -> dict[str, str]:
        """Why each offline directory failed, by path."""
        return {p: d.offline_reason for p, d in self._directories.items() if d.offline_reason is not None}

    def is_offline(self, partition: TopicPartition) -> bool:
        """Whether the partition has a log that cannot be used: it is unreadable, or its directory failed."""
        return partition in self._offline or partition in self._unreadable

    def directory_of(self, partition: TopicPartition) -> str | None:
        """Return the path of the log directory that holds the partition; None where the partition has no log here."""
        home = self._homes.get(partition)
        return None if home is None else home.path

    @property
    def clean_shutdown_epoch(self) -> int | None:
        """The broker epoch of the last shutdown; None unless all directories were shut down cleanly with it."""
        epochs = {d.clean_epoch for d in self._directories.values() if d.is_online}
        return epochs.pop() if len(epochs) == 1 else None

    def default_config(self, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        """The config of a topic with these overrides. Raises InvalidConfig."""
        return TopicConfig.parse(overrides or {}, self._defaults)

    # -- make and delete -----------------------------------------------------------------------------------------------

    def get_or_create(
        self, partition: TopicPartition, config: TopicConfig, topic_id: UUID | None, is_new: bool = False
    ) -> Log:
        """The partition's log; a new one is created in the live directory with the fewest logs.

        Raises StorageFailed where it may lie in an offline directory (`is_new` says that it cannot), or none is live.
        """
        log = self._logs.get(partition)
        if log is None:
            log = self._create(LogRequest(partition, config, topic_id, is_new))
        return self._with_topic_id(log, topic_id)

    async def get_or_create_many(self, requests: Sequence[LogRequest]) -> list[Log | StorageFailed]:
        """Like `get_or_create` for many, without blocking the loop; each result is a log or its error."""
        async with self._making:
            missing = dict.fromkeys(w.partition for w in requests if w.partition not in self._logs)
            by_partition = {w.partition: w for w in requests}
            refused: dict[TopicPartition, StorageFailed] = {}
            for chunk in _chunks(list(missing), _MAX_CREATED_AT_ONCE):
                places = self._choose_directories([by_partition[partition] for partition in chunk], refused)
                made = await self._world.disk.in_thread(self._open_all, places)
                for (request, home), result in zip(places, made, strict=True):
                    try:
                        self._register_opened(request.partition, home, result)
                    except StorageFailed as error:
                        refused[request.partition] = error
        return [self._log_or_error(request, refused) for request in requests]

    def _log_or_error(
        self, request: LogRequest, refused: Mapping[TopicPartition, StorageFailed]
    ) -> Log | StorageFailed:
        """The log for a request, or the error that prevented it."""
        log = self._logs.get(request.partition)
        if log is not None:
            return self._with_topic_id(log, request.topic_id)
        # one that was there or just made may have lost its directory since
        return refused.get(request.partition) or StorageFailed(
            self._why_unavailable(request) or f"{request.partition} was deleted while its log was opened"
        )

    def _create(self, request: LogRequest) -> Log:
        """Create one log. Raises StorageFailed."""
        refused: dict[TopicPartition, StorageFailed] = {}
        places = self._choose_directories([request], refused)
        if refused:
            raise refused[request.partition]
        (result,) = self._open_all(places)
        return self._register_opened(request.partition, places[0][1], result)

    def _choose_directories(
        self, requests: Sequence[LogRequest], refused: dict[TopicPartition, StorageFailed]
    ) -> list[tuple[LogRequest, LogDirectory]]:
        """The directory for each new log, the live one with the fewest; errors go to `refused`."""
        places = []
        counts = dict.fromkeys(self._live(), 0)
        for home in self._homes.values():
            if home in counts:
                counts[home] += 1
        for request in requests:
            why = self._why_unavailable(request)
            if why is not None:
                refused[request.partition] = StorageFailed(why)
                continue
            preferred = self._directories.get(self._preferred.pop(request.partition, ""))
            home = preferred if preferred in counts else min(counts, key=counts.__getitem__)
            counts[home] += 1
            places.append((request, home))
        return places

    def _why_unavailable(self, request: LogRequest) -> str | None:
        """Why the partition's log cannot be opened or created now; None if it can."""
        unreadable = self._unreadable.get(request.partition)
        if unreadable is not None:
            return (
                f"the log in {unreadable.path} cannot be read: {unreadable.reason}. Stop the node and move the "
                "directory away: the replica is then copied from the leader."
            )
        if request.partition in self._offline:
            return f"{request.partition} is in the offline log directory {self._offline[request.partition]}. {_REPAIR}"
        if not request.is_new and self.offline_directories:
            return (
                f"{request.partition} is in no live log directory; it may be in an offline one: "
                f"{', '.join(self.offline_directories)}. {_REPAIR}"
            )
        return None if self.live_directories else f"{request.partition}: all log directories are offline. {_REPAIR}"

    def _open_all(self, places: Sequence[tuple[LogRequest, LogDirectory]]) -> list[Log | OSError]:
        """Open or create these logs in threads."""
        return [self._open_one(request, home) for request, home in places]

    def _open_one(self, request: LogRequest, home: LogDirectory) -> Log | OSError:
        """Open or create one log in its directory."""
        path = f"{home.path}/{request.partition}"
        try:
            return Log.open(
                self._world,
                path,
                request.partition,
                request.config,
                files=self._files,
                owner=self._housekeeping,
                new_topic_id=request.topic_id,
            )
        except OSError as error:
            return error

    def _register_opened(self, partition: TopicPartition, home: LogDirectory, result: Log | OSError) -> Log:
        """Add a new log to the manager. Raises StorageFailed if it could not be opened."""
        if isinstance(result, OSError):
            self._take_offline(home, str(result))
        if isinstance(result, OSError) or not home.is_online:
            raise StorageFailed(f"cannot open {partition}: {home.path} is offline: {home.offline_reason}. {_REPAIR}")
        self._register(result, home)
        return result

    @staticmethod
    def _with_topic_id(log: Log, topic_id: UUID | None) -> Log:
        """The log, with the topic id assigned if it had none."""
        if topic_id is not None and log.topic_id is None:
            log.assign_topic_id(topic_id)
        return log

    def delete(self, partition: TopicPartition) -> bool:
        """Rename the log's directory at once and remove it later; whether there was a log. Raises StorageFailed."""
        self.delete_future(partition)
        self._preferred.pop(partition, None)
        log = self._logs.pop(partition, None)
        if log is None:
            return False
        home = self._homes.pop(partition)
        try:
            self._retire(log, home)
            starts = home.checkpoint(LOG_STARTS)
            if partition in starts.written:
                write_now(home, LOG_STARTS, self.logs_in(home))
        except OSError as error:
            self._offline[partition] = home.path
            self._take_offline(home, str(error))
            raise StorageFailed(f"cannot delete {partition} in {home.path}: {error}. {_REPAIR}") from error
        return True

    def _retire(self, log: Log, home: LogDirectory) -> None:
        """Rename the directory of a log that is no longer listed, and remove it later. Raises OSError."""
        target = f"{home.path}/{deleted_directory(log.partition, self._world.randomness.bytes(16).hex())}"
        log.discard()
        self._world.disk.rename(log.directory, target)
        self._housekeeping.remove_tree_later(target, log.config.file_delete_delay_ms)
        self._housekeeping.on_logs_changed(home)

    # -- moves between log directories ---------------------------------------------------------------------------------

    @property
    def futures(self) -> Mapping[TopicPartition, Log]:
        """The future logs: copies under way in another log directory."""
        return self._futures.logs

    def future_directory_of(self, partition: TopicPartition) -> str | None:
        """Return the log directory of the partition's future log; None where it has none."""
        home = self._futures.home_of(partition)
        return None if home is None else home.path

    def prefer_directory(self, partition: TopicPartition, directory: str) -> None:
        """Create the partition's log in this log directory, if it is created here at all."""
        if directory in (self.directory_of(partition), self.future_directory_of(partition)):
            return
        if len(self._preferred) < _MAX_PREFERRED or partition in self._preferred:
            self._preferred[partition] = directory

    def create_future(self, partition: TopicPartition, directory: str) -> Log:
        """Begin a copy of the partition's log in another log directory. Raises StorageFailed.

        Not while a directory is offline: it may have such a copy already.
        """
        log, home = self._logs[partition], self._directories[directory]
        assert home is not self._homes[partition], f"{partition} is in {directory} already"
        assert partition not in self._futures.logs, f"{partition} has a future log already"
        if self.offline_directories:
            offline = ", ".join(self.offline_directories)
            raise StorageFailed(f"cannot move {partition} while a log directory is offline: {offline}. {_REPAIR}")
        self._preferred.pop(partition, None)
        try:
            self._begin_copying(log)
        except OSError as error:
            raise self._failure(self._homes[partition], f"cannot move {partition}", error) from error
        try:
            return self._futures.create(partition, home, log.config, log.topic_id)
        except OSError as error:
            raise self._failure(home, f"cannot copy {partition}", error) from error

    def delete_future(self, partition: TopicPartition) -> None:
        """Delete the copy of the partition's log, if there is one. A directory that fails is taken offline."""
        removed = self._futures.remove(partition)
        if removed is None:
            return
        if (log := self._logs.get(partition)) is not None:
            log.cleaning.resume()
        try:
            self._retire(*removed)
        except OSError as error:
            self._take_offline(removed[1], str(error))

    def promote_future(self, partition: TopicPartition) -> Log:
        """Replace the partition's log by its complete and flushed copy, which is returned. Raises StorageFailed.

        The log that is replaced gets a mark before, so that a start after a crash knows which of two logs is the old
        one.
        """
        old, old_home = self._logs[partition], self._homes[partition]
        new, new_home = self._futures.logs[partition], self._futures.home_of(partition)
        assert new_home is not None
        disk, path = self._world.disk, f"{new_home.path}/{partition}"
        try:
            disk.write_atomically(f"{old.directory}/{REPLACED_BY}", f"{path}\n".encode())
        except OSError as error:
            raise self._failure(old_home, f"cannot move {partition}", error) from error
        try:
            disk.rename(new.directory, path)
            disk.sync_directory(new_home.path)
        except OSError as error:
            raise self._failure(new_home, f"cannot move {partition}", error) from error
        new.move_to(path, self._housekeeping)
        new.update_high_watermark(old.high_watermark)
        new.cleaning.first_dirty = old.cleaning.first_dirty
        self._futures.remove(partition)
        self._logs[partition], self._homes[partition] = new, new_home
        self._housekeeping.on_logs_changed(new_home)
        try:
            self._retire(old, old_home)
        except OSError as error:
            self._take_offline(old_home, str(error))
        return new

    def _failure(self, home: LogDirectory, what: str, error: OSError) -> StorageFailed:
        """Take a directory offline after an I/O error; the error for the caller."""
        self._take_offline(home, str(error))
        return StorageFailed(f"{what} in {home.path}: {error}. {_REPAIR}")

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Apply the configs at once to every log of these topics."""
        if not configs:
            return
        for log in chain(self._logs.values(), self._futures.logs.values()):
            if (config := configs.get(log.partition.topic)) is not None:
                log.update_config(config)

    def update_default_configs(self, defaults: Mapping[str, str]) -> bool:
        """Set the broker's defaults for new logs; whether anything changed.

        Logs that are there keep what they have until `update_topic_configs`.
        """
        before = TopicConfig.parse({}, self._defaults)
        self._defaults = dict(defaults)
        return before != TopicConfig.parse({}, self._defaults)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    async def write_high_watermarks(self) -> None:
        """Write the high watermark checkpoints of all directories; replication calls it on its interval."""
        await self._checkpoints.write(HIGH_WATERMARKS)

    async def write_recovery_points(self) -> None:
        """Write the recovery point checkpoint of each live log directory."""
        await self._checkpoints.write(RECOVERY_POINTS)

    async def write_log_starts(self) -> None:
        """Write the log start offset checkpoint of each live log directory."""
        await self._checkpoints.write(LOG_STARTS)

    async def write_cleaned_offsets(self) -> None:
        """Write the cleaner checkpoint of each live log directory."""
        await self._checkpoints.write(CLEANED_OFFSETS)

    async def write_small_files(self) -> None:
        """Write changed leader epochs and topic ids; when it returns, a kill cannot lose them."""
        await self._housekeeping.write_small_files()

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """The logs in this data directory, future ones as well."""
        own = [log for partition, log in self._logs.items() if self._homes[partition] is directory]
        return own + self._futures.logs_in(directory)

    def _live(self) -> list[LogDirectory]:
        """The data directories that are online."""
        return [directory for directory in self._directories.values() if directory.is_online]

    # -- failure and end -----------------------------------------------------------------------------------------------

    def on_log_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log's data directory offline."""
        is_future = self._futures.logs.get(log.partition) is log
        home = self._futures.home_of(log.partition) if is_future else self._homes.get(log.partition)
        if home is not None:
            self._take_offline(home, str(error))

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Take a data directory and its logs offline, and report the failure."""
        if not directory.is_online:
            return
        directory.offline_reason = reason
        for log in self._futures.logs_in(directory):
            log.mark_failed()
            self._futures.remove(log.partition)
            if (copied := self._logs.get(log.partition)) is not None:
                copied.cleaning.resume()
        lost = self.logs_in(directory)
        for log in lost:
            log.mark_failed()
            del self._logs[log.partition], self._homes[log.partition]
            self._offline[log.partition] = directory.path
        directory.unlock()
        self._on_directory_failed(DirectoryFailure(directory.path, reason, tuple(log.partition for log in lost)))

    async def close(self, broker_epoch: int = -1) -> None:
        """Flush all logs and mark the directories as cleanly shut down; a second call does nothing.

        One that was not loaded to the end stays as it is: its checkpoints know more than we do.
        """
        if self._closed:
            return
        await self._stop_writing()
        for directory in self._live():
            if not directory.is_loaded:
                directory.unlock()
                continue
            logs = self.logs_in(directory)
            try:
                await self._world.disk.in_thread(self._close_directory, directory, logs, broker_epoch)
            except (OSError, StorageFailed) as error:
                self._take_offline(directory, str(error))
        self._files.close()

    async def abandon(self) -> None:
        """Stop all work and unlock the directories without flushing, as after a crash."""
        await self._stop_writing()
        self._files.close()
        for directory in self._directories.values():
            directory.unlock()

    async def _stop_writing(self) -> None:
        """Stop periodic work and wait for threads that write: closing writes the last checkpoints."""
        self._closed = True
        await self._housekeeping.stop()
        await self._checkpoints.stop()

    def _close_directory(self, directory: LogDirectory, logs: Sequence[Log], broker_epoch: int) -> None:
        """Write the last checkpoints of a directory, and mark it as cleanly shut down."""
        for log in logs:
            log.prepare_clean_shutdown()
        unsynced = [log for log in logs if log.has_unsynced_files]
        if len(unsynced) > _MAX_SYNCED_SINGLY:
            self._world.disk.sync_filesystem(directory.path)
            for log in unsynced:
                log.mark_synced()
        for log in logs:
            log.close()
        write_all(directory, logs)
        directory.mark_clean_and_unlock(broker_epoch)


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
