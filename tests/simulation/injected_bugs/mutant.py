"""A mutant: an injected bug that removes a guard, and the invariants that must notice it."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, cast

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


class StrictPatch:
    """A patch that refuses a function which cannot be called as the one that it replaces.

    Such a mutant fails by itself, in every schedule: it looks like a bug that nobody notices.
    """

    def __init__(self, patch: Patch) -> None:
        self._patch = patch

    def setattr(self, target: Any, name: Any, *value: Any) -> None:
        """Replace an attribute; raises TypeError where the signatures do not fit."""
        if value:
            _check_signature(target, name, value[0])
        else:
            module, _, attribute = target.rpartition(".")
            _check_signature(import_module(module), attribute, name)
        self._patch.setattr(target, name, *value)

    def setitem(self, target: Any, name: Any, value: Any) -> None:
        """Replace an item; raises TypeError where the signatures do not fit."""
        if name in target:
            _check_same_arguments(target[name], value, str(name))
        self._patch.setitem(target, name, value)


def check_fits(mutant: Mutant) -> None:
    """Apply a mutant and take it back; raises where what it changes is gone, or called with other arguments."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(cast(Patch, StrictPatch(patch)))


def _check_signature(target: Any, name: str, replacement: Any) -> None:
    original = inspect.getattr_static(target, name)
    if inspect.isroutine(original) and callable(replacement):
        _check_same_arguments(original, replacement, name)


def _check_same_arguments(original: Any, replacement: Any, name: str) -> None:
    """Raise TypeError if the replacement does not take all arguments of the original, and the required ones alone."""
    taken = inspect.signature(replacement)
    parameters = inspect.signature(original).parameters.values()
    for given in (parameters, [p for p in parameters if p.default is p.empty]):
        by_place = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        by_name = {p.name: p.name for p in given if p.kind is p.KEYWORD_ONLY}
        try:
            taken.bind(*by_place, **by_name)
        except TypeError as error:
            raise TypeError(f"{name}{taken} cannot replace {name}{inspect.signature(original)}: {error}") from None
