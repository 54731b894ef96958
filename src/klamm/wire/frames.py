"""Frames and headers: messages on a connection. Source: RequestHeader.java, NetworkReceive.java."""

import struct
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage, join_small
from klamm.wire.compile_encode import Parts
from klamm.wire.errors import MalformedHeader
from klamm.wire.source import ParseError, skip_tagged

_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
_CLIENT_ID_LENGTH: Final = struct.Struct(">h")
_FRAMED_REQUEST: Final = struct.Struct(">ihhi")
_FRAMED_RESPONSE: Final = struct.Struct(">ii")
_UNSUPPORTED_VERSION: Final = b"\x00\x23"


class RequestHeader(NamedTuple):
    """`client_id` is "" where the client sent null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header and the offset at which the body begins.

    The version need not be one we know: a broker answers even an unknown version of ApiVersions. Raises UnknownApi,
    MalformedHeader.
    """
    try:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
    except struct.error:
        raise MalformedHeader(
            f"request header: the frame has {len(frame)} bytes, but a header has at least {_REQUEST.size}"
        ) from None
    form = api(key).request_header_version(version)
    at = _REQUEST.size
    client_id = ""
    if form >= 1:
        try:
            (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, at)
        except struct.error:
            raise MalformedHeader(
                f"request header, client_id at byte {at}: the frame ends after {len(frame)} bytes"
            ) from None
        at += _CLIENT_ID_LENGTH.size
        if length > 0:
            client_id = frame[at : at + length].decode("utf-8", "replace")
            at += length
            if at > len(frame):
                raise MalformedHeader(
                    f"request header, client_id: its {length} bytes do not fit into the frame of {len(frame)} bytes"
                )
    if form == 2:
        at = _skip_tagged(frame, at)
    return RequestHeader(key, version, correlation_id, client_id), at


def encode_request(header: RequestHeader, body: WireMessage) -> Parts:
    """Encode a whole request frame, its size first, into few buffers; records are not copied."""
    key, version, correlation_id, client_id = header
    pieces = body.encode_pieces(version)
    form = api(key).request_header_version(version)
    tail = b""
    if form >= 1:
        text = client_id.encode()
        tail = _CLIENT_ID_LENGTH.pack(len(text)) + text + (b"\0" if form == 2 else b"")
    size = _REQUEST.size + len(tail) + sum(map(len, pieces))
    pieces.insert(0, _FRAMED_REQUEST.pack(size, key, version, correlation_id) + tail)
    return join_small(pieces)


def encode_response(api_key: int, version: int, correlation_id: int, body: WireMessage) -> Parts:
    """Encode a whole response frame, its size first, into few buffers; records are not copied.

    ApiVersions in a version above ours is answered in the layout of version 0, which every client reads.
    """
    about = api(api_key)
    if about.key is ApiKey.API_VERSIONS and not about.min_version <= version <= about.max_version:
        version = 0
    return _framed_response(api_key, version, correlation_id, body.encode_pieces(version))


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, body: WireMessage
) -> Generator[None, None, Parts]:
    """Encode as `encode_response` does, and pause after every step of elements."""
    return _framed_response(api_key, version, correlation_id, (yield from body.encode_in_steps(version)))


def _framed_response(api_key: int, version: int, correlation_id: int, pieces: Parts) -> Parts:
    """Put size and header before the encoded body."""
    tail = b"\0" if api(api_key).response_header_version(version) else b""
    size = _FRAMED_RESPONSE.size - _SIZE.size + len(tail) + sum(map(len, pieces))
    pieces.insert(0, _FRAMED_RESPONSE.pack(size, correlation_id) + tail)
    return join_small(pieces)


def decode_response(frame: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """Decode a response frame without its size: (correlation id, message).

    `version` is the request's. A broker that does not know this version of ApiVersions answers in version 0. Raises
    UnknownApi, MalformedHeader, MalformedMessage.
    """
    about = api(api_key)
    if len(frame) < _SIZE.size:
        raise MalformedHeader(
            f"response header: the frame has {len(frame)} bytes, but a header has at least {_SIZE.size}"
        )
    (correlation_id,) = _SIZE.unpack_from(frame)
    at = _SIZE.size
    if about.response_header_version(version):
        at = _skip_tagged(frame, at)
    if about.key is ApiKey.API_VERSIONS and frame[at : at + 2] == _UNSUPPORTED_VERSION:
        version = 0
    return correlation_id, about.response.decode(frame, version, at)


def _skip_tagged(frame: bytes, at: int) -> int:
    """Return the offset after the tagged fields that begin at `at`."""
    try:
        return skip_tagged(frame, at + 1, frame[at])
    except (IndexError, ParseError):
        raise MalformedHeader(
            f"header, tagged fields at byte {at}: they do not fit into the frame of {len(frame)} bytes"
        ) from None
