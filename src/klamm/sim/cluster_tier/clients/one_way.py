"""Requests that no broker answers: Produce with acks=0."""

import asyncio
from typing import Final

from klamm.client.records import produce_request
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, encode_request

_VERSION: Final = 9
_CONNECT_TIMEOUT_S: Final = 1.0


class _Writer(asyncio.Protocol):
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Do nothing: nobody waits for this connection."""
        self.transport = None


class OneWayProducer:
    """One connection per broker; what is lost with it stays lost."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._writers: dict[Address, _Writer] = {}

    async def send(self, address: Address, partition: TopicPartition, batch: bytes) -> None:
        """Send the batch with acks=0, for which there is no response.

        Raises OSError, TimeoutError where the broker cannot be reached.
        """
        writer = self._writers.get(address)
        if writer is None or writer.transport is None or writer.transport.is_closing():
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                writer = self._writers[address] = await self._world.network.connect(_Writer, *address)
        request = produce_request(partition, batch, 0.0, acks=0)
        header = RequestHeader(ApiKey.PRODUCE, _VERSION, 0, self._name)
        if writer.transport is not None:
            writer.transport.write(b"".join(encode_request(header, request.body(_VERSION))))
