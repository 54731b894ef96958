"""What all message classes share: encoding and decoding in any version, compiled at first use."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from klamm.wire import plain
from klamm.wire.compile_decode import compile_decoder
from klamm.wire.compile_encode import Parts, compile_element_encoder, compile_encoder
from klamm.wire.errors import UnencodableField, UnsupportedVersion
from klamm.wire.schema import Message
from klamm.wire.source import ParseError

Buffer = bytes | bytearray | memoryview

_DECODE_ERRORS: Final = (ParseError, struct.error, IndexError)
_ENCODE_ERRORS: Final = (struct.error, TypeError, ValueError, AttributeError)
LARGE_BYTES: Final = 4096
"""Pieces of at least this size are sent separately; smaller ones are joined."""


class Codec:
    """The compiled encoders and decoders of one message, by version."""

    def __init__(self, message: Message, classes: Mapping[str, type]) -> None:
        self.message = message
        self.classes = classes
        self.encoders = _Compiled(message, classes, compile_encoder)
        self.decoders = _Compiled(message, classes, compile_decoder)
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


class WireMessage(WireStruct, gc=False):
    """A request or response body."""

    API_KEY: ClassVar[int]
    CODEC: ClassVar[Codec]

    def encode(self, version: int) -> bytes:
        """Encode the body. Raises UnsupportedVersion, UnsupportedField, UnencodableField."""
        return b"".join(self.encode_pieces(version))

    def encode_parts(self, version: int) -> Parts:
        """Encode the body into few buffers; large records are not copied."""
        return join_small(self.encode_pieces(version))

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
        """Decode an instance from the bytes at `offset`; bytes behind it are ignored.

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
