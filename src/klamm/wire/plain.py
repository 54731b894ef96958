"""The reference codec: it reads and writes field by field, slowly, and knows the path of the current field.

Where compiled code fails, this one names the field. Tests compare compiled code with it.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from klamm.wire.errors import MalformedMessage, UnencodableField, UnsupportedField
from klamm.wire.schema import FIXED, Field, Kind, Message, Struct
from klamm.wire.source import MAX_STRING_BYTES, MAX_TAGGED_FIELDS, ParseError, min_bytes, read_uvarint, uvarint

_LENGTH: dict[Kind | None, tuple[str, int]] = {Kind.STR: (">h", 2)}
_LONG_LENGTH = (">i", 4)


def decode(message: Message, version: int, classes: Mapping[str, type], buffer: bytes, offset: int) -> Any:
    """Decode an instance without compiled code. Raises MalformedMessage, which names field and offset."""
    return _Reader(message, version, classes, buffer, offset).message()


def encode(message: Message, version: int, value: Any) -> bytes:
    """Encode a value without compiled code. Raises UnsupportedField, UnencodableField, which name the field."""
    return _Writer(message, version).message(value)


class _FieldPath:
    """The current field's path in a message: `topics[3].partitions[0].records`."""

    def __init__(self, message: Message, version: int) -> None:
        self._message = message
        self._version = version
        self._flexible = message.is_flexible(version)
        self._path: list[str] = []

    def _with_path(self, step: str, walk: Callable[[], Any]) -> Any:
        """Call `walk` with `step` added to the path of the current field.

        If it raises, the path is left as it is, so that the error can name the field.
        """
        self._path.append(step)
        result = walk()
        self._path.pop()
        return result

    @property
    def _field_path(self) -> str:
        """The path of the current field as text."""
        return "".join(s if s.startswith("[") else f".{s}" for s in self._path).lstrip(".")


