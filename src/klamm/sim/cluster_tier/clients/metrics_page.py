"""A node's metrics page, read over HTTP as Prometheus does."""

import asyncio
from typing import Final, cast

from klamm.runtime.world import World

METRICS_PORT: Final = 9_404
_REQUEST: Final = b"GET /metrics HTTP/1.1\r\n\r\n"
_TIMEOUT_S: Final = 5.0


class _Exchange(asyncio.Protocol):
    """Sends the request, and collects the response until the node closes the connection."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast(asyncio.Transport, transport).write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        """Keep a part of the response."""
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        """The response is complete."""
        if not self.ended.done():
            self.ended.set_result(None)


async def read_metrics(world: World, host: str) -> dict[str, float]:
    """The value of each sample, by its name and labels as on the page. Raises OSError, TimeoutError."""
    async with asyncio.timeout(_TIMEOUT_S):
        exchange = await world.network.connect(_Exchange, host, METRICS_PORT)
        await exchange.ended
    _, _, page = bytes(exchange.received).partition(b"\r\n\r\n")
    samples = (line.rpartition(" ") for line in page.decode().splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
