"""A producer: batches of numbered records to partitions in turn, each repeated until it is acknowledged or refused.

It has one batch in flight. With a producer id it numbers batches as an idempotent producer does; where it gives a batch
up it takes a new producer id, since nobody can tell which sequence comes next.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.errors import UnsupportedVersion
from klamm.client.routing import send_to_any
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.cluster_tier.clients.batch_sender import BatchSender
from klamm.sim.cluster_tier.clients.locator import TRANSIENT
from klamm.sim.cluster_tier.keyed_records import record_without_key
from klamm.sim.cluster_tier.trace import ClientEvent, Send
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import InitProducerIdRequest
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import NewRecord

GIVE_UP_S: Final = 20.0
_MAX_BATCH: Final = 3
_PADDING: Final = (0, 0, 20, 200)


class ProducerStyle(NamedTuple):
    acks: int
    is_idempotent: bool
    pause_s: float
    """Mean time between two batches."""
    codec: Codec = Codec.NONE


class Producer:
    """`await run()` until cancelled; `partitions` is asked before each batch where it may go."""

    def __init__(
        self,
        name: str,
        world: World,
        client: AsyncClient,
        style: ProducerStyle,
        rng: Rng,
        partitions: Callable[[], Sequence[TopicPartition]],
        tell: Callable[[Send | ClientEvent], None],
        record_of: Callable[[bytes, int], NewRecord] = record_without_key,
    ) -> None:
        """`record_of` makes a record of its name and timestamp; by default the name is its value, and it has no key."""
        self._name = name
        self._record_of = record_of
        self._world = world
        self._client = client
        self._sender = BatchSender(world, client, name, tell)
        self._style = style
        self._rng = rng
        self._partitions = partitions
        self._tell = tell
        self._number = 0
        self._producer_id = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Send batches to random writable partitions without end, with random pauses."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._style.pause_s))
            if candidates := self._partitions():
                await self._send(self._rng.choice(candidates))

    async def _send(self, partition: TopicPartition) -> None:
        """Send one batch until it is acknowledged, at most for `GIVE_UP_S` seconds."""
        if self._style.is_idempotent and self._producer_id < 0 and not await self._take_producer_id():
            return
        now_s = asyncio.get_running_loop().time()
        send = Send(self._name, partition, self._next_values(), self._style.acks, now_s)
        send.is_idempotent = self._style.is_idempotent
        self._tell(send)
        now_ms = self._world.clock.now_ms()
        records = [self._record_of(value, now_ms) for value in send.values]
        sequence = self._sequences.get(partition, 0) if self._style.is_idempotent else -1
        epoch = 0 if self._style.is_idempotent else -1
        batch = build_batch(
            records, self._style.codec, producer_id=self._producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._sender.send(send, batch)
        except TimeoutError:
            self._start_over()
        else:
            self._sequences[partition] = sequence + len(send.values)

    async def _take_producer_id(self) -> bool:
        """Ask a broker for a producer id; return whether one was received."""
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        try:
            answer = await self._client.run(
                send_to_any(self._client.cluster, Request(ApiKey.INIT_PRODUCER_ID, message))
            )
        except (*TRANSIENT, UnsupportedVersion):
            return False
        if answer.error_code:
            return False
        self._producer_id = answer.producer_id
        return True

    def _start_over(self) -> None:
        """Ask for a new producer id next, because it is unknown whether the last batch was appended."""
        self._producer_id = -1
        self._sequences.clear()

    def _next_values(self) -> tuple[bytes, ...]:
        """Return the unique values of the next batch."""
        values = []
        for _ in range(self._rng.randint(1, _MAX_BATCH)):
            self._number += 1
            values.append(b"%s/%d" % (self._name.encode(), self._number) + b"." * self._rng.choice(_PADDING))
        return tuple(values)
