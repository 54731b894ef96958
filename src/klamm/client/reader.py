"""Reading partitions continuously with the asyncio client: one fetch per leader is in flight, results come in a queue.

What is read and not yet taken is bounded: when the queue is full, no more is fetched. Source: Fetcher.java.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RetriableError, retriable_or_raise
from klamm.client.offsets import EARLIEST, LATEST, list_offsets
from klamm.client.per_leader import PerLeader
from klamm.client.read_committed import Aborted
from klamm.client.records import FetchLimits, fetch_many_request, partitions_of
from klamm.client.steps import Ask, one_step
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

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has everything that is readable now."""
        return self.next_position >= self.end


class Gap(NamedTuple):
    """Offsets that a reader expected and the log does not have any more."""

    partition: TopicPartition
    position: int
    next_position: int
    reason: str


class LogReader:
    """`start` it, `take` what it fetched, `close` it. `on_gap` is told of offsets that are lost."""

    def __init__(
        self,
        client: AsyncClient,
        positions: Mapping[TopicPartition, int],
        limits: FetchLimits,
        timeout_s: float,
        on_gap: Callable[[Gap], None],
    ) -> None:
        """`timeout_s`: how long a partition may be unreadable before `take` raises Unreachable."""
        self._client = client
        self._cluster = client.cluster
        self._positions = dict(positions)
        self._limits = limits
        self._timeout_s = timeout_s
        self._on_gap = on_gap
        self._fetched: asyncio.Queue[Fetched | Exception] = asyncio.Queue(MAX_QUEUED)
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

    async def take(self) -> Fetched:
        """The next result. Raises Unreachable, RequestRefused, TopicGone, UnsupportedVersion, CorruptRecords."""
        fetched = await self._fetched.get()
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def stop_reading(self, partition: TopicPartition) -> None:
        """Fetch this partition no more; results that were fetched before may still come."""
        self._positions.pop(partition, None)

    # ---- the fetches

    async def _fetch(self, address: Address, partitions: Collection[TopicPartition]) -> None:
        """Fetch partitions from their leader and queue the results."""
        offsets = {p: self._positions[p] for p in partitions if p in self._positions}
        if not offsets:
            return
        request = fetch_many_request(offsets, self._cluster.topic_ids, self._limits)
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

    async def _on_data(self, partition: TopicPartition, position: int, data: FetchResponsePartitionData) -> None:
        """Queue a partition's data and move its position behind it; or handle its error."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._on_out_of_range(partition, position)
            return
        if data.error_code:
            self._fetches.retry(partition, RetriableError(retriable_or_raise(partition, data.error_code)))
            return
        self._fetches.succeeded(partition)
        records = data.records or b""
        after = self._position_after(partition, position, records)
        end = data.last_stable_offset if self._limits.read_committed else data.high_watermark
        aborted = [Aborted(a.first_offset, a.producer_id) for a in data.aborted_transactions or ()]
        self._positions[partition] = after
        await self._fetched.put(Fetched(partition, position, after, records, end, aborted))

    def _position_after(self, partition: TopicPartition, position: int, records: bytes | memoryview) -> int:
        """The offset after the last complete batch. Raises CorruptRecords."""
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
        return position if last is None else max(position, last.next_offset)

    async def _on_out_of_range(self, partition: TopicPartition, position: int) -> None:
        """After OFFSET_OUT_OF_RANGE, continue at the log start, or at the log end if that is lower; report the gap."""
        backoff = Backoff(asyncio.get_running_loop().time, self._timeout_s)
        start = (await self._client.run(list_offsets(self._cluster, {partition: EARLIEST}, backoff)))[partition]
        end = (await self._client.run(list_offsets(self._cluster, {partition: LATEST}, backoff)))[partition]
        if start <= position <= end:
            self._fetches.retry(partition, RetriableError(f"{partition}: the leader refuses offset {position}"))
            return
        is_deleted = position < start
        reason = (
            f"retention or a DeleteRecords request deleted them; the log begins at offset {start}"
            if is_deleted
            else f"the log ends at offset {end}: it was truncated, or the topic was created again"
        )
        self._positions[partition] = start if is_deleted else end
        self._on_gap(Gap(partition, position, self._positions[partition], reason))
