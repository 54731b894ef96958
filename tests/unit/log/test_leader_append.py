"""What a leader refuses and changes before it writes: the table of ref. 3.6."""

from collections.abc import Callable

import lz4.frame
import pytest
from tests.unit.log.support import NOW_MS, Partition, batch, headers_of, read_bytes, values_of

from klamm.log.errors import AppendRefused
from klamm.log.log import Log
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.wire.compression import compress
from klamm.wire.records import Codec, NewRecord, TimestampType, batches, build_batch, crc_is_valid, header_at, records
from klamm.wire.records.batch import sealed_batch
from klamm.wire.records.build import EndMarker, build_end_marker
from klamm.wire.records.record import append_record

TWO = [NewRecord(b"a", b"k", NOW_MS), NewRecord(b"b", b"k", NOW_MS)]
LARGE = [NewRecord(bytes(100_000), b"k", NOW_MS)]
LINKED_LZ4 = lz4.frame.compress(
    build_batch(LARGE)[61:], block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True, store_size=False
)


def changed(**fields: int) -> bytes:
    """A batch of two whose header says something else, with a CRC that is right."""
    plain = build_batch(TWO)
    return sealed_batch(header_at(plain)._replace(**fields), plain[61:])


def hurt(position: int) -> bytes:
    """A batch with the byte at this position changed."""
    content = bytearray(build_batch(TWO))
    content[position] ^= 1
    return bytes(content)


def with_count(batch: bytes, count: int) -> bytes:
    """The batch, whose header announces another number of records, in offsets too."""
    header = header_at(batch)._replace(record_count=count, last_offset_delta=count - 1)
    return sealed_batch(header, batch[61:])


REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "wrong CRC": (hurt(70), ErrorCode.CORRUPT_MESSAGE),
    "cut off": (build_batch(TWO)[:-1], ErrorCode.INVALID_RECORD),
    "length too small": (hurt(11)[:8] + b"\0\0\0\1" + hurt(11)[12:], ErrorCode.CORRUPT_MESSAGE),
    "offset not 0": (build_batch(TWO, base_offset=5), ErrorCode.INVALID_RECORD),
    "offset not 0 and too short": (
        (5).to_bytes(8) + (44).to_bytes(4) + build_batch(TWO)[12:],
        ErrorCode.INVALID_RECORD,
    ),
    "too short": (bytes(8) + (44).to_bytes(4) + build_batch(TWO)[12:], ErrorCode.CORRUPT_MESSAGE),
    "offset not 0, shorter than any message": (
        (5).to_bytes(8) + (13).to_bytes(4) + build_batch(TWO)[12:],
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "two batches": (build_batch(TWO) * 2, ErrorCode.INVALID_RECORD),
    "more records than offsets": (changed(record_count=3), ErrorCode.INVALID_RECORD),
    "no records": (changed(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "control batch": (build_batch(TWO, control=True), ErrorCode.INVALID_RECORD),
    "producer without sequence": (build_batch(TWO, producer_id=3, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "LogAppendTime": (
        build_batch(TWO, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=5),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "count beyond what the bytes can hold": (
        changed(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.INVALID_RECORD,
    ),
    "1,000 records announced, one there": (
        with_count(build_batch([NewRecord(b"x" * 50_000)]), 1000),
        ErrorCode.INVALID_RECORD,
    ),
    "fewer records announced than are there": (with_count(build_batch(TWO), 1), ErrorCode.INVALID_RECORD),
    "no records in an empty payload": (sealed_batch(header_at(build_batch(TWO)), b""), ErrorCode.INVALID_RECORD),
    "random for records": (
        sealed_batch(header_at(build_batch(TWO)), b"random, no records"),
        ErrorCode.INVALID_RECORD,
    ),
    "unknown codec": (changed(attributes=6), ErrorCode.INVALID_RECORD),
    "lz4 with linked blocks": (
        sealed_batch(header_at(build_batch(LARGE, Codec.LZ4)), LINKED_LZ4),
        ErrorCode.INVALID_RECORD,
    ),
    "old magic": (build_batch(TWO)[:16] + b"\1" + build_batch(TWO)[17:], ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_produced_batch_is_refused_with_kafkas_error_code_and_not_written(
    orders: Partition, content: bytes, code: ErrorCode
) -> None:
    log = orders.open()

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(content, 0)

    assert caught.value.code is code
    assert caught.value.message
    assert (log.end_offset, log.size) == (0, 0)


def test_a_batch_with_a_header_name_that_is_not_utf_8_is_appended_unchanged(orders: Partition) -> None:
    plain = build_batch([NewRecord(b"v", b"k", NOW_MS, [("n?me", b"x")])])
    log = orders.open()

    log.append_as_leader(sealed_batch(header_at(plain), plain[61:].replace(b"n?me", b"n\xffme")), 0)

    assert b"n\xffme" in read_bytes(log, 0, 1000)


COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("payload", [b"no compressed data", b"\0" * 40, b"\xff" * 4, b""])
def test_a_batch_whose_payload_is_not_in_the_declared_codec_gets_invalid_record(
    orders: Partition, codec: Codec, payload: bytes
) -> None:
    log = orders.open()

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(sealed_batch(header_at(build_batch(TWO, codec)), payload), 0)

    assert (caught.value.code, log.end_offset) == (ErrorCode.INVALID_RECORD, 0)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("count", [1, 3, 1000, 2**31 - 1])
def test_a_compressed_batch_with_a_wrong_record_count_gets_invalid_record(
    orders: Partition, codec: Codec, count: int
) -> None:
    log = orders.open()

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(with_count(build_batch(TWO, codec), count), 0)

    assert (caught.value.code, log.end_offset) == (ErrorCode.INVALID_RECORD, 0)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_with_a_nonzero_first_offset_delta_gets_invalid_record(
    orders: Partition, codec: Codec
) -> None:
    """Apache Kafka 3.9.1 answers UNKNOWN_SERVER_ERROR to them; a consumer would see offsets beyond the batch's end."""
    payload = bytearray()
    append_record(payload, TWO[0], 7, NOW_MS)
    header = header_at(build_batch(TWO[:1], codec))
    log = orders.open()

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(sealed_batch(header, compress(codec, bytes(payload))), 0)

    assert (caught.value.code, log.end_offset) == (ErrorCode.INVALID_RECORD, 0)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_with_an_impossible_record_count_gets_invalid_record(
    orders: Partition, codec: Codec
) -> None:
    log = orders.open()
    content = build_batch([NewRecord(b"%d" % n * 100) for n in range(100)], codec)

    log.append_as_leader(content, 0)
    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(with_count(content, 2**31 - 1), 0)

    assert (caught.value.code, log.end_offset) == (ErrorCode.INVALID_RECORD, 100)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 16, 17, 5000])
@pytest.mark.parametrize("size", [0, 1, 300, 70_000])
def test_batches_of_every_codec_record_count_and_record_size_are_appended(
    orders: Partition, codec: Codec, count: int, size: int
) -> None:
    log = orders.open(max_message_bytes=1 << 30)

    log.append_as_leader(build_batch([NewRecord(bytes(size))] * min(count, 10_000_000 // (size + 1)), codec), 0)

    assert log.end_offset > 0


def test_bytes_after_the_end_of_a_produced_batch_are_not_written(orders: Partition) -> None:
    log = orders.open()

    log.append_as_leader(memoryview(build_batch(TWO) + b"tail"), 0)

    assert log.size == len(build_batch(TWO))


def test_a_batch_above_max_message_bytes_or_segment_bytes_is_refused(orders: Partition) -> None:
    size = len(build_batch(TWO))
    exact = orders.open(max_message_bytes=size)
    exact.append_as_leader(build_batch(TWO), 0)

    for config, code in (
        ("max_message_bytes", ErrorCode.MESSAGE_TOO_LARGE),
        ("segment_bytes", ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        log = orders.open(**{config: size - 1})
        with pytest.raises(AppendRefused) as caught:
            log.append_as_leader(build_batch(TWO), 0)
        assert caught.value.code is code


def test_a_follower_accepts_batches_above_max_message_bytes(orders: Partition) -> None:
    log = orders.open(max_message_bytes=20, segment_bytes=100)

    log.append_as_follower(batch("a" * 300) + batch("b", base_offset=1))

    assert values_of(log) == ["a" * 300, "b"]
    assert len(log.segments) == 2


def test_coordinators_may_append_control_batches(orders: Partition) -> None:
    log = orders.open()

    log.append_as_leader(build_end_marker(EndMarker(1, 0), 3, 0, NOW_MS), 0, Origin.COORDINATOR)  # type: ignore[arg-type]

    assert headers_of(log)[0].is_control


def test_records_appended_by_a_coordinator_are_validated_only_when_recompressed(orders: Partition) -> None:
    compacted = orders.open(cleanup_policy="compact")
    large = build_batch([NewRecord(b"x" * 20_000, b"k", NOW_MS)])

    assert compacted.preparation(large, Origin.CLIENT) is not None
    assert compacted.preparation(large, Origin.COORDINATOR) is None

    compressed = orders.open(cleanup_policy="compact", compression_type="lz4")
    assert compressed.preparation(large, Origin.COORDINATOR) is not None


def refusal_of(log: Log, *content: NewRecord, codec: Codec = Codec.NONE) -> AppendRefused:
    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(build_batch(content, codec), 0)
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
def test_records_without_key_produced_to_a_compacted_topic_get_invalid_record(orders: Partition, codec: Codec) -> None:
    log = orders.open(cleanup_policy="compact")
    log.append_as_leader(build_batch(TWO, codec), 0)

    refused = refusal_of(log, TWO[0], NewRecord(b"x"), TWO[1], NewRecord(b"y"), codec=codec)

    assert refused.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]


def test_records_with_timestamps_outside_the_topics_bounds_get_invalid_timestamp(orders: Partition) -> None:
    log = orders.open(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=20)
    log.append_as_leader(build_batch([NewRecord(b"", None, NOW_MS + d) for d in (-10, 0, 20)]), 0)
    log.append_as_leader(build_batch([NewRecord(b"", None, -1)]), 0)

    refused = refusal_of(log, *(NewRecord(b"", None, NOW_MS + d) for d in (-11, 0, 21)))

    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0, 2]


def test_an_invalid_timestamp_error_lists_every_invalid_record_of_the_batch(orders: Partition) -> None:
    log = orders.open(cleanup_policy="compact", message_timestamp_before_max_ms=10)

    refused = refusal_of(log, NewRecord(b"no key", None, NOW_MS), NewRecord(b"old", b"k", 1))

    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


def test_malformed_records_produced_to_a_compacted_topic_get_invalid_record(orders: Partition) -> None:
    log = orders.open(cleanup_policy="compact")
    plain = build_batch(TWO)
    content = sealed_batch(header_at(plain), plain[61:] + b"x")

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(content, 0)

    assert caught.value.code is ErrorCode.INVALID_RECORD


LEVELS: dict[str, dict[str, object]] = {
    "uncompressed": {},
    "gzip": {"compression_gzip_level": 9},
    "snappy": {},
    "lz4": {"compression_lz4_level": 12},
    "zstd": {"compression_zstd_level": 7},
}


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("with_levels", [False, True])
def test_a_produced_batch_is_recompressed_with_the_codec_of_the_topic(
    orders: Partition, name: str, sent: Codec, with_levels: bool
) -> None:
    log = orders.open(compression_type=name, **(LEVELS[name] if with_levels else {}))
    content = build_batch(TWO, sent, producer_id=3, producer_epoch=1, base_sequence=9)

    log.append_as_leader(content, 4)

    stored = read_bytes(log, 0, 1 << 20)
    (header,) = batches(stored)
    target = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    assert (header.codec, header.base_sequence, header.partition_leader_epoch) == (target, 9, 4)
    assert crc_is_valid(stored, header)
    assert [(r.key, r.value, r.timestamp) for r in records(stored, header)] == [
        (r.key, r.value, r.timestamp) for r in TWO
    ]
    if target is sent:
        assert stored[61:] == content[61:]


def test_a_batch_that_cannot_be_decompressed_gets_invalid_record(orders: Partition) -> None:
    """Not CORRUPT_MESSAGE, which producers retry: the CRC is right, so the same bytes will come again."""
    plain = build_batch(TWO)
    content = sealed_batch(header_at(plain)._replace(attributes=Codec.GZIP), b"no gzip")
    log = orders.open(compression_type="zstd")

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(content, 0)

    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_above_max_message_bytes_after_recompression_gets_message_too_large(orders: Partition) -> None:
    content = build_batch([NewRecord(bytes(5000))], Codec.ZSTD)
    log = orders.open(compression_type="uncompressed", max_message_bytes=1000)

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(content, 0)

    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
def test_a_leader_append_with_log_append_time_replaces_the_timestamps_of_all_records(
    orders: Partition, codec: Codec
) -> None:
    log = orders.open(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)

    info = log.append_as_leader(build_batch([NewRecord(b"a", None, 5), NewRecord(b"b", None, 6)], codec), 0)

    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS, NOW_MS)
    stored = read_bytes(log, 0, 1 << 20)
    (header,) = batches(stored)
    assert crc_is_valid(stored, header)
    assert {record.timestamp for record in records(stored, header)} == {NOW_MS}


def test_an_append_to_a_topic_with_create_time_returns_no_log_append_time(orders: Partition) -> None:
    assert orders.open().append_as_leader(build_batch(TWO), 0).log_append_time_ms == -1


ORDERED: list[Callable[[], bytes]] = [
    lambda: batch("a", base_offset=5) + batch("b", base_offset=3),
    lambda: batch("a", "b", base_offset=5) + batch("c", base_offset=6),
]


@pytest.mark.parametrize("content", ORDERED)
def test_a_follower_keeps_valid_batches_before_a_batch_with_an_unexpected_offset(
    orders: Partition, content: Callable[[], bytes]
) -> None:
    log = orders.open()

    with pytest.raises(Exception, match="expected"):
        log.append_as_follower(content())

    assert values_of(log, 5) == (["a"] if log.end_offset == 6 else ["a", "b"])


def test_a_follower_refuses_a_batch_with_a_wrong_crc(orders: Partition) -> None:
    log = orders.open()
    second = bytearray(batch("b", base_offset=1))
    second[-1] ^= 1

    with pytest.raises(Exception, match="CRC"):
        log.append_as_follower(batch("a") + bytes(second))

    assert values_of(log) == ["a"]
    assert log.append_as_follower(b"") is None
