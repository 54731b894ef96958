"""Decoding, compiled: one Python function per message and version.

Consecutive fields of fixed size, together with the length that follows them, become one `unpack_from`. Lengths and
counts are held against the bytes that remain before anything is made. The generated code says only *that* bytes do
not parse (`ParseError`, `struct.error`, `IndexError`); `klamm.wire.length_format` finds the field.

Each decoder can also be compiled in steps: a generator that pauses after every `STEP` elements of arrays, and within
long bytes, so that a large request does not hold the event loop. It ends where the arrays have more elements than the
caller allows.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from klamm.model.topic_ids import ZERO_ID
from klamm.wire.compile_runs import Runs
from klamm.wire.schema import FIXED, Field, Kind, Message, Struct
from klamm.wire.source import (
    BYTES_OF_A_STEP,
    MAX_STRING_BYTES,
    MAX_TAGGED_FIELDS,
    STEP,
    CountedUnpack,
    ParseError,
    Source,
    TooManyElements,
    continue_uvarint,
    copy_in_steps,
    min_bytes,
    read_uvarint,
    skip_tagged,
    uuid_of,
)

_COUNTED: Final[dict[Kind, CountedUnpack]] = {
    k: CountedUnpack.of(c) for k, (c, _) in FIXED.items() if k is not Kind.UUID
}
_SHORT_RUN: Final = 2  # so few left are read one by one
_PREFIX_BYTES: Final = {"b": 1, "B": 1, "h": 2, "i": 4}
_NUMBERS_PER_ELEMENT: Final = 8
"""So many numbers in an array count as one element: they take that much less time and memory than structs."""
_NUMBERS_OF_A_STEP: Final = STEP * _NUMBERS_PER_ELEMENT


def compile_decoder(message: Message, version: int, classes: Mapping[str, type]) -> Callable[[bytes, int], Any]:
    """Compile a decoder: a function of a buffer and the position of the body that returns an instance.

    `classes` has the class of each struct by name.
    """
    return _Decoder(message, version, classes).function()


def compile_decoder_in_steps(
    message: Message, version: int, classes: Mapping[str, type]
) -> Callable[[bytes, int, int], Generator[None, None, Any]]:
    """Compile the same decoder as a generator that pauses after every `STEP` elements and returns the instance.

    Its third argument is the number of elements that the arrays may have together: above it, TooManyElements.
    """
    return _Decoder(message, version, classes, in_steps=True).function()


class _Run:
    """Consecutive fields of fixed size, to be unpacked at once: (format character, name, bytes)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._waiting: list[tuple[str, str, int]] = []

    def add(self, character: str, size: int) -> str:
        """Add one field to be unpacked with the others; returns the name of the variable that will hold it."""
        name = self._source.name("v")
        self._waiting.append((character, name, size))
        return name

    def read(self) -> None:
        """Emit source that unpacks the added fields."""
        if not self._waiting:
            return
        line = self._source.line
        size = sum(s for _, _, s in self._waiting)
        names = ", ".join(n for _, n, _ in self._waiting)
        characters = "".join(c for c, _, _ in self._waiting)
        if characters == "B":
            line(f"{names} = b[p]")
        else:
            unpack = self._source.constant(struct.Struct(">" + characters).unpack_from, "U")
            line(f"{names}, = {unpack}(b, p)")
        line(f"p += {size}")
        self._waiting.clear()


