"""A log manager over one directory in simulated time, whose threads do their work at once."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tests.support.managed_logs import crash, get_or_create
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.support import NOW_MS, batch

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import parse_offsets
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.registry import DirectoryFailure
from klamm.log.settings import LogManagerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop

P = ParamSpec("P")
T = TypeVar("T")
SIZE = len(batch("0"))


class InlineDisk(FaultyDisk):
    """Does at once what threads would do."""

    delay_s = 0.0

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return call(*args, **kwargs)


class LoopClock:
    def now_ms(self) -> int:
        return NOW_MS + int(asyncio.get_running_loop().time() * 1000)


class Node:
    """One manager over one directory, in simulated time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = LoopClock()
        self.disk = InlineDisk()
        self.failures: list[DirectoryFailure] = []

    def run(self, main: Callable[[LogManager], Coroutine[Any, Any, None]], **settings: int) -> None:
        """Load, start, run `main`, and end as in a crash."""

        async def whole() -> None:
            world = World(self.clock, RealNetwork(), self.disk, RealRandomness())
            logs = LogManager(
                world,
                [str(self.directory)],
                1,
                "cluster",
                settings=LogManagerSettings(**settings),
                on_directory_failed=self.failures.append,
            )
            await logs.load()
            logs.start()
            await main(logs)
            await crash(logs)

        SimulatedLoop().run(whole())

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def files_of(self, log: Log) -> list[str]:
        return self.disk.list_directory(log.directory)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        return parse_offsets((self.directory / name).read_bytes(), name)


def created(logs: LogManager, name: str = "orders", **configs: object) -> Log:
    texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
    return get_or_create(logs, TopicPartition(name, 0), TopicConfig.parse(texts), None, is_new=True)
