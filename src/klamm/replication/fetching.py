"""Serves Fetch requests on the leader: read, wait for changes, respond. Source: ReplicaManager.scala, DelayedFetch."""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import structlog

from klamm.log.errors import REPLACE_REPLICA, ColdRead, NotCached, SliceLost, StorageFailed
from klamm.log.file_slice import FileSlice, Records
from klamm.log.repair.batch_reader import intact_bytes
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_conversion import FetchConversion
from klamm.replication.fetch_data import FetchData, FetchParams
from klamm.replication.fetch_sessions import FetchAnswer, FetchContext, FetchRequested, FetchSessions
from klamm.replication.fetch_waiter import CachedPartition, FetchWaiter
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.replication.leadership_proof import LeadershipProofs
from klamm.replication.partition import Partition
from klamm.replication.partition_reads import ReadLimits, read_partition
from klamm.replication.ports import PartitionRefused
from klamm.replication.quota import ReplicationQuota
from klamm.replication.replica import RemoteReplica
from klamm.runtime.time_slices import PIECE, Slices
from klamm.runtime.workers import Workers
from klamm.wire.codec import LARGE_BYTES
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import MAGIC, entry_size

log = structlog.get_logger("replication")


AWAITED_S: Final = 1.0
"""How long the first fetch of a follower in a new leader epoch is awaited, at most."""
AWAITED_FETCH_WAIT_S: Final = 0.02
"""How long other fetches of that follower wait meanwhile, at most."""
READ_AT_ONCE_BYTES: Final = 64 * 1024
"""So much of an answer is in memory when it is handed to the connection; the rest is read as the client takes it."""


class ReadOutcome(NamedTuple):
    """What one pass over the changed partitions read."""

    size: int
    """Bytes of records."""
    is_urgent: bool
    """An error, a diverging epoch, a replica to read from, or for a follower a new log start: answered at once."""
    is_held: bool
    """Records of some partition are held back by the throttle of replication."""


@dataclass(slots=True, eq=False)
class AwaitedFetches:
    """Partitions that a follower has yet to fetch in a new leader epoch, and until when this is awaited."""

    until: float = 0.0
    replicas: dict[RemoteReplica, None] = field(default_factory=dict)


