"""Random instances of any message from a seeded generator: faster than Hypothesis, without shrinking."""

import random
import uuid
from collections.abc import Callable
from typing import Any, Final

from tests.unit.wire.strategies import class_of

from klamm.wire.schema import Field, Kind, Message, Struct

Special = Callable[[Field, random.Random], Any]
NOTHING_SPECIAL: Final = object()

_INTEGER_BITS = {Kind.I8: 8, Kind.I16: 16, Kind.U16: 16, Kind.I32: 32, Kind.I64: 64}
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_.äß€\U0001f600"


def generate(message: Message, version: int, dice: random.Random, special: Special | None = None) -> Any:
    """An instance that differs from its defaults only in fields the version has."""
    return _Generator(version, class_of(message).CODEC.classes, dice, special).struct(message.body)


class _Generator:
    def __init__(self, version: int, classes: Any, dice: random.Random, special: Special | None) -> None:
        self._version = version
        self._classes = classes
        self._rng = dice
        self._special = special

    def struct(self, struct: Struct) -> Any:
        values = {f.name: self._value(f) for f in struct.fields if self._version in f.versions}
        return self._classes[struct.name](**values)

    def _value(self, field: Field) -> Any:
        if field.is_nullable(self._version) and self._rng.random() < 0.2:
            return None
        if not field.is_array:
            return self._one(field)
        items = [self._one(field) for _ in range(self._rng.choice((0, 1, 1, 2, 3)))]
        if self._rng.random() < 0.1:
            items *= 6  # many of one shape are read another way than few
        return items if isinstance(field.element, Struct) else tuple(items)

    def _one(self, field: Field) -> Any:
        """A value of an element."""
        if isinstance(field.element, Struct):
            return self.struct(field.element)
        if self._special is not None:
            value = self._special(field, self._rng)
            if value is not NOTHING_SPECIAL:
                return value
        return self._primitive(field.element)

    def _primitive(self, kind: Kind) -> Any:
        """A value of a primitive type."""
        dice = self._rng
        if kind in _INTEGER_BITS:
            bits = _INTEGER_BITS[kind]
            low = 0 if kind is Kind.U16 else -(2 ** (bits - 1))
            return dice.choice((low, low + 2**bits - 1, 0, 1, dice.randrange(low, low + 2**bits)))
        if kind is Kind.F64:
            return dice.choice((0.0, -1.5, dice.uniform(-1e9, 1e9), float("inf")))
        if kind is Kind.BOOL:
            return dice.random() < 0.5
        if kind is Kind.UUID:
            return uuid.UUID(int=dice.choice((0, 1, dice.getrandbits(128))))
        size = dice.choice((0, 1, 5, 20, 126, 127, 128, 300))
        if kind is Kind.STR:
            return "".join(dice.choices(_LETTERS, k=size))
        return dice.randbytes(size)
