"""What a mutant is: a guard that is taken out, and the invariants that must speak then."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

Patch = pytest.MonkeyPatch


class Mutant(NamedTuple):
    number: str
    ticket: str
    what: str
    """The mutation."""
    apply: Callable[[Patch], None]
    expected: tuple[int, ...]
    """Invariants that should speak."""

    @property
    def is_of_the_stub(self) -> bool:
        """It takes a guard out of the simulated broker, not out of production."""
        return self.apply.__module__.endswith(".simulated_brokers")


async def nothing(*_: Any, **__: Any) -> Any:
    """Takes any arguments and does nothing."""
    return None


def together(*mutations: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Guards that stand in for each other, all out."""

    def apply(patch: Patch) -> None:
        for mutation in mutations:
            mutation(patch)

    return apply
