"""In which order ready callbacks run: as they came, or as a seed says. What comes from one seed comes again from it.

asyncio promises callbacks of one loop in the order they were scheduled, and code may rely on that. Hosts are processes
of their own, though: between them any order is possible, so the seeded schedules choose among hosts. Only `Shuffled`
breaks the promise, for code that must not need it.
"""

from collections import deque
from enum import StrEnum
from typing import Final, Protocol

from klamm.runtime.randomness import Rng
from klamm.sim.hosts import Host, ScheduledCallback


class Policy(StrEnum):
    FIFO = "fifo"  # as asyncio does
    HOSTS = "hosts"  # any host next, each in its own order
    PRIORITIES = "priorities"  # the most important host always next; at some points it becomes the least (PCT)
    SHUFFLED = "shuffled"  # any callback next


class Schedule(Protocol):
    def add(self, entry: ScheduledCallback) -> None: ...
    def pop_next(self) -> ScheduledCallback | None:
        """The next one; None where none is ready."""
        ...


class Fifo:
    def __init__(self) -> None:
        self._ready: deque[ScheduledCallback] = deque()
        self.add = self._ready.append

    def pop_next(self) -> ScheduledCallback | None:
        return self._ready.popleft() if self._ready else None


class Shuffled:
    def __init__(self, rng: Rng) -> None:
        self._ready: list[ScheduledCallback] = []
        self._random = rng.random
        self.add = self._ready.append

    def pop_next(self) -> ScheduledCallback | None:
        ready = self._ready
        if not ready:
            return None
        index = int(self._random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()


class HostQueues:
    """One queue for each host that has something ready."""

    def __init__(self, rng: Rng) -> None:
        self._busy: list[Host] = []
        self._random = rng.random

    def add(self, entry: ScheduledCallback) -> None:
        queue = entry.host.ready
        if not queue:
            self._busy.append(entry.host)
        queue.append(entry)

    def pop_next(self) -> ScheduledCallback | None:
        busy = self._busy
        if not busy:
            return None
        index = self._choose() if len(busy) > 1 else 0
        queue = busy[index].ready
        entry = queue.popleft()
        if not queue:
            busy[index] = busy[-1]
            busy.pop()
        return entry

    def _choose(self) -> int:
        return int(self._random() * len(self._busy))


CHOICES_PER_PRIORITY_CHANGE: Final = 100
"""Choices between two changes of priority, on average."""


class Priorities(HostQueues):
    """Probabilistic concurrency testing, with hosts for threads. Source: Burckhardt et al., ASPLOS 2010."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng)
        self._lowest = 0.0

    def _choose(self) -> int:
        busy = self._busy
        first = max(range(len(busy)), key=lambda i: self._priority_of(busy[i]))
        if self._random() * CHOICES_PER_PRIORITY_CHANGE < 1:
            self._lowest -= 1
            busy[first].priority = self._lowest
        return first

    def _priority_of(self, host: Host) -> float:
        if host.priority is None:
            host.priority = self._random()
        return host.priority


def new_schedule(policy: Policy, rng: Rng) -> Schedule:
    match policy:
        case Policy.FIFO:
            return Fifo()
        case Policy.SHUFFLED:
            return Shuffled(rng)
        case Policy.HOSTS:
            return HostQueues(rng)
        case Policy.PRIORITIES:
            return Priorities(rng)
