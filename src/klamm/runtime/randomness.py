"""Rng, as named streams: each consumer rolls its own, so that one more roll here moves nothing there."""

import random
from typing import Protocol

Rng = random.Random
"""A named stream's generator, for annotations above this floor."""


class Randomness(Protocol):
    def stream(self, name: str) -> random.Random:
        """The generator of that name; the same name gives the same generator."""
        ...

    def bytes(self, count: int) -> bytes:
        """Unpredictable bytes, for ids."""
        ...


class RealRandomness:
    def __init__(self) -> None:
        self._streams: dict[str, random.Random] = {}
        self._system = random.SystemRandom()

    def stream(self, name: str) -> random.Random:
        return self._streams.setdefault(name, random.Random())

    def bytes(self, count: int) -> bytes:
        return self._system.randbytes(count)