class _Reader(_FieldPath):
    def __init__(self, message: Message, version: int, classes: Mapping[str, type], buffer: bytes, offset: int) -> None:
        super().__init__(message, version)
        self._classes = classes
        self._buffer = buffer
        self._at = offset

    def message(self) -> Any:
        """Decode the message. Raises MalformedMessage."""
        try:
            return self._struct(self._message.body)
        except ParseError as error:
            raise self._malformed(str(error)) from None
        except IndexError:
            raise self._malformed("the message ends within this field") from None

    def _malformed(self, reason: str) -> MalformedMessage:
        """Return the error for the current field; it names the message, its version, the field and the byte."""
        return MalformedMessage(self._message.name, self._version, self._field_path, self._at, reason)

    def _struct(self, struct_: Struct) -> Any:
        """Decode a struct."""
        values = {f.name: self._with_path(f.name, partial(self._field, f)) for f in struct_.in_order(self._version)}
        if self._flexible:
            values |= self._tagged(dict(struct_.tagged(self._version)))
        return self._classes[struct_.name](**values)

    def _tagged(self, known: Mapping[int, Field]) -> dict[str, Any]:
        """Decode a section of tagged fields into values by field name; unknown tags are skipped."""
        values: dict[str, Any] = {}
        count = self._uvarint()
        if count > MAX_TAGGED_FIELDS:
            raise self._malformed(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are read")
        for _ in range(count):
            tag = self._uvarint()
            size = self._uvarint()
            self._check_remaining(size)
            stop = self._at + size
            field = known.get(tag)
            if field is not None:
                values[field.name] = self._with_path(field.name, partial(self._tagged_value, field, stop))
            self._at = stop
        return values

    def _tagged_value(self, field: Field, stop: int) -> Any:
        """Decode a tagged field that must end at `stop`."""
        value = self._field(field)
        if self._at != stop:
            raise self._malformed(f"the tagged field ends at byte {self._at}, but by its size at byte {stop}")
        return value

    def _field(self, field: Field) -> Any:
        """Decode one field."""
        nullable = field.is_nullable(self._version)
        if field.is_array:
            count = self._length(None, nullable)
            return None if count is None else self._array(field.element, count)
        if isinstance(field.element, Struct):
            if nullable and self._number("b", 1) < 0:
                return None
            return self._struct(field.element)
        return self._primitive(field.element, nullable)

    def _array(self, element: Kind | Struct, count: int) -> Any:
        """Decode an array of this many elements."""
        minimum = min_bytes(element, self._version, self._flexible)
        if count > (len(self._buffer) - self._at) // minimum:
            raise self._malformed(
                f"{count} elements do not fit into the {len(self._buffer) - self._at} bytes that remain"
            )
        items = [self._with_path(f"[{i}]", partial(self._element, element)) for i in range(count)]
        return items if isinstance(element, Struct) else tuple(items)

    def _element(self, element: Kind | Struct) -> Any:
        """Decode one element of an array."""
        return self._struct(element) if isinstance(element, Struct) else self._primitive(element, False)

    def _primitive(self, kind: Kind, nullable: bool) -> Any:
        """Decode a value of a primitive type."""
        if kind is Kind.UUID:
            return uuid.UUID(bytes=self._read_bytes(16))
        if kind in FIXED:
            return self._number(*FIXED[kind])
        length = self._length(kind, nullable)
        if length is None:
            return None
        if kind is Kind.STR and length > MAX_STRING_BYTES:
            raise self._malformed(f"a string of {length} bytes is too long; at most {MAX_STRING_BYTES} are valid")
        raw = self._read_bytes(length)
        return raw.decode("utf-8", "replace") if kind is Kind.STR else raw

    def _length(self, kind: Kind | None, nullable: bool) -> int | None:
        """Decode the length of a string, byte string or array; None for null."""
        length = self._uvarint() - 1 if self._flexible else self._number(*_LENGTH.get(kind, _LONG_LENGTH))
        if length >= 0:
            return length
        if not nullable:
            raise self._malformed("null is not valid for this field")
        return None

    def _uvarint(self) -> int:
        """Decode an unsigned varint."""
        value, self._at = read_uvarint(self._buffer, self._at)
        return value

    def _number(self, character: str, size: int) -> Any:
        """Decode a number of this `struct` format."""
        return struct.unpack(f">{character.lstrip('>')}", self._read_bytes(size))[0]

    def _read_bytes(self, size: int) -> bytes:
        """Return the next `size` bytes and advance. Raises MalformedMessage where fewer remain."""
        self._check_remaining(size)
        raw = self._buffer[self._at : self._at + size]
        self._at += size
        return raw

    def _check_remaining(self, size: int) -> None:
        """Raise MalformedMessage where fewer than `size` bytes remain."""
        if self._at + size > len(self._buffer):
            raise self._malformed(f"the field needs {size} bytes, but only {len(self._buffer) - self._at} remain")


class _Writer(_FieldPath):
    def message(self, value: Any) -> bytes:
        """Encode the message. Raises UnencodableField, UnsupportedField."""
        try:
            return self._struct(self._message.body, value)
        except (struct.error, TypeError, ValueError, AttributeError) as error:
            raise self._unencodable(str(error)) from None

    def _unencodable(self, reason: str) -> UnencodableField:
        """Return the error for the current field; it names the message, its version and the field."""
        return UnencodableField(self._message.name, self._version, self._field_path, reason)

    def _struct(self, struct_: Struct, value: Any) -> bytes:
        """Encode a struct."""
        for f in struct_.absent(self._version):
            held = getattr(value, f.name)
            if not f.ignorable and not is_default(f, held):
                raise UnsupportedField(self._message.name, self._version, f.name, held)
        out = b"".join(
            self._with_path(f.name, partial(self._field, f, getattr(value, f.name)))
            for f in struct_.in_order(self._version)
        )
        return out + self._tagged(struct_, value) if self._flexible else out

    def _tagged(self, struct_: Struct, value: Any) -> bytes:
        """Encode the tagged fields whose values are not their defaults."""
        present = [(t, f) for t, f in struct_.tagged(self._version) if not is_default(f, getattr(value, f.name))]
        out = uvarint(len(present))
        for tag, f in present:
            payload = self._with_path(f.name, partial(self._field, f, getattr(value, f.name)))
            out += uvarint(tag) + uvarint(len(payload)) + payload
        return out

    def _field(self, field: Field, value: Any) -> bytes:
        """Encode one field."""
        nullable = field.is_nullable(self._version)
        if field.is_array:
            if value is None:
                return self._null(None, nullable)
            encode_element = self._element(field.element)
            items = [self._with_path(f"[{i}]", partial(encode_element, v)) for i, v in enumerate(value)]
            return self._length(None, len(items)) + b"".join(items)
        if isinstance(field.element, Struct):
            if not nullable:
                return self._struct(field.element, value)
            return b"\xff" if value is None else b"\x01" + self._struct(field.element, value)
        return self._primitive(field.element, value, nullable)

    def _element(self, element: Kind | Struct) -> Callable[[Any], bytes]:
        """Return the function that encodes one element of an array of this type."""
        if isinstance(element, Struct):
            return lambda value: self._struct(element, value)
        return lambda value: self._primitive(element, value, False)

    def _primitive(self, kind: Kind, value: Any, nullable: bool) -> bytes:
        """Encode a value of a primitive type."""
        if kind is Kind.UUID:
            raw: bytes = value.bytes
            return raw
        if kind in FIXED:
            return struct.pack(f">{FIXED[kind][0]}", value)
        if value is None:
            return self._null(kind, nullable)
        raw = value.encode() if kind is Kind.STR else bytes(value)
        if kind is Kind.STR and len(raw) > MAX_STRING_BYTES:
            raise self._unencodable(f"a string of {len(raw)} bytes is too long; at most {MAX_STRING_BYTES} are valid")
        return self._length(kind, len(raw)) + raw

    def _null(self, kind: Kind | None, nullable: bool) -> bytes:
        """Encode null. Raises UnencodableField if the field is not nullable."""
        if not nullable:
            raise self._unencodable("null is not valid for this field")
        return self._length(kind, -1)

    def _length(self, kind: Kind | None, length: int) -> bytes:
        """Encode the length of a string, byte string or array."""
        if self._flexible:
            return uvarint(length + 1)
        return struct.pack(_LENGTH.get(kind, _LONG_LENGTH)[0], length)


def is_default(field: Field, value: Any) -> bool:
    """Whether the value is the field's default, so that a version without the field can be encoded."""
    if field.null_default:
        return value is None
    if field.is_array:
        return value is not None and len(value) == 0
    if isinstance(field.element, Struct):
        return all(is_default(f, getattr(value, f.name)) for f in field.element.fields)
    if field.default is not None:
        return bool(value == field.default)
    if field.element is Kind.UUID:
        return bool(value.int == 0)
    if field.element in (Kind.STR, Kind.BYTES):
        return value is not None and len(value) == 0
    return bool(value == 0)
