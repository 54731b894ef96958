"""A `World` for each simulated host: virtual time, simulated network, its own disk, randomness from the seed."""

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
    """A wall clock that follows virtual time; faults shift it."""

    loop: SimulatedLoop
    offset_ms: int = 0
    most_ahead_ms: int = 0
    """The largest offset so far."""
    was_shifted: bool = False
    """Whether it was ever wrong."""

    def shift(self, by_ms: int) -> None:
        """Move the clock forwards, or backwards."""
        self.offset_ms += by_ms
        self.was_shifted = True
        self.most_ahead_ms = max(self.most_ahead_ms, self.offset_ms)

    def now_ms(self) -> int:
        """Return the simulated wall clock in ms since 1970, with the offset of this host's clock."""
        return START_MS + int(self.loop.now * 1000) + self.offset_ms


class SeededRandomness:
    """Random generators by name, all from one seed: use of one does not change another."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._streams: dict[str, Rng] = {}

    def stream(self, name: str) -> Rng:
        """Return the random generator of this name, seeded by the run's seed and the name; it is kept."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Rng(f"{self._seed}/{name}")
        return found

    def bytes(self, count: int) -> bytes:
        """Return `count` bytes of the stream `bytes`."""
        return self.stream("bytes").randbytes(count)


@dataclass(slots=True)
class Universe:
    """All simulated machines of one loop; a machine keeps its disk and clock when its processes restart."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    disks: dict[str, SimulatedDisk] = field(default_factory=dict)
    clocks: dict[str, SimulatedClock] = field(default_factory=dict)

    @classmethod
    def of(cls, loop: SimulatedLoop) -> "Universe":
        """Create the machines' network, disks and clocks for this loop."""
        return cls(loop, SimulatedNetwork(loop))

    def start(self, name: str) -> tuple[Host, World]:
        """Start a process on the machine with this name; return its host and its world."""
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
        """Cut the machine's power: the process dies, its peers get no reset, and unsynced data is lost."""
        self.network.power_off(host)
        self.disks[host.name].lose_power()
