"""Encoding, compiled: one Python function per message and version, appending pieces to a list.

Consecutive fields of fixed size, together with the length that follows them, become one `pack`. Structs that are
only numbers and arrays of numbers (partition states) become a single `pack` whose format is looked up by the lengths
of the arrays. Records are appended as they are, never copied. The generated code says only *that* a value does not
fit; `klamm.wire.length_format` finds the field.

Each encoder can also be compiled in steps: a generator that pauses after every `STEP` elements of arrays.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any

from klamm.model.topic_ids import ZERO_ID
from klamm.wire.errors import UnsupportedField
from klamm.wire.schema import FIXED, Field, Kind, Message, Struct
from klamm.wire.source import ENCODED, MAX_STRING_BYTES, STEP, CountedPack, ShapedPack, Source, uvarint

Parts = list[bytes | memoryview]


def compile_encoder(message: Message, version: int, classes: Mapping[str, type]) -> Callable[[Any, Parts], None]:
    """Return a function that takes an instance and a list, and appends the encoded byte strings to the list.

    `classes` has the class of each struct by name.
    """
    return _Encoder(message, version, classes).function()


def compile_encoder_in_steps(
    message: Message, version: int, classes: Mapping[str, type]
) -> Callable[[Any, Parts], Generator[None, None, None]]:
    """Return the same function as a generator that pauses after every `STEP` elements.

    In a pause the caller may take the byte strings out of the list.
    """
    return _Encoder(message, version, classes, in_steps=True).function()


def compile_element_encoder(
    message: Message, struct_: Struct, version: int, classes: Mapping[str, type]
) -> Callable[[Any, Parts], None]:
    """Return a function that takes structs of the message and a list, and appends one byte string for each of them.

    The struct has only numbers and arrays of numbers in this version: such a struct is encoded in one piece.
    """
    assert _is_packed_at_once(struct_, version), f"{struct_.name} is not encoded in one piece"
    return _Encoder(message, version, classes).element_function(struct_)


class _Run:
    """Fixed fields waiting to be packed at once: `struct` characters and the expressions of their values."""

    def __init__(self, source: Source, add: str) -> None:
        self._source = source
        self._characters = ""
        self._values: list[str] = []
        self.add_name = add

    def add(self, character: str, value: str) -> None:
        """Add one value, to be packed later."""
        self._characters += character
        self._values.append(value)

    def pad(self) -> None:
        """Add one zero byte to the fixed-size fields that are packed together."""
        self._characters += "x"

    def write(self, character: str = "", value: str = "", keep: bool = False) -> None:
        """Emit source that packs the added values and one more.

        With `keep` the added values stay, for another branch of the source.
        """
        characters = self._characters + character
        values = [*self._values, value] if value else self._values
        if characters == "x":
            self._source.line(f"{self.add_name}(b'\\0')")
        elif characters:
            pack = self._source.constant(struct.Struct(">" + characters).pack, "P")
            self._source.line(f"{self.add_name}({pack}({', '.join(values)}))")
        if not keep:
            self._characters, self._values = "", []


class _Encoder:
    """Generates the source of one message's encoder; methods emit code for a value given as an expression."""

    def __init__(self, message: Message, version: int, classes: Mapping[str, type], *, in_steps: bool = False) -> None:
        self._message = message
        self._version = version
        self._flexible = message.is_flexible(version)
        self._classes = classes
        self._in_steps = in_steps
        self.source = Source("def encode(x, w):")
        self.source.constants.update(
            uvarint=uvarint, ZERO_ID=ZERO_ID, lacking=self._raise_unsupported, too_long=_raise_too_long
        )

    def function(self) -> Callable[[Any, Parts], Any]:
        """Return the compiled encoder."""
        self.source.line("add = w.append")
        if self._in_steps:
            self.source.line("done = 0")
            self.source.line("if done: yield")  # a generator also where the message has no arrays
        run = _Run(self.source, "add")
        self._struct(self._message.body, "x", run)
        run.write()
        return self.source.compile("encode", f"encode {self._message.name} v{self._version}")

    def element_function(self, struct_: Struct) -> Callable[[Any, Parts], None]:
        """Return the compiled encoder of many structs that the message holds."""
        self.source.line("add = w.append")
        self._array_of_structs(struct_, "x", _Run(self.source, "add"))
        return self.source.compile("encode", f"encode many {struct_.name} v{self._version}")

    def _pause(self) -> None:
        """Emit source that counts encoded elements, and pauses after a step of them."""
        if self._in_steps:
            self.source.line("done += 1")
            self.source.line(f"if done >= {STEP}: done = 0; yield")

    def _raise_unsupported(self, field: str, value: object) -> None:
        """Raise UnsupportedField, because this version has no such field and its value is not the default."""
        raise UnsupportedField(self._message.name, self._version, field, value)

    def _struct(self, struct_: Struct, owner: str, run: _Run) -> None:
        """Emit source that encodes all fields of the struct."""
        self._emit_absent_check(struct_, owner)
        for f in struct_.in_order(self._version):
            self._field(f, f"{owner}.{f.name}", run)
        if self._flexible:
            self._tagged(struct_, owner, run)

    def _emit_absent_check(self, struct_: Struct, owner: str) -> None:
        """Emit checks that fields missing in this version have their default."""
        for f in struct_.absent(self._version):
            if not f.ignorable:
                value = f"{owner}.{f.name}"
                self.source.line(f"if {self._is_not_default(f, value)}: lacking('{f.name}', {value})")

    def _is_not_default(self, field: Field, value: str) -> str:
        """The source expression that tells whether the value differs from the field's default."""
        if field.null_default:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})" if field.is_nullable_ever else f"len({value})"
        if isinstance(field.element, Struct):
            return " or ".join(f"({self._is_not_default(f, f'{value}.{f.name}')})" for f in field.element.fields)
        if field.element is Kind.UUID:
            return f"{value} is not ZERO_ID and {value} != ZERO_ID"
        if field.default is not None:
            return f"{value} != {field.default!r}"
        if field.element in (Kind.STR, Kind.BYTES):
            return f"{value} is None or len({value})" if field.is_nullable_ever else f"len({value})"
        return f"{value} != 0"

    def _tagged(self, struct_: Struct, owner: str, run: _Run) -> None:
        """Emit source that encodes the tagged fields whose values are not their defaults."""
        known = struct_.tagged(self._version)
        if not known:
            run.pad()
            return
        line, source = self.source.line, self.source
        flags = [source.name("c") for _ in known]
        for flag, (_, f) in zip(flags, known, strict=True):
            line(f"{flag} = bool({self._is_not_default(f, f'{owner}.{f.name}')})")
        line(f"if not ({' or '.join(flags)}):")
        source.indent()
        run.write("x", keep=True)
        source.dedent()
        line("else:")
        source.indent()
        run.write("B", " + ".join(flags))
        for flag, (tag, f) in zip(flags, known, strict=True):
            line(f"if {flag}:")
            source.indent()
            pieces, add = source.name("w"), source.name("add")
            line(f"{pieces} = []")
            line(f"{add} = {pieces}.append")
            inner = _Run(source, add)
            self._field(f, f"{owner}.{f.name}", inner)
            inner.write()
            line(f"{pieces} = b''.join({pieces})")
            line(f"{run.add_name}({uvarint(tag)!r} + uvarint(len({pieces})) + {pieces})")
            source.dedent()
        source.dedent()

    def _field(self, field: Field, value: str, run: _Run) -> None:
        """Add the field to the run, or emit source that encodes it."""
        nullable = field.is_nullable(self._version)
        if field.is_array:
            self._emit_with_length("i", value, nullable, run, lambda v, n: self._array(field.element, v, n, run))
        elif isinstance(field.element, Struct):
            if nullable:
                self._nullable_struct(field.element, value, run)
            else:
                self._struct(field.element, value, run)
        elif field.element in FIXED:
            _add_fixed(field.element, value, run)
        elif field.element is Kind.STR:
            self._string(value, nullable, run)
        else:
            self._emit_with_length("i", value, nullable, run, lambda v, _: self.source.line(f"{run.add_name}({v})"))

    def _nullable_struct(self, struct_: Struct, value: str, run: _Run) -> None:
        """Emit source that encodes a null mark, then the struct where it is not None."""
        line, source = self.source.line, self.source
        run.write()
        line(f"if {value} is None: {run.add_name}(b'\\xff')")
        line("else:")
        source.indent()
        run.add("b", "1")
        self._struct(struct_, value, run)
        run.write()
        source.dedent()

    def _string(self, value: str, nullable: bool, run: _Run) -> None:
        """Emit source that encodes a string with its length."""
        text = self.source.name("s")
        if not nullable:
            self.source.line(f"{text} = {value}.encode()")
            self._emit_length("h", text, run)
            self.source.line(f"{run.add_name}({text})")
            return
        self._emit_with_length(
            "h",
            value,
            nullable,
            run,
            lambda v, _: self.source.line(f"{run.add_name}({v})"),
            convert=".encode()",
        )

    def _emit_with_length(
        self,
        length_format: str,
        value: str,
        nullable: bool,
        run: _Run,
        body: Callable[[str, str], None],
        convert: str = "",
    ) -> None:
        """Emit source that encodes a length, then the body.

        `body` gets the names of the variables with the value and its length.
        """
        line, source = self.source.line, self.source
        held = source.name("a")
        line(f"{held} = {value}")
        if not nullable:
            body(held, self._emit_length(length_format, held, run))
            return
        line(f"if {held} is None:")
        source.indent()
        run.write("B" if self._flexible else length_format, "0" if self._flexible else "-1", keep=True)
        source.dedent()
        line("else:")
        source.indent()
        if convert:
            line(f"{held} = {held}{convert}")
        body(held, self._emit_length(length_format, held, run))
        run.write()
        source.dedent()

    def _emit_length(self, length_format: str, value: str, run: _Run) -> str:
        """Emit source that writes the collected fixed-size fields and then the length of `value`.

        Returns the name of the variable with that length.
        """
        line, source = self.source.line, self.source
        length = source.name("n")
        line(f"{length} = len({value})")
        if not self._flexible:
            run.write(length_format, length)
            return length
        line(f"if {length} < 127:")
        source.indent()
        run.write("B", f"{length} + 1", keep=True)
        source.dedent()
        line("else:")
        source.indent()
        if length_format == "h":
            line(f"if {length} > {MAX_STRING_BYTES}: too_long({length})")
        run.write()
        line(f"{run.add_name}(uvarint({length} + 1))")
        source.dedent()
        return length

    def _array(self, element: Kind | Struct, items: str, length: str, run: _Run) -> None:
        """Emit source that encodes an array's elements; its length is written already."""
        line, source = self.source.line, self.source
        if isinstance(element, Kind) and element in FIXED and element is not Kind.UUID:
            packs = f"COUNTED_{FIXED[element][0]}"
            source.constants[packs] = CountedPack.of(FIXED[element][0])
            line(f"{run.add_name}({packs}[{length}](*{items}))")
            return
        if isinstance(element, Struct) and _is_packed_at_once(element, self._version):
            source.constants["ENCODED"] = ENCODED
            line(f"if {items}.__class__ in ENCODED: {run.add_name}(b''.join({items}))")
            line("else:")
            source.indent()
            self._array_of_structs(element, items, run)
            source.dedent()
            return
        if isinstance(element, Struct):
            self._array_of_structs(element, items, run)
            return
        item = source.name("i")
        line(f"for {item} in {items}:")
        source.indent()
        self._pause()
        self._field(Field("", element, False, self._message.versions), item, run)
        run.write()
        source.dedent()

    def _array_of_structs(self, struct_: Struct, items: str, run: _Run) -> None:
        """Emit source that encodes the structs of an array one after the other."""
        item = self.source.name("i")
        self.source.line(f"for {item} in {items}:")
        self.source.indent()
        self._pause()
        if _is_packed_at_once(struct_, self._version):
            self._emit_flat_struct(struct_, item, run)
        else:
            self._struct(struct_, item, run)
        run.write()
        self.source.dedent()

    def _emit_flat_struct(self, struct_: Struct, owner: str, run: _Run) -> None:
        """Emit source that packs the whole struct at once; its format is looked up by the lengths of the arrays."""
        line, source = self.source.line, self.source
        self._emit_absent_check(struct_, owner)
        shape: list[str] = []
        values: list[str] = []
        lengths: list[str] = []
        for f in struct_.in_order(self._version):
            value = f"{owner}.{f.name}"
            character = FIXED[f.element][0] if isinstance(f.element, Kind) else ""
            if not f.is_array:
                shape.append(character)
                values.append(value)
                continue
            held, length = source.name("a"), source.name("n")
            line(f"{held} = {value}; {length} = len({held})")
            lengths.append(length)
            shape.append(f"[{character}]")
            values += [f"{length} + 1" if self._flexible else length, f"*{held}"]
        packs = source.constant(ShapedPack(shape, self._flexible), "SHAPES")
        line(f"{run.add_name}({packs}[{', '.join(lengths)},]({', '.join(values)}))")


def _is_packed_at_once(struct_: Struct, version: int) -> bool:
    """Whether the struct has numbers and arrays of numbers only, and at least one array."""
    return struct_.is_flat(version) and any(f.is_array for f in struct_.in_order(version))


def _add_fixed(kind: Kind, value: str, run: _Run) -> None:
    """Add a value of fixed size to the run."""
    run.add(FIXED[kind][0], f"{value}.bytes" if kind is Kind.UUID else value)


def _raise_too_long(length: int) -> None:
    """Raise ValueError for a string of `length` encoded bytes, more than the format allows."""
    raise ValueError(f"a string field of the message has {length} bytes; at most {MAX_STRING_BYTES} are valid")
