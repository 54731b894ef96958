"""Decompression in small steps: memory and time between two steps do not grow with the decompressed size.

Snappy has two framings: blocks behind snappy-java's 8-byte magic, and one bare block (librdkafka). A block is one step.
Source: CompressionType.java, SnappyFactory.java.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import cramjam
import lz4.frame
import zstandard

from klamm.wire.compression import XERIAL_BLOCK_LENGTH, XERIAL_HEADER, XERIAL_MAGIC, BadCompression, Buffer, Codec

STEP_BYTES: Final = 64 * 1024
_WHOLE_STEP_BYTES: Final = 1024 * 1024
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""What one batch may decompress to unless the caller says otherwise."""
_INPUT_BYTES: Final = 16 * 1024
"""What a decompressor is fed at once: it copies what it has not used yet at every step."""

_ZSTD_FRAME: Final = struct.Struct("<IB")
_ZSTD_SKIPPED: Final = struct.Struct("<4xI")
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_ZSTD_REPEATED: Final = 1  # a block that is one byte, many times
MAX_SNAPPY_RATIO: Final = 32
"""The densest element makes 64 bytes of three."""

_ERRORS: Final = (
    struct.error,
    zlib.error,
    RuntimeError,
    ValueError,
    EOFError,
    zstandard.ZstdError,
    cramjam.DecompressionError,
)


def decompress_pieces(codec: Codec, content: Buffer, step_bytes: int = STEP_BYTES) -> Iterator[bytes]:
    """Decompress in pieces of at most `step_bytes`; a block of zstd (128 KiB) or snappy is one piece.

    Raises BadCompression where the content is malformed or ends early, once the pieces before that have been taken.
    """
    try:
        yield from _UNFOLD[codec](memoryview(content), step_bytes)
    except BadCompression:
        raise
    except _ERRORS as error:
        raise BadCompression(f"{codec.name.lower()} data of {len(content)} bytes is malformed: {error}") from error


def _plain(content: memoryview, step_bytes: int) -> Iterator[bytes]:
    """Yield content that is not compressed in pieces of at most `step_bytes`."""
    for start in range(0, len(content), step_bytes):
        yield bytes(content[start : start + step_bytes])


def _gunzip(content: memoryview, step_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed gzip content in chunks of about `step_bytes`."""
    position = 0
    while position < len(content):  # RFC 1952 allows several members, one after the other
        stream = zlib.decompressobj(wbits=31)
        while not stream.eof and position < len(content):
            fed = content[position : position + _INPUT_BYTES]
            position += len(fed)
            piece = stream.decompress(fed, step_bytes)
            while piece:
                yield piece
                piece = stream.decompress(stream.unconsumed_tail, step_bytes)
        if not stream.eof:
            raise BadCompression(f"gzip data of {len(content)} bytes is cut off: its end is missing")
        position -= len(stream.unused_data)


def _unlz4(content: memoryview, step_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed lz4 content in chunks of about `step_bytes`."""
    stream = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not stream.eof:
        fed = bytes(content[position : position + _INPUT_BYTES]) if stream.needs_input else b""
        position += len(fed)
        if stream.needs_input and not fed:
            raise BadCompression(f"lz4 data of {len(content)} bytes is cut off: its end is missing")
        piece: bytes = stream.decompress(fed, max_length=step_bytes)
        if piece:
            yield piece


def _unzstd(content: memoryview, _step_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed zstd content in chunks."""
    try:
        decompressor = _idle_zstd.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    position = 0
    try:
        while position < len(content):
            stream = decompressor.decompressobj()
            for end in _zstd_block_ends(content, position):
                if end > len(content):
                    raise BadCompression(f"zstd data of {len(content)} bytes is cut off: its end is missing")
                if piece := stream.decompress(content[position:end]):
                    yield piece
                position = end
    finally:
        if len(_idle_zstd) < _MAX_IDLE_ZSTD:
            _idle_zstd.append(decompressor)


_idle_zstd: Final[list[zstandard.ZstdDecompressor]] = []
"""To make one takes longer than to decompress a small batch. Each serves one stream at a time."""
_MAX_IDLE_ZSTD: Final = 4


def _zstd_block_ends(content: memoryview, position: int) -> Iterator[int]:
    """Yield the end of the header of the zstd frame at `position`, then of each of its blocks.

    A decompressor cannot stop inside what it is given, so its input is cut at these positions. Source: RFC 8878.
    """
    magic, descriptor = _ZSTD_FRAME.unpack_from(content, position)
    if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE:
        yield position + 8 + _ZSTD_SKIPPED.unpack_from(content, position)[0]
        return
    is_single, has_checksum = descriptor & 0x20, descriptor & 0x04
    content_size_bytes = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    position += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
    yield position
    is_last = 0
    while not is_last:
        head = int.from_bytes(content[position : position + 3], "little")
        is_last, kind = head & 1, head >> 1 & 3
        position += 3 + (1 if kind == _ZSTD_REPEATED else head >> 3)
        if is_last and has_checksum:
            position += 4
        yield position


def _unsnappy(content: memoryview, _step_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed snappy content, with or without Java framing, in chunks."""
    if bytes(content[:8]) != XERIAL_MAGIC:
        yield _unsnappy_block(content)
        return
    if len(content) < len(XERIAL_HEADER):
        raise BadCompression(f"snappy data of {len(content)} bytes is cut off within its header")
    position = len(XERIAL_HEADER)
    while position < len(content):
        if position + 4 > len(content):
            raise BadCompression(
                f"snappy data of {len(content)} bytes is cut off at the block length at byte {position}"
            )
        (length,) = XERIAL_BLOCK_LENGTH.unpack_from(content, position)
        position += 4
        if length < 0 or position + length > len(content):
            raise BadCompression(
                f"snappy data of {len(content)} bytes: the block at byte {position} announces {length} bytes, "
                f"but only {len(content) - position} are left"
            )
        yield _unsnappy_block(content[position : position + length])
        position += length


def _unsnappy_block(block: memoryview) -> bytes:
    """Decompress one snappy block."""
    length = snappy_length(block)
    if length > len(block) * MAX_SNAPPY_RATIO:  # refuse it before any memory is taken
        raise BadCompression(
            f"a snappy block of {len(block)} bytes announces {length} decompressed bytes, more than it can hold"
        )
    return bytes(cramjam.snappy.decompress_raw(bytes(block)))


def snappy_length(block: memoryview) -> int:
    """The decompressed length that a raw snappy block announces. Raises BadCompression."""
    length = 0
    for shift, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return length
    raise BadCompression(f"a snappy block of {len(block)} bytes does not begin with its decompressed length")


def decompress(codec: Codec, content: Buffer, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
    """Decompress all content. Raises BadCompression where it is malformed or longer than `max_bytes`."""
    if codec is Codec.NONE:
        pieces, size = [bytes(content)], len(content)
    else:
        pieces, size = [], 0
        for piece in decompress_pieces(codec, content, _WHOLE_STEP_BYTES):
            size += len(piece)
            if size > max_bytes:
                break
            pieces.append(piece)
    if size > max_bytes:
        raise BadCompression(
            f"{codec.name.lower()} data of {len(content)} bytes decompresses to more than {max_bytes} bytes"
        )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_UNFOLD: Final[dict[Codec, Callable[[memoryview, int], Iterator[bytes]]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
