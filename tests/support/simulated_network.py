"""A network in memory: bytes arrive in order, after a delay; servers can be cut off, connections can be reset.

As with TCP, what is sent towards a server that is cut off arrives once it no longer is: late, whole and in order.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from klamm.runtime.disk import RealDisk
from klamm.runtime.network import Listener
from klamm.runtime.world import World

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)
Address = tuple[str, int]

_RETRY_S = 0.05


class SimulatedTransport(asyncio.Transport):
    """One end of a connection; what is written reaches the other end `delay_s` later, if anything still flows."""

    def __init__(self, network: "SimulatedNetwork", protocol: asyncio.Protocol, server: Address) -> None:
        super().__init__()
        self._network = network
        self.protocol = protocol
        self.server = server
        self.peer: SimulatedTransport | None = None
        self.under_way: deque[bytes | None] = deque()
        """Written and not yet arrived; None is the end of the stream."""
        self._is_open = True

    def write(self, data: Any) -> None:
        if self._is_open:
            self._network.carry(self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
            self._network.carry(self, None)

    def is_closing(self) -> bool:
        return not self._is_open

    def arrive(self, data: bytes | None) -> None:
        if not self._is_open:
            return
        if data is None:
            self._is_open = False
            self.protocol.connection_lost(None)
        else:
            self.protocol.data_received(data)

    def reset(self) -> None:
        """The connection breaks under this end; what is under way is lost."""
        self.under_way.clear()
        if self._is_open:
            self._is_open = False
            self.protocol.connection_lost(ConnectionResetError("connection reset"))


class _Listener:
    def __init__(self, network: "SimulatedNetwork", address: Address) -> None:
        self._network = network
        self._address = address

    @property
    def port(self) -> int:
        return self._address[1]

    async def close(self) -> None:
        self._network.listeners.pop(self._address, None)


class SimulatedNetwork:
    def __init__(self, delay_s: float = 0.001) -> None:
        self.delay_s = delay_s
        self.listeners: dict[Address, Callable[[], asyncio.Protocol]] = {}
        self.silent: set[Address] = set()
        """Servers that are cut off, in both directions."""
        self.ends: list[SimulatedTransport] = []
        """Of every connection made: the server's end, then the client's."""
        self.attempts: list[tuple[float, Address]] = []

    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        address = (host, port)
        loop = asyncio.get_running_loop()
        self.attempts.append((round(loop.time(), 6), address))
        await asyncio.sleep(2 * self.delay_s)
        while address in self.silent:  # noqa: ASYNC110
            await asyncio.sleep(_RETRY_S)
        accept = self.listeners.get(address)
        if accept is None:
            raise ConnectionRefusedError(f"connection to {host}:{port} refused")
        near, far = make(), accept()
        ends = SimulatedTransport(self, near, address), SimulatedTransport(self, far, address)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        self.ends += (ends[1], ends[0])
        far.connection_made(ends[1])
        near.connection_made(ends[0])
        return near

    async def listen(self, make: Callable[[], asyncio.Protocol], host: str, port: int, backlog: int = 50) -> Listener:
        if (host, port) in self.listeners:
            raise OSError(98, "address already in use")
        self.listeners[(host, port)] = make
        return _Listener(self, (host, port))

    def carry(self, sender: SimulatedTransport, data: bytes | None) -> None:
        sender.under_way.append(data)
        asyncio.get_running_loop().call_later(self.delay_s, self._deliver, sender)

    def _deliver(self, sender: SimulatedTransport) -> None:
        if sender.server in self.silent:
            asyncio.get_running_loop().call_later(_RETRY_S, self._deliver, sender)
        elif sender.under_way and sender.peer is not None:
            sender.peer.arrive(sender.under_way.popleft())

    def break_connections(self, address: Address) -> None:
        """Reset every connection to that server, seen by both ends at once."""
        for end in [e for e in self.ends if e.server == address]:
            end.reset()
            self.ends.remove(end)


class SimulatedClock:
    """Wall-clock time that goes with the loop's, from a fixed day on."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)


class SeededRandomness:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        return self._streams.setdefault(name, random.Random(f"{self._seed}/{name}"))

    def bytes(self, count: int) -> bytes:
        return self.stream("bytes").randbytes(count)


def simulated_world(network: SimulatedNetwork, seed: int = 1) -> World:
    """A world of simulated time, network and dice; the disk is real, give tests that use it a temporary directory."""
    return World(SimulatedClock(), network, RealDisk(), SeededRandomness(seed))
