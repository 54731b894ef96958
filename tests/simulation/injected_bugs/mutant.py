"""A mutant: an injected bug that removes a guard, and the invariants that must notice it."""

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
        """Whether the bug is injected into the simulated broker instead of production code."""
        return self.apply.__module__.endswith(".simulated_brokers")


async def nothing(*_: Any, **__: Any) -> Any:
    """Takes any arguments and does nothing."""
    return None


def together(*mutations: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Inject several bugs, because each of the guards suffices alone."""

    def apply(patch: Patch) -> None:
        for mutation in mutations:
            mutation(patch)

    return apply
