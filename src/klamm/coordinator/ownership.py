"""Which partitions of its topic a coordinator serves, and loading them when this broker becomes their leader.

Source: GroupMetadataManager.scala, TransactionStateManager.scala (3.9). An instruction of an older leader epoch that
comes late is ignored (KAFKA-10614).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.tasks import Tasks
from klamm.coordinator.topic_partitions import CoordinatorLog
from klamm.model.errors import ErrorCode, KlammError
from klamm.replication.leadership import LeadershipChange
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import PIECE, Slices
from klamm.wire.records import BatchHeader, CorruptRecords, batches, crc_is_valid
from klamm.wire.records.batch import crc_mismatch

log = structlog.get_logger("coordinator")

FIRST_RETRY_BACKOFF_S: Final = 1.0
MAX_RETRY_BACKOFF_S: Final = 30.0
"""Before a load that ended with an unexpected error begins again."""

AddBatch = Callable[[Buffer, BatchHeader], Iterator[int]]
"""Takes what one batch says; yields before each further piece the number of its records. Raises CorruptRecords."""


@dataclass(slots=True, eq=False)
class Loading:
    """One load of a partition; it ends early where another instruction takes its place."""

    epoch: int
    """Of the newest instruction to lead the partition."""


@dataclass(slots=True, eq=False)
class CoordinatedPartition:
    """One partition of the topic as its coordinator sees it."""

    epoch: int | None = None
    """Of the newest instruction: an older one that comes late is ignored. None where there is no replica here."""
    loading: Loading | None = None
    is_owned: bool = False

    @property
    def availability(self) -> ErrorCode:
        """COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR; NONE where this broker serves the partition."""
        if self.loading is not None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if self.is_owned else ErrorCode.NOT_COORDINATOR


class PartitionOwnership(ABC):
    """One partition is loaded after the other, so that a broker that leads all of them holds one piece at a time."""

    def __init__(
        self,
        topic: str,
        partitions_log: CoordinatorLog,
        tasks: Tasks,
        slices: Slices,
        buffer_size: int,
        journal: DecisionJournal,
    ) -> None:
        """`buffer_size`: how many bytes are read at once."""
        self._topic = topic
        self._log = partitions_log
        self._tasks = tasks
        self._slices = slices
        self._buffer_size = buffer_size
        self._journal = journal
        self._one_at_a_time = asyncio.Lock()
        self._works = 0

    @abstractmethod
    def partition(self, number: int) -> CoordinatedPartition:
        """Return the state of partition `number`: whether it is owned or being loaded."""

    @abstractmethod
    async def load(self, number: int, loading: Loading) -> int:
        """Read the partition and keep its content, unless `is_wanted` is false for `loading` by then.

        Returns how many groups or transactions were loaded.
        """

    @abstractmethod
    def unload(self, number: int) -> int:
        """Remove what was loaded from partition `number` from memory; return how many groups or transactions."""

    @abstractmethod
    def observe_load(self, duration_ms: float) -> None:
        """Record, for the metrics, a loaded partition and how long it took."""

    def on_leadership_change(self, change: LeadershipChange) -> None:
        """Load the coordinator's partitions that this broker begins to lead, and unload those it no longer leads."""
        for partition in change.leaders:
            if partition.topic_partition.topic == self._topic:
                self.elected(partition.topic_partition.partition, partition.leader_epoch)
        for partition in change.followers:
            if partition.topic_partition.topic == self._topic:
                self.resigned(partition.topic_partition.partition, partition.leader_epoch)
        for topic_partition in (*change.deleted, *change.offline):
            if topic_partition.topic == self._topic:
                self.resigned(topic_partition.partition, None)

    def elected(self, number: int, epoch: int) -> None:
        """Load the partition, because this broker became its leader.

        Does nothing where it is loaded or being loaded already, or a newer leader epoch is known.
        """
        partition = self.partition(number)
        if self._is_outdated(number, partition, epoch):
            return
        partition.epoch = epoch
        if partition.loading is not None:
            partition.loading.epoch = epoch
        if partition.is_owned or partition.loading is not None:
            return
        partition.loading = Loading(epoch)
        self._tasks.spawn(self._load_in_turn(number, partition, partition.loading))

    def resigned(self, number: int, epoch: int | None) -> None:
        """Unload the partition, because another broker leads it, or its replica here is deleted or offline.

        Where it is deleted or offline, `epoch` is None: the partition is unloaded in any case, and the known epoch is
        forgotten. The topic may be made anew, and its leader epochs begin at 0 again.
        """
        partition = self.partition(number)
        if epoch is not None and self._is_outdated(number, partition, epoch):
            return
        partition.epoch = epoch
        partition.loading, partition.is_owned = None, False
        if count := self.unload(number):
            log.info(
                "groups or transactions of a partition were unloaded, because this broker does not lead it any more",
                partition=self._name(number),
                epoch=epoch,
                unloaded=count,
            )
            self._journal.partition(self._topic, number, "unloaded", leader_epoch=epoch, count=count)

    def _is_outdated(self, number: int, partition: CoordinatedPartition, epoch: int) -> bool:
        """Whether a newer leader epoch than this is known, so that a change of leadership is ignored."""
        if partition.epoch is None or epoch >= partition.epoch:
            return False
        log.info(
            "leadership change with an older leader epoch ignored",
            partition=self._name(number),
            epoch=epoch,
            known=partition.epoch,
        )
        return True

    async def _load_in_turn(self, number: int, partition: CoordinatedPartition, loading: Loading) -> None:
        """Load the partition once no other is being loaded, and then serve it.

        After an unexpected error the load begins again, after a pause: a part of the partition must not be served, and
        the partition must not wait for a restart of the broker. Ends where a later change of leader has replaced this
        loading.
        """
        backoff_s = FIRST_RETRY_BACKOFF_S
        while partition.loading is loading:
            async with self._turn():
                if partition.loading is not loading:
                    return
                try:
                    await self._load_and_serve(number, partition, loading)
                except Exception:
                    log.exception(
                        "groups or transactions of a partition could not be loaded because of an unexpected error; "
                        "trying again after a pause",
                        partition=self._name(number),
                        pause_s=backoff_s,
                        action="Report this as a bug in klamm, with the stack trace.",
                    )
                    if partition.loading is loading:
                        self.drop_part(number)
            if partition.loading is loading:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_RETRY_BACKOFF_S)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until no other partition is being loaded."""
        with self.long_work():
            async with self._one_at_a_time:
                yield

    @contextmanager
    def long_work(self) -> Iterator[None]:
        """Do work in time slices that may create or free many objects.

        When the last of such works has ended, the garbage collector has all objects again, see `memory.LongWork`.
        """
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1
            if not self._works:
                self._slices.close()

    async def _load_and_serve(self, number: int, partition: CoordinatedPartition, loading: Loading) -> None:
        """Load the partition, and serve it if this broker still leads it then."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        count = await self.load(number, loading)
        if partition.loading is loading and not self.is_wanted(number, loading):
            self._end_without_leadership(number, partition)
        elif partition.loading is loading:
            duration_ms = (loop.time() - began) * 1000
            partition.loading, partition.is_owned = None, True
            self.observe_load(duration_ms)
            self._journal.partition(self._topic, number, "loaded", leader_epoch=partition.epoch, count=count,
                                    ms=round(duration_ms))  # fmt: skip
            log.info(
                "groups or transactions of a partition were loaded",
                partition=self._name(number),
                epoch=partition.epoch,
                loaded=count,
                ms=round(duration_ms),
            )

    def drop_part(self, number: int) -> None:
        """Remove what a load of partition `number` has loaded before it failed: the next one loads it again."""
        self.unload(number)

    def is_wanted(self, number: int, loading: Loading) -> bool:
        """Whether what was read of the partition may be served: no later instruction came, and this broker leads it.

        The replica loses its leadership some time before the instruction that says so arrives here, and says nothing
        where its log directory fails. A part of the partition must not be served then: a group would be without its
        committed offsets, and a transaction that ended long ago would get its markers again. Apache Kafka serves it.
        """
        return self.partition(number).loading is loading and self._log.bounds(number) is not None

    def _end_without_leadership(self, number: int, partition: CoordinatedPartition) -> None:
        """Drop what was loaded of a partition that this broker does not lead any more."""
        partition.loading = None
        self.unload(number)
        log.info(
            "groups or transactions of a partition are not served: this broker does not lead it any more",
            partition=self._name(number),
            epoch=partition.epoch,
        )

    async def read_all(self, number: int, loading: Loading, add_batch: AddBatch) -> None:
        """Pass each batch of partition `number` of the coordinator's topic to `add_batch`; an error ends the reading.

        What was read until then stays loaded, and the error is logged, if this broker still leads the partition.
        """
        try:
            await self._read_all(number, loading, add_batch)
        except KlammError as error:
            if not self.is_wanted(number, loading):
                return
            log.error(
                "groups or transactions of a partition were loaded only in part: reading the partition failed",
                partition=self._name(number),
                reason=str(error),
                action="Repair the cause and restart this broker, or move the leadership of the partition.",
            )

    async def _read_all(self, number: int, loading: Loading, add_batch: AddBatch) -> None:
        """Read the partition from log start to log end and pass each batch to `add_batch`. Raises KlammError."""
        bounds = self._log.bounds(number)
        offset = 0 if bounds is None else bounds.start
        partition = self.partition(number)
        while bounds is not None and offset < bounds.end and partition.loading is loading:
            piece = await self._log.read(number, offset, self._buffer_size)
            before = offset
            for header in batches(piece):
                await self._slices.checkpoint(max(1, min(header.record_count, PIECE)))
                if header.last_offset >= offset:
                    await self._add_batch(number, add_batch, piece, header)
                    offset = header.next_offset
            if offset == before:
                log.error(
                    "groups or transactions of a partition were loaded only in part: a batch is missing",
                    partition=self._name(number),
                    offset=offset,
                    log_end=bounds.end,
                    action="Check the disk, then restart this broker.",
                )
                return
            bounds = self._log.bounds(number)

    async def _add_batch(self, number: int, add_batch: AddBatch, piece: Buffer, header: BatchHeader) -> None:
        """Pass one batch to `add_batch`, with a checkpoint between its pieces; a corrupt one is skipped and logged."""
        try:
            if not crc_is_valid(piece, header):
                raise crc_mismatch(header)
            for count in add_batch(piece, header):
                await self._slices.checkpoint(count)
        except CorruptRecords as error:
            log.error(
                "corrupt batch skipped while loading groups or transactions of a partition: some of them may be "
                "out of date",
                partition=self._name(number),
                reason=str(error),
                action="Check the disk.",
            )

    def _name(self, number: int) -> str:
        """Return the name of partition `number`, as in `__consumer_offsets-7`."""
        return f"{self._topic}-{number}"
