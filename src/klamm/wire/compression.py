"""The five codecs of a record batch, and compression. Source: CompressionType.java, SnappyFactory.java."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from klamm.model.errors import KlammError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Values as the lowest three bits of a batch's attributes carry them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(KlammError):
    """The data does not match its codec, or decompresses to more than allowed."""


def compress(codec: Codec, content: Buffer, level: int | None = None) -> bytes:
    """Compress the content; with `level` None at the codec's default. Snappy has no levels."""
    return b"".join(compress_pieces(codec, [content], level))


def compress_pieces(codec: Codec, pieces: Iterable[Buffer], level: int | None = None) -> Iterator[bytes]:
    """Compress content that comes in pieces, without holding all of it."""
    return _FOLD[codec](pieces, level)


def _plain(pieces: Iterable[Buffer], _level: int | None) -> Iterator[bytes]:
    """Yield the pieces unchanged."""
    return map(bytes, pieces)


def _gzip(pieces: Iterable[Buffer], level: int | None) -> Iterator[bytes]:
    """Yield the pieces compressed as one gzip member."""
    stream = zlib.compressobj(-1 if level is None else level, wbits=31)
    yield from map(stream.compress, pieces)
    yield stream.flush()


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = struct.pack(">8sii", XERIAL_MAGIC, 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
XERIAL_BLOCK_LENGTH: Final = struct.Struct(">i")


def _snappy(pieces: Iterable[Buffer], _level: int | None) -> Iterator[bytes]:
    """Yield the pieces compressed as blocks in the Java snappy framing."""
    yield XERIAL_HEADER
    for block in _blocks(pieces, XERIAL_BLOCK_BYTES):
        compressed = bytes(cramjam.snappy.compress_raw(block))
        yield XERIAL_BLOCK_LENGTH.pack(len(compressed)) + compressed


def _blocks(pieces: Iterable[Buffer], size: int) -> Iterator[bytes]:
    """Yield the bytes of all pieces in blocks of `size`; the last may be shorter."""
    rest = b""
    for piece in pieces:
        content = rest + bytes(piece) if rest else bytes(piece)
        whole = len(content) - len(content) % size
        for start in range(0, whole, size):
            yield content[start : start + size]
        rest = content[whole:]
    if rest:
        yield rest


def _lz4(pieces: Iterable[Buffer], level: int | None) -> Iterator[bytes]:
    """Yield the pieces compressed as one lz4 frame."""
    # independent 64 KiB blocks, no content size: the only shape that Java's reader takes
    stream = lz4.frame.LZ4FrameCompressor(
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
    )
    yield stream.begin()
    for piece in pieces:
        yield stream.compress(bytes(piece))
    yield stream.flush()


_DEFAULT_ZSTD_LEVEL: Final = 3
_idle_zstd: Final[list[zstandard.ZstdCompressor]] = []
"""To make one takes longer than to compress a small batch; each of them, of the default level, serves one stream."""
_MAX_IDLE_ZSTD: Final = 4


def _zstd(pieces: Iterable[Buffer], level: int | None) -> Iterator[bytes]:
    """Yield the pieces compressed as one zstd frame."""
    level = _DEFAULT_ZSTD_LEVEL if level is None else level
    try:
        compressor = _idle_zstd.pop() if level == _DEFAULT_ZSTD_LEVEL else zstandard.ZstdCompressor(level=level)
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    try:
        stream = compressor.compressobj()
        yield from map(stream.compress, pieces)
        yield stream.flush()
    finally:
        if level == _DEFAULT_ZSTD_LEVEL and len(_idle_zstd) < _MAX_IDLE_ZSTD:
            _idle_zstd.append(compressor)


_FOLD: Final[dict[Codec, Callable[[Iterable[Buffer], int | None], Iterator[bytes]]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
