"""Moves replicas between the log directories of this broker: a future log is copied, then replaces the log (KIP-113).

Source: ReplicaManager.scala (alterReplicaLogDirs, maybeAddLogDirFetchers), ReplicaAlterLogDirsThread.scala,
LocalLeaderEndPoint.scala (3.9). One replica is copied at a time, in the order of topics and partitions.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from klamm.log.errors import OffsetOutOfRange, ProducersRestoring, StorageFailed
from klamm.log.log import Log
from klamm.log.names import can_have_future_directory
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.replication.log_copy import LogCopy
from klamm.replication.partition import Partition
from klamm.replication.ports import FutureLogsPort
from klamm.replication.quota import ReplicationQuota
from klamm.runtime.time_slices import Slices

log = structlog.get_logger("replication")

BACKOFF_S: Final = 1.0
_MAX_PAUSE_S: Final = 1.0
"""The quota is checked again after this time, because its limit may have been raised."""
FLUSH_VALID_S: Final = 10.0
"""A copy that was flushed as a whole replaces its log within this time without another flush of what came since."""
_REPORT: Final = "Nothing to do; if it happens again, report it with this stack trace as a bug in klamm."


class LogDirMoves:
    """Serves AlterReplicaLogDirs, and copies the future logs in a task of its own.

    `quota` bounds the copied bytes per second; `lock` is held while the controller changes replicas.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        logs: FutureLogsPort,
        quota: ReplicationQuota,
        lock: asyncio.Lock,
        chunk_bytes: int,
        slices: Slices,
    ) -> None:
        self._hosted = hosted
        self._slices = slices
        self._logs = logs
        self._quota = quota
        self._lock = lock
        self._chunk_bytes = chunk_bytes
        self._retry_at: dict[TopicPartition, float] = {}
        self._current: TopicPartition | None = None
        self._flushed: tuple[Log, float] | None = None
        """The copy that was flushed last, and when, on the loop's clock."""
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that copies replicas to other log directories."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="log-dir-moves")

    async def close(self) -> None:
        """Stop copying; the future logs stay for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_replicas_changed(self) -> None:
        """Called when the controller changed replicas: continue to copy those that have a future log."""
        if self._logs.futures:
            self._retry_at.clear()
            self._wakeup.set()

    # ---- AlterReplicaLogDirs

    async def alter(self, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Begin to move each replica to its log directory; a move of a replica that is in that directory is cancelled.

        A replica that this broker does not have yet will be created there; its answer is REPLICA_NOT_AVAILABLE.
        """
        async with self._lock:
            return await self._slices.dict_of(
                (tp, self._alter_one(tp, directory)) for tp, directory in directories.items()
            )

    def _alter_one(self, topic_partition: TopicPartition, directory: str) -> ErrorCode:
        """Check in Kafka's order, then begin or cancel the move of one replica."""
        if not can_have_future_directory(topic_partition):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if directory not in self._logs.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory in self._logs.offline_directories or self._hosted.is_offline(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._hosted.get(topic_partition)
        target = self._logs.future_directory_of(topic_partition)
        if partition is not None and target not in (None, directory):
            self._cancel(topic_partition, partition)
        self._logs.prefer_directory(topic_partition, directory)
        if partition is None or partition.log is None:
            is_known = partition is not None or self._hosted.metadata.contains(topic_partition)
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if directory in (self._logs.directory_of(topic_partition), target):
            return ErrorCode.NONE
        try:
            partition.future_log = self._logs.create_future(topic_partition, directory)
        except StorageFailed as error:
            log.error("cannot move a replica to another log directory", partition=str(topic_partition), why=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        log.info("replica begins to move to another log directory", partition=str(topic_partition), to=directory)
        self._retry_at.pop(topic_partition, None)
        self._wakeup.set()
        return ErrorCode.NONE

    def _cancel(self, topic_partition: TopicPartition, partition: Partition) -> None:
        """Stop the copying of the replica and delete its future log."""
        log.info(
            "move of a replica to another log directory is cancelled",
            partition=str(topic_partition),
            to=self._logs.future_directory_of(topic_partition),
        )
        partition.future_log = None
        self._logs.delete_future(topic_partition)
        partition.check_waiting_deletes()

    # ---- the task

    async def _run(self) -> None:
        """Copy one chunk after the other, or wait where nothing can be copied now, until the task is cancelled."""
        while True:
            topic_partition = self._choose()
            if topic_partition is None:
                await self._wait(min(self._retry_at.values(), default=None))
            elif self._quota.is_exceeded():
                longest = asyncio.get_running_loop().time() + _MAX_PAUSE_S
                await self._wait(min(self._quota.exceeded_until_ms / 1000, longest))
            else:
                await self._advance(topic_partition)

    async def _wait(self, until: float | None) -> None:
        """Wait until this time on the loop's clock, or for a new move or changed replicas."""
        self._wakeup.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._wakeup.wait()
        except TimeoutError:
            return

    def _choose(self) -> TopicPartition | None:
        """The replica to copy now: the one being copied, else the first that can be copied."""
        now = asyncio.get_running_loop().time()
        futures = self._logs.futures
        self._retry_at = {tp: at for tp, at in self._retry_at.items() if tp in futures and at > now}
        ready = [tp for tp in futures if tp not in self._retry_at and self._is_hosted(tp)]
        if self._current not in ready:
            self._current = min(ready, default=None)
        return self._current

    def _is_hosted(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker has a log of the partition."""
        partition = self._hosted.get(topic_partition)
        return partition is not None and partition.log is not None

    async def _advance(self, topic_partition: TopicPartition) -> None:
        """Copy one chunk; once the copy is complete, it replaces the log."""
        partition = self._hosted.find(topic_partition)
        source, copy = partition.hosted_log, self._logs.futures[topic_partition]
        if None not in (source.topic_id, copy.topic_id) and source.topic_id != copy.topic_id:
            self._cancel(topic_partition, partition)  # the copy is of an earlier topic with this name
            return
        partition.future_log = copy
        copying = LogCopy(source, copy, self._chunk_bytes)
        try:
            copied = await copying.copy_chunk()
            self._quota.record(copied)
            partition.check_waiting_deletes()
            is_replaced = False
            if copying.is_nearly_complete:
                await self._flush(copy)
                if partition.log is source and self._logs.futures.get(topic_partition) is copy:
                    is_replaced = self._finish(partition, copying)
            if not (copied or is_replaced):
                self._delay(topic_partition)  # all is copied, but the copy cannot replace the log yet
        except StorageFailed as error:
            self._on_storage_failed(partition, error)
        except (OffsetOutOfRange, ProducersRestoring) as error:
            log.debug(
                "the copy of a replica to another log directory is delayed",
                partition=str(topic_partition),
                why=str(error),
            )
            self._delay(topic_partition)
        except (KlammError, OSError) as error:
            log.warning(
                "cannot copy a replica to another log directory; trying again",
                partition=str(topic_partition),
                why=str(error),
            )
            self._delay(topic_partition)
        except Exception:
            log.exception(
                "unexpected error while a replica is copied to another log directory; trying again",
                partition=str(topic_partition),
                action=_REPORT,
            )
            self._delay(topic_partition)
        await asyncio.sleep(0)

    async def _flush(self, copy: Log) -> None:
        """Flush the copy, unless that was done a moment ago. Raises StorageFailed.

        While a copy of a busy partition is flushed, more than a chunk may be appended to its log. What is copied then
        is at most as old as the flush; with a flush after each attempt the move would never end.
        """
        now = asyncio.get_running_loop().time()
        if self._flushed is None or self._flushed[0] is not copy or now >= self._flushed[1] + FLUSH_VALID_S:
            self._flushed = None
            await copy.flush()
            self._flushed = (copy, now)

    def _delay(self, topic_partition: TopicPartition) -> None:
        """Try the move of the partition again after `BACKOFF_S` seconds."""
        self._retry_at[topic_partition] = asyncio.get_running_loop().time() + BACKOFF_S

    def _on_storage_failed(self, partition: Partition, error: StorageFailed) -> None:
        """Cancel the move if its source or target directory failed; if the future log still exists, try again later."""
        topic_partition = partition.topic_partition
        log.warning(
            "cannot copy a replica to another log directory: one of the two directories failed",
            partition=str(topic_partition),
            why=str(error),
        )
        if topic_partition not in self._logs.futures:
            partition.future_log = None
            partition.check_waiting_deletes()
        else:
            self._delay(topic_partition)

    def _finish(self, partition: Partition, copying: LogCopy) -> bool:
        """Copy the records appended during the flush, then replace the log by the copy if it has all of them.

        Returns whether the log was replaced.

        Nothing can be appended between the two. What was acknowledged because the log has it on the device, as
        `klamm.sync.before.ack` and `flush.messages` demand, has to be there in the copy as well: at most one chunk, in
        the calling thread, since more would be appended meanwhile.
        """
        self._quota.record(copying.copy_now())
        topic_partition = partition.topic_partition
        source, copy = partition.hosted_log, self._logs.futures[topic_partition]
        if not copying.is_complete or copy.has_unsynced_truncation:
            return False
        if not copy.is_durable or copy.needs_flush_before_ack or copy.recovery_point < source.recovery_point:
            copy.flush_now()
        old_directory = self._logs.directory_of(topic_partition)
        partition.replace_log(self._logs.promote_future(topic_partition))
        self._flushed = None
        log.info(
            "replica moved to another log directory",
            partition=str(topic_partition),
            before=old_directory,
            now=self._logs.directory_of(topic_partition),
        )
        return True
