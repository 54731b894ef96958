"""Random numbers in named streams: a draw from one stream does not change the others."""

import random
from typing import Protocol

Rng = random.Random
"""The generator of a stream, for annotations in other rooms."""


class Randomness(Protocol):
    """The source of random numbers."""

    def stream(self, name: str) -> random.Random:
        """Return the random generator of this name; each name has one."""
        ...

    def bytes(self, count: int) -> bytes:
        """Return unpredictable bytes, for ids."""
        ...


class RealRandomness:
    def __init__(self) -> None:
        self._streams: dict[str, random.Random] = {}
        self._system = random.SystemRandom()

    def stream(self, name: str) -> random.Random:
        """Return the random generator of this name; each name has one, which is kept."""
        return self._streams.setdefault(name, random.Random())

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes from the system."""
        return self._system.randbytes(count)
