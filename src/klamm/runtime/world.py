"""Time, network, disk, randomness and workers in one object, which code gets instead of using them directly."""

from collections.abc import Callable
from dataclasses import dataclass, field

from klamm.runtime.clock import Clock, RealClock
from klamm.runtime.crash_guard import GuardProcesses, Guards, NoGuards
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.memory import LongWork
from klamm.runtime.network import Network, RealNetwork
from klamm.runtime.processes import own_pid
from klamm.runtime.randomness import Randomness, RealRandomness
from klamm.runtime.time_slices import CountedSlices, Slices, TimeSlices
from klamm.runtime.workers import InlineWorkers, ProcessWorkers, Workers


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    network: Network
    disk: Disk
    randomness: Randomness
    workers: Workers = field(default_factory=InlineWorkers)
    make_slices: Callable[[], Slices] = CountedSlices
    """Makes the time slices of long work; in a simulation slices that count items."""
    request_slices: Slices = field(default_factory=CountedSlices)
    """The time slices that all large requests of the node share: together they use one slice per pass of the loop."""
    process_id: int = field(default_factory=own_pid)
    guards: Guards = field(default_factory=NoGuards)
    """Starts the processes that close this process's ZooKeeper sessions after a crash."""


def real_world() -> World:
    """Return a world of the real clock, network, disk, randomness and worker processes."""
    return World(
        RealClock(),
        RealNetwork(),
        RealDisk(),
        RealRandomness(),
        ProcessWorkers(),
        make_slices=lambda: TimeSlices(LongWork()),
        request_slices=TimeSlices(LongWork()),
        guards=GuardProcesses(),
    )
