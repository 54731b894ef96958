"""Random choices for generated scripts, repeatable by seed."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
Draw = Callable[[Callable[[Random], Any]], Any]
"""Of something that may be drawn, one."""


def one_of(things: Sequence[T]) -> Callable[[Random], T]:
    """Draws one of these things."""
    return lambda rng: rng.choice(things)


def between(least: int, most: int) -> Callable[[Random], int]:
    """Draws a number from the least to the most."""
    return lambda rng: rng.randint(least, most)


def some_of(things: Sequence[T], most: int) -> Callable[[Random], list[T]]:
    """Draws one to `most` different things, in any order."""
    return lambda rng: rng.sample(things, rng.randint(1, min(most, len(things))))


def several(thing: Callable[[Random], T], most: int) -> Callable[[Random], list[T]]:
    """Draws one to `most` things, which may be equal."""
    return lambda rng: [thing(rng) for _ in range(rng.randint(1, most))]


def flag(rng: Random) -> bool:
    """Draws True or False."""
    return rng.random() < 0.5
