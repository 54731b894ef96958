"""Prepares batches that need a check of all records in worker processes, and appends them in order of arrival.

Source: LogValidator.java does this under the log's lock; here only the append itself is on the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from klamm.log.errors import AppendRefused
from klamm.log.leader_append import CheckedBatch
from klamm.log.log import Log
from klamm.log.preparation import Preparation
from klamm.log.up_conversion import prepare_any
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import WorkerFailed, Workers

T = TypeVar("T")
log = structlog.get_logger("replication")


class PreparationQueue:
    """Appends each partition's batches in order of arrival, although workers prepare some of them first.

    Connections bound what waits here: each has one request in progress.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._last: dict[TopicPartition, asyncio.Future[None]] = {}

    def is_busy(self, topic_partition: TopicPartition) -> bool:
        """Whether earlier batches of the partition are being prepared, so that a new batch has to wait for them."""
        return topic_partition in self._last

    async def append_in_order(
        self,
        topic_partition: TopicPartition,
        own_log: Log,
        preparation: Preparation | None,
        append: Callable[[CheckedBatch | None], T],
    ) -> T:
        """Prepare the batch, wait for earlier batches, then `append` the prepared batch (None: no preparation).

        Raises AppendRefused, and what `append` raises.
        """
        before = self._last.get(topic_partition)
        own = self._last[topic_partition] = asyncio.get_running_loop().create_future()
        try:
            batch = (
                None if preparation is None else await self._prepare_in_worker(topic_partition, own_log, preparation)
            )
            if before is not None:
                await asyncio.wait([before])
            return append(batch)
        finally:
            if before is None or before.done():
                self._release_next(topic_partition, own)
            else:  # refused or cancelled: those behind still wait for those before
                before.add_done_callback(lambda _: self._release_next(topic_partition, own))

    def _release_next(self, topic_partition: TopicPartition, own: "asyncio.Future[None]") -> None:
        """Let the next batch of the partition be appended."""
        own.set_result(None)
        if self._last.get(topic_partition) is own:
            del self._last[topic_partition]

    async def _prepare_in_worker(
        self, topic_partition: TopicPartition, own_log: Log, preparation: Preparation
    ) -> CheckedBatch:
        """Run the preparation in a worker process. Raises AppendRefused."""
        try:
            return own_log.prepared(await self._workers.run(prepare_any, preparation))
        except WorkerFailed as error:
            log.error(
                "worker process failed while checking a produced batch: the producer gets UNKNOWN_SERVER_ERROR",
                partition=str(topic_partition),
                why=str(error),
                action="Check the memory of this machine.",
            )
            raise AppendRefused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{topic_partition}: the worker process that checks the records failed. Send the batch again.",
            ) from error
