"""Random failures of network and servers, by seed: order and answers hold, and the session always comes to a result."""

import asyncio
import random

import pytest
from tests.support.scripted_zookeeper import Ensemble, Link
from tests.support.simulated_network import SimulatedNetwork, simulated_world

from klamm.sim.loop import SimulatedLoop
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NodeExists, SessionExpired
from klamm.zk.watches import EventType, WatchEvent

SERVERS = [("zk1", 2181), ("zk2", 2181), ("zk3", 2181)]
WRITES = 300


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.network = SimulatedNetwork(delay_s=0.002)
        self.ensemble = Ensemble()
        for address in SERVERS:
            self.serve(address)
        self.client = ZooKeeper(simulated_world(self.network, seed), "zk1,zk2,zk3", 6_000, max_in_flight=16)

    def serve(self, address: tuple[str, int]) -> None:
        self.network.listeners[address] = lambda: Link(self.ensemble, address[0])

    async def trouble(self, longest_s: float) -> None:
        """One failure after the other, each healed before the next."""
        while True:
            await asyncio.sleep(self.dice.uniform(0.01, 1.0))
            some = [a for a in SERVERS if self.dice.random() < 0.6]
            fault = self.dice.choice(["reset", "silence", "stop", "lose answers"])
            duration_s = self.dice.uniform(0, longest_s)
            if fault == "reset":
                for address in some:
                    self.network.break_connections(address)
            elif fault == "silence":
                self.network.silent.update(some)
                await asyncio.sleep(duration_s)
                self.network.silent.clear()
            elif fault == "stop":
                for address in some:
                    self.network.listeners.pop(address)
                    self.network.break_connections(address)
                await asyncio.sleep(duration_s)
                for address in some:
                    self.serve(address)
            else:
                self.ensemble.drops_replies = True
                await asyncio.sleep(min(duration_s, 0.05))
                for address in SERVERS:
                    self.network.break_connections(address)
                self.ensemble.drops_replies = False


@pytest.mark.parametrize("seed", range(25))
def test_writes_of_one_session_are_applied_in_order_whatever_breaks(seed: int) -> None:
    world = World(seed)
    lost_answers = 0

    async def write(i: int) -> None:
        nonlocal lost_answers
        try:
            await world.client.create(f"/n{i}", b"")
        except NodeExists:
            lost_answers += 1  # it was ours: nobody else writes

    async def main() -> None:
        await world.client.connect(30)
        trouble = asyncio.create_task(world.trouble(longest_s=1.5))
        writes = []
        for i in range(WRITES):
            writes.append(asyncio.create_task(write(i)))
            await asyncio.sleep(world.dice.expovariate(20))
        await asyncio.gather(*writes)
        trouble.cancel()

    SimulatedLoop().run(main())

    znodes = world.ensemble.tree
    zxids = [znodes[f"/n{i}"].czxid for i in range(WRITES)]
    assert zxids == sorted(zxids)
    assert world.ensemble.count()["connect"] > 1
    assert lost_answers < WRITES / 2


@pytest.mark.parametrize("seed", range(25))
def test_a_watch_is_never_missed(seed: int) -> None:
    """Read with a watch, wait for it, read again: the last value is always seen in the end."""
    world = World(seed)
    world.ensemble.create("/a", b"0")
    fired = asyncio.Event()

    def on_watch(event: WatchEvent) -> None:
        assert event == WatchEvent(EventType.DATA_CHANGED, "/a")
        fired.set()

    async def follow() -> None:
        while True:
            fired.clear()
            data, _ = await world.client.get("/a", watch=True)
            if data == b"100":
                return
            await fired.wait()

    async def main() -> None:
        world.client.on_watch = on_watch
        await world.client.connect(30)
        trouble = asyncio.create_task(world.trouble(longest_s=1.5))
        following = asyncio.create_task(follow())
        for i in range(1, 101):
            await asyncio.sleep(world.dice.expovariate(5))
            world.ensemble.set("/a", b"%d" % i)
        async with asyncio.timeout(30):
            await following
        trouble.cancel()

    SimulatedLoop().run(main())


@pytest.mark.parametrize("seed", range(15))
def test_every_request_ends_also_where_the_session_may_expire(seed: int) -> None:
    world = World(seed)
    results: list[str] = []

    async def ask(i: int) -> None:
        try:
            await world.client.exists(f"/n{i}")
            results.append("ok")
        except SessionExpired:
            results.append("expired")

    async def main() -> None:
        await world.client.connect(60)
        trouble = asyncio.create_task(world.trouble(longest_s=12))
        for i in range(150):
            asking = asyncio.create_task(ask(i))
            await asyncio.sleep(world.dice.expovariate(2))
        trouble.cancel()
        world.network.silent.clear()
        for address in SERVERS:
            world.serve(address)
        async with asyncio.timeout(30):
            await asking
        await world.client.close()

    SimulatedLoop().run(main())

    assert len(results) == 150
    assert "ok" not in results[results.index("expired") :] if "expired" in results else world.client.session_id
