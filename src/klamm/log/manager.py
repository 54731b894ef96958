"""All logs of a node: load, create, delete, and background work. Source: LogManager.scala."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from klamm.config.topic_config import TopicConfig, default_configs, has_own_defaults
from klamm.log.checkpoint_writer import CheckpointWriter, write_all
from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from klamm.log.directory import LogDirectory
from klamm.log.directory_moves import DirectoryMoves
from klamm.log.errors import REPAIR, StorageFailed
from klamm.log.future_logs import FutureLogs
from klamm.log.housekeeping import Housekeeping
from klamm.log.log import Log
from klamm.log.log_storage import LogStorage
from klamm.log.open_files import OpenFiles
from klamm.log.registry import DirectoryFailure, LogRegistry
from klamm.log.settings import LogManagerSettings
from klamm.log.startup import LoadedConfigs, LogStartup
from klamm.model.errors import KlammError, error_text
from klamm.model.ids import TopicPartition
from klamm.runtime.small_files import replace_files
from klamm.runtime.world import World

T = TypeVar("T")

_MAX_CREATED_AT_ONCE: Final = 100
_MAX_SYNCED_SINGLY: Final = 16  # with more logs, one sync of the whole filesystem takes less time


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
        self._default_config: TopicConfig | None = None
        """That of most topics, once it was asked for."""
        self.settings = settings or LogManagerSettings()
        self._files = OpenFiles(world.disk, self.settings.max_open_files)
        self._housekeeping = Housekeeping(world, self)
        self._futures = FutureLogs(world, self._files, self._housekeeping)
        self._registry = LogRegistry(world, directories, self._futures, self._housekeeping, on_directory_failed)
        self.moves = DirectoryMoves(world, self._registry, self._futures, self._housekeeping)
        """Moves of logs between the log directories."""
        self._making = asyncio.Lock()
        registry = self._registry
        self._checkpoints = CheckpointWriter(world.disk, lambda: registry.live, registry.logs_in, registry.take_offline)
        self._closed = False

    # -- start ---------------------------------------------------------------------------------------------------------

    async def load(self, topic_overrides: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Lock the log directories and open every log; logs are recovered unless the last shutdown was clean.

        A directory that fails is taken offline. Raises BadLogDirectory where one is not ours, or none is left.
        """
        startup = LogStartup(self._world, self._registry, self._futures, self._housekeeping, self._files)
        configs = LoadedConfigs(topic_overrides or {}, self._defaults)
        await startup.load(self._broker_id, self._cluster_id, configs, self.settings.recovery_threads_per_directory)
        self.moves.match_futures()

    def start(self) -> None:
        """Begin the periodic work: flush, checkpoints, retention, expiry of producers."""
        self._housekeeping.start()

    # -- what there is -------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log; None where there is none or its directory is offline."""
        return self._registry.logs.get(partition)

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs by partition."""
        return self._registry.logs

    @property
    def topics(self) -> set[str]:
        """Topics that have a log here."""
        return {partition.topic for partition in self._registry.logs}

    @property
    def directories(self) -> list[str]:
        """The paths of all configured log directories, offline ones included."""
        return list(self._registry.directories)

    @property
    def live_directories(self) -> list[str]:
        """The paths of the log directories that are online."""
        return [path for path, directory in self._registry.directories.items() if directory.is_online]

    @property
    def offline_directories(self) -> dict[str, str]:
        """Why each offline directory failed, by path."""
        return self._registry.offline_directories

    def is_offline(self, partition: TopicPartition) -> bool:
        """Whether the partition has a log that cannot be used: it is unreadable, or its directory failed."""
        return partition in self._registry.offline or partition in self._registry.unreadable

    def directory_of(self, partition: TopicPartition) -> str | None:
        """Return the path of the log directory that holds the partition; None where the partition has no log here."""
        return self._registry.directory_of(partition)

    def topic_config(self, topic: str, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        """The config of a topic with the overrides that ZooKeeper has. Raises InvalidConfig for an invalid value."""
        if overrides or has_own_defaults(topic):
            return TopicConfig.parse_stored(overrides or {}, self._defaults, topic)
        if self._default_config is None:
            self._default_config = TopicConfig.parse({}, self._defaults)
        return self._default_config

    # -- make and delete -----------------------------------------------------------------------------------------------

    async def get_or_create_many(self, requests: Sequence[LogRequest]) -> list[Log | StorageFailed]:
        """Return the log of each partition, or its error; missing logs are created in a thread.

        A new log is created in the preferred directory, else in the live one with the fewest logs. It is refused if
        it may be in an offline directory, unless `is_new` says that it cannot be.
        """
        async with self._making:
            missing = dict.fromkeys(w.partition for w in requests if w.partition not in self._registry.logs)
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
                await self._checkpoints.forget_earlier_logs([(home, request.partition) for request, home in places])
        return [self._log_or_error(request, refused) for request in requests]

    def _log_or_error(
        self, request: LogRequest, refused: Mapping[TopicPartition, StorageFailed]
    ) -> Log | StorageFailed:
        """The log for a request, or the error that prevented it."""
        log = self._registry.logs.get(request.partition)
        if log is not None:
            return self._with_topic_id(log, request.topic_id)
        # one that was there or just made may have lost its directory since
        return refused.get(request.partition) or StorageFailed(
            self._registry.why_unavailable(request.partition, request.is_new)
            or f"{request.partition} was deleted while its log was opened"
        )

    def _choose_directories(
        self, requests: Sequence[LogRequest], refused: dict[TopicPartition, StorageFailed]
    ) -> list[tuple[LogRequest, LogDirectory]]:
        """Return the directory for each log; errors go to `refused`.

        It is the preferred one, else the live one with the fewest logs.
        """
        places = []
        counts = dict.fromkeys(self._registry.live, 0)
        for home in self._registry.homes.values():
            if home in counts:
                counts[home] += 1
        for request in requests:
            why = self._registry.why_unavailable(request.partition, request.is_new)
            if why is not None:
                refused[request.partition] = StorageFailed(why)
                continue
            preferred = self._registry.directories.get(self.moves.take_preferred(request.partition) or "")
            home = preferred if preferred in counts else min(counts, key=counts.__getitem__)
            counts[home] += 1
            places.append((request, home))
        return places

    def _open_all(self, places: Sequence[tuple[LogRequest, LogDirectory]]) -> list[Log | OSError]:
        """Open or create these logs, one after the other; called in a thread."""
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
            self._registry.take_offline(home, str(result))
        if isinstance(result, OSError) or not home.is_online:
            raise StorageFailed(f"cannot open {partition}: {home.path} is offline: {home.offline_reason}. {REPAIR}")
        self._registry.register(result, home)
        self.moves.match_future(partition)
        return result

    @staticmethod
    def _with_topic_id(log: Log, topic_id: UUID | None) -> Log:
        """The log, with the topic id assigned if it had none."""
        if topic_id is not None and log.topic_id is None:
            log.assign_topic_id(topic_id)
        return log

    def delete(self, partition: TopicPartition) -> bool:
        """Rename the log's directory at once and remove it later; whether there was a log.

        A power loss may undo the deletion until `sync_deletions` has returned. Raises StorageFailed where that fails,
        and where the log may lie in a directory that could not be loaded.
        """
        self.moves.delete_future(partition)
        self.moves.take_preferred(partition)
        log = self._registry.logs.pop(partition, None)
        if log is None:
            if why := self._registry.why_not_deletable(partition):
                raise StorageFailed(why)
            return False
        home = self._registry.homes.pop(partition)
        try:
            self._registry.retire(log, home)
        except OSError as error:
            self._registry.offline[partition] = home.path
            self._registry.take_offline(home, str(error))
            raise StorageFailed(f"cannot delete {partition} in {home.path}: {error}. {REPAIR}") from error
        return True

    async def sync_deletions(self, partitions: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """Make all deletions of logs so far durable; returns which of these partitions may still have a log.

        A log directory that cannot be synced is taken offline.
        """
        await self._registry.sync_deletions()
        return [partition for partition in partitions if partition in self._registry.offline]

    # -- configs -------------------------------------------------------------------------------------------------------

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Apply the configs at once to every log of these topics."""
        if not configs:
            return
        for log in chain(self._registry.logs.values(), self._futures.logs.values()):
            if (config := configs.get(log.partition.topic)) is not None:
                log.update_config(config)

    def update_default_configs(self, defaults: Mapping[str, str]) -> bool:
        """Set the broker's defaults for new logs; whether anything changed.

        Logs that are there keep what they have until `update_topic_configs`.
        """
        before = default_configs(self._defaults)
        self._defaults = dict(defaults)
        self._default_config = None
        return before != default_configs(self._defaults)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    async def write_high_watermarks(self) -> None:
        """Write the high watermark checkpoints of all directories; replication calls it on its interval."""
        await self._checkpoints.write(HIGH_WATERMARKS)

    async def write_recovery_points(self) -> None:
        """Write the recovery point checkpoint of each live log directory."""
        await self._checkpoints.write(RECOVERY_POINTS)

    async def secure_recovery_point(self, partition: TopicPartition, offset: int) -> bool:
        """Write the recovery point checkpoint, unless it has `offset` for the partition; whether it has that now."""
        home = self._registry.homes.get(partition)
        return home is not None and await self._checkpoints.secure_recovery_point(home, partition, offset)

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
        return self._registry.logs_in(directory)

    # -- failure and end -----------------------------------------------------------------------------------------------

    def on_log_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log's data directory offline."""
        self._registry.on_log_failed(log, error)

    def on_path_failed(self, path: str, error: OSError) -> None:
        """Take the data directory that has this path offline."""
        self._registry.on_path_failed(path, error)

    async def close(self, broker_epoch: int = -1) -> None:
        """Flush all logs and mark the directories as cleanly shut down; a second call does nothing.

        One that was not loaded to the end stays as it is: its checkpoints know more than we do.
        """
        if self._closed:
            return
        await self._stop_writing()
        for directory in self._registry.live:
            if not directory.is_loaded:
                directory.unlock()
                continue
            logs = self._registry.logs_in(directory)
            try:
                await self._world.disk.in_thread(self._close_directory, directory, logs, broker_epoch)
            except (OSError, KlammError) as error:  # KlammError: a file that cannot be parsed
                self._registry.take_offline(directory, error_text(error))
        self._files.close()

    async def _stop_writing(self) -> None:
        """Stop periodic work and wait for threads that write: closing writes the last checkpoints."""
        self._closed = True
        await self._housekeeping.stop()
        await self._checkpoints.stop()

    def _close_directory(self, directory: LogDirectory, logs: Sequence[Log], broker_epoch: int) -> None:
        """Write the last checkpoints of a directory, and mark it as cleanly shut down."""
        changed = chain.from_iterable(log.changed_small_files() for log in logs if not log.has_failed)
        replace_files(self._world.disk, list(changed))  # together: with thousands of logs, one by one takes seconds
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
