"""The order in which ready callbacks run: first in first out, or chosen by a seed.

asyncio runs the callbacks of one loop in the order in which they were scheduled, and code may rely on that. Hosts are
separate processes, so any order between them is possible: seeded schedules choose among hosts. Only `Shuffled` breaks
asyncio's promise, to test code that must not rely on it.
"""

from collections import deque
from enum import StrEnum
from typing import Final, Protocol

from klamm.runtime.randomness import Rng
from klamm.sim.hosts import Host, ScheduledCallback


class Policy(StrEnum):
    """How the next ready callback is chosen."""

    FIFO = "fifo"  # as asyncio does
    HOSTS = "hosts"  # any host next, each in its own order
    PRIORITIES = "priorities"  # the most important host always next; at some points it becomes the least (PCT)
    SHUFFLED = "shuffled"  # any callback next


class Schedule(Protocol):
    """The queue of ready callbacks."""

    def add(self, entry: ScheduledCallback) -> None:
        """Add a callback that is ready."""

    def pop_next(self) -> ScheduledCallback | None:
        """Remove and return the callback to run next; None if none is ready."""
        ...


class Fifo:
    """Runs callbacks in the order in which they became ready."""

    def __init__(self) -> None:
        self._ready: deque[ScheduledCallback] = deque()
        self.add = self._ready.append

    def pop_next(self) -> ScheduledCallback | None:
        """Remove and return the callback that waits longest; None where none is ready."""
        return self._ready.popleft() if self._ready else None


class Shuffled:
    """Runs ready callbacks in random order."""

    def __init__(self, rng: Rng) -> None:
        self._ready: list[ScheduledCallback] = []
        self._random = rng.random
        self.add = self._ready.append

    def pop_next(self) -> ScheduledCallback | None:
        """Remove and return a random ready callback; None where none is ready."""
        ready = self._ready
        if not ready:
            return None
        index = int(self._random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()


class HostQueues:
    """One queue for each host; the next host is chosen at random."""

    def __init__(self, rng: Rng) -> None:
        self._busy: list[Host] = []
        self._random = rng.random

    def add(self, entry: ScheduledCallback) -> None:
        """Append the callback to the queue of its host."""
        queue = entry.host.ready
        if not queue:
            self._busy.append(entry.host)
        queue.append(entry)

    def pop_next(self) -> ScheduledCallback | None:
        """Choose a host and remove and return its oldest ready callback; None where none is ready."""
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
        """The index of the host whose callback runs next."""
        return int(self._random() * len(self._busy))


CHOICES_PER_PRIORITY_CHANGE: Final = 100
"""Choices between two changes of priority, on average."""


class Priorities(HostQueues):
    """Runs the host with the highest random priority; priorities change at random (probabilistic concurrency testing).

    Source: Burckhardt et al., ASPLOS 2010.
    """

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng)
        self._lowest = 0.0

    def _choose(self) -> int:
        """Return the index of the busy host with the highest priority.

        Now and then that host's priority becomes the lowest.
        """
        busy = self._busy
        first = max(range(len(busy)), key=lambda i: self._priority_of(busy[i]))
        if self._random() * CHOICES_PER_PRIORITY_CHANGE < 1:
            self._lowest -= 1
            busy[first].priority = self._lowest
        return first

    def _priority_of(self, host: Host) -> float:
        """The host's priority, chosen at random when first needed."""
        if host.priority is None:
            host.priority = self._random()
        return host.priority


def new_schedule(policy: Policy, rng: Rng) -> Schedule:
    """The schedule for this policy."""
    match policy:
        case Policy.FIFO:
            return Fifo()
        case Policy.SHUFFLED:
            return Shuffled(rng)
        case Policy.HOSTS:
            return HostQueues(rng)
        case Policy.PRIORITIES:
            return Priorities(rng)
