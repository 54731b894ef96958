"""A consumer: it follows partitions from their beginning, and reports what each poll returns."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import UnsupportedVersion
from klamm.client.offsets import EARLIEST, list_offsets
from klamm.client.read_committed import Aborted, AbortedTransactions, is_abort_marker
from klamm.client.records import FetchLimits, FetchPosition, fetch_request, partition_data_of
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.locator import TRANSIENT, Leader, Locator
from klamm.sim.cluster_tier.keyed_records import name_of
from klamm.sim.cluster_tier.trace import ClientEvent, CorruptPoll, Polled, PositionLost
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import batches, crc_is_valid, crc_mismatch
from klamm.wire.records.record import records

_BACKOFF_S: Final = 0.1
_SEEK_S: Final = 5.0
_WAITS_MS: Final = (0, 100, 500)
_MAX_BYTES: Final = (1, 500, 1 << 20)


class Decoded(NamedTuple):
    """The records of one Fetch; `control` and `aborted` name those that a consumer of committed data passes over."""

    records: tuple[tuple[int, bytes], ...] = ()
    control: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()
    next_offset: int = -1
    """After the last batch, of which compaction may have removed the last records; -1 without a batch."""
    timestamps: tuple[int, ...] = ()
    """Of the records, in ms."""

    @property
    def visible(self) -> list[tuple[int, bytes]]:
        """Offset and value of the records that are data, and of no aborted transaction."""
        return [(o, value) for o, value in self.records if o not in self.control and o not in self.aborted]


class Read(NamedTuple):
    """What one Fetch answered; `error` is NONE where it answered records."""

    error: ErrorCode
    found: Decoded = Decoded()
    high_watermark: int = -1
    log_start: int = -1
    last_stable_offset: int = -1


class Reader:
    """Reads partitions from their leaders, or from followers, in the leader epoch that it knows."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.locator = Locator(client)

    async def read(self, partition: TopicPartition, offset: int, limits: FetchLimits) -> Read:
        """Fetch from the partition's leader at `offset`, and return its answer.

        Raises ConnectionLost, RetriableError, and CorruptRecords where a batch is damaged.
        """
        return await self.read_from(await self.locator.leader(partition), partition, offset, limits)

    async def read_from(self, leader: Leader, partition: TopicPartition, offset: int, limits: FetchLimits) -> Read:
        """Fetch as `read` does, in the epoch of this leader; its address may be that of a follower."""
        topic_id = leader.topic_id if leader.topic_id != ZERO_ID else None
        request = fetch_request(partition, topic_id, FetchPosition(offset, leader.epoch), limits)
        data = await self._ask(leader, request, partition)
        if data.error_code:
            self.locator.forget(partition)
            return Read(ErrorCode(data.error_code))
        aborted = [Aborted(a.first_offset, a.producer_id) for a in data.aborted_transactions or ()]
        found = records_from(data.records or b"", offset, aborted)
        return Read(ErrorCode.NONE, found, data.high_watermark, data.log_start_offset, data.last_stable_offset)

    async def start_of(self, partition: TopicPartition) -> int:
        """Ask the leader for the log start offset. Raises KlammError."""
        cluster, now_s = self.client.cluster, asyncio.get_running_loop().time
        starts = await self.client.run(list_offsets(cluster, {partition: EARLIEST}, Backoff(now_s, _SEEK_S)))
        return starts[partition]

    async def offset_for(self, partition: TopicPartition, timestamp: int) -> int:
        """Ask the leader for the first offset at or after this time; -1 if no record is so late. Raises KlammError."""
        cluster, now_s = self.client.cluster, asyncio.get_running_loop().time
        found = await self.client.run(list_offsets(cluster, {partition: timestamp}, Backoff(now_s, _SEEK_S)))
        return found[partition]

    async def probe(self, partition: TopicPartition, leader_epoch: int) -> ErrorCode:
        """Send a Fetch with this leader epoch, and return the leader's error code.

        Raises ConnectionLost, RetriableError.
        """
        leader = await self.locator.leader(partition)
        topic_id = leader.topic_id if leader.topic_id != ZERO_ID else None
        request = fetch_request(partition, topic_id, FetchPosition(0, leader_epoch), FetchLimits(1, 0, 0))
        data = await self._ask(leader, request, partition)
        return ErrorCode(data.error_code)

    async def _ask(self, leader: Leader, request: Request, partition: TopicPartition) -> Any:
        """Send the Fetch to the leader and return the partition's data.

        After a lost connection the leader is looked up again.
        """
        try:
            answer = await self.client.ask(leader.address, request)
        except (*TRANSIENT, UnsupportedVersion):
            self.locator.forget(partition)
            raise
        topic_id = leader.topic_id if leader.topic_id != ZERO_ID else None
        return partition_data_of(answer, partition, topic_id)


