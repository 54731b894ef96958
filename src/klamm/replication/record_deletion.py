"""DeleteRecords on the leader: raise the log start offset, then wait until every live replica has raised its own.

Source: ReplicaManager.scala (deleteRecords), DelayedDeleteRecords.scala (3.9).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from klamm.log.errors import OffsetOutOfRange, StorageFailed
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.replication.ports import PartitionRefused
from klamm.replication.purgatory import Purgatory
from klamm.runtime.time_slices import Slices

NO_LOW_WATERMARK: Final = -1


class DeletionResult(NamedTuple):
    """The outcome for one partition; `low_watermark` is the lowest log start offset of its live replicas."""

    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = NO_LOW_WATERMARK


class RecordDeletion:
    """Serves DeleteRecords. Waiting requests are bounded by the purgatory."""

    def __init__(self, hosted: HostedPartitions, deletes: Purgatory[TopicPartition], slices: Slices) -> None:
        self._hosted = hosted
        self._slices = slices
        self._deletes = deletes

    async def delete(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, DeletionResult]:
        """Delete the records before each offset (-1: the high watermark), and wait for the live replicas.

        Errors are in the results, by partition.
        """
        results: dict[TopicPartition, DeletionResult] = {}
        required: dict[TopicPartition, int] = {}
        await self._slices.run(self._delete_each(offsets, required, results))
        is_done = self._completion_check(required, results)
        if not await self._deletes.wait(required, is_done, timeout_ms / 1000):
            for topic_partition in required:
                results[topic_partition] = results[topic_partition]._replace(error=ErrorCode.REQUEST_TIMED_OUT)
        return results

    def _delete_each(
        self,
        offsets: Mapping[TopicPartition, int],
        required: dict[TopicPartition, int],
        results: dict[TopicPartition, DeletionResult],
    ) -> Iterator[None]:
        """Raise each log start offset, and put offsets to wait for and results into the dicts; pauses after each."""
        for topic_partition, offset in offsets.items():
            try:
                partition = self._hosted.find(topic_partition)
                required[topic_partition] = partition.delete_records(offset)
                results[topic_partition] = DeletionResult(low_watermark=partition.low_watermark)
            except PartitionRefused as refusal:
                results[topic_partition] = DeletionResult(refusal.code)
            except OffsetOutOfRange:
                results[topic_partition] = DeletionResult(ErrorCode.OFFSET_OUT_OF_RANGE)
            except StorageFailed:
                results[topic_partition] = DeletionResult(ErrorCode.KAFKA_STORAGE_ERROR)
            yield

    def _completion_check(
        self, required: dict[TopicPartition, int], results: dict[TopicPartition, DeletionResult]
    ) -> Callable[[Iterable[TopicPartition]], bool]:
        """Return a function that removes those of its partitions that are decided from `required`.

        It tells whether none is left.
        """

        def is_done(changed: Iterable[TopicPartition]) -> bool:
            """Whether every partition has its final result; only those that changed are checked.

            Final results are moved from `required` to `results`.
            """
            for topic_partition in changed:
                offset = required.get(topic_partition)
                result = None if offset is None else self._final_result(topic_partition, offset)
                if result is not None:
                    del required[topic_partition]
                    results[topic_partition] = result
            return not required

        return is_done

    def _final_result(self, topic_partition: TopicPartition, offset: int) -> DeletionResult | None:
        """The result of a deletion before `offset`; None while a live replica has not raised its log start."""
        partition = self._hosted.get(topic_partition)
        if partition is None:
            is_offline = self._hosted.is_offline(topic_partition)
            return DeletionResult(ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.is_leader or partition.log is None:
            return DeletionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low_watermark = partition.low_watermark
        return DeletionResult(low_watermark=low_watermark) if low_watermark >= offset else None
