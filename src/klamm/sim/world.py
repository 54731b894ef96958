"""A `World` for each simulated host: virtual time, the simulated network, a disk of its own, dice of the seed."""

from dataclasses import dataclass, field

from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.disk import SimulatedDisk
from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import SimulatedNetwork

START_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""


@dataclass(slots=True)
class SimulatedClock:
    """Wall-clock time that goes with the loop's; `offset_ms` may jump."""

    loop: SimulatedLoop
    offset_ms: int = 0

    def now_ms(self) -> int:
        return START_MS + int(self.loop.now * 1000) + self.offset_ms


class SeededRandomness:
    """Named streams of one seed: a roll more in one moves nothing in another."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._streams: dict[str, Rng] = {}

    def stream(self, name: str) -> Rng:
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Rng(f"{self._seed}/{name}")
        return found

    def bytes(self, count: int) -> bytes:
        return self.stream("bytes").randbytes(count)


@dataclass(slots=True)
class Universe:
    """Everything simulated, from one loop: machines keep disk and clock over the runs of their processes."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    disks: dict[str, SimulatedDisk] = field(default_factory=dict)
    clocks: dict[str, SimulatedClock] = field(default_factory=dict)

    @classmethod
    def of(cls, loop: SimulatedLoop) -> "Universe":
        return cls(loop, SimulatedNetwork(loop))

    def start(self, name: str) -> tuple[Host, World]:
        """Start a process on the machine of that name: its host, and its world."""
        host = self.loop.add_host(name)
        disk = self.disks.get(name)
        if disk is None:
            disk = self.disks[name] = SimulatedDisk(Rng(f"{self.loop.seed}/disk/{name}"))
        host.on_kill.append(disk.process_died)
        clock = self.clocks.setdefault(name, SimulatedClock(self.loop))
        disk.now_ms = clock.now_ms
        randomness = SeededRandomness(f"{self.loop.seed}/{host!r}")
        return host, World(clock, self.network.of(host), disk, randomness, process_id=host.incarnation)

    def power_off(self, host: Host) -> None:
        """The machine loses power: its process, its silence on the network, and what was not synced."""
        self.network.power_off(host)
        self.disks[host.name].lose_power()