def records_from(content: bytes, offset: int, aborted: Iterable[Aborted] = ()) -> Decoded:
    """Decode offset and value of each record from this offset on, up to a damaged batch.

    As in Kafka's consumer, records before the damage are returned first. Raises CorruptRecords where there are none.
    """
    found: list[tuple[int, bytes]] = []
    timestamps: list[int] = []
    control: set[int] = set()
    hidden: set[int] = set()
    next_offset = -1
    transactions = AbortedTransactions(aborted)
    try:
        for header in batches(content):
            if not crc_is_valid(content, header):
                raise crc_mismatch(header)
            decoded = [r for r in records(content, header) if r.offset >= offset]
            is_abort = partial(is_abort_marker, content, header)
            if transactions.hide(header.last_offset, header.producer_id, header.attributes, is_abort):
                hidden.update(r.offset for r in decoded)
            if header.is_control:
                control.update(r.offset for r in decoded)
            found.extend((r.offset, name_of(r)) for r in decoded)
            timestamps.extend(r.timestamp for r in decoded)
            next_offset = header.next_offset
    except CorruptRecords:
        if not found:
            raise
    return Decoded(tuple(found), frozenset(control), frozenset(hidden), next_offset, tuple(timestamps))


class Consumer:
    """`await run()` until cancelled; one partition after the other, of those that there are.

    With `reads_followers` it reads from random replicas, as a consumer does whose rack the leader's replica selector
    takes into account (KIP-392). Where a follower does not answer with records or has less than the consumer has read,
    the next read goes to the leader.
    """

    def __init__(
        self,
        name: str,
        client: AsyncClient,
        rng: Rng,
        partitions: Callable[[], Sequence[TopicPartition]],
        tell: Callable[[ClientEvent], None],
        *,
        reads_committed: bool = False,
        reads_followers: bool = False,
    ) -> None:
        self._name = name
        self._reads_committed = reads_committed
        self._reads_followers = reads_followers
        self._only_leader: set[TopicPartition] = set()
        """Partitions of which a follower gave no records: the leader is asked next."""
        self._reader = Reader(client)
        self._rng = rng
        self._partitions = partitions
        self._tell = tell
        self._positions: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Poll the readable partitions in turn without end, and report what each poll returns."""
        while True:
            partitions = self._partitions()
            self._positions = {p: offset for p, offset in self._positions.items() if p in partitions}
            for partition in partitions:
                try:
                    await self._poll(partition)
                except CorruptRecords as error:
                    self._tell(CorruptPoll(self._name, partition, str(error)))
                except KlammError:
                    self._reader.locator.forget(partition)
                    self._only_leader.add(partition)
                    await asyncio.sleep(_BACKOFF_S)
            await asyncio.sleep(_BACKOFF_S)

    def _choose_follower(self, partition: TopicPartition, leader: Leader) -> tuple[int, Address] | None:
        """Id and address of the follower to read from next; None where that is the leader."""
        if self._reads_followers and leader.followers and partition not in self._only_leader:
            return self._rng.choice(leader.followers)
        self._only_leader.discard(partition)
        return None

    async def _poll(self, partition: TopicPartition) -> None:
        """Read once from the partition at the consumer's position, report the records, and advance the position."""
        position = self._positions.setdefault(partition, 0)
        limits = FetchLimits(
            self._rng.choice(_MAX_BYTES), self._rng.choice(_WAITS_MS), read_committed=self._reads_committed
        )
        leader = await self._reader.locator.leader(partition)
        chosen = self._choose_follower(partition, leader)
        follower, address = chosen if chosen is not None else (None, leader.address)
        asked_s = asyncio.get_running_loop().time()
        read = await self._reader.read_from(leader._replace(address=address), partition, position, limits)
        if follower is not None and not read.found.records:
            self._only_leader.add(partition)
        if read.error is ErrorCode.OFFSET_OUT_OF_RANGE and follower is None:
            await self._seek(partition, position)
        elif read.error is ErrorCode.NONE:
            self._tell(
                Polled(
                    self._name,
                    partition,
                    leader.id,
                    leader.epoch,
                    position,
                    read.found.records,
                    read.high_watermark,
                    read.log_start,
                    read.found.control,
                    read.found.aborted if self._reads_committed else None,
                    follower,
                    asked_s,
                    limits.max_wait_ms / 1000,
                    asyncio.get_running_loop().time(),
                )
            )
            if read.found.records:
                self._positions[partition] = read.found.records[-1][0] + 1

    async def _seek(self, partition: TopicPartition, position: int) -> None:
        """Report that the consumer's position is out of range, and continue at the log start. Raises KlammError."""
        self._positions[partition] = await self._reader.start_of(partition)
        self._tell(PositionLost(self._name, partition, position))
