"""A client that copies records of one partition to others exactly once: in transactions, with the offset it has read.

Its producers replace each other under one transactional id, also while the former one still runs: the newest fences
it, and continues at the group's committed offset.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import UnsupportedVersion
from klamm.client.group_member import fetch_committed
from klamm.client.records import FetchLimits
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.transactions import Transactions
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.cluster_tier.clients.batch_sender import BatchSender
from klamm.sim.cluster_tier.clients.consumer import Reader
from klamm.sim.cluster_tier.clients.locator import TRANSIENT
from klamm.sim.cluster_tier.history import COMPACTED
from klamm.sim.cluster_tier.keyed_records import COPY_OF
from klamm.sim.cluster_tier.trace import ClientEvent, ProducerStarted, Send, Transaction, TransactionState
from klamm.wire.records import CorruptRecords
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import NewRecord

_TIMEOUT_MS: Final = 6_000
"""transaction.timeout.ms."""
_PATIENCE_S: Final = 8.0
"""For one request to a coordinator, or one batch, with all attempts."""
_LIFE_S: Final = 8.0
"""Mean time until the next producer takes over."""
_PAUSE_S: Final = 0.3
_ABORTS: Final = 0.2
"""Which part of the transactions is aborted."""
_LIMITS: Final = FetchLimits(1_000, 500, read_committed=True)


class Copier:
    """`await run()` until cancelled; it starts producers as long as there is a source."""

    def __init__(
        self,
        name: str,
        world: World,
        client: AsyncClient,
        rng: Rng,
        source: Callable[[], TopicPartition | None],
        destinations: Callable[[], Sequence[TopicPartition]],
        tell: Callable[[Send | ClientEvent], None],
    ) -> None:
        self.name = name
        self.world = world
        self.client = client
        self.rng = rng
        self.source = source
        self.destinations = destinations
        self.tell = tell
        self.copies = 0

    async def run(self) -> None:
        """Start one producer after the other; a former one runs until it is fenced or fails."""
        number = 0
        async with asyncio.TaskGroup() as running:
            while True:
                source = self.source()
                if source is not None and self.destinations():
                    number += 1
                    running.create_task(_Producer(self, number, source).run(), name=f"{self.name}/{number}")
                await asyncio.sleep(self.rng.expovariate(1 / _LIFE_S))


class _Producer:
    """One producer of the transactional id, until it is fenced, cannot continue, or nothing may be sent."""

    def __init__(self, copier: Copier, number: int, source: TopicPartition) -> None:
        self._copier = copier
        self._source = source
        self._name = f"{copier.name}/{number}"
        self._client = copier.client
        self._transactions = Transactions(copier.client.cluster, copier.name, _TIMEOUT_MS)
        self._sender = BatchSender(copier.world, copier.client, self._name, copier.tell)
        self._reader = Reader(copier.client)
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Initialise the transactional id, which fences the former producer, then copy transaction by transaction."""
        try:
            await self._client.run(self._transactions.init(self._backoff()))
            now_s = asyncio.get_running_loop().time()
            self._copier.tell(ProducerStarted(self._copier.name, self._transactions.producer.epoch, now_s))
            position = await self._committed_offset()
            while destinations := self._copier.destinations():
                await asyncio.sleep(self._copier.rng.expovariate(1 / _PAUSE_S))
                position = await self._copy(position, destinations)
        except (KlammError, TimeoutError, OSError):
            return  # the next producer finds out what became of the transaction

    async def _committed_offset(self) -> int:
        """Return the group's committed offset, from which copying continues; wait for the end of open transactions."""
        route = CoordinatorRoute(self._client.cluster, CoordinatorType.GROUP, self._copier.name)
        found = await self._client.run(fetch_committed(route, [self._source], self._backoff()))
        return found[self._source].offset if self._source in found else 0

    async def _copy(self, position: int, destinations: Sequence[TopicPartition]) -> int:
        """Copy what is there at this offset in one transaction; return the next offset.

        Raises KlammError and TimeoutError where the transaction's end is not known or another producer took over.
        """
        try:
            read = await self._reader.read(self._source, position, _LIMITS)
        except (*TRANSIENT, CorruptRecords, UnsupportedVersion, OSError):
            return position
        if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._reader.start_of(self._source)
        if read.error is not ErrorCode.NONE or not read.found.records:
            return position
        next_offset = read.found.records[-1][0] + 1
        transaction = Transaction(self._copier.name, self._transactions.producer.epoch, self._source, next_offset)
        copies = [offset for offset, _ in read.found.visible]
        await self._send_copies(transaction, copies, destinations)
        offsets = {self._source: next_offset}
        await self._client.run(self._transactions.commit_offsets(self._copier.name, offsets, self._backoff()))
        if self._copier.rng.random() < _ABORTS:
            await self._client.run(self._transactions.end(False, self._backoff()))
            return position
        transaction.state = TransactionState.COMMITTING
        await self._client.run(self._transactions.end(True, self._backoff()))
        transaction.state = TransactionState.COMMITTED
        return next_offset

    async def _send_copies(
        self, transaction: Transaction, copies: Sequence[int], destinations: Sequence[TopicPartition]
    ) -> None:
        """Send one batch to each of one or two destinations, with a part of the copies each."""
        rng = self._copier.rng
        chosen = rng.sample(list(destinations), min(len(destinations), rng.choice((1, 2)), max(len(copies), 1)))
        await self._client.run(self._transactions.add_partitions(chosen, self._backoff()))
        for n, destination in enumerate(chosen):
            if part := copies[n :: len(chosen)]:
                await self._send(transaction, destination, part)

    async def _send(self, transaction: Transaction, destination: TopicPartition, offsets: Sequence[int]) -> None:
        """Send the copies of these offsets in one batch. Raises as `BatchSender.send` does."""
        now_s, now_ms = asyncio.get_running_loop().time(), self._copier.world.clock.now_ms()
        values = tuple(self._value(offset) for offset in offsets)
        send = Send(self._name, destination, values, -1, now_s)
        send.is_idempotent, send.transaction = True, transaction
        transaction.sends.append(send)
        self._copier.tell(send)
        producer_id, epoch = self._transactions.producer
        sequence = self._sequences.get(destination, 0)
        batch = build_batch(
            [NewRecord(value, value if destination == COMPACTED else None, now_ms) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        async with asyncio.timeout(_PATIENCE_S):
            await self._sender.send(send, batch, self._copier.name)
        self._sequences[destination] = sequence + len(values)

    def _value(self, offset: int) -> bytes:
        """The unique value of a copy, which ends with the offset of its original."""
        self._copier.copies += 1
        return b"%s/%d%s%d" % (self._name.encode(), self._copier.copies, COPY_OF, offset)

    def _backoff(self) -> Backoff:
        """Return the waits between the attempts of one request to a coordinator, which end after `_PATIENCE_S`."""
        return Backoff(asyncio.get_running_loop().time, _PATIENCE_S)


def original_of(value: bytes) -> int:
    """The offset of the record that a copy was made of."""
    return int(value.rpartition(COPY_OF)[2])
