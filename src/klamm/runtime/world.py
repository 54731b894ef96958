"""Time, network, disk and randomness as one value, handed to all code that needs them."""

from dataclasses import dataclass, field

from klamm.runtime.clock import Clock, RealClock
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.network import Network, RealNetwork
from klamm.runtime.randomness import Randomness, RealRandomness
from klamm.runtime.workers import InlineWorkers, ProcessWorkers, Workers


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    network: Network
    disk: Disk
    randomness: Randomness
    workers: Workers = field(default_factory=InlineWorkers)


def real_world() -> World:
    return World(RealClock(), RealNetwork(), RealDisk(), RealRandomness(), ProcessWorkers())
