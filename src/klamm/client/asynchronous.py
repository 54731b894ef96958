"""The asyncio client: for tools, and for brokers that act as clients of other brokers."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from klamm.client.cluster import ClusterMetadata
from klamm.client.connection import Connection
from klamm.client.errors import ConnectionLost, NotConnected, UnsupportedVersion
from klamm.client.steps import Running, Steps, Wait
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.runtime.world import World

T = TypeVar("T")
MAX_CONNECT_TIMEOUT_S: Final = 5.0
"""For a connection, and for each message that agrees on versions: where one broker is slow another may answer."""


class AsyncSettings(NamedTuple):
    client_id: str
    answer_timeout_s: float
    connect_timeout_s: float = MAX_CONNECT_TIMEOUT_S


class AsyncClient:
    """One connection per broker, shared by all tasks; an async context manager that closes them."""

    def __init__(self, world: World, bootstrap: Sequence[Address], settings: AsyncSettings) -> None:
        self.cluster = ClusterMetadata(bootstrap, asyncio.get_running_loop().time)
        self._world = world
        self._settings = settings
        self._connections: dict[Address, Connection] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def run(self, steps: Steps[T]) -> T:
        """Run the steps with this client's connections and return their result."""
        running = Running(steps)
        while (step := running.step) is not None:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                running.send(None)
                continue
            try:
                answer = await self.ask(step.address, step.request, step.timeout_s)
            except (ConnectionLost, UnsupportedVersion) as error:
                if isinstance(error, ConnectionLost):
                    self.cluster.on_lost(step.address)
                running.throw(error)
            else:
                self.cluster.on_answer(step.address)
                running.send(answer)
        return cast(T, running.result)

    async def ask(self, address: Address, request: Request, timeout_s: float | None = None) -> Any:
        """Send a request to a broker and return its response. Raises ConnectionLost, UnsupportedVersion."""
        timeout_s = self._settings.answer_timeout_s if timeout_s is None else timeout_s
        connection = await self._connected(address, min(timeout_s, self._settings.connect_timeout_s))
        return await connection.ask(request, timeout_s)

    async def tell(self, address: Address, request: Request) -> None:
        """Send a request that brokers do not answer, see `Connection.tell`. Raises as that does."""
        timeout_s = self._settings.answer_timeout_s
        connection = await self._connected(address, min(timeout_s, self._settings.connect_timeout_s))
        await connection.tell(request, timeout_s)

    def drop(self, address: Address) -> None:
        """Close the connection: its requests in flight fail, and leaders on that broker are looked up again."""
        if connection := self._connections.pop(address, None):
            connection.close()
        self.cluster.on_lost(address)

    async def _connected(self, address: Address, timeout_s: float) -> Connection:
        """The open connection to `address`; opened and negotiated first if there is none. Raises NotConnected."""
        async with self._opening[address]:
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                connection = await Connection.open(self._world, *address, self._settings.client_id, timeout_s)
                try:
                    await connection.negotiate(timeout_s)
                except ConnectionLost as error:
                    raise NotConnected(str(error)) from error
                self._connections[address] = connection
            return connection
