"""What all message classes share: encoding and decoding in any version, compiled at first use."""

import struct
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from klamm.model.errors import error_text
from klamm.wire import plain
from klamm.wire.compile_decode import compile_decoder, compile_decoder_in_steps
from klamm.wire.compile_encode import Parts, compile_element_encoder, compile_encoder, compile_encoder_in_steps
from klamm.wire.errors import MalformedMessage, OversizedMessage, UnencodableField, UnsupportedVersion
from klamm.wire.schema import Message
from klamm.wire.source import STEP, ParseError, TooManyElements

Buffer = bytes | bytearray | memoryview

_DECODE_ERRORS: Final = (ParseError, struct.error, IndexError)
_ENCODE_ERRORS: Final = (struct.error, TypeError, ValueError, AttributeError)
LARGE_BYTES: Final = 4096
"""Pieces of at least this size are sent separately; smaller ones are joined."""
_OWN_REFERENCES: Final = 3
"""To an array that only its message refers to: the field, a local variable, the argument of `getrefcount`. A struct
that only its array refers to has one more: the part of the array that is freed next."""


class Codec:
    """The compiled encoders and decoders of one message, by version."""

    def __init__(self, message: Message, classes: Mapping[str, type]) -> None:
        self.message = message
        self.classes = classes
        self.encoders = _Compiled(message, classes, compile_encoder)
        self.decoders = _Compiled(message, classes, compile_decoder)
        self.encoders_in_steps = _Compiled(message, classes, compile_encoder_in_steps)
        self.decoders_in_steps = _Compiled(message, classes, compile_decoder_in_steps)
        self._element_encoders: dict[tuple[str, int], Callable[[Any, Parts], None]] = {}

    def element_encoder(self, name: str, version: int) -> Callable[[Any, Parts], None]:
        """The compiled encoder of many structs of this name, compiled on first use."""
        found = self._element_encoders.get((name, version))
        if found is None:
            struct_ = next(s for s in self.message.structs() if s.name == name)
            found = compile_element_encoder(self.message, struct_, version, self.classes)
            self._element_encoders[name, version] = found
        return found


class _Compiled(dict[int, Callable[..., Any]]):
    """Version -> function, compiled on first use."""

    def __init__(
        self,
        message: Message,
        classes: Mapping[str, type],
        make: Callable[[Message, int, Mapping[str, type]], Callable[..., Any]],
    ) -> None:
        super().__init__()
        self._message = message
        self._classes = classes
        self._make = make

    def __missing__(self, version: int) -> Callable[..., Any]:
        if version not in self._message.versions:
            raise UnsupportedVersion(self._message.name, version, str(self._message.versions))
        made = self[version] = self._make(self._message, version, self._classes)
        return made


