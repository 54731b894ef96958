"""Reading many structs of one shape at a time.

Partition states come by the hundred thousand, and neighbours mostly have as many replicas. Once two in a row had
arrays of the same lengths, the rest is read as if all had them: one `iter_unpack` for all, each checked
for the lengths it was guessed to have; where one differs, the ordinary way takes over.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from klamm.wire.schema import FIXED, Field, Kind, Struct
from klamm.wire.source import Source

Run = Callable[[memoryview, int, int, int, list[Any]], tuple[int, int]]
"""(buffer, position, structs left, end, list to append to) -> (position, structs left)."""

_MAX_SHAPES: Final = 64
"""Per struct and version: limits how much code the bytes of unknown clients can make us compile."""
_MAX_ARRAY_LENGTH: Final = 16


class Runs(dict[tuple[int, ...], Run]):
    """Compiled readers of consecutive structs, by the lengths of the struct's arrays."""

    def __init__(
        self, struct_: Struct, version: int, flexible: bool, defaults: list[str], constants: dict[str, Any]
    ) -> None:
        """`defaults` has an expression for each field, in `constants` are the struct's class and what they name."""
        super().__init__()
        self._struct = struct_
        self._version = version
        self._flexible = flexible
        self._defaults = defaults
        self._constants = constants

    def __missing__(self, lengths: tuple[int, ...]) -> Run:
        if len(self) >= _MAX_SHAPES or max(lengths, default=0) > _MAX_ARRAY_LENGTH:
            return _decode_nothing
        reader = self[lengths] = self._compile(lengths)
        return reader

    def _compile(self, lengths: tuple[int, ...]) -> Run:
        """Compile a reader of structs whose arrays have these lengths; it stops at the first struct that differs."""
        source = Source("def run(m, p, left, end, items):")
        characters, names, mismatches, arguments = ">", [], [], []
        left = iter(lengths)
        for field, default in zip(self._struct.fields, self._defaults, strict=True):
            if self._version not in field.versions:
                arguments.append(default)
                continue
            count = next(left) if field.is_array else None
            if count is not None:
                length = source.name("n")
                characters += "B" if self._flexible else "i"
                names.append(length)
                mismatches.append(f"{length} != {count + self._flexible}")
            numbers = [source.name("v") for _ in range(1 if count is None else count)]
            characters += len(numbers) * _character(field)
            names += numbers
            arguments.append(numbers[0] if count is None else f"({''.join(f'{n}, ' for n in numbers)})")
        if self._flexible:
            characters += "B"
            names.append("tags")
            mismatches.append("tags")
        self._emit_loop(source, struct.Struct(characters), names, mismatches, arguments)
        reader: Run = source.compile("run", f"run of {self._struct.name} v{self._version}")
        return reader

    def _emit_loop(
        self, source: Source, shape: struct.Struct, names: list[str], mismatches: list[str], values: list[str]
    ) -> None:
        """Emit source of a loop that unpacks structs and checks their lengths."""
        source.constants |= self._constants
        source.constants["iter_unpack"] = shape.iter_unpack
        line = source.line
        line("before = len(items)")
        line("add = items.append")
        line(f"count = min(left, (end - p) // {shape.size})")
        line(f"for {', '.join(names)}, in iter_unpack(m[p:p + count * {shape.size}]):")
        source.indent()
        if mismatches:
            line(f"if {' or '.join(mismatches)}: break")
        line(f"add({self._struct.name}({', '.join(values)}))")
        source.dedent()
        line("done = len(items) - before")
        line(f"return p + done * {shape.size}, left - done")


def _character(field: Field) -> str:
    """The `struct` format character of a field of fixed size."""
    assert isinstance(field.element, Kind)
    return FIXED[field.element][0]


def _decode_nothing(_m: memoryview, position: int, left: int, _end: int, _items: list[Any]) -> tuple[int, int]:
    """Decode no struct: the reader for lengths that are not worth compiling."""
    return position, left
