"""Future logs: copies of logs in other log directories, which replace them once they are complete (KIP-113).

Source: LogManager.scala (futureLogs). Until its promotion nobody reads a future log, and only its copier writes to it.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import structlog

from klamm.config.topic_config import TopicConfig
from klamm.log.directory import LogDirectory
from klamm.log.housekeeping import Housekeeping
from klamm.log.log import Log
from klamm.log.log_storage import LogStorage
from klamm.log.names import future_directory
from klamm.log.open_files import OpenFiles
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World

logger = structlog.get_logger("logs")


class FutureLogOwner:
    """The owner of future logs. Their copier flushes them: no thread may use their paths while they are renamed."""

    def __init__(self, world: World, housekeeping: Housekeeping) -> None:
        self._disk = world.disk
        self._housekeeping = housekeeping

    def on_small_files_changed(self, log: LogStorage) -> None:
        """Do nothing: the next flush writes leader epochs and topic id.

        Once the copy has replaced the log, housekeeping writes them.
        """

    def on_rolled(self, log: LogStorage) -> None:
        """Do nothing: the task that copies the log flushes it."""

    def on_checkpoints_lowered(self, log: LogStorage) -> None:
        """Have the checkpoints written, because the copy was truncated below its recovery point or log start."""
        self._housekeeping.on_checkpoints_lowered(log)

    async def wait_for_lowered_checkpoints(self) -> None:
        """Wait until the checkpoints that truncations lowered until now are written."""
        await self._housekeeping.wait_for_lowered_checkpoints()

    def on_files_to_delete(self, paths: Sequence[str], delay_ms: int) -> None:
        """Delete the files at once: nobody reads them, and their directory will be renamed."""
        for path in paths:
            self._disk.remove(path)

    def on_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log directory of the copy offline after an I/O error."""
        self._housekeeping.on_failed(log, error)


class FutureLogs:
    """The future logs of a node with their log directories; used by the event loop only."""

    def __init__(self, world: World, files: OpenFiles, housekeeping: Housekeeping) -> None:
        self._world = world
        self._files = files
        self.owner = FutureLogOwner(world, housekeeping)
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The future logs by partition: copies that replace a log when complete."""
        return self._logs

    def home_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The log directory of the partition's future log; None where it has none."""
        return self._homes.get(partition)

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """Return the future logs in this log directory."""
        return [log for partition, log in self._logs.items() if self._homes[partition] is directory]

    def create(self, partition: TopicPartition, home: LogDirectory, config: TopicConfig, topic_id: UUID | None) -> Log:
        """Create an empty future log in this log directory. Raises OSError."""
        path = f"{home.path}/{future_directory(partition, self._world.randomness.bytes(16).hex())}"
        log = Log.open(self._world, path, partition, config, files=self._files, owner=self.owner, new_topic_id=topic_id)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        self.add(log, home)
        return log

    def add(self, log: Log, home: LogDirectory) -> None:
        """Register the future log, which is in directory `home`."""
        self._logs[log.partition] = log
        self._homes[log.partition] = home

    def remove(self, partition: TopicPartition) -> tuple[Log, LogDirectory] | None:
        """Remove the future log from this list, not from its disk; None where there is none."""
        log = self._logs.pop(partition, None)
        return None if log is None else (log, self._homes.pop(partition))
