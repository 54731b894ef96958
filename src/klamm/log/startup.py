"""Opens every log of a node when it starts, in all its data directories. Source: LogManager.scala (loadLogs)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, ParamSpec, TypeVar

import structlog

from klamm.config.topic_config import TopicConfig, correct_topic_config, has_own_defaults, usable_overrides
from klamm.log.checkpoints import RECOVERY_POINTS
from klamm.log.directory import LogDirectory, UnreadableLog
from klamm.log.errors import BadLogDirectory, CorruptFile
from klamm.log.future_logs import FutureLogs
from klamm.log.housekeeping import Housekeeping
from klamm.log.log import Log
from klamm.log.log_storage import Owner
from klamm.log.meta_properties import read_all_meta
from klamm.log.open_files import OpenFiles
from klamm.log.registry import LogRegistry
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World

P = ParamSpec("P")
T = TypeVar("T")
logger = structlog.get_logger("logs")


class LoadedConfigs:
    """Parsed topic configs, by topic."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]], defaults: Mapping[str, str]) -> None:
        self._overrides = overrides
        self._defaults = defaults
        self._parsed: dict[str, TopicConfig] = {}
        self.problems: dict[str, str] = {}
        self.default: Final = TopicConfig.parse({}, defaults)

    def of(self, topic: str) -> TopicConfig:
        """The config of this topic."""
        own = self._overrides.get(topic)
        if not own and not has_own_defaults(topic):
            return self.default
        if topic not in self._parsed:
            usable, problems = usable_overrides(own or {})
            if problems:
                self.problems[topic] = "; ".join(problems)
            self._parsed[topic] = TopicConfig.parse_stored(usable, self._defaults, topic)
        return self._parsed[topic]


class LogStartup:
    """Locks the log directories, and registers the logs that it opens there."""

    def __init__(
        self, world: World, registry: LogRegistry, futures: FutureLogs, housekeeping: Housekeeping, files: OpenFiles
    ) -> None:
        self._world = world
        self._registry = registry
        self._futures = futures
        self._housekeeping = housekeeping
        self._files = files
        self._is_cancelled = False
        """Whether no further log is to be opened."""
        self._failed: set[LogDirectory] = set()
        """Directories in which no further log is to be opened, because one could not be."""

    async def load(self, broker_id: int, cluster_id: str, configs: LoadedConfigs, threads_per_directory: int) -> None:
        """Open every log. Raises BadLogDirectory where a directory is not this node's, or none can be used."""
        directories = list(self._registry.directories.values())
        read_all_meta(self._world.disk, list(self._registry.directories))
        results = await asyncio.gather(
            *(self._load_directory(d, broker_id, cluster_id, configs, threads_per_directory) for d in directories),
            return_exceptions=True,
        )
        for topic, reason in configs.problems.items():
            logger.error(
                "a part of a topic config is ignored; the topic's other configs are used",
                topic=topic,
                reason=reason,
                action=correct_topic_config(topic),
            )
        problem = next((result for result in results if isinstance(result, BaseException)), None)
        if problem is None and not self._registry.live:
            reasons = "; ".join(f"{d.path}: {str(d.offline_reason).rstrip('.')}" for d in directories)
            problem = BadLogDirectory(
                f"No log directory can be used: {reasons}. Repair one of them, free space if it is full, or change "
                "log.dirs."
            )
        if problem is not None:
            for directory in directories:
                directory.unlock()
            raise problem
        self._lower_recovery_points()

    def _lower_recovery_points(self) -> None:
        """Have the recovery points written of logs that lost flushed records, before anything is appended to them.

        Another start would take what is appended there for flushed.
        """
        for directory in self._registry.live:
            written = directory.checkpoint(RECOVERY_POINTS).written
            for log in self._registry.logs_in(directory):
                if log.recovery_point < written.get(log.partition, 0):
                    log.report_lowered_checkpoints()

    async def _load_directory(
        self, directory: LogDirectory, broker_id: int, cluster_id: str, configs: LoadedConfigs, threads: int
    ) -> None:
        """Open all logs of one data directory, with this many threads."""
        futures = self._futures
        try:
            await self._in_thread(directory.prepare, broker_id, cluster_id)
            inventory = await self._in_thread(directory.inventory)
            pending = sorted(inventory.logs.items())
            shares = [pending[start::threads] for start in range(threads)]
            loaded = await self._open_shares(directory, shares, configs)
            copies = sorted(inventory.futures.items())
            opened = await self._in_thread(self._open_logs, directory, copies, configs, futures.owner)
        except (OSError, CorruptFile) as error:
            self._registry.take_offline(directory, str(error))
            return
        for result in (result for share in loaded for result in share):
            if isinstance(result, Log):
                self._registry.register(result, directory)
            else:
                self._registry.mark_unreadable(result, directory)
        directory.is_loaded = True
        if not directory.is_online:
            return
        for result in opened:
            if isinstance(result, Log) and result.partition not in futures.logs:
                futures.add(result, directory)
            else:
                inventory.to_delete.append(inventory.futures[result.partition])
        for path in inventory.to_delete:
            self._housekeeping.remove_tree_later(path, configs.default.file_delete_delay_ms)

    async def _open_shares(
        self, directory: LogDirectory, shares: Sequence[Sequence[tuple[TopicPartition, str]]], configs: LoadedConfigs
    ) -> list[list[Log | UnreadableLog]]:
        """Open each share of the logs of a directory in a thread of its own; returns once all of them have ended.

        Whoever takes the directory offline releases its lock, and another process could open the same logs. Raises the
        first error.
        """
        opened = await asyncio.gather(
            *(self._in_thread(self._open_logs, directory, share, configs, self._housekeeping) for share in shares),
            return_exceptions=True,
        )
        loaded = []
        for share in opened:
            if isinstance(share, BaseException):
                raise share
            loaded.append(share)
        return loaded

    def _open_logs(
        self, directory: LogDirectory, share: Sequence[tuple[TopicPartition, str]], configs: LoadedConfigs, owner: Owner
    ) -> list[Log | UnreadableLog]:
        """Open some logs of a directory in a thread, until the start is cancelled or another thread of it failed."""
        loading = directory.load(self._world, share, configs.of, self._files, owner)
        try:
            return list(takewhile(lambda _: not self._is_cancelled and directory not in self._failed, loading))
        except BaseException:
            self._failed.add(directory)
            raise

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the call in a thread. A cancellation waits for its end, because it writes files.

        The lock of the directory is released afterwards: another process could use the same logs meanwhile.
        """
        work = asyncio.ensure_future(self._world.disk.in_thread(call, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._is_cancelled = True
            await asyncio.gather(work, return_exceptions=True)
            raise
