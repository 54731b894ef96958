"""DescribeLogDirs: the partitions in each log directory, their sizes, and the free space.

Source: KafkaApis.handleDescribeLogDirsRequest, ReplicaManager.describeLogDirs (3.9).
"""

import asyncio
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

DESCRIBE_LOG_DIRS: Final = Offered(ApiKey.DESCRIBE_LOG_DIRS, 0, 4)
_LOGS_PER_TIME_SLICE: Final = 1_000
_UNKNOWN_LAG: Final = -1


class DescribeLogDirs:
    """Serves DescribeLogDirs."""

    def __init__(self, logs: LogManager, disk: Disk) -> None:
        self._logs = logs
        self._disk = disk

    async def handle(self, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Answer DescribeLogDirs: the requested partitions, or all, by log directory.

        A failed log directory has an error of its own.
        """
        wanted: set[TopicPartition] | None = None
        if message.topics is not None:
            requested = (TopicPartition(t.topic, p) for t in message.topics for p in t.partitions)
            wanted = set(await request.slices.list_of(requested))
        lying: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
        moves = self._logs.moves
        for count, (partition, log) in enumerate([*self._logs.logs.items(), *moves.futures.items()], 1):
            is_future = moves.futures.get(partition) is log
            find = moves.future_directory_of if is_future else self._logs.directory_of
            directory = find(partition)
            if directory is not None and (wanted is None or partition in wanted):
                topics = lying.setdefault(directory, {})
                topics.setdefault(partition.topic, []).append(self._describe_log(partition, log, is_future))
            if count % _LOGS_PER_TIME_SLICE == 0:
                await asyncio.sleep(0)
        return DescribeLogDirsResponse(
            error_code=ErrorCode.NONE,
            results=[await self._describe_directory(path, lying.get(path, {})) for path in self._logs.directories],
        )

    def _describe_log(self, partition: TopicPartition, log: Log, is_future: bool) -> DescribeLogDirsPartition:
        """The response entry of one log.

        The lag of a future log is counted from the log that it copies, and is -1 if that log is offline.
        """
        if is_future:
            copied = self._logs.get(partition)
            lag = _UNKNOWN_LAG if copied is None else copied.end_offset - log.end_offset
        else:
            lag = max(log.high_watermark - log.end_offset, 0)
        return DescribeLogDirsPartition(
            partition_index=partition.partition, partition_size=log.size, offset_lag=lag, is_future_key=is_future
        )

    async def _describe_directory(
        self, path: str, topics: dict[str, list[DescribeLogDirsPartition]]
    ) -> DescribeLogDirsResult:
        """The result of one log directory."""
        if path in self._logs.offline_directories:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        try:
            usage = await self._disk.in_thread(self._disk.usage, path)
        except OSError:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=path,
            topics=[DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()],
            total_bytes=usage.total_bytes,
            usable_bytes=usage.usable_bytes,
        )
