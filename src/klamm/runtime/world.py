"""The world as one value: whoever needs time, network, disk or dice is handed this."""

from dataclasses import dataclass

from klamm.runtime.clock import Clock, RealClock
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.network import Network, RealNetwork
from klamm.runtime.randomness import Randomness, RealRandomness


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    network: Network
    disk: Disk
    randomness: Randomness


def real_world() -> World:
    return World(RealClock(), RealNetwork(), RealDisk(), RealRandomness())