class FetchService:
    """Serves consumers and followers. At most `limit` fetches wait; one more is answered with what there is.

    `quota` is the leader's: what followers get of throttled partitions counts against it.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        sessions: FetchSessions,
        now_ms: Callable[[], float],
        quota: ReplicationQuota,
        limit: int = 20_000,
        *,
        workers: Workers,
        slices: Slices,
        on_corrupt: Callable[[TopicPartition, int], None] = lambda topic_partition, offset: None,
    ) -> None:
        """`on_corrupt` gets the partition and the offset of a fetch that met damaged records."""
        self._hosted = hosted
        self._slices = slices
        self._sessions = sessions
        self._now_ms = now_ms
        self._quota = quota
        self._limit = limit
        self._waiting = 0
        self._waiting_followers: dict[FetchWaiter, None] = {}
        self._awaited: dict[BrokerId, AwaitedFetches] = {}
        self.proofs = LeadershipProofs()
        self._conversion = FetchConversion(hosted, workers)
        self._on_corrupt = on_corrupt
        self._damaged: dict[TopicPartition, None] = {}
        """Partitions in which damage was met while records were sent: they are checked before, from then on."""
        self.checks_crcs = True
        """`klamm.fetch.check.crcs`: whether records of closed segments are checked before they are sent."""

    def on_leader_epochs_begun(self, partitions: Iterable[Partition]) -> None:
        """Answer the fetches of these partitions' followers soon, because this broker leads in a new leader epoch.

        A follower can add a partition, or a new leader epoch, only to its next request. Until then the high watermark
        stands still: with the usual wait, producers with acks=all would wait up to `replica.fetch.wait.max.ms`, too.
        """
        until = asyncio.get_running_loop().time() + AWAITED_S
        for partition in partitions:
            for replica in partition.replicas.values():
                awaited = self._awaited.setdefault(replica.broker_id, AwaitedFetches())
                awaited.until = until
                awaited.replicas[replica] = None
        for waiter in self._waiting_followers:
            waiter.wake()

    def _is_awaited(self, follower: BrokerId, now: float) -> bool:
        """Whether the follower has not yet fetched a partition whose leader epoch began a moment ago."""
        awaited = self._awaited.get(follower)
        if awaited is None:
            return False
        while awaited.replicas and now < awaited.until:
            replica, _ = awaited.replicas.popitem()
            if replica.awaits_fetch:
                awaited.replicas[replica] = None
                return True
        del self._awaited[follower]
        return False

    async def fetch(self, params: FetchParams, requested: FetchRequested) -> FetchAnswer:
        """Answer a Fetch: at once if there is enough data or an error, otherwise after at most `max_wait_ms`."""
        context = await self._sessions.open(requested, self._slices)
        if isinstance(context, ErrorCode):
            return FetchAnswer(context, 0, [])
        waiter = context.waiter
        waiter.fetched_at_ms = self._now_ms()
        waiter.is_woken = False  # what has changed until now is read at once
        results: dict[CachedPartition, FetchData] = {}
        answered = is_freed = False
        try:
            outcome = await self._read_changed(context, params, results, is_first=True)
            if params.is_follower:
                self.proofs.on_fetch(waiter)
            if self._has_to_wait(params, context, outcome):
                await self._wait_for_data(context, params, results, is_held=outcome.is_held)
            answer = await context.answer(results, self._slices)
            answered = not answer.error
            if answered and params.is_follower:
                self.proofs.on_answer(waiter)
            if self.checks_crcs:
                answer = await self._without_damage(answer, params)
            answer = await self._conversion.convert(answer, params)
            answer = await self._load_small_records(answer)
            if params.is_follower and self._quota.is_on:
                self._count_throttled_bytes(answer)
            if len(results) > PIECE:
                await context.free(self._slices)
                is_freed = True
        finally:
            if not answered:
                context.put_back(results)
            if not is_freed:
                context.release()
        if len(results) > PIECE:
            await self._slices.clear(results)
        return answer

    def _has_to_wait(self, params: FetchParams, context: FetchContext, outcome: ReadOutcome) -> bool:
        """Whether the fetch must wait for more data before it is answered."""
        return (
            params.max_wait_ms > 0
            and not outcome.is_urgent
            and outcome.size < params.min_bytes
            and self._waiting < self._limit
            and not context.waiter.answers_at_once
            and context.has_partitions()
        )

    async def _wait_for_data(
        self, context: FetchContext, params: FetchParams, results: dict[CachedPartition, FetchData], *, is_held: bool
    ) -> None:
        """Read partitions again as they change, until there are `min_bytes`, an error, or `max_wait_ms` is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + params.max_wait_ms / 1000
        self._waiting += 1
        if params.is_follower:
            self._waiting_followers[context.waiter] = None
        try:
            while True:
                if self._is_awaited(params.replica_id, loop.time()):
                    until = min(until, loop.time() + AWAITED_FETCH_WAIT_S)
                pause = min(until, self._quota.exceeded_until_ms / 1000) if is_held else until
                was_woken = await context.waiter.wait(pause)
                if context.is_superseded():
                    return
                outcome = await self._read_changed(context, params, results, is_first=False)
                is_late = not was_woken and pause == until
                if is_late or context.waiter.answers_at_once or outcome.is_urgent or outcome.size >= params.min_bytes:
                    return
                is_held = outcome.is_held
        finally:
            self._waiting -= 1
            self._waiting_followers.pop(context.waiter, None)

    async def _read_changed(
        self, context: FetchContext, params: FetchParams, results: dict[CachedPartition, FetchData], *, is_first: bool
    ) -> ReadOutcome:
        """Read the changed partitions, in their order, within the request's size limit.

        It waits only for what is not in the page cache, and gives other work its turn where there are many partitions;
        if a later request of the session arrives meanwhile, it ends.
        """
        waiter = context.waiter
        left = params.max_bytes
        at_least_one = params.first_may_exceed
        size = 0
        is_urgent = is_held = False
        for number, cached in enumerate(list(waiter.changed), 1):
            if number % PIECE == 0:
                await self._slices.checkpoint(PIECE)
                if context.is_superseded():
                    return ReadOutcome(size, True, is_held)
            del waiter.changed[cached]  # before reading: what moves from here on marks it again
            request = cached.request
            limits = ReadLimits(left, at_least_one, is_first)
            try:
                data = self._read_partition(cached, params, limits, ())
            except NotCached as missing:
                later = await self._read_cold_partition(context, cached, params, limits, missing)
                if later is None:
                    return ReadOutcome(size, True, is_held)
                data = later
            results[cached] = data
            count = len(data.records)
            if count:
                size += count
                left = max(0, left - count)
                at_least_one = False
            if not data.settled:
                waiter.changed[cached] = None
            if data.error or data.diverging is not None or data.preferred_replica != NO_BROKER:
                is_urgent = True
            elif not is_first and params.is_follower and not data.held:
                # DeleteRecords waits until the follower has raised its log start
                is_urgent = is_urgent or 0 <= request.log_start_offset < data.log_start_offset
            is_held = is_held or data.held
        return ReadOutcome(size, is_urgent, is_held)

    def _count_throttled_bytes(self, answer: FetchAnswer) -> None:
        """Count the bytes of throttled partitions sent to a follower, including followers that are in sync."""
        quota = self._quota
        size = sum(
            len(data.records)
            for cached, data in answer.partitions
            if data.records and cached.topic_partition is not None and quota.covers(cached.topic_partition)
        )
        if size:
            quota.record(size)

    async def _read_cold_partition(
        self,
        context: FetchContext,
        cached: CachedPartition,
        params: FetchParams,
        limits: ReadLimits,
        missing: NotCached,
    ) -> FetchData | None:
        """Read one partition again whenever a thread has read from the device what was missing.

        None if a later request of the session arrives meanwhile.
        """
        read_before: dict[ColdRead, None] = {}
        while True:
            hosted = cached.hosted
            own_log = hosted.log if isinstance(hosted, Partition) else None
            try:
                if own_log is not None:  # else its role has changed, which the next read finds
                    await own_log.read_into_cache(missing.read)
                    read_before[missing.read] = None
                if context.is_superseded():
                    return None
                return self._read_partition(cached, params, limits, read_before)
            except NotCached as next_one:
                missing = next_one
            except StorageFailed:
                return FetchData(ErrorCode.KAFKA_STORAGE_ERROR)

    def _read_partition(
        self, cached: CachedPartition, params: FetchParams, limits: ReadLimits, read_before: Container[ColdRead]
    ) -> FetchData:
        """Read one partition; every failure becomes the error code of its result. Raises NotCached."""
        try:
            hosted = cached.hosted
            if not isinstance(hosted, Partition):  # it is None before the first read and after a change of roles
                hosted = self._find_and_subscribe(cached)
            else:
                _check_topic_id(hosted, cached)  # it may have had no log, or no id, when it was found
            return read_partition(hosted, cached, params, limits, read_before)
        except PartitionRefused as refusal:
            return FetchData(refusal.code)
        except StorageFailed:
            return FetchData(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptRecords as error:
            self._report_damage(cached, str(error))
            return FetchData(ErrorCode.CORRUPT_MESSAGE)

    def _report_damage(self, cached: CachedPartition, problem: str) -> None:
        """Write damaged records to the node's log, and have their segment checked."""
        topic_partition = cached.topic_partition
        assert topic_partition is not None
        log.error(
            "a fetch request asks for damaged records: they are not sent",
            partition=str(topic_partition),
            offset=cached.request.fetch_offset,
            why=problem,
            action=REPLACE_REPLICA,
        )
        self._on_corrupt(topic_partition, cached.request.fetch_offset)

    async def _without_damage(self, answer: FetchAnswer, params: FetchParams) -> FetchAnswer:
        """Cut the records of each partition before the first batch that does not match its checksum.

        Only batches of closed segments are checked. A partition without a batch before that one gets CORRUPT_MESSAGE.
        Of many records, most are checked as they are sent: a client that does not read must not cost their reading.
        """
        partitions = answer.partitions
        slots: list[int] = []
        if (rest := self._slices.begin(_find_file_slices(partitions, slots))) is not None:
            await rest
        if not slots:
            return answer
        may_be_later = params.magic >= MAGIC and params.knows_zstd  # else the records are converted
        checked = await asyncio.gather(*(self._intact_part(*partitions[slot], may_be_later) for slot in slots))
        for slot, (records, problem) in zip(slots, checked, strict=True):
            cached, data = partitions[slot]
            if problem is not None:
                self._report_damage(cached, problem)
            partitions[slot] = cached, data._replace(records=records)
            if problem is not None and not len(records):
                partitions[slot] = cached, FetchData(ErrorCode.CORRUPT_MESSAGE)
        return answer

    async def _intact_part(
        self, cached: CachedPartition, data: FetchData, may_be_later: bool
    ) -> tuple[Records, str | None]:
        """Return the records before the first damaged batch, and what is wrong with it; all where no check is needed.

        With `may_be_later`, many records are checked only at their beginning, and otherwise as they are sent.
        """
        records = data.records
        if not isinstance(records, FileSlice) or not records.is_closed:
            return records, None
        may_be_later = may_be_later and cached.topic_partition not in self._damaged
        try:
            if len(records) <= READ_AT_ONCE_BYTES:
                size, problem = intact_bytes(await _read_all(records))
            elif not may_be_later:
                size, problem = await records.intact_bytes()
            else:
                content = await _read_all(records.first(READ_AT_ONCE_BYTES))
                size, problem = intact_bytes(content)
                if problem is None and (size or entry_size(content) <= len(records)):
                    return records.checked_while_read(partial(self._on_late_damage, cached)), None
        except SliceLost:
            return records, None  # who reads them next notices
        except CorruptRecords as error:
            size, problem = 0, str(error)
        if problem is None and not size:
            problem = "the length in the batch header exceeds the bytes that follow"
        return records.first(size), problem

    def _on_late_damage(self, cached: CachedPartition, problem: str) -> None:
        """Report damage that was met while records were sent; the next fetch gets what is before it."""
        if cached.topic_partition is not None:
            self._damaged[cached.topic_partition] = None
        self._report_damage(cached, problem)

    async def _load_small_records(self, answer: FetchAnswer) -> FetchAnswer:
        """Read small results into memory, since sending them as a separate part of the response would cost more.

        A partition whose records cannot be read any more gets KAFKA_STORAGE_ERROR; the others are answered.
        """
        left = READ_AT_ONCE_BYTES
        partitions = answer.partitions
        slots: list[int] = []
        if (rest := self._slices.begin(_find_file_slices(partitions, slots))) is not None:
            await rest
        for slot in slots:
            cached, data = partitions[slot]
            records = data.records
            if isinstance(records, FileSlice) and (len(records) <= left or len(records) < LARGE_BYTES):
                left -= len(records)
                try:
                    partitions[slot] = cached, data._replace(records=await _read_all(records))
                except SliceLost as lost:
                    log.warning(
                        "records of a fetch response cannot be read any more: the partition gets KAFKA_STORAGE_ERROR",
                        partition=str(cached.topic_partition),
                        why=str(lost),
                    )
                    partitions[slot] = cached, FetchData(ErrorCode.KAFKA_STORAGE_ERROR)
        return answer

    def _find_and_subscribe(self, cached: CachedPartition) -> Partition:
        """Return the hosted partition, and let it mark `cached` as changed whenever its data changes.

        Raises PartitionRefused where the partition is unknown, elsewhere, offline, or has another topic id.
        """
        topic_id = cached.request.topic_id
        if cached.request.topic is None:
            name = self._hosted.metadata.topic_name(topic_id)
            if name is None:
                raise PartitionRefused(
                    ErrorCode.UNKNOWN_TOPIC_ID, f"no topic in the metadata has the topic id {topic_id}"
                )
            cached.request = cached.request._replace(topic=name)
        topic_partition = cached.topic_partition
        assert topic_partition is not None
        partition = self._hosted.find(topic_partition)
        _check_topic_id(partition, cached)
        cached.hosted = partition
        cached.subscribe()
        return partition


def _check_topic_id(partition: Partition, cached: CachedPartition) -> None:
    """Raise PartitionRefused where the log of the partition belongs to another topic than the one requested."""
    requested, own = cached.request.topic_id, partition.topic_id
    if requested not in (own, ZERO_ID) and own is not None:
        raise PartitionRefused(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{partition.topic_partition} has topic id {own}, the request names {requested}",
        )


def _find_file_slices(partitions: Sequence[tuple[CachedPartition, FetchData]], slots: list[int]) -> Iterator[None]:
    """Put the positions of results whose records are slices of files into `slots`; pauses after each result."""
    for slot, (_, data) in enumerate(partitions):
        if isinstance(data.records, FileSlice):
            slots.append(slot)
        yield


async def _read_all(records: FileSlice) -> bytes | memoryview:
    """All bytes of a slice, from the page cache if they are there, else in a thread. Raises SliceLost."""
    size = len(records)
    content = records.read_cached(0, size)
    if content is None or len(content) < size:
        content = await records.read(0, size)
    return memoryview(content)
