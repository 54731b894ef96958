"""Five codecs there and back; torn, wrong and exploding data is refused."""

import contextlib
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from klamm.wire.compression import BadCompression, Codec, compress
from klamm.wire.unfolding import decompress

REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CONTENT = b"".join(b"record number %d, " % number for number in range(10_000))


@pytest.mark.parametrize("codec", list(Codec))
@given(content=st.binary(max_size=3000))
def test_compressed_content_is_decompressed_to_the_same_bytes(codec: Codec, content: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(content)))) == content


@pytest.mark.parametrize("codec", REAL)
def test_compression_shrinks_long_content_and_decompression_restores_the_content(codec: Codec) -> None:
    packed = compress(codec, CONTENT)

    assert len(packed) < len(CONTENT) / 2
    assert decompress(codec, packed) == CONTENT


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.GZIP, -1), (Codec.LZ4, 12), (Codec.ZSTD, 19)])
def test_content_compressed_at_any_level_is_decompressed_correctly(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, CONTENT, level)) == CONTENT


@pytest.mark.parametrize("codec", REAL)
def test_decompression_above_max_bytes_raises_bad_compression(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))

    with pytest.raises(BadCompression, match="more than 1000 bytes"):
        decompress(codec, bomb, max_bytes=1000)


@pytest.mark.parametrize("codec", REAL)
def test_decompression_to_exactly_max_bytes_succeeds(codec: Codec) -> None:
    assert len(decompress(codec, compress(codec, CONTENT), max_bytes=len(CONTENT))) == len(CONTENT)
    with pytest.raises(BadCompression):
        decompress(codec, compress(codec, CONTENT), max_bytes=len(CONTENT) - 1)


@pytest.mark.parametrize("codec", REAL)
def test_decompressing_truncated_data_raises_bad_compression(codec: Codec) -> None:
    packed = compress(codec, b"some words, some words, and some more")
    whole_blocks = {16} if codec is Codec.SNAPPY else set()  # a snappy stream may end between blocks
    for size in range(1, len(packed)):
        if size not in whole_blocks:
            with pytest.raises(BadCompression):
                decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", REAL)
@given(content=st.binary(min_size=1, max_size=200))
def test_decompressing_random_bytes_raises_bad_compression_or_stays_within_max_bytes(
    codec: Codec, content: bytes
) -> None:
    with contextlib.suppress(BadCompression):
        assert len(decompress(codec, content, max_bytes=10_000)) <= 10_000


def test_a_raw_snappy_block_from_librdkafka_is_decompressed() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(CONTENT))) == CONTENT


def test_snappy_compression_produces_javas_framing_with_32_kib_blocks() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))

    assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    lengths = []
    position = 16
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        lengths.append(len(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert lengths == [32768, 32768, 4464]


def test_a_snappy_block_with_an_impossible_length_raises_bad_compression() -> None:
    with pytest.raises(BadCompression, match="more than"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 10)


def test_gzip_data_of_several_members_is_decompressed() -> None:
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"one ") + compress(Codec.GZIP, b"two")) == b"one two"


def test_zstd_frames_with_and_without_content_size_are_decompressed() -> None:
    with_size = zstandard.ZstdCompressor().compress(CONTENT)
    without = compress(Codec.ZSTD, CONTENT)

    assert zstandard.frame_content_size(without) == -1
    assert decompress(Codec.ZSTD, with_size + without) == CONTENT * 2


def test_lz4_compression_uses_the_frame_options_of_kafkas_java_client() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, CONTENT))

    assert (info["block_linked"], info["block_size"], info["content_size"]) == (False, 65536, 0)


def test_gzip_compression_produces_a_single_member() -> None:
    assert zlib.decompress(compress(Codec.GZIP, CONTENT), wbits=31) == CONTENT
