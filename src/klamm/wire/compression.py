"""The five codecs of a record batch, output bounded against bombs. Source: CompressionType.java, SnappyFactory.java.

Snappy exists in two framings: blocks behind snappy-java's 8-byte magic, and one bare block (librdkafka).
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from klamm.model.errors import KlammError

MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""What one batch may unfold to unless the caller says otherwise."""

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Values as the lowest three bits of a batch's attributes carry them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(KlammError):
    """The bytes are not what their codec says, or unfold to more than allowed."""


def compress(codec: Codec, content: Buffer, level: int | None = None) -> bytes:
    """`level` None is the codec's usual one; snappy has none and ignores it."""
    return _COMPRESS[codec](content, level)


def decompress(codec: Codec, content: Buffer, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
    """Raises BadCompression where the content is malformed or its output is longer than `max_bytes`."""
    try:
        output = _DECOMPRESS[codec](content, max_bytes)
    except BadCompression:
        raise
    except (zlib.error, RuntimeError, ValueError, EOFError, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise BadCompression(f"{codec.name.lower()} data of {len(content)} bytes is malformed: {error}") from error
    if len(output) > max_bytes:
        raise _too_long(codec, max_bytes)
    return output


def _too_long(codec: Codec, max_bytes: int) -> BadCompression:
    return BadCompression(f"{codec.name.lower()} data unfolds to more than {max_bytes} bytes")


def _keep(content: Buffer, _level: int | None) -> bytes:
    return bytes(content)


def _keep_bounded(content: Buffer, _max_bytes: int) -> bytes:
    return bytes(content)


def _gzip(content: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, wbits=31)
    return stream.compress(content) + stream.flush()


def _gunzip(content: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes + 1
    pending: Buffer = content
    while len(pending) and left > 0:  # RFC 1952 allows several members, one after the other
        stream = zlib.decompressobj(wbits=31)
        part = stream.decompress(pending, left)
        left -= len(part)
        parts.append(part)
        if not stream.eof and left > 0:
            raise BadCompression("gzip data ends before its stream does")
        pending = stream.unused_data
    return b"".join(parts)


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.pack(">8sii", _XERIAL_MAGIC, 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")


def _snappy(content: Buffer, _level: int | None) -> bytes:
    view = memoryview(content)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(content: Buffer, max_bytes: int) -> bytes:
    view = memoryview(content)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise BadCompression("snappy data ends inside its header")
    parts: list[bytes] = []
    left = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise BadCompression("snappy data ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or position + length > len(view):
            raise BadCompression(f"snappy block of {length} bytes at {position} does not fit in its data")
        parts.append(_unsnappy_block(view[position : position + length], left))
        left -= len(parts[-1])
        position += length
    return b"".join(parts)


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    if _snappy_length(block) > max_bytes:  # the block announces it: refuse before any memory is taken
        raise _too_long(Codec.SNAPPY, max_bytes)
    return bytes(cramjam.snappy.decompress_raw(bytes(block)))


def _snappy_length(block: memoryview) -> int:
    length = 0
    for shift, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return length
    raise BadCompression("snappy data has no length in front")


def _lz4(content: Buffer, level: int | None) -> bytes:
    # independent 64 KiB blocks, no content size: the only shape that Java's reader takes
    compressed: bytes = lz4.frame.compress(
        bytes(content),
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(content: Buffer, max_bytes: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    output: bytes = stream.decompress(bytes(content), max_length=max_bytes + 1)
    if not stream.eof and len(output) <= max_bytes:
        raise BadCompression("lz4 data ends before its frame does")
    return output


def _zstd(content: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(content)


_ZSTD_PIECE_BYTES: Final = 1024


def _unzstd(content: Buffer, max_bytes: int) -> bytes:
    # the frame usually lacks its content size, which the one-shot call would need; fed in small pieces
    # because a piece unfolds at once, by at most 128 KiB for each 4 bytes
    view = memoryview(content)
    parts: list[bytes] = []
    left = max_bytes
    position = 0
    while position < len(view) and left >= 0:
        stream = zstandard.ZstdDecompressor().decompressobj()
        while not stream.eof and position < len(view) and left >= 0:
            piece = view[position : position + _ZSTD_PIECE_BYTES]
            part = stream.decompress(piece)
            parts.append(part)
            left -= len(part)
            position += len(piece)
        if not stream.eof and left >= 0:
            raise BadCompression("zstd data ends before its frame does")
        position -= len(stream.unused_data)
    return b"".join(parts)


_COMPRESS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _keep_bounded,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
