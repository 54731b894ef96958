"""Messages of the formats 0 and 1: conversions both ways, with kafka-python as witness."""

import lz4.frame
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from klamm.wire.compression import BadCompression, Codec, compress
from klamm.wire.records import (
    ControlType,
    CorruptRecords,
    EndMarker,
    NewRecord,
    TimestampType,
    batches,
    build_batch,
    build_end_marker,
)
from klamm.wire.records.batch import crc_is_valid, produced_entry_size
from klamm.wire.records.down_conversion import down_convert
from klamm.wire.records.legacy import Message, encode_messages, messages_of, with_lz4_header_checksum

RECORDS = [NewRecord(None if n == 3 else b"value-%d" % n, None if n % 2 else b"key", 1_000 + n) for n in range(20)]
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
READABLE = [(magic, codec) for magic in (0, 1) for codec in CODECS if (magic, codec) != (0, Codec.LZ4)]
MAX = 1 << 20


def read(content: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offset, timestamp, key and value of each message, as klamm reads them."""
    return [(m.offset, m.timestamp, m.key, m.value) for h in batches(content) for m in messages_of(content, h, MAX)]


@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_kafka_python_reads_record_batches_converted_to_an_old_message_format(magic: int, codec: Codec) -> None:
    content = down_convert(build_batch(RECORDS, codec, base_offset=50), magic, 50, MAX).content

    found = [(r.offset, r.timestamp, r.key, r.value) for batch in MemoryRecords(content) for r in batch]

    assert found == [(50 + n, r.timestamp if magic else None, r.key, r.value) for n, r in enumerate(RECORDS)]
    assert all(crc_is_valid(content, header) for header in batches(content))


@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_messages_in_old_formats_written_by_kafka_python_are_decoded(magic: int, codec: Codec) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=MAX)
    for n, record in enumerate(RECORDS):
        builder.append(n, timestamp=record.timestamp, key=record.key, value=record.value)

    found = read(bytes(builder.build()))

    assert [(timestamp, key, value) for _, timestamp, key, value in found] == [
        (r.timestamp if magic else -1, r.key, r.value) for r in RECORDS
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_encoded_in_an_old_format_decode_to_the_same_messages(magic: int, codec: Codec) -> None:
    messages = [Message(70 + n, r.timestamp if magic else -1, r.key, r.value) for n, r in enumerate(RECORDS)]

    assert read(encode_messages(messages, magic, codec)) == [(m.offset, m.timestamp, m.key, m.value) for m in messages]


def test_lz4_frames_of_message_format_0_use_kafkas_nonstandard_header_checksum() -> None:
    frame = compress(Codec.LZ4, b"content" * 100)
    broken = with_lz4_header_checksum(frame, is_kafkas=True)

    # of KafkaLZ4Test: FLG 0x60, BD 0x40: 0x82 over the descriptor, 0x1a over the frame's magic number, too
    assert (frame[6], broken[6]) == (0x82, 0x1A)
    assert with_lz4_header_checksum(broken, is_kafkas=False) == frame
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(broken)
    with pytest.raises(BadCompression):
        with_lz4_header_checksum(b"short", is_kafkas=False)


def test_conversion_to_old_formats_omits_only_uncompressed_records_before_the_fetch_offset() -> None:
    for codec, first in ((Codec.NONE, 57), (Codec.GZIP, 50)):
        converted = down_convert(build_batch(RECORDS, codec, base_offset=50), 1, 57, MAX)
        assert (read(converted.content)[0][0], converted.next_offset) == (first, 70)


def test_conversion_to_message_format_1_gives_every_message_the_log_append_time() -> None:
    batch = build_batch(RECORDS, Codec.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=77)

    assert {timestamp for _, timestamp, _, _ in read(down_convert(batch, 1, 0, MAX).content)} == {77}


def test_conversion_to_old_formats_omits_control_batches_and_continues_after_them() -> None:
    marker = build_end_marker(EndMarker(ControlType.COMMIT, 1), 5, 0, 1)

    assert down_convert(marker, 1, 0, MAX) == (b"", 1, None, False)


def test_conversion_to_old_formats_ends_before_a_zstd_or_damaged_batch() -> None:
    plain = build_batch(RECORDS[:2])
    zstd = build_batch(RECORDS, Codec.ZSTD, base_offset=2)
    for second, has_zstd in ((zstd, True), (bytes(len(zstd)), False)):
        converted = down_convert(plain + second, 1, 0, MAX)
        assert len(read(converted.content)) == 2
        assert (converted.next_offset, converted.has_zstd, converted.problem is None) == (2, has_zstd, False)


def test_conversion_to_old_formats_ends_after_max_bytes_but_converts_one_batch() -> None:
    batch = build_batch(RECORDS)

    assert down_convert(batch + build_batch(RECORDS, base_offset=20), 1, 0, 1).next_offset == 20


@pytest.mark.parametrize(
    "content",
    [
        encode_messages([Message(0, -1, None, None)], 1, Codec.GZIP)[:-1] + b"\xff",
        encode_messages([Message(0, -1, None, b"v")], 1, Codec.ZSTD),
    ],
)
def test_a_compressed_old_message_that_cannot_be_decompressed_raises_corrupt_records(content: bytes) -> None:
    with pytest.raises(CorruptRecords):
        read(content)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (bytes(11), None),
        ((0).to_bytes(8) + (14).to_bytes(4) + bytes(4), None),
        ((0).to_bytes(8) + (14).to_bytes(4) + bytes(14), 26),
        ((0).to_bytes(8) + (15).to_bytes(4) + bytes(14), None),
    ],
)
def test_an_incomplete_old_format_message_in_a_request_has_no_size(content: bytes, size: int | None) -> None:
    assert produced_entry_size(content) == size


@pytest.mark.parametrize("content", [bytes(12), (0).to_bytes(8) + (14).to_bytes(4) + bytes(4) + b"\x03"])
def test_an_old_format_message_with_an_impossible_length_or_magic_raises_corrupt_records(content: bytes) -> None:
    with pytest.raises(CorruptRecords):
        produced_entry_size(content)


def test_a_wrapper_of_message_format_1_at_offset_0_keeps_the_offsets_within() -> None:
    wrapper = encode_messages([Message(n, 5, None, b"v") for n in range(3)], 1, Codec.GZIP)

    (header,) = batches(bytes(8) + wrapper[8:])

    assert [m.offset for m in messages_of(bytes(8) + wrapper[8:], header, 1 << 20)] == [0, 1, 2]
