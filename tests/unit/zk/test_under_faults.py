"""Random failures of network and servers, by seed: order and answers are correct, and every request completes."""

import asyncio

import pytest
from tests.support.zookeeper_stage import SERVERS, Stage

from klamm.runtime.randomness import Rng
from klamm.zk.errors import NodeExists, SessionClosed, SessionExpired
from klamm.zk.watches import EventType, WatchEvent

WRITES = 300


class Troubled(Stage):
    """A simulated ensemble with random failures."""

    def __init__(self, seed: int, timeout_ms: int) -> None:
        super().__init__(seed)
        self.rng = Rng(seed)
        self._timeout_ms = timeout_ms

    async def build(self) -> None:
        await super().build()
        self.client = self.make_client(timeout_ms=self._timeout_ms, max_in_flight=16)

    async def trouble(self, longest_s: float) -> None:
        """Inject one failure after the other; each ends before the next."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.01, 1.0))
            some = [name for name in SERVERS if self.rng.random() < 0.6]
            fault = self.rng.choice(["reset", "silence", "stop", "lose answers"])
            duration_s = self.rng.uniform(0, longest_s)
            if fault == "reset":
                self.break_connections(*some)
            elif fault == "silence":
                self.drop_traffic(*some)
                await asyncio.sleep(duration_s)
                self.network.end_all_cuts()
            elif fault == "stop":
                for name in some:
                    await self.stop(name)
                await asyncio.sleep(duration_s)
                for name in some:
                    await self.start(name)
            else:
                self.drops_replies = True
                await asyncio.sleep(min(duration_s, 0.05))
                self.break_connections()
                self.drops_replies = False


@pytest.mark.parametrize("seed", range(25))
def test_writes_of_a_zookeeper_session_are_applied_in_order_under_faults(seed: int) -> None:
    world = Troubled(seed, timeout_ms=15_000)
    lost_answers = 0

    async def write(i: int) -> None:
        nonlocal lost_answers
        try:
            await world.client.create(f"/n{i}", b"")
        except NodeExists:
            lost_answers += 1  # it was ours: nobody else writes

    async def main(world: Troubled) -> None:
        await world.client.connect(30)
        trouble = asyncio.create_task(world.trouble(longest_s=1.5))
        writes = []
        for i in range(WRITES):
            writes.append(asyncio.create_task(write(i)))
            await asyncio.sleep(world.rng.expovariate(20))
        await asyncio.gather(*writes)
        trouble.cancel()

    world.run(main)

    znodes = world.tree.nodes
    zxids = [znodes[f"/n{i}"].czxid for i in range(WRITES)]
    assert zxids == sorted(zxids)
    assert world.count()["connect"] > 1
    assert lost_answers < WRITES / 2


@pytest.mark.parametrize("seed", range(25))
def test_a_changed_znode_always_fires_its_watch_even_under_faults(seed: int) -> None:
    """Read with a watch, wait for it, read again: the last value is always seen in the end."""
    world = Troubled(seed, timeout_ms=15_000)
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

    async def main(world: Troubled) -> None:
        world.create("/a", b"0")
        world.client.on_watch = on_watch
        await world.client.connect(30)
        trouble = asyncio.create_task(world.trouble(longest_s=1.5))
        following = asyncio.create_task(follow())
        for i in range(1, 101):
            await asyncio.sleep(world.rng.expovariate(5))
            world.set("/a", b"%d" % i)
        async with asyncio.timeout(30):
            await following
        trouble.cancel()

    world.run(main)


@pytest.mark.parametrize("seed", range(15))
def test_every_zookeeper_request_completes_even_if_the_session_expires(seed: int) -> None:
    world = Troubled(seed, timeout_ms=6_000)
    results: list[str] = []

    async def ask(i: int) -> None:
        try:
            await world.client.exists(f"/n{i}")
            results.append("ok")
        except SessionExpired:
            results.append("expired")

    async def main(world: Troubled) -> None:
        await world.client.connect(60)
        trouble = asyncio.create_task(world.trouble(longest_s=12))
        for i in range(150):
            asking = asyncio.create_task(ask(i))
            await asyncio.sleep(world.rng.expovariate(2))
        trouble.cancel()
        world.network.end_all_cuts()
        await world.start_all()
        async with asyncio.timeout(30):
            await asking
        await world.client.close()

    world.run(main)

    assert len(results) == 150
    assert "ok" not in results[results.index("expired") :] if "expired" in results else world.client.session_id


def test_latency_is_reported_only_for_answered_zookeeper_requests() -> None:
    async def main(stage: Stage) -> None:
        heard: list[float] = []
        client = stage.make_client()
        client.on_latency_ms(heard.append)
        await client.connect(30)
        assert heard == []
        await client.exists("/a")
        assert len(heard) == 1
        assert 0 < heard[0] < 100

        stage.drops_replies = True
        asked = asyncio.create_task(client.exists("/a"))
        await asyncio.sleep(0.5)
        assert len(heard) == 1
        stage.drops_replies = False
        stage.break_connections()
        await asked
        assert len(heard) == 2
        assert heard[1] < 400  # since it was sent again

        stage.drops_replies = True
        asked = asyncio.create_task(client.exists("/a"))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(SessionClosed):
            await asked
        assert len(heard) == 2

    Stage().run(main)
