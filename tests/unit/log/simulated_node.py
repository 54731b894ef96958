"""The logs of one node on the simulated disk, over restarts, power loss and damaged files."""

from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, TypeVar

from tests.support.managed_logs import crash
from tests.unit.log.support import ManualClock

from klamm.log.manager import LogManager
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness, Rng
from klamm.runtime.world import World
from klamm.sim.disk import SimulatedDisk
from klamm.sim.loop import SimulatedLoop

T = TypeVar("T")
DIRECTORY = "/logs"


class Killed(BaseException):
    """The process ends in this file operation."""


def kill_at(operation: int) -> Callable[[str, str], int | None]:
    """A fault of the disk: this file operation (counted from 1) and all later ones raise Killed."""
    operations = count(1)

    def kill(call: str, path: str) -> int | None:
        if next(operations) >= operation:
            raise Killed
        return None

    return kill


class SimulatedNode:
    def __init__(self, seed: int = 1, *directories: str) -> None:
        self.disk = SimulatedDisk(Rng(seed))
        self.clock = ManualClock()
        self.directories = list(directories) or [DIRECTORY]

    def run(
        self,
        main: Callable[[LogManager], Coroutine[Any, Any, T]],
        overrides: Mapping[str, Mapping[str, str]] | None = None,
    ) -> T:
        """Start, run `main`, end the process; a `main` that closes the logs ends it cleanly."""

        async def life() -> T:
            logs = LogManager(self.world, self.directories, 1, "cluster")
            await logs.load(overrides)
            logs.start()
            result = await main(logs)
            await crash(logs)
            return result

        result: T = SimulatedLoop().run(life())
        self.disk.process_died()
        return result

    @property
    def world(self) -> World:
        return World(self.clock, RealNetwork(), self.disk, RealRandomness())

    def restart_after_crash(self, *, loses_power: bool) -> None:
        """End the process that a fault of the disk stopped, and the fault; with `loses_power` unsynced data is lost."""
        self.disk.process_died()
        self.disk.fault = lambda call, path: None
        if loses_power:
            self.disk.lose_power()

    def overwrite(self, path: str, content: bytes | None) -> None:
        """Damage a file: this content instead, or none where it is to be missing."""
        if content is None:
            self.disk.remove(path)
        else:
            file = self.disk.open(path, create=True)
            file.truncate(0)
            file.pwrite([content], 0)
        self.disk.sync_filesystem("/")
