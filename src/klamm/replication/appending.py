"""Produce on the leader: append to each partition, then wait for the high watermark where acks=all asks for it.

Source: ReplicaManager.scala (appendRecords), DelayedProduce.scala.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.log.errors import AppendRefused, RecordError, StorageFailed
from klamm.log.leader_append import CheckedBatch
from klamm.log.log import Log
from klamm.log.preparation import Preparation
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.context import Counts
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.replication.ports import PartitionRefused
from klamm.replication.preparing import PreparationQueue
from klamm.replication.purgatory import Purgatory
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import PIECE, Slices
from klamm.runtime.workers import Workers

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
VALID_ACKS: Final = (-1, 0, 1)
WITHOUT_LOG_START: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Refusals that do not tell the log start offset, which producers compare with what they sent before."""


class AppendResult(NamedTuple):
    """The outcome of appending one partition's batch."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    message: str | None = None


BYTES_AT_ONCE: Final = 2 * 1024 * 1024
"""Of several batches in one request: checksum and write of one MiB take two to three ms."""


class _Target(NamedTuple):
    """What acks=all waits for: the high watermark reaches the offset, and this broker has led all the time."""

    offset: int
    leadership: object


_Appended = tuple[AppendResult, _Target | None]
"""The result, and what acks=all waits for; None where nothing was appended."""


class ProduceService:
    """Serves Produce. Waiting requests are bounded by the purgatory."""

    def __init__(
        self,
        hosted: HostedPartitions,
        produces: Purgatory[TopicPartition],
        counts: Counts,
        workers: Workers,
        slices: Slices,
    ) -> None:
        self._hosted = hosted
        self._slices = slices
        self._produces = produces
        self._counts = counts
        self._preparing = PreparationQueue(workers)

    async def append(
        self,
        acks: int,
        timeout_ms: int,
        records: dict[TopicPartition, Buffer],
        origin: Origin,
        on_appended: Callable[[], None],
    ) -> dict[TopicPartition, AppendResult]:
        """Append each batch, call `on_appended`, and wait for replication as `acks` requires.

        Empties `records`, so that a request that waits keeps no batch in memory.
        """
        if acks not in VALID_ACKS:
            refused = AppendResult(
                ErrorCode.INVALID_REQUIRED_ACKS, message=f"acks={acks} is not valid. Set acks to -1 (all), 0 or 1."
            )
            return dict.fromkeys(records, refused)
        appended = await self._append_all(records, acks, origin)
        on_appended()
        results: dict[TopicPartition, AppendResult] = {}
        required: dict[TopicPartition, _Target] = {}
        if (rest := self._slices.begin(_separate(appended, results, required))) is not None:
            await rest
        await self._flush_before_ack(acks, required, results)
        if acks == ACKS_ALL and required:
            await self._wait_for_replication(required, results, timeout_ms)
        return results

    async def _flush_before_ack(
        self, acks: int, required: dict[TopicPartition, _Target], results: dict[TopicPartition, AppendResult]
    ) -> None:
        """Flush the logs whose config requires that before the acknowledgement.

        With acks=all, the high watermark waits for what `klamm.sync.before.ack` requires.
        """
        for number, topic_partition in enumerate(list(required), 1):
            if number % PIECE == 0:
                await self._slices.checkpoint(PIECE)
            partition = self._hosted.get(topic_partition)
            own_log = None if partition is None else partition.log
            if own_log is None:
                continue
            waits_for_sync = acks == ACKS_LEADER and own_log.syncs_before_ack
            if waits_for_sync or own_log.needs_flush_before_ack:
                try:
                    if waits_for_sync:
                        await own_log.wait_until_durable()
                    await own_log.flush_before_ack()
                except StorageFailed as error:
                    if partition is not None and partition.log not in (own_log, None):
                        continue  # the replica moved to another log directory, flushed
                    del required[topic_partition]
                    results[topic_partition] = AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))

    async def _append_all(
        self, records: dict[TopicPartition, Buffer], acks: int, origin: Origin
    ) -> dict[TopicPartition, _Appended]:
        """Append every batch; awaits nothing where no batch needs preparation and all are small: the usual case."""
        is_large = len(records) > PIECE or (len(records) > 1 and sum(map(len, records.values())) > BYTES_AT_ONCE)
        if is_large:
            # what arrived is appended even where its client leaves and the request is cancelled
            return await asyncio.shield(self._append_each(records, acks, origin, yields=True))
        return await self._append_each(records, acks, origin)

    async def _append_each(
        self, records: dict[TopicPartition, Buffer], acks: int, origin: Origin, *, yields: bool = False
    ) -> dict[TopicPartition, _Appended]:
        """Append every batch. With `yields`, the event loop runs others between them, as time or bytes tell."""
        size = 0
        appended: dict[TopicPartition, _Appended] = {}
        prepared: dict[TopicPartition, Awaitable[_Appended]] = {}
        for topic_partition in list(records):
            batch = records.pop(topic_partition)
            size += len(batch)
            if yields:
                await self._slices.checkpoint()
                if size > BYTES_AT_ONCE:
                    await self._slices.yield_now()
                    size = len(batch)
            outcome = self._append_or_prepare(topic_partition, batch, acks, origin)
            if isinstance(outcome, Awaitable):
                prepared[topic_partition] = outcome
            else:
                appended[topic_partition] = outcome
        if prepared:
            # what arrived is appended even where its client leaves and the request is cancelled
            finished = await asyncio.shield(asyncio.gather(*prepared.values()))
            appended.update(zip(prepared, finished, strict=True))
        return appended

    def _append_or_prepare(
        self, topic_partition: TopicPartition, batch: Buffer, acks: int, origin: Origin
    ) -> _Appended | Awaitable[_Appended]:
        """Append the batch now, or return an awaitable that prepares it in a worker and then appends it."""
        try:
            own_log = self._hosted.find(topic_partition).leader_log
            preparation = own_log.preparation(batch, origin)
        except (PartitionRefused, AppendRefused) as refusal:
            return self._refusal_result(topic_partition, refusal), None
        if preparation is None and not self._preparing.is_busy(topic_partition):
            return self._append_now(topic_partition, batch, acks, origin)
        return self._append_after_preparation(topic_partition, own_log, preparation or batch, acks, origin)

    async def _append_after_preparation(
        self, topic_partition: TopicPartition, own_log: Log, batch: Preparation | Buffer, acks: int, origin: Origin
    ) -> _Appended:
        """Prepare the batch, wait for the partition's earlier batches, then append it."""

        def append(checked: CheckedBatch | None) -> _Appended:
            """Append the batch if this broker still leads the same log.

            `checked` is a batch already prepared, None means the original. Raises PartitionRefused where the log was
            replaced meanwhile.
            """
            if self._hosted.find(topic_partition).leader_log is not own_log:
                raise PartitionRefused(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"{topic_partition} was recreated or moved to another log directory. Refresh the metadata and "
                    "retry.",
                )
            if checked is None:
                assert not isinstance(batch, Preparation)
                return self._append_now(topic_partition, batch, acks, origin)
            return self._append_now(topic_partition, checked, acks, origin)

        preparation = batch if isinstance(batch, Preparation) else None
        try:
            return await self._preparing.append_in_order(topic_partition, own_log, preparation, append)
        except (PartitionRefused, AppendRefused) as refusal:
            return self._refusal_result(topic_partition, refusal), None

    def _append_now(
        self, topic_partition: TopicPartition, batch: Buffer | CheckedBatch, acks: int, origin: Origin
    ) -> _Appended:
        """Append to the leader's log, count bytes and messages, and turn a refusal into a result."""
        try:
            partition = self._hosted.find(topic_partition)
            info = partition.append_as_leader(batch, acks, origin)
        except (PartitionRefused, AppendRefused) as refusal:
            return self._refusal_result(topic_partition, refusal), None
        except StorageFailed as error:
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)), None
        counts = self._counts
        counts.bytes_in += len(batch.buffer if isinstance(batch, CheckedBatch) else batch)
        counts.messages_in += info.last_offset - info.first_offset + 1
        result = AppendResult(ErrorCode.NONE, info.first_offset, info.log_append_time_ms, info.log_start_offset)
        return result, _Target(info.last_offset + 1, partition.leadership)

    def _refusal_result(
        self, topic_partition: TopicPartition, refusal: PartitionRefused | AppendRefused
    ) -> AppendResult:
        """The result of a partition whose append was refused."""
        errors = refusal.record_errors if isinstance(refusal, AppendRefused) else ()
        text = str(refusal)
        message = text if text.startswith(str(topic_partition)) else f"{topic_partition}: {text}"
        partition = self._hosted.get(topic_partition)
        start = -1
        if refusal.code not in WITHOUT_LOG_START and partition is not None and partition.log is not None:
            start = partition.log.start_offset
        return AppendResult(refusal.code, log_start_offset=start, record_errors=errors, message=message)

    async def _wait_for_replication(
        self, required: dict[TopicPartition, _Target], results: dict[TopicPartition, AppendResult], timeout_ms: int
    ) -> None:
        """Wait until each high watermark reaches its required offset; else set the error in `results`."""
        is_done = self._replication_check(required, results)
        if await self._produces.wait(required, is_done, timeout_ms / 1000):
            return
        for topic_partition in required:
            text = (
                f"{topic_partition}: not replicated to the ISR within {timeout_ms} ms. Retry: the batch may be "
                "appended twice unless the producer is idempotent."
            )
            results[topic_partition] = results[topic_partition]._replace(
                error=ErrorCode.REQUEST_TIMED_OUT, message=text
            )

    def _replication_check(
        self, required: dict[TopicPartition, _Target], results: dict[TopicPartition, AppendResult]
    ) -> Callable[[Iterable[TopicPartition]], bool]:
        """Return a function that removes those of its partitions that are decided from `required`.

        It tells whether none is left.
        """

        def is_done(changed: Iterable[TopicPartition]) -> bool:
            """Whether every partition is replicated up to its required offset or has failed.

            Only those that changed are checked. Errors are put into the results.
            """
            for topic_partition in changed:
                target = required.get(topic_partition)
                error = None if target is None else self._replication_error(topic_partition, target)
                if error is None:
                    continue
                del required[topic_partition]
                if error:
                    text = (
                        f"{topic_partition}: appended, but not replicated ({error.name}). Refresh the metadata and "
                        f"retry."
                    )
                    results[topic_partition] = results[topic_partition]._replace(error=error, message=text)
            return not required

        return is_done

    def _replication_error(self, topic_partition: TopicPartition, target: _Target) -> ErrorCode | None:
        """The final error code of an acks=all append; None while it is not replicated.

        Where this broker did not lead for a while after the append, other records may have the offsets by now.
        """
        partition = self._hosted.get(topic_partition)
        if partition is None:
            return self._hosted.absence_error(topic_partition)
        if partition.leadership is not target.leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition.acks_all_result(target.offset)


def _separate(
    appended: Mapping[TopicPartition, _Appended],
    results: dict[TopicPartition, AppendResult],
    required: dict[TopicPartition, _Target],
) -> Iterator[None]:
    """Put results, and the offsets that must be replicated, into these dicts; pauses after each partition."""
    for topic_partition, (result, target) in appended.items():
        results[topic_partition] = result
        if target is not None:
            required[topic_partition] = target
        yield
