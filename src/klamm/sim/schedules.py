"""In which order ready callbacks run: as they came, or as a seed says. What comes from one seed comes again from it.

asyncio promises callbacks of one loop in the order they were scheduled, and code may rely on that. Hosts are processes
of their own, though: between them any order is possible, so the seeded schedules choose among hosts. Only `Shuffled`
breaks the promise, for code that must not need it.
"""

from asyncio import Handle
from collections import deque
from enum import StrEnum
from typing import Final, Protocol

from klamm.runtime.randomness import Dice
from klamm.sim.hosts import Host


class Policy(StrEnum):
    FIFO = "fifo"  # as asyncio does
    HOSTS = "hosts"  # any host next, each in its own order
    PRIORITIES = "priorities"  # the most important host always next; at some points it becomes the least (PCT)
    SHUFFLED = "shuffled"  # any callback next


class Schedule(Protocol):
    def __len__(self) -> int: ...
    def add(self, host: Host, handle: Handle) -> None: ...
    def take(self) -> tuple[Host, Handle]:
        """The next one; there must be one."""
        ...


class Fifo:
    def __init__(self) -> None:
        self._ready: deque[tuple[Host, Handle]] = deque()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, host: Host, handle: Handle) -> None:
        self._ready.append((host, handle))

    def take(self) -> tuple[Host, Handle]:
        return self._ready.popleft()


class Shuffled:
    def __init__(self, dice: Dice) -> None:
        self._ready: list[tuple[Host, Handle]] = []
        self._dice = dice

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, host: Host, handle: Handle) -> None:
        self._ready.append((host, handle))

    def take(self) -> tuple[Host, Handle]:
        ready = self._ready
        index = int(self._dice.random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()


class ByHost:
    """One queue for each host that has something ready."""

    def __init__(self, dice: Dice) -> None:
        self._queues: dict[Host, deque[Handle]] = {}
        self._busy: list[Host] = []
        self._dice = dice

    def __len__(self) -> int:
        return len(self._busy)

    def add(self, host: Host, handle: Handle) -> None:
        queue = self._queues.get(host)
        if queue is None:
            queue = self._queues[host] = deque()
        if not queue:
            self._busy.append(host)
        queue.append(handle)

    def take(self) -> tuple[Host, Handle]:
        index = self._choose()
        host = self._busy[index]
        queue = self._queues[host]
        handle = queue.popleft()
        if not queue:
            self._busy[index] = self._busy[-1]
            self._busy.pop()
        return host, handle

    def _choose(self) -> int:
        return int(self._dice.random() * len(self._busy)) if len(self._busy) > 1 else 0


CHANGE_EVERY: Final = 400
"""Callbacks between two changes of priority, on average."""


class Priorities(ByHost):
    """Probabilistic concurrency testing, with hosts for threads. Source: Burckhardt et al., ASPLOS 2010."""

    def __init__(self, dice: Dice) -> None:
        super().__init__(dice)
        self._priority: dict[Host, float] = {}
        self._lowest = 0.0

    def add(self, host: Host, handle: Handle) -> None:
        if host not in self._priority:
            self._priority[host] = self._dice.random()
        super().add(host, handle)

    def _choose(self) -> int:
        first = max(range(len(self._busy)), key=lambda i: self._priority[self._busy[i]])
        if self._dice.random() * CHANGE_EVERY < 1:
            self._lowest -= 1
            self._priority[self._busy[first]] = self._lowest
        return first


def schedule(policy: Policy, dice: Dice) -> Schedule:
    match policy:
        case Policy.FIFO:
            return Fifo()
        case Policy.SHUFFLED:
            return Shuffled(dice)
        case Policy.HOSTS:
            return ByHost(dice)
        case Policy.PRIORITIES:
            return Priorities(dice)
