"""A model ZooKeeper on a simulated network, and clients on hosts of their own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from klamm.runtime.randomness import Rng
from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import Universe
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server
from klamm.zk.client import ZooKeeper

T = TypeVar("T")


class ModelZooKeeper:
    """`ModelZooKeeper().run(story)`: the story gets this, with the servers `zk-1`, `zk-2`... running."""

    def __init__(self, servers: int = 1, seed: int = 1, settings: EnsembleSettings | None = None) -> None:
        self.loop = SimulatedLoop(seed)
        self.universe = Universe.of(self.loop)
        self.network = self.universe.network
        self._settings = settings
        self._size = servers
        self.servers: list[Server] = []
        self.hosts: dict[ZooKeeper, Host] = {}

    def run(self, story: Callable[["ModelZooKeeper"], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            host, world = self.universe.start("ensemble")
            self.ensemble = Ensemble(world.clock, Rng("sessions"), self._settings)
            self.ensemble.start()
            for number in range(1, self._size + 1):
                host, world = self.universe.start(f"zk-{number}")
                server = Server(self.ensemble)
                await self.loop.spawn(host, server.listen(world.network, "", 2181))
                self.servers.append(server)
            return await story(self)

        return self.loop.run(main(), limit_s=10_000)

    async def client(self, name: str, hosts: str = "", timeout_ms: int = 6_000) -> ZooKeeper:
        host, world = self.universe.start(name)
        hosts = hosts or ",".join(f"zk-{n}:2181" for n in range(1, self._size + 1))
        made = ZooKeeper(world, hosts, timeout_ms)
        await self.loop.spawn(host, made.connect(30))
        self.hosts[made] = host
        return made

    async def settle(self, seconds: float = 1.0) -> None:
        """Let this virtual time pass."""
        await asyncio.sleep(seconds)
