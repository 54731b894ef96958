"""The five codecs of a record batch, and compression. Source: CompressionType.java, SnappyFactory.java."""

import struct
import zlib
from collections.abc import Callable
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
    """The bytes are not what their codec says, or unfold to more than allowed."""


def compress(codec: Codec, content: Buffer, level: int | None = None) -> bytes:
    """`level` None is the codec's usual one; snappy has none and ignores it."""
    return _COMPRESS[codec](content, level)


def _keep(content: Buffer, _level: int | None) -> bytes:
    return bytes(content)


def _gzip(content: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, wbits=31)
    return stream.compress(content) + stream.flush()


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = struct.pack(">8sii", XERIAL_MAGIC, 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
XERIAL_BLOCK_LENGTH: Final = struct.Struct(">i")


def _snappy(content: Buffer, _level: int | None) -> bytes:
    view = memoryview(content)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK_BYTES])))
        parts += (XERIAL_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


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


def _zstd(content: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(content)


_COMPRESS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
