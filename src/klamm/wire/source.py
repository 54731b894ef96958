"""Python source under construction, and the small functions generated code calls."""

import struct
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache, lru_cache, partial
from io import BytesIO
from itertools import islice
from typing import Any, Final

from klamm.wire.schema import FIXED, Field, Kind, Struct

MAX_STRING_BYTES: Final = 32767
"""Kafka rejects longer strings in every encoding."""

STEP: Final = 128
"""Elements of arrays between two pauses of a codec that works in steps."""
BYTES_OF_A_STEP: Final = 1024 * 1024
"""Bytes that a codec in steps copies between two pauses; that takes about half a millisecond."""
MAX_TAGGED_FIELDS: Final = 1_000
"""Kafka's messages have at most ten; each one costs time even where it is skipped."""

_CACHED_COUNT: Final = 16
_CACHED_SHAPES: Final = 512
_ONE_BYTE_LENGTH: Final = 127


class ParseError(Exception):
    """The bytes do not parse. The reference codec (`klamm.wire.plain`) then decodes again and names the field."""


def copy_in_steps(buffer: bytes, start: int, stop: int) -> Generator[None, None, bytes]:
    """Return a copy of the bytes between two positions, and pause after every step of them."""
    copied = BytesIO()
    with memoryview(buffer) as view:
        for position in range(start, stop, BYTES_OF_A_STEP):
            copied.write(view[position : min(position + BYTES_OF_A_STEP, stop)])
            yield
    return copied.getvalue()


class TooManyElements(Exception):
    """The arrays of a message have more elements than the decoder was allowed to create."""


class Source:
    """Generates the source of one Python function and holds the constants it names."""

    def __init__(self, header: str) -> None:
        self._lines = [header]
        self._indent = 1
        self._names = 0
        self.constants: dict[str, Any] = {}

    def line(self, text: str) -> None:
        """Add one line at the current indentation."""
        self._lines.append("    " * self._indent + text)

    def indent(self) -> None:
        """Indent the following lines by one more level."""
        self._indent += 1

    def dedent(self) -> None:
        """Indent the following lines by one level less."""
        self._indent -= 1

    def name(self, prefix: str) -> str:
        """Return a new variable name that begins with `prefix`."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: object, prefix: str = "K") -> str:
        """Return the name under which the generated code can use `value`."""
        name = self.name(prefix)
        self.constants[name] = value
        return name

    def text(self) -> str:
        """Return the generated source as one text that ends with a newline."""
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, origin: str) -> Callable[..., Any]:
        """Compile the source and return its function; `origin` names it in tracebacks."""
        namespace = dict(self.constants)
        exec(compile(self.text(), f"<klamm.wire {origin}>", "exec"), namespace)
        made: Callable[..., Any] = namespace[function]
        return made


def min_bytes(element: Kind | Struct, version: int, flexible: bool) -> int:
    """The minimum size of an array's element.

    An array count above the remaining bytes divided by this size is malformed.
    """
    if isinstance(element, Kind):
        if element in FIXED:
            return FIXED[element][1]
        return 1 if flexible else 2 if element is Kind.STR else 4
    return sum(_min_field_bytes(f, version, flexible) for f in element.in_order(version)) + flexible


def _min_field_bytes(field: Field, version: int, flexible: bool) -> int:
    """The minimum encoded size of a field."""
    if field.is_array:
        return 1 if flexible else 4
    if isinstance(field.element, Struct) and field.is_nullable(version):
        return 1
    return min_bytes(field.element, version, flexible)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned varint: (value, position after it). Raises IndexError, or ParseError after five bytes."""
    value = buffer[position]
    position += 1
    return (value, position) if value < 0x80 else continue_uvarint(buffer, position, value)


def continue_uvarint(buffer: bytes, position: int, value: int) -> tuple[int, int]:
    """Decode the rest of an unsigned varint whose first byte was `value`."""
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise ParseError(f"the length before byte {position} of the message is {value}, above 2147483647")
            return value, position
    raise ParseError(f"the unsigned varint at byte {position - 5} of the message is longer than five bytes")


