"""A producer: batches of numbered records to partitions in turn, each sent again until its fate is known or given up.

It has one batch in flight. With a producer id it numbers batches as an idempotent producer does; where it gives a batch
up it takes a new producer id, since nobody can tell which sequence comes next.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.errors import UnsupportedVersion
from klamm.client.records import produce_error_code, produce_request
from klamm.client.routing import send_to_any
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.cluster_tier.clients.locator import TRANSIENT, Locator
from klamm.sim.cluster_tier.clients.one_way import OneWayProducer
from klamm.sim.cluster_tier.trace import Acknowledged, ClientEvent, Send, SendState, SequenceRefused
from klamm.wire.api import ApiKey
from klamm.wire.messages import InitProducerIdRequest
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import NewRecord

GIVE_UP_S: Final = 20.0
_BACKOFF_S: Final = 0.1
_MAX_BATCH: Final = 3
_PADDING: Final = (0, 0, 20, 200)
_TIMEOUT_S: Final = 3.0
_NOTHING_APPENDED: Final = frozenset({
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
})  # fmt: skip
"""Errors that say that this attempt appended nothing."""
_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class ProducerStyle(NamedTuple):
    acks: int
    is_idempotent: bool
    pause_s: float
    """Mean time between two batches."""


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
    ) -> None:
        self._name = name
        self._world = world
        self._client = client
        self._one_way = OneWayProducer(world, name)
        self._locator = Locator(client)
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
        records = [NewRecord(value, None, now_ms) for value in send.values]
        sequence = self._sequences.get(partition, 0) if self._style.is_idempotent else -1
        epoch = 0 if self._style.is_idempotent else -1
        batch = build_batch(records, producer_id=self._producer_id, producer_epoch=epoch, base_sequence=sequence)
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._send_until_known(send, batch)
        except TimeoutError:
            self._start_over()
        else:
            self._sequences[partition] = sequence + len(send.values)

    async def _send_until_known(self, send: Send, batch: bytes) -> None:
        """Send the batch until it is known whether the broker appended it.

        Raises TimeoutError where that can never be known.
        """
        is_known = await self._attempt(send, batch)
        while not is_known:
            await asyncio.sleep(_BACKOFF_S)
            is_known = await self._attempt(send, batch)

    async def _attempt(self, send: Send, batch: bytes) -> bool:
        """Send the batch once; return whether it is known if it was appended.

        Raises TimeoutError where that can never be known.
        """
        was = send.state
        try:
            leader = await self._locator.leader(send.partition)
            send.state = SendState.UNKNOWN
            if not send.acks:
                await self._one_way.send(leader.address, send.partition, batch)
                return True
            request = produce_request(send.partition, batch, _TIMEOUT_S, send.acks)
            answer = await self._client.ask(leader.address, request)
        except (*TRANSIENT, UnsupportedVersion, OSError):
            self._locator.forget(send.partition)
            return False
        error = ErrorCode(produce_error_code(answer))
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            send.state = SendState.ACKNOWLEDGED
            send.offset = answer.responses[0].partition_responses[0].base_offset if not error else -1
            self._tell(Acknowledged(send))
            return True
        if error in _NOTHING_APPENDED:
            send.state = was
        if error in _SEQUENCE:
            self._tell(SequenceRefused(send, error.name))
            raise TimeoutError
        self._locator.forget(send.partition)
        return False

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
