"""Reading partitions continuously with the asyncio client: one fetch per leader is in flight, results come in a queue.

What is read and not yet taken is bounded: when the queue is full, no more is fetched. After a change of the leader, a
position is validated before it is fetched from (KIP-320). Source: Fetcher.java, OffsetFetcher.java.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RetriableError, retriable_or_raise
from klamm.client.leaders import NO_EPOCH, OffsetAndEpoch
from klamm.client.offsets import EARLIEST, LATEST, find_offsets
from klamm.client.per_leader import PerLeader
from klamm.client.read_committed import Aborted
from klamm.client.records import FetchLimits, FetchPosition, fetch_many_request, partitions_of
from klamm.client.steps import Ask, one_step
from klamm.client.truncations import Truncation, find_truncations, truncation_of
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.messages import FetchResponse, FetchResponsePartitionData
from klamm.wire.records import CorruptRecords, batches

MAX_QUEUED: Final = 4
"""Partitions' results that wait to be taken; each has at most `max_partition_bytes`, or one larger batch."""
LIMITS: Final = FetchLimits(max_bytes=8 << 20, max_wait_ms=500, max_partition_bytes=1 << 20)


class Fetched(NamedTuple):
    """What one fetch found in one partition; without records where there were none yet."""

    partition: TopicPartition
    position: int
    """The offset that was asked for: the first batch may begin before it."""
    next_position: int
    records: bytes | memoryview
    end: int
    """High watermark; with read_committed, last stable offset."""
    aborted: Collection[Aborted]
    leader_epoch: int = NO_EPOCH
    """That of the record before `next_position`."""

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has everything that is readable now."""
        return self.next_position >= self.end


class Gap(NamedTuple):
    """Offsets that a reader expected and the log does not have any more."""

    partition: TopicPartition
    position: int
    next_position: OffsetAndEpoch
    reason: str


class _Position(NamedTuple):
    """Where the next fetch begins. `at` is validated against the log of the leader of epoch `validated`."""

    at: OffsetAndEpoch
    validated: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The epoch of the batch before it, where this reader fetched that one."""


Taken: TypeAlias = Fetched | Gap