def skip_tagged(buffer: bytes, position: int, count: int) -> int:
    """Skip a section of `count` tagged fields; returns the position after it."""
    if count > 0x7F:
        count, position = continue_uvarint(buffer, position, count)
    if count > MAX_TAGGED_FIELDS:
        raise ParseError(f"{count} tagged fields before byte {position}; at most {MAX_TAGGED_FIELDS} are read")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise ParseError(f"the tagged field of {size} bytes passes the end of the message, byte {len(buffer)}")
    return position


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> uuid.UUID:
    """The UUID of 16 bytes, cached: topic ids repeat, and creating a UUID is slow."""
    return uuid.UUID(bytes=raw)


class CountedUnpack(tuple[Callable[[bytes, int], tuple[Any, ...]], ...]):
    """`CountedUnpack.of("i")[n](buffer, position)` reads n numbers, for small n."""

    @staticmethod
    def of(character: str) -> "CountedUnpack":
        """Return the functions that unpack numbers of this `struct` format character, by the count of numbers."""
        return CountedUnpack(struct.Struct(f">{n}{character}").unpack_from for n in range(_CACHED_COUNT))


class CountedPack(dict[int, Callable[..., bytes]]):
    """`CountedPack.of("i")[n](*numbers)` packs n numbers; formats of small n are remembered."""

    def __init__(self, character: str) -> None:
        super().__init__()
        self._character = character

    def __missing__(self, count: int) -> Callable[..., bytes]:
        made = struct.Struct(f">{count}{self._character}").pack
        if count < _CACHED_COUNT:
            self[count] = made
        return made

    @staticmethod
    @cache
    def of(character: str) -> "CountedPack":
        """Return the functions that pack numbers of this `struct` format character, by the count of numbers."""
        return CountedPack(character)


class EncodedElements(list[Any]):
    """Byte strings of structs that are encoded already; takes the place of the array of these structs in a message.

    Only for structs of numbers and arrays of numbers: `WireMessage.encode_elements` encodes them.
    """


class JoinedElements:
    """Encoded structs like `EncodedElements`, of which one byte string may have several; its length counts structs."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, piece: bytes = b"", count: int = 0) -> None:
        """Begin with a byte string of `count` structs."""
        self._pieces = [piece] if count else []
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def append(self, encoded: bytes) -> None:
        """Add one struct."""
        self._pieces.append(encoded)
        self._count += 1

    def extend(self, other: "JoinedElements") -> None:
        """Add the structs of another array."""
        self._pieces += other._pieces
        self._count += other._count


ENCODED: Final = frozenset((EncodedElements, JoinedElements))
"""The classes that take the place of an array of structs and have their encodings."""


class ShapedPack(dict[tuple[int, ...], Callable[..., bytes]]):
    """The pack function of a struct of numbers whose arrays have the lengths of the key.

    `shape` has a `struct` character for a number, one in brackets for an array; the function takes the numbers in
    order, before an array the encoded length. Lengths a cluster does not repeat are not
    remembered, so the dictionary is bounded.
    """

    def __init__(self, shape: Sequence[str], flexible: bool) -> None:
        super().__init__()
        self._shape = shape
        self._flexible = flexible

    def __missing__(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        if self._flexible and max(lengths) >= _ONE_BYTE_LENGTH:
            return partial(self._pack_long, lengths)
        left = iter(lengths)
        prefix = "B" if self._flexible else "i"
        characters = "".join(f"{prefix}{next(left)}{c[1]}" if len(c) > 1 else c for c in self._shape)
        made = struct.Struct(f">{characters}{'x' if self._flexible else ''}").pack
        if len(self) < _CACHED_SHAPES and max(lengths) < _CACHED_COUNT:
            self[lengths] = made
        return made

    def _pack_long(self, lengths: tuple[int, ...], *values: Any) -> bytes:
        """Pack a struct that has an array whose length takes more than one byte."""
        left, numbers = iter(lengths), iter(values)
        out = b""
        for character in self._shape:
            count = 1
            if len(character) > 1:
                count = next(left)
                out += uvarint(next(numbers))
            out += struct.pack(f">{count}{character.strip('[]')}", *islice(numbers, count))
        return out + b"\0"
