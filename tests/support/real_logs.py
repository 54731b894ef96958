"""Real logs in a temporary directory for brokers in simulated time; nothing runs in threads."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from tests.support.managed_logs import get_or_create

from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.disk import RealDisk
from klamm.runtime.world import World
from klamm.wire.records import NewRecord, batches, build_batch, records

P = ParamSpec("P")
T = TypeVar("T")


class DiskWithoutThreads(RealDisk):
    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)


class RealLogs:
    """Real logs for the replicas of one broker, in one directory or several."""

    def __init__(
        self, world: World, directory: str, broker: int, min_insync_replicas: int = 1, directory_count: int = 1
    ) -> None:
        self._world = replace(world, disk=DiskWithoutThreads())
        self.directories = [f"{directory}{'x' * number}" for number in range(directory_count)]
        self._broker = broker
        self._overrides = {"min.insync.replicas": str(min_insync_replicas)}
        self.on_failed: Callable[[Sequence[TopicPartition]], None] = lambda partitions: None
        self._manager: LogManager | None = None

    async def load(self) -> None:
        """Open the logs on disk, as a starting process does."""
        self._manager = LogManager(
            self._world,
            self.directories,
            self._broker,
            "cluster",
            on_directory_failed=lambda failure: self.on_failed(failure.partitions),
        )
        await self.manager.load({"orders": self._overrides})

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None, "load first"
        return self._manager

    async def drop(self) -> None:
        """Release the directory lock without closing anything, as if the process died."""
        for directory in self.manager._registry.directories.values():
            directory.unlock()
        await self.manager._housekeeping.stop()
        self._manager = None

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self.manager.logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.manager.get(topic_partition)

    async def get_or_create_many(self, wanted: Sequence[tuple[TopicPartition, uuid.UUID, bool]]) -> list[Any]:
        found: list[Log | KlammError] = []
        for topic_partition, topic_id, is_new in wanted:
            config = self.manager.topic_config("any", self._overrides)
            found.append(
                get_or_create(
                    self.manager, topic_partition, config, None if topic_id == ZERO_ID else topic_id, is_new=is_new
                )
            )
        return found

    async def delete(self, topic_partition: TopicPartition) -> None:
        self.manager.delete(topic_partition)

    async def sync_deletions(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return await self.manager.sync_deletions(partitions)

    async def checkpoint_high_watermarks(self) -> None:
        if self._manager is not None:
            await self.manager.write_high_watermarks()


def real_batch(count: int = 1, *, filler: bytes = b"") -> bytes:
    """A batch of real records."""
    return build_batch([NewRecord(filler) for _ in range(count)])


def values(log: Log) -> list[bytes]:
    """The value of every record, in order."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        buffer = log.read(offset, 1 << 20).records
        assert isinstance(buffer, bytes)
        for header in batches(buffer):
            found += [record.value or b"" for record in records(buffer, header)]
            offset = header.next_offset
    return found
