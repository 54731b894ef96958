"""A ZooKeeper client and three model servers on a simulated network; the requests of the client are recorded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from klamm.runtime.network import SYSTEM_BUFFERS, Listener, SocketBuffers
from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import HostNetwork
from klamm.sim.streams import ConnectionEnd
from klamm.sim.world import SeededRandomness, Universe
from klamm.sim.zookeeper import packets
from klamm.sim.zookeeper.connection import ServerConnection
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings, SessionRecord
from klamm.sim.zookeeper.server import Server
from klamm.sim.zookeeper.tree import Tree
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import ZkCode
from klamm.zk.jute import INT, Reader
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.requests import Opcode

SERVERS = ("zk1", "zk2", "zk3")
PORT = 2181
SETTINGS = EnsembleSettings(tick_ms=100, min_session_ms=500, max_session_ms=60_000)
_NAMES = {
    Opcode.CREATE2: "create", Opcode.EXISTS: "exists", Opcode.GET_DATA: "get", Opcode.SET_DATA: "set",
    Opcode.GET_CHILDREN2: "children",
}  # fmt: skip
_OTHERS = {Opcode.PING: "ping", Opcode.AUTH: "auth", Opcode.CLOSE_SESSION: "close", Opcode.SET_WATCHES: "set-watches"}

T = TypeVar("T")


class Stage:
    """Client and model servers for one scenario: `Stage().run(scenario)` calls it with all servers running."""

    def __init__(self, seed: int = 1, settings: EnsembleSettings = SETTINGS) -> None:
        self.loop = SimulatedLoop(1)
        self.universe = Universe.of(self.loop)
        self.network = self.universe.network
        self.attempts: list[tuple[float, str]] = []
        """Of clients: (time, server) of every connection that was tried."""
        self.log: list[tuple[float, str]] = []
        """What came in: (time, what)."""
        self.drops_replies = False
        self.knows_multi_read = True
        self.multi_reads_until_old = -1
        """After so many it no longer knows it; never where negative."""
        self.answers_unknown_with = ZkCode.UNIMPLEMENTED
        """To what an old server does not know: 3.5 refuses it, and ends the connection."""
        self.servers: dict[str, WatchedServer] = {}
        self._listeners: dict[str, Listener] = {}
        self._worlds: dict[str, World] = {}
        self._seed = seed
        self._settings = settings

    def run(self, scenario: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            await self.build()
            return await scenario(self)

        return self.loop.run(main(), limit_s=10_000)

    async def build(self) -> None:
        """Start the network and the servers."""
        _, world = self.universe.start("ensemble")
        self.ensemble = Ensemble(world.clock, Rng("sessions"), self._settings)
        self.ensemble.start()
        for name in SERVERS:
            _, self._worlds[name] = self.universe.start(name)
            self.servers[name] = WatchedServer(self, name, self.ensemble)
            await self.start(name)
        host, world = self.universe.start("client")
        self.client_world = replace(
            world,
            network=WatchedNetwork(self, self.network.of(host)),
            randomness=SeededRandomness(self._seed),
        )

    def make_client(self, hosts: str = "zk1,zk2,zk3", timeout_ms: int = 6_000, **options: Any) -> ZooKeeper:
        """A client that is not connected yet."""
        return ZooKeeper(self.client_world, hosts, timeout_ms, **options)

    # ---- servers

    async def start(self, name: str) -> None:
        """Start the server, unless it runs."""
        if name not in self._listeners:
            self._listeners[name] = await self.servers[name].listen(self._worlds[name].network, "", PORT)

    async def stop(self, server: str) -> None:
        """Close the server's port and its connections."""
        name = server.partition(":")[0]
        await self._listeners.pop(name).close()
        self.servers[name].disconnect_clients()

    async def start_all(self) -> None:
        for name in SERVERS:
            await self.start(name)

    async def stop_all(self) -> None:
        for name in SERVERS:
            await self.stop(name)

    def break_connections(self, *names: str) -> None:
        """Reset the client's connections to these servers."""
        for name in names or SERVERS:
            self.network.reset("client", name)

    def drop_traffic(self, *servers: str) -> None:
        """Drop all traffic of these servers, in both directions."""
        for server in servers or SERVERS:
            name = server.partition(":")[0]
            self.network.cut("client", name)
            self.network.cut(name, "client")

    def open_ends(self) -> list[ConnectionEnd]:
        """The client's ends of open connections."""
        return [end for end in self.network._ends if end.host.name == "client"]

    # ---- znodes, behind everybody's back

    @property
    def tree(self) -> Tree:
        return self.ensemble.tree

    def write(self, op: Op) -> None:
        """Commit an operation without a client."""
        self.ensemble.write(0, [op], ())

    def create(self, path: str, data: bytes | None = b"") -> None:
        self.write(Create(path, data))

    def set(self, path: str, data: bytes | None) -> None:
        self.write(Set(path, data))

    def delete(self, path: str) -> None:
        self.write(Delete(path))

    # ---- what was asked

    @staticmethod
    def now() -> float:
        return round(asyncio.get_running_loop().time(), 3)

    def record(self, what: str) -> None:
        """Add a line to the record of requests."""
        self.log.append((round(asyncio.get_running_loop().time(), 6), what))

    def count(self) -> Counter[str]:
        """How often each line was recorded."""
        return Counter(what.split(" ")[0] for _, what in self.log)