class WireStruct(msgspec.Struct, gc=False):
    """A part of a message. Messages are trees, so the garbage collector need not follow them."""

    ARRAYS: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that are arrays of structs."""


class WireMessage(WireStruct, gc=False):
    """A request or response body."""

    API_KEY: ClassVar[int]
    CODEC: ClassVar[Codec]

    def encode(self, version: int) -> bytes:
        """Encode the body. Raises UnsupportedVersion, UnsupportedField, UnencodableField."""
        return b"".join(self.encode_pieces(version))

    def encode_pieces(self, version: int) -> Parts:
        """Encode the body into a list of byte strings, not joined."""
        pieces: Parts = []
        codec = self.CODEC
        try:
            codec.encoders[version](self, pieces)
        except _ENCODE_ERRORS as error:
            plain.encode(codec.message, version, self)
            raise UnencodableField(codec.message.name, version, "", str(error)) from error
        return pieces

    def encode_in_steps(self, version: int) -> Generator[None, None, Parts]:
        """Encode the body into few buffers, and pause after every step of elements. Raises what `encode` raises."""
        codec = self.CODEC
        pieces: Parts = []
        joined: Parts = []
        try:
            for _ in codec.encoders_in_steps[version](self, pieces):
                joined += join_small(pieces)
                pieces.clear()
                yield
        except _ENCODE_ERRORS as error:
            raise UnencodableField(codec.message.name, version, "", str(error)) from error
        return joined + join_small(pieces)

    @classmethod
    def encode_elements(cls, struct_: type[WireStruct], elements: Sequence[WireStruct], version: int) -> list[bytes]:
        """Encode each of these structs of numbers and arrays of numbers, which an array of this message may contain.

        In an `EncodedElements` they take the place of the structs. Raises UnencodableField.
        """
        encoded: list[Any] = []
        try:
            cls.CODEC.element_encoder(struct_.__name__, version)(elements, encoded)
        except _ENCODE_ERRORS as error:
            raise UnencodableField(cls.CODEC.message.name, version, struct_.__name__, str(error)) from error
        return encoded

    @classmethod
    def decode(cls, buffer: Buffer, version: int, offset: int = 0) -> Any:
        """Decode an instance from the bytes at `offset`; bytes after it are ignored.

        Records are views into `buffer`. Raises UnsupportedVersion, MalformedMessage.
        """
        codec = cls.CODEC
        whole = buffer if isinstance(buffer, bytes) else bytes(buffer)
        try:
            return codec.decoders[version](whole, offset)
        except _DECODE_ERRORS as error:
            plain.decode(codec.message, version, codec.classes, whole, offset)
            raise AssertionError(
                f"bug: the compiled decoder rejects {codec.message.name} v{version} with {error!r}, "
                "the plain decoder accepts it"
            ) from error

    @classmethod
    def decode_in_steps(cls, buffer: bytes, version: int, offset: int, max_elements: int) -> Generator[None, None, Any]:
        """Decode as `decode` does, and pause after every step of elements; the instance is the generator's result.

        Raises UnsupportedVersion, OversizedMessage where the arrays have more than `max_elements` together, and
        MalformedMessage, which does not name the field: to find it would take long.
        """
        codec = cls.CODEC
        try:
            return (yield from codec.decoders_in_steps[version](buffer, offset, max_elements))
        except TooManyElements:
            raise OversizedMessage(codec.message.name, version, max_elements) from None
        except _DECODE_ERRORS as error:
            reason = f"the {len(buffer) - offset} bytes from here do not parse ({error_text(error)})"
            raise MalformedMessage(codec.message.name, version, "", offset, reason) from error


def has_few_elements(message: WireStruct) -> bool:
    """Whether the arrays of structs in the message have at most `STEP` elements together: it is encoded at once."""
    return _elements_left(message, STEP) >= 0


def _elements_left(part: WireStruct, most: int) -> int:
    """Return how many of `most` elements are left after those of the arrays in `part`; below 0 if it has more."""
    for name in part.ARRAYS:
        elements = getattr(part, name)
        if not elements:
            continue
        most -= len(elements)
        if most >= 0 and isinstance(elements[0], WireStruct) and elements[0].ARRAYS:
            for element in elements:
                most = _elements_left(element, most)
                if most < 0:
                    break
        if most < 0:
            break
    return most


def free_in_steps(part: WireStruct) -> Generator[None, None, None]:
    """Empty the arrays of a message that is no longer needed, and pause after every step of elements.

    To free hundreds of thousands of structs at once takes tens of ms. Arrays that others refer to stay as they are.
    """
    for name in part.ARRAYS:
        elements = getattr(part, name)
        if elements is None or sys.getrefcount(elements) > _OWN_REFERENCES:
            continue
        while elements:
            if getattr(elements[-1], "ARRAYS", ()):
                for element in elements[-STEP:]:
                    if sys.getrefcount(element) <= _OWN_REFERENCES + 1:
                        yield from free_in_steps(element)
                    element = None
            is_more = len(elements) > STEP
            del elements[-STEP:]
            if is_more:
                yield


def join_small(pieces: Parts) -> Parts:
    """Join neighbouring pieces below `LARGE_BYTES` into one; larger pieces stay as they are."""
    if pieces and max(map(len, pieces)) < LARGE_BYTES:
        return [b"".join(pieces)]
    parts: Parts = []
    small: Parts = []
    for piece in pieces:
        if len(piece) < LARGE_BYTES:
            small.append(piece)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        parts.append(piece)
    if small:
        parts.append(b"".join(small))
    return parts
