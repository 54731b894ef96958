"""One entry of `log.dirs`: its lock, checkpoints and logs. Source: LogManager.scala."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, OffsetCheckpoint
from klamm.log.errors import BadLogDirectory, CorruptFile
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.log_storage import Owner
from klamm.log.meta_properties import (
    MetaProperties,
    check_meta,
    read_meta,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta,
)
from klamm.log.names import DirectoryKind, parse_directory
from klamm.log.open_files import OpenFiles
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import TEMPORARY, DirectoryLock, Disk
from klamm.runtime.small_files import create_directory
from klamm.runtime.world import World
from klamm.wire.records import CorruptRecords

logger = structlog.get_logger("logs")

_LOCK = ".lock"
_WITHOUT = {
    RECOVERY_POINTS: "Nothing to do: every segment is recovered, unless the last shutdown was clean.",
    LOG_STARTS: "Nothing to do: logs start at their first segment.",
    HIGH_WATERMARKS: "Nothing to do: high watermarks start at the log start offset and follow the leader.",
    CLEANED_OFFSETS: "Nothing to do: compacted logs are cleaned from their start.",
}
"""What happens where one of the checkpoints cannot be read."""
_NOT_LOGS = {"__cluster_metadata-0"}


@dataclass(slots=True)
class Inventory:
    """The log directories and future log directories found in a data directory, and those left to delete."""

    logs: dict[TopicPartition, str] = field(default_factory=dict)
    futures: dict[TopicPartition, str] = field(default_factory=dict)
    to_delete: list[str] = field(default_factory=list)


class UnreadableLog(NamedTuple):
    """A log that could not be opened: its partition is offline, all others are not affected."""

    partition: TopicPartition
    path: str
    reason: str


class LogDirectory:
    """One data directory of the broker."""

    __slots__ = (
        "_checkpoints",
        "_disk",
        "_lock",
        "clean_epoch",
        "is_loaded",
        "offline_reason",
        "path",
        "writing",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self.path = path
        self.offline_reason: str | None = None
        """Why it is out of use; None while it is in use."""
        self.is_loaded = False
        self.clean_epoch: int | None = None
        """Broker epoch of the clean shutdown before; None where there was none."""
        self._checkpoints = {name: OffsetCheckpoint(disk, path, name) for name in _WITHOUT}
        self.writing = asyncio.Lock()
        """Held while a thread writes a checkpoint: a slow device must not occupy more than one."""

    @property
    def is_online(self) -> bool:
        """Whether no storage error has taken the directory offline."""
        return self.offline_reason is None

    def prepare(self, broker_id: int, cluster_id: str) -> None:
        """Lock the directory, check meta.properties and read the checkpoints. Raises OSError, BadLogDirectory."""
        create_directory(self._disk, self.path)
        self._lock = self._disk.lock(f"{self.path}/{_LOCK}")
        if self._lock is None:
            raise BadLogDirectory(
                f"{self.path} is in use by another process, which holds {self.path}/{_LOCK}. "
                "Stop that process, or change log.dirs."
            )
        meta = read_meta(self._disk, self.path)
        if meta is not None:
            check_meta(self.path, meta, broker_id, cluster_id)
        if meta is None or meta.broker_id is None or meta.cluster_id is None:
            others = () if meta is None else meta.others
            write_meta(self._disk, self.path, MetaProperties(broker_id, cluster_id, others))
        self._remove_temporary_files()
        self._disk.sync_directory(self.path)  # a killed process may have deleted logs, and not synced that
        self.clean_epoch = remove_clean_shutdown(self._disk, self.path)
        for name, checkpoint in self._checkpoints.items():
            damage = checkpoint.read()
            if damage is not None:
                logger.warning(
                    "checkpoint is damaged", file=f"{self.path}/{name}", reason=damage, action=_WITHOUT[name]
                )

    def _remove_temporary_files(self) -> None:
        """Remove the temporary files of replacements that a crash interrupted."""
        for name in self._disk.list_directory(self.path):
            if name.endswith(TEMPORARY) and not self._disk.is_directory(f"{self.path}/{name}"):
                self._disk.remove(f"{self.path}/{name}")

    def inventory(self) -> Inventory:
        """List the logs in the directory. Raises OSError, BadLogDirectory for a directory that is no log's."""
        found = Inventory()
        for name in self._disk.list_directory(self.path):
            path = f"{self.path}/{name}"
            if name in _NOT_LOGS or not self._disk.is_directory(path):
                continue
            try:
                parsed = parse_directory(name)
            except ValueError as error:
                raise BadLogDirectory(
                    f"{path} is not the directory of a partition (TOPIC-PARTITION). Move it out of {self.path}."
                ) from error
            if parsed.kind is DirectoryKind.LIVE:
                found.logs[parsed.partition] = path
            elif parsed.kind is DirectoryKind.FUTURE:
                if parsed.partition in found.futures:
                    found.to_delete.append(path)
                else:
                    found.futures[parsed.partition] = path
            elif parsed.kind is DirectoryKind.DELETE:
                found.to_delete.append(path)
        return found

    def known(self, partition: TopicPartition) -> CheckpointedState:
        """What the checkpoints and the clean-shutdown marker record about a log."""
        points, starts = self.checkpoint(RECOVERY_POINTS).written, self.checkpoint(LOG_STARTS).written
        return CheckpointedState(
            self.clean_epoch is not None,
            points.get(partition, 0),
            starts.get(partition, 0),
            # where the recovery points are lost, gaps that compaction left cannot be told from others
            compacted_below=self.checkpoint(CLEANED_OFFSETS).written.get(partition, 0) if points else None,
        )

    def load(
        self,
        world: World,
        partitions: Sequence[tuple[TopicPartition, str]],
        config_of: Callable[[str], TopicConfig],
        files: OpenFiles,
        owner: Owner,
    ) -> Iterator[Log | UnreadableLog]:
        """Open these logs one after the other; may run in any thread. Raises OSError."""
        for partition, path in partitions:
            known = self.known(partition)
            config = config_of(partition.topic)
            try:
                opened = Log.open(world, path, partition, config, known=known, files=files, owner=owner)
            except (CorruptFile, CorruptRecords) as error:
                yield UnreadableLog(partition, path, str(error))
                continue
            opened.update_high_watermark(self.checkpoint(HIGH_WATERMARKS).written.get(partition, 0))
            opened.cleaning.first_dirty = self.checkpoint(CLEANED_OFFSETS).written.get(partition)
            yield opened

    def retain_checkpoints(self, partition: TopicPartition) -> None:
        """Keep the checkpointed offsets of a partition whose log cannot be read, so that the next start has them."""
        for checkpoint in self._checkpoints.values():
            checkpoint.retain(partition)

    def knows(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint as last read or written has an offset of the partition."""
        return any(partition in checkpoint.written for checkpoint in self._checkpoints.values())

    def checkpoint(self, name: str) -> OffsetCheckpoint:
        """The checkpoint file with this name."""
        return self._checkpoints[name]

    # -- end -----------------------------------------------------------------------------------------------------------

    def mark_clean_and_unlock(self, broker_epoch: int) -> None:
        """Write the clean-shutdown marker, if all logs were loaded, and unlock. Raises OSError."""
        if self.is_online and self.is_loaded:
            write_clean_shutdown(self._disk, self.path, broker_epoch)
        self.unlock()

    def unlock(self) -> None:
        """Release the lock of the directory's `.lock` file, if this node holds it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