class WatchedNetwork:
    """The client's network; it records connection attempts."""

    def __init__(self, stage: Stage, network: HostNetwork) -> None:
        self._stage = stage
        self._network = network

    async def connect(self, make: Any, host: str, port: int) -> Any:
        self._stage.attempts.append((round(asyncio.get_running_loop().time(), 6), host))
        return await self._network.connect(make, host, port)

    async def listen(
        self, make: Any, host: str, port: int, backlog: int = 50, buffers: SocketBuffers = SYSTEM_BUFFERS
    ) -> Listener:
        return await self._network.listen(make, host, port, backlog, buffers)

    def host_name(self) -> str:
        return self._network.host_name()


class WatchedServer(Server):
    """A model server that records the requests it gets."""

    def __init__(self, stage: Stage, name: str, ensemble: Ensemble) -> None:
        super().__init__(ensemble)
        self._stage = stage
        self._name = name

    def accept(self) -> ServerConnection:
        return WatchedConnection(self, self._stage, self._name)


class WatchedConnection(ServerConnection):
    """A server connection that records requests and responses."""

    def __init__(self, server: WatchedServer, stage: Stage, name: str) -> None:
        super().__init__(server)
        self._stage = stage
        self._name = name
        self._has_greeted = False

    def _connect(self, request: packets.ConnectRequest) -> None:
        self._stage.record(f"connect {self._name} {request.session:x}")
        super()._connect(request)

    def _serve(self, packet: bytes, session: SessionRecord) -> None:
        reader = Reader(packet, 4)
        opcode = reader.int32()
        if opcode == Opcode.MULTI_READ:
            self._stage.record(f"multi-read {len(list(packets.read_multi_read(reader)))}")
        elif opcode in _NAMES:
            self._stage.record(f"{_NAMES[Opcode(opcode)]} {reader.text()}")
        else:
            self._stage.record(_OTHERS.get(Opcode(opcode), str(opcode)))
        super()._serve(packet, session)

    def _serve_read(self, xid: int, opcode: int, reader: Reader) -> None:
        stage = self._stage
        if opcode == Opcode.MULTI_READ:
            stage.multi_reads_until_old -= 1
            stage.knows_multi_read &= stage.multi_reads_until_old != -1
            if not stage.knows_multi_read:
                self._write(packets.reply(xid, self._server.tree.zxid, stage.answers_unknown_with))
                if stage.answers_unknown_with is ZkCode.UNIMPLEMENTED:
                    self.drop()
                return
        super()._serve_read(xid, opcode, reader)

    def _write(self, frame: bytes) -> None:
        is_answer = self._has_greeted and INT.unpack_from(frame, 4)[0] >= 0
        self._has_greeted = True
        if not (is_answer and self._stage.drops_replies):
            super()._write(frame)
