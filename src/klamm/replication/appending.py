"""Produce on the leader: append to each partition, then wait for the high watermark where acks=all asks for it.

Source: ReplicaManager.scala (appendRecords), DelayedProduce.scala.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.log.errors import AppendRefused, RecordError, StorageFailed
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.hosting import Hosting
from klamm.replication.ports import PartitionRefused
from klamm.replication.purgatory import Purgatory
from klamm.replication.surroundings import Counts
from klamm.runtime.disk import Buffer

ACKS_ALL: Final = -1
VALID_ACKS: Final = (-1, 0, 1)


class AppendResult(NamedTuple):
    """What became of one partition's batch."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    message: str | None = None


class Appends:
    """Serves Produce. Waiting requests are bounded by the purgatory."""

    def __init__(self, hosting: Hosting, produces: Purgatory[TopicPartition], counts: Counts) -> None:
        self._hosting = hosting
        self._produces = produces
        self._counts = counts

    async def append(
        self, acks: int, timeout_ms: int, records: dict[TopicPartition, Buffer], origin: Origin
    ) -> dict[TopicPartition, AppendResult]:
        """Append each batch and wait as `acks` asks. Empties `records`: a waiting request keeps no batch in memory."""
        if acks not in VALID_ACKS:
            refused = AppendResult(ErrorCode.INVALID_REQUIRED_ACKS, message=f"acks={acks} is not -1, 0 or 1")
            return dict.fromkeys(records, refused)
        results: dict[TopicPartition, AppendResult] = {}
        required: dict[TopicPartition, int] = {}
        for topic_partition in list(records):
            results[topic_partition], end = self._append(topic_partition, records.pop(topic_partition), acks, origin)
            if end >= 0:
                required[topic_partition] = end
        if acks == ACKS_ALL and required:
            await self._replicated(required, results, timeout_ms)
        return results

    def _append(
        self, topic_partition: TopicPartition, batch: Buffer, acks: int, origin: Origin
    ) -> tuple[AppendResult, int]:
        """The result, and the offset the high watermark has to reach; −1 where nothing was appended."""
        try:
            info = self._hosting.find(topic_partition).append_as_leader(batch, acks, origin)
        except PartitionRefused as refusal:
            return AppendResult(refusal.code, message=str(refusal)), -1
        except AppendRefused as refusal:
            return AppendResult(refusal.code, record_errors=refusal.record_errors, message=str(refusal)), -1
        except StorageFailed as error:
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)), -1
        counts = self._counts
        counts.bytes_in += len(batch)
        counts.messages_in += info.last_offset - info.first_offset + 1
        result = AppendResult(ErrorCode.NONE, info.first_offset, info.log_append_time_ms, info.log_start_offset)
        return result, info.last_offset + 1

    async def _replicated(
        self, required: dict[TopicPartition, int], results: dict[TopicPartition, AppendResult], timeout_ms: int
    ) -> None:
        """Wait until each partition's high watermark is there; take over what ended otherwise."""
        is_done = self._watch(required, results)
        if is_done():
            return
        if await self._produces.wait(tuple(required), is_done, timeout_ms / 1000):
            return
        for topic_partition in required:
            text = f"not replicated within {timeout_ms} ms"
            results[topic_partition] = results[topic_partition]._replace(
                error=ErrorCode.REQUEST_TIMED_OUT, message=text
            )

    def _watch(
        self, required: dict[TopicPartition, int], results: dict[TopicPartition, AppendResult]
    ) -> Callable[[], bool]:
        """A test that takes the partitions off `required` one by one as they are decided."""

        def is_done() -> bool:
            for topic_partition, offset in list(required.items()):
                error = self._state(topic_partition, offset)
                if error is None:
                    continue
                del required[topic_partition]
                if error:
                    results[topic_partition] = results[topic_partition]._replace(error=error, message=error.name)
            return not required

        return is_done

    def _state(self, topic_partition: TopicPartition, offset: int) -> ErrorCode | None:
        partition = self._hosting.get(topic_partition)
        return self._hosting.absence(topic_partition) if partition is None else partition.acknowledged(offset)
