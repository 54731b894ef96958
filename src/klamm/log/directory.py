"""One entry of `log.dirs`: its lock, its checkpoints, the logs found in it. Source: LogManager.scala."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, offsets_text, read_offsets
from klamm.log.errors import BadLogDirectory, CorruptFile
from klamm.log.loader import Known
from klamm.log.log import Log
from klamm.log.meta_properties import (
    MetaProperties,
    check_meta,
    read_meta,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta,
)
from klamm.log.names import DirectoryKind, parse_directory
from klamm.log.open_files import OpenFiles
from klamm.log.owner import Owner
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import DirectoryLock, Disk
from klamm.runtime.world import World

_LOCK = ".lock"
_NOT_LOGS = {"__cluster_metadata-0"}


@dataclass(slots=True)
class Inventory:
    """What lies in a log directory."""

    logs: dict[TopicPartition, str] = field(default_factory=dict)
    to_delete: list[str] = field(default_factory=list)


class LogDirectory:
    __slots__ = (
        "_disk",
        "_lock",
        "_starts_written",
        "clean_epoch",
        "high_watermarks",
        "is_loaded",
        "log_starts",
        "offline_reason",
        "path",
        "recovery_points",
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
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._starts_written: dict[TopicPartition, int] = {}
        self.writing = asyncio.Lock()
        """Held while a checkpoint is written: two at once would take the temporary file from under each other."""

    @property
    def is_online(self) -> bool:
        return self.offline_reason is None

    def prepare(self, broker_id: int, cluster_id: str) -> None:
        """Lock it, make sure it is ours, read how it was left. Raises OSError, BadLogDirectory."""
        self._disk.make_directories(self.path)
        self._lock = self._disk.lock(f"{self.path}/{_LOCK}")
        if self._lock is None:
            raise BadLogDirectory(
                f"{self.path} is in use by another process, which holds {self.path}/{_LOCK}. "
                "Stop that node or name another directory in log.dirs."
            )
        meta = read_meta(self._disk, self.path)
        if meta is not None:
            check_meta(self.path, meta, broker_id, cluster_id)
        if meta is None or meta.broker_id is None or meta.cluster_id is None:
            others = () if meta is None else meta.others
            write_meta(self._disk, self.path, MetaProperties(broker_id, cluster_id, others))
        self.clean_epoch = take_clean_shutdown(self._disk, self.path)
        self.recovery_points = self._tolerant(RECOVERY_POINTS)
        self.log_starts = self._tolerant(LOG_STARTS)
        self.high_watermarks = self._tolerant(HIGH_WATERMARKS)
        self._starts_written = dict(self.log_starts)

    def _tolerant(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, f"{self.path}/{name}")
        except CorruptFile:
            return {}  # as if none had been written: everything is recovered from the beginning

    def inventory(self) -> Inventory:
        """Raises OSError, and BadLogDirectory where a directory is no log's."""
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
            elif parsed.kind is DirectoryKind.DELETE:
                found.to_delete.append(path)
        return found

    def known(self, partition: TopicPartition) -> Known:
        return Known(
            self.clean_epoch is not None, self.recovery_points.get(partition, 0), self.log_starts.get(partition, 0)
        )

    def load(
        self,
        world: World,
        partitions: Sequence[tuple[TopicPartition, str]],
        config_of: Callable[[str], TopicConfig],
        files: OpenFiles,
        owner: Owner,
    ) -> Iterator[Log]:
        """Open these logs, one after the other; in any thread. Raises as `Log.open`."""
        for partition, path in partitions:
            known = self.known(partition)
            log = Log.open(world, path, partition, config_of(partition.topic), known=known, files=files, owner=owner)
            log.update_high_watermark(self.high_watermarks.get(partition, 0))
            yield log

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def write_recovery_points(self, points: Mapping[TopicPartition, int]) -> None:
        self._disk.write_atomically(f"{self.path}/{RECOVERY_POINTS}", offsets_text(points))

    def write_high_watermarks(self, watermarks: Mapping[TopicPartition, int]) -> None:
        self._disk.write_atomically(f"{self.path}/{HIGH_WATERMARKS}", offsets_text(watermarks))

    def write_log_starts(self, starts: Mapping[TopicPartition, int]) -> None:
        self._disk.write_atomically(f"{self.path}/{LOG_STARTS}", offsets_text(starts))
        self._starts_written = dict(starts)

    def names_start_of(self, partition: TopicPartition) -> bool:
        """Whether the file on disk says where this log starts: a later log of that name must not inherit it."""
        return partition in self._starts_written

    # -- end -----------------------------------------------------------------------------------------------------------

    def leave(self, broker_epoch: int) -> None:
        """Mark the end as clean where everything was loaded, and unlock. Raises OSError."""
        if self.is_online and self.is_loaded:
            write_clean_shutdown(self._disk, self.path, broker_epoch)
        self.unlock()

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