class _Decoder:
    """Generates the source of one message's decoder; methods emit code and return the expression of a value."""

    def __init__(self, message: Message, version: int, classes: Mapping[str, type], *, in_steps: bool = False) -> None:
        self._message = message
        self._version = version
        self._flexible = message.is_flexible(version)
        self._classes = classes
        self._in_steps = in_steps
        self._lengths: list[str] = []  # names of the lengths of arrays of numbers, as they were read
        self.source = Source("def decode(b, p, left):" if in_steps else "def decode(b, p):")
        self.source.constants.update(
            ParseError=ParseError,
            TooManyElements=TooManyElements,
            ZERO_ID=ZERO_ID,
            copy=copy_in_steps,
            more=continue_uvarint,
            skip=skip_tagged,
            unpack=_unpack_many,
            uuid=uuid_of,
            uvarint=read_uvarint,
        )

    def function(self) -> Callable[..., Any]:
        """Return the compiled decoder: a function of buffer and position, in steps also of the elements allowed."""
        self.source.line("end = len(b)")
        if self._in_steps:
            self.source.line("done = 0")
            self.source.line("if done: yield")  # a generator also where the message has no arrays
        if self._needs_view():
            self.source.line("m = memoryview(b)")
        self.source.line(f"return {self._struct(self._message.body)}")
        return self.source.compile("decode", f"decode {self._message.name} v{self._version}")

    def _count_elements(self, count: str) -> None:
        """Emit source that subtracts `count` from the number of allowed elements; below 0 it raises TooManyElements."""
        if self._in_steps:
            self.source.line(f"left -= {count}")
            self.source.line("if left < 0: raise TooManyElements")

    def _pause(self, elements: str = "1") -> None:
        """Emit source that counts decoded elements, and pauses after a step of them."""
        if self._in_steps:
            self.source.line(f"done += {elements}")
            self.source.line(f"if done >= {STEP}: done = 0; yield")

    def _needs_view(self) -> bool:
        """Whether the decoder slices a memoryview: for records, or for arrays of flat structs."""
        return any(
            f.element is Kind.RECORDS
            or (f.is_array and isinstance(f.element, Struct) and f.element.is_flat(self._version))
            for s in self._message.structs()
            for f in s.fields
        )

    def _struct(self, struct_: Struct) -> str:
        """Emit source that decodes all fields; returns the expression that creates the instance."""
        run = _Run(self.source)
        values = {f.name: self._field(f, run) for f in struct_.in_order(self._version)}
        if self._flexible:
            tags = run.add("B", 1)
            run.read()
            values |= self._tagged(struct_, tags)
        run.read()
        name = self._class(struct_)
        arguments = [values.get(f.name) or self._default(f) for f in struct_.fields]
        return f"{name}({', '.join(arguments)})"

    def _class(self, struct_: Struct) -> str:
        """The name of the struct's class in the generated code."""
        self.source.constants[struct_.name] = self._classes[struct_.name]
        return struct_.name

    def _default(self, field: Field) -> str:
        """The source expression of a field's default."""
        if field.null_default:
            return "None"
        if field.is_array:
            return "[]" if isinstance(field.element, Struct) else "()"
        if isinstance(field.element, Struct):
            return f"{self._class(field.element)}()"
        if field.element is Kind.UUID:
            return "ZERO_ID"
        if field.default is not None:
            return repr(field.default)
        return {Kind.BOOL: "False", Kind.STR: "''", Kind.BYTES: "b''", Kind.F64: "0.0"}.get(field.element, "0")

    def _tagged(self, struct_: Struct, count: str) -> dict[str, str]:
        """Emit source that decodes a section of tagged fields, whose number is in `count`.

        Returns variable names by field.
        """
        line, source = self.source.line, self.source
        known = struct_.tagged(self._version)
        if not known:
            line(f"if {count}:")
            source.indent()
            self._count_elements(count)
            line(f"p = skip(b, p, {count})")
            self._pause(count)
            source.dedent()
            return {}
        values = {f.name: source.name("t") for _, f in known}
        for _, f in known:
            line(f"{values[f.name]} = {self._default(f)}")
        line(f"if {count}:")
        source.indent()
        line(f"if {count} > 127: {count}, p = more(b, p, {count})")
        line(f"if {count} > {MAX_TAGGED_FIELDS}: raise ParseError")
        self._count_elements(count)
        line(f"for _ in range({count}):")
        source.indent()
        self._pause()
        tag, stop = source.name("tag"), source.name("stop")
        line(f"{tag}, p = uvarint(b, p)")
        line(f"{stop}, p = uvarint(b, p)")
        line(f"{stop} += p")
        line(f"if {stop} > end: raise ParseError")
        for number, f in known:
            line(f"if {tag} == {number}:")
            source.indent()
            run = _Run(source)
            value = self._field(f, run)
            run.read()
            line(f"{values[f.name]} = {value}")
            line(f"if p != {stop}: raise ParseError")
            source.dedent()
        line(f"p = {stop}")
        source.dedent()
        source.dedent()
        return values

    def _field(self, field: Field, run: _Run) -> str:
        """Add the field to the run, or emit source that decodes it; returns the expression of its value."""
        nullable = field.is_nullable(self._version)
        if field.is_array:
            return self._emit_with_length("i", nullable, run, lambda n: self._array(field.element, n))
        if isinstance(field.element, Struct):
            inner = field.element
            if nullable:
                return self._emit_with_length("b", nullable, run, lambda n: self._struct(inner))
            run.read()
            return self._struct(inner)
        return self._primitive(field.element, nullable, run)

    def _primitive(self, kind: Kind, nullable: bool, run: _Run) -> str:
        """Add the value to the run, or emit source that decodes it; returns the expression of the value."""
        if kind in FIXED:
            value = run.add(*FIXED[kind])
            return f"uuid({value})" if kind is Kind.UUID else value
        if kind is Kind.STR:
            return self._emit_with_length("h", nullable, run, self._string)
        return self._emit_with_length("i", nullable, run, lambda n: self._bytes(kind, n))

    def _emit_with_length(self, length_format: str, nullable: bool, run: _Run, body: Callable[[str], str]) -> str:
        """Emit source that decodes a length or null mark and then the `body`.

        Returns the name of the variable with the value.
        """
        line, source = self.source.line, self.source
        compact = self._flexible and length_format != "b"
        character = "B" if compact else length_format
        length = run.add(character, _PREFIX_BYTES[character])
        run.read()
        if compact:
            line(f"if {length} > 127: {length}, p = more(b, p, {length})")
            line(f"{length} -= 1")
        if not nullable:
            line(f"if {length} < 0: raise ParseError")
            return body(length)
        value = source.name("n")
        line(f"if {length} < 0: {value} = None")
        line("else:")
        source.indent()
        line(f"{value} = {body(length)}")
        source.dedent()
        return value

    def _string(self, length: str) -> str:
        """Emit source that decodes a string of this length; returns the name of its variable."""
        line = self.source.line
        stop, value = self.source.name("e"), self.source.name("s")
        line(f"{stop} = p + {length}")
        too_long = f" or {length} > {MAX_STRING_BYTES}" if self._flexible else ""
        line(f"if {stop} > end{too_long}: raise ParseError")
        line(f"{value} = b[p:{stop}].decode('utf-8', 'replace')")
        line(f"p = {stop}")
        return value

    def _bytes(self, kind: Kind, length: str) -> str:
        """Emit source that slices bytes or records of this length; returns the name of their variable."""
        line = self.source.line
        stop, value = self.source.name("e"), self.source.name("s")
        line(f"{stop} = p + {length}")
        line(f"if {stop} > end: raise ParseError")
        if kind is Kind.RECORDS:
            line(f"{value} = m[p:{stop}]")
        elif self._in_steps:
            line(f"{value} = b[p:{stop}] if {length} <= {BYTES_OF_A_STEP} else (yield from copy(b, p, {stop}))")
        else:
            line(f"{value} = b[p:{stop}]")
        line(f"p = {stop}")
        return value

    def _array(self, element: Kind | Struct, count: str) -> str:
        """Emit source that decodes `count` elements; returns the expression of the list or tuple."""
        if isinstance(element, Kind) and element in _COUNTED:
            return self._numbers(element, count)
        line, source = self.source.line, self.source
        line(f"if {count} > (end - p) // {min_bytes(element, self._version, self._flexible)}: raise ParseError")
        value = source.name("a")
        self._count_elements(count)
        line(f"{value} = []")
        if isinstance(element, Struct):
            self._emit_structs(element, count, value)
            return value
        line(f"for _ in range({count}):")
        source.indent()
        self._pause()
        run = _Run(source)
        item = self._primitive(element, False, run)
        run.read()
        line(f"{value}.append({item})")
        source.dedent()
        return f"tuple({value})"

    def _emit_structs(self, struct_: Struct, count: str, into: str) -> None:
        """Emit a loop that appends `count` structs to the list `into`; flat ones are decoded in runs."""
        line, source = self.source.line, self.source
        if not struct_.is_flat(self._version):
            line(f"for _ in range({count}):")
            source.indent()
            self._pause()
            line(f"{into}.append({self._struct(struct_)})")
            source.dedent()
            return
        defaults = [self._default(f) for f in struct_.fields]
        runs = source.constant(Runs(struct_, self._version, self._flexible, defaults, source.constants), "RUNS")
        shape, last = source.name("k"), source.name("k")
        line(f"{last} = None")
        line(f"while {count}:")
        source.indent()
        self._pause()
        self._lengths.clear()
        line(f"{into}.append({self._struct(struct_)})")
        line(f"{count} -= 1")
        line(f"if {count} > {_SHORT_RUN}:")
        source.indent()
        line(f"{shape} = ({''.join(f'{n}, ' for n in self._lengths)})")
        line(f"if {shape} == {last}:")
        source.indent()
        self._emit_run(f"{runs}[{shape}]", count, into)
        source.dedent()
        line(f"{last} = {shape}")
        source.dedent()
        source.dedent()

    def _emit_run(self, run: str, count: str, into: str) -> None:
        """Emit a call of the generated function `run`, which decodes structs of equal size; in steps, one step."""
        line = self.source.line
        if not self._in_steps:
            line(f"p, {count} = {run}(m, p, {count}, end, {into})")
            return
        taken, rest = self.source.name("k"), self.source.name("k")
        line(f"{taken} = min({count}, {STEP})")
        line(f"p, {rest} = {run}(m, p, {taken}, end, {into})")
        line(f"{count} -= {taken} - {rest}")
        self._pause(f"{taken} - {rest}")

    def _numbers(self, kind: Kind, count: str) -> str:
        """Emit source that unpacks an array of numbers; returns the name of its variable."""
        line = self.source.line
        self._lengths.append(count)
        character, size = FIXED[kind]
        counted = f"COUNTED_{character}"
        self.source.constants[counted] = _COUNTED[kind]
        stop, value = self.source.name("e"), self.source.name("a")
        line(f"{stop} = p + {count} * {size}")
        line(f"if {stop} > end: raise ParseError")
        few = len(_COUNTED[kind])
        at_once = f"{counted}[{count}](b, p) if {count} < {few} else unpack('{character}', b, p, {count})"
        if self._in_steps:
            self._count_elements(f"{count} // {_NUMBERS_PER_ELEMENT}")
            line(f"if {count} > {_NUMBERS_OF_A_STEP}:")
            self.source.indent()
            line(f"{value} = []")
            line(f"for p in range(p, {stop}, {_NUMBERS_OF_A_STEP * size}):")
            self.source.indent()
            line(f"{value} += unpack('{character}', b, p, min({_NUMBERS_OF_A_STEP}, ({stop} - p) // {size}))")
            line("yield")
            self.source.dedent()
            line(f"{value} = tuple({value})")
            self.source.dedent()
            line(f"else: {value} = {at_once}")
        else:
            line(f"{value} = {at_once}")
        line(f"p = {stop}")
        return value


def _unpack_many(character: str, buffer: bytes, position: int, count: int) -> tuple[Any, ...]:
    """Return `count` big-endian numbers from the buffer; `character` is their `struct` format."""
    return struct.unpack_from(f">{count}{character}", buffer, position)
