"""Frames and headers: messages on a connection. Source: RequestHeader.java, NetworkReceive.java."""

import struct
from typing import Any, Final, NamedTuple

from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage, join_small
from klamm.wire.compile_encode import Parts
from klamm.wire.errors import MalformedFrame, MalformedHeader
from klamm.wire.source import ParseError, skip_tagged

MAX_REQUEST_BYTES: Final = 104_857_600
"""`socket.request.max.bytes` by default."""

_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
_CLIENT_ID_LENGTH: Final = struct.Struct(">h")
_FRAMED_REQUEST: Final = struct.Struct(">ihhi")
_FRAMED_RESPONSE: Final = struct.Struct(">ii")
_SMALL_CHUNK_BYTES: Final = 4096
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
            f"request header: the frame has {len(frame)} bytes, a header at least {_REQUEST.size}"
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
    pieces = body.encode_pieces(version)
    tail = b"\0" if about.response_header_version(version) else b""
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
        raise MalformedHeader(f"response header: the frame has {len(frame)} bytes, a header at least {_SIZE.size}")
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


class FrameReader:
    """Cuts a stream of bytes into frames.

    Holds at most one incomplete frame; memory is that of the bytes fed, whatever size they announce. What was fed
    is copied once, into its frame.
    """

    def __init__(self, max_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._prefix = b""
        self._size: int | None = None
        self._chunks: list[bytearray | memoryview] = []
        self._have = 0

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes received of the incomplete frame."""
        return self._have + len(self._prefix)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; returns the frames now complete, without their sizes.

        Raises MalformedFrame with the frames before it; the connection cannot go on after that.
        """
        frames: list[bytes] = []
        at, stop = 0, len(data)
        while at < stop or self._size == 0:
            if self._size is None:
                at = self._read_size(data, at, frames)
                continue
            end = at + self._size - self._have
            if end > stop:
                self._buffer_partial(data, at)
                break
            frames.append(self._join_frame(data, at, end))
            at = end
        return frames

    def _read_size(self, data: bytes, at: int, frames: list[bytes]) -> int:
        """Read as much of a frame's size as has arrived; returns the position after it."""
        end = at + _SIZE.size - len(self._prefix)
        self._prefix += data[at:end]
        if len(self._prefix) == _SIZE.size:
            (size,) = _SIZE.unpack(self._prefix)
            if not 0 <= size <= self._max_bytes:
                raise MalformedFrame(size, self._max_bytes, frames)
            self._size = size
            self._prefix = b""
        return min(end, len(data))

    def _buffer_partial(self, data: bytes, at: int) -> None:
        """Keep part of a frame; small chunks share one buffer, so that memory stays near the frame's size."""
        rest = len(data) - at
        self._have += rest
        last = self._chunks[-1] if self._chunks else None
        if rest >= _SMALL_CHUNK_BYTES:
            self._chunks.append(memoryview(data)[at:])
        elif isinstance(last, bytearray):
            last += data[at:]
        else:
            self._chunks.append(bytearray(data[at:]))

    def _join_frame(self, data: bytes, at: int, end: int) -> bytes:
        """The complete frame from the buffered parts and the rest in `data`."""
        frame = data[at:end]
        if self._have:
            frame = b"".join((*self._chunks, memoryview(data)[at:end]))
            self._chunks = []
            self._have = 0
        self._size = None
        return frame