class LogReader:
    """`start` it, `take` what it fetched and which offsets are lost, in order; `close` it."""

    def __init__(
        self,
        client: AsyncClient,
        positions: Mapping[TopicPartition, OffsetAndEpoch],
        limits: FetchLimits,
        timeout_s: float,
        reset: int = EARLIEST,
    ) -> None:
        """`timeout_s`: how long a partition may be unreadable before `take` raises Unreachable.

        `reset`: EARLIEST or LATEST, where to continue after a truncation of which the leader does not know the offset.
        """
        self._client = client
        self._cluster = client.cluster
        self._positions = {p: _Position(at) for p, at in positions.items()}
        self._limits = limits
        self._timeout_s = timeout_s
        self._reset = reset
        self._fetched: asyncio.Queue[Taken | Exception] = asyncio.Queue(MAX_QUEUED)
        self._fetches = PerLeader(client, lambda: self._positions, self._fetch, "reading", timeout_s)
        self._main: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that fetches the partitions."""
        self._main = asyncio.get_running_loop().create_task(self._run(), name="log-reader")

    async def close(self) -> None:
        """Stop fetching; results that were not taken yet are dropped."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
        await self._fetches.close()

    async def _run(self) -> None:
        """Fetch until an error that no retry can repair; `take` raises it."""
        try:
            await self._fetches.run()
        except Exception as error:  # noqa: BLE001  also a bug: else `take` waits for ever
            await self._fetched.put(error)

    async def take(self) -> Taken:
        """The next result, or a gap after the results before.

        Raises Unreachable, RequestRefused, TopicGone, UnsupportedVersion, CorruptRecords.
        """
        fetched = await self._fetched.get()
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def stop_reading(self, partition: TopicPartition) -> None:
        """Fetch this partition no more; results that were fetched before may still come."""
        self._positions.pop(partition, None)

    # ---- the fetches

    async def _fetch(self, address: Address, partitions: Collection[TopicPartition]) -> None:
        """Fetch partitions from their leader and queue the results; the leader has to have what was read before."""
        valid = await self._validate([p for p in partitions if p in self._positions])
        offsets = {p: self._positions[p].at.offset for p in valid if p in self._positions}
        if not offsets:
            return
        asked = {
            p: FetchPosition(offset, self._positions[p].validated, self._positions[p].last_epoch)
            for p, offset in offsets.items()
        }
        request = fetch_many_request(asked, self._cluster.topic_ids, self._limits)
        try:
            response: FetchResponse = await self._client.run(one_step(Ask(address, request)))
            found = partitions_of(response, self._cluster.topic_ids)
        except (ConnectionLost, RetriableError) as error:
            for partition in offsets:
                self._fetches.retry(partition, error)
            return
        for partition, position in offsets.items():
            if partition not in found:
                self._fetches.retry(
                    partition, RetriableError(f"the Fetch response of the leader does not contain {partition}")
                )
            elif partition in self._positions:
                await self._on_data(partition, position, found[partition])
                if found[partition].error_code:
                    self._cluster.learn_leader(partition, found[partition], response)

    async def _on_data(self, partition: TopicPartition, position: int, data: FetchResponsePartitionData) -> None:
        """Queue a partition's data and move its position after it; or handle its error."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._on_out_of_range(partition, position)
            return
        if data.error_code:
            self._fetches.retry(partition, RetriableError(retriable_or_raise(partition, data.error_code)))
            return
        self._fetches.succeeded(partition)
        diverging = data.diverging_epoch
        if diverging.end_offset >= 0:
            await self._on_divergence(partition, OffsetAndEpoch(diverging.end_offset, diverging.epoch))
            return
        records = data.records or b""
        after = self._position_after(partition, position, records)
        end = data.last_stable_offset if self._limits.read_committed else data.high_watermark
        aborted = [Aborted(a.first_offset, a.producer_id) for a in data.aborted_transactions or ()]
        if records:
            # a leader fills the response in the order of the request, so the others come first in the next one
            del self._positions[partition]
        self._positions[partition] = after
        next_position, epoch = after.at
        await self._fetched.put(Fetched(partition, position, next_position, records, end, aborted, epoch))

    def _position_after(self, partition: TopicPartition, position: int, records: bytes | memoryview) -> _Position:
        """The position after the last complete batch. Raises CorruptRecords."""
        try:
            *_, last = [None, *batches(records)]
        except CorruptRecords as error:
            raise CorruptRecords(
                f"{partition}: the answer to a fetch from offset {position} cannot be decoded: {error}"
            ) from error
        if last is None and records:
            raise CorruptRecords(
                f"{partition}: the answer to a fetch from offset {position} has {len(records)} bytes, but no "
                "complete batch"
            )
        before = self._positions[partition]
        if last is None or last.next_offset <= position:
            return before
        epoch = last.partition_leader_epoch
        return before._replace(at=OffsetAndEpoch(last.next_offset, epoch), last_epoch=epoch)

    # ---- what is not there

    async def _on_out_of_range(self, partition: TopicPartition, position: int) -> None:
        """After OFFSET_OUT_OF_RANGE, continue at the log start, or at the log end if that is lower; report the gap."""
        start, end = await self._find_offset(partition, EARLIEST), await self._find_offset(partition, LATEST)
        if partition not in self._positions:
            return
        if start.offset <= position <= end.offset:
            # a leader also refuses an epoch of which it knows nothing: validation says so
            self._positions[partition] = self._positions[partition]._replace(validated=NO_EPOCH, last_epoch=NO_EPOCH)
            self._fetches.retry(partition, RetriableError(f"{partition}: the leader refuses offset {position}"))
            return
        is_deleted = position < start.offset
        reason = (
            f"retention or a DeleteRecords request deleted them; the log begins at offset {start.offset}"
            if is_deleted
            else f"the log ends at offset {end.offset}: it was truncated, or the topic was created again"
        )
        await self._go_on(partition, start._replace(leader_epoch=NO_EPOCH) if is_deleted else end, reason)

    async def _find_offset(self, partition: TopicPartition, time: int) -> OffsetAndEpoch:
        """Ask for the log start (EARLIEST) or end (LATEST). Raises Unreachable, RequestRefused, TopicGone."""
        return (await self._client.run(find_offsets(self._cluster, {partition: time}, self._backoff())))[partition]

    async def _go_on(self, partition: TopicPartition, at: OffsetAndEpoch, reason: str) -> None:
        """Continue at another position, and queue the gap before it."""
        if partition in self._positions:
            before = self._positions[partition].at.offset
            self._positions[partition] = _Position(at)
            await self._fetched.put(Gap(partition, before, at, reason))

    async def _validate(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Ask leaders that are new whether their logs have what is before the positions; return what may be fetched.

        Left out are truncated logs, and partitions whose leader turned out to be another one.
        """
        epochs = {p: self._cluster.leader_epoch(p) for p in partitions}
        changed = {p: self._positions[p].at for p in partitions if self._positions[p].validated != epochs[p]}
        truncated = await self._client.run(find_truncations(self._cluster, changed, self._backoff()))
        for partition in changed:
            if partition in truncated:
                await self._on_truncation(truncated[partition])
            elif partition in self._positions:
                self._positions[partition] = self._positions[partition]._replace(validated=epochs[partition])
        return [p for p in partitions if p not in truncated and self._cluster.leader_epoch(p) == epochs[p]]

    async def _on_divergence(self, partition: TopicPartition, end: OffsetAndEpoch) -> None:
        """Continue at the offset where the leader's log diverges, which it returned in a Fetch response."""
        position = self._positions[partition]
        at = OffsetAndEpoch(position.at.offset, position.last_epoch)
        epoch = self._cluster.leader_epoch(partition)
        truncation = truncation_of(partition, at, end, epoch) or Truncation(partition, at, at.offset, epoch)
        await self._on_truncation(truncation)

    async def _on_truncation(self, truncation: Truncation) -> None:
        """Go on at the first offset where the log differs, as Kafka's consumer does, else at `reset`."""
        partition, offset = truncation.partition, truncation.offset
        if offset is None:
            at = await self._find_offset(partition, self._reset)
        else:
            at = OffsetAndEpoch(offset, truncation.leader_epoch)
        await self._go_on(partition, at, truncation.reason)

    def _backoff(self) -> Backoff:
        """The pauses between attempts, until the timeout."""
        return Backoff(asyncio.get_running_loop().time, self._timeout_s)
