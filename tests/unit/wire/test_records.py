"""Record batches: built and read back, checked, cut and flipped; other libraries read the same."""

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from klamm.wire.records import (
    Codec,
    ControlType,
    CorruptRecords,
    EndMarker,
    NewRecord,
    Record,
    TimestampType,
    batches,
    build_batch,
    build_end_marker,
    crc_is_valid,
    end_marker_of,
    entry_size,
    header_at,
    records,
)
from klamm.wire.records.batch import add_to_sequence, assigned_prefix, sealed_batch, stamped_header
from klamm.wire.records.record import append_varint, read_varint

TEXT = st.text(max_size=20)
MAYBE_BYTES = st.none() | st.binary(max_size=40)
NEW_RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=MAYBE_BYTES,
        key=MAYBE_BYTES,
        timestamp=st.integers(0, 2**42),
        headers=st.lists(st.tuples(TEXT, MAYBE_BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
SAMPLE = [NewRecord(b"value %d" % n, b"key" if n % 2 else None, 1000 + n, (("h", b"x"), ("n", None))) for n in range(9)]


def read(buffer: bytes) -> list[Record]:
    return [record for header in batches(buffer) for record in records(buffer, header)]


def rebased(content: list[NewRecord], base: int) -> list[Record]:
    """The records as they are read from a batch with this base offset."""
    return [Record(base + n, r.timestamp, r.key, r.value, tuple(r.headers)) for n, r in enumerate(content)]


@pytest.mark.parametrize("codec", list(Codec))
@given(content=NEW_RECORDS, base=st.integers(0, 2**50))
def test_a_built_record_batch_is_read_back_with_a_valid_crc(codec: Codec, content: list[NewRecord], base: int) -> None:
    batch = build_batch(content, codec, base_offset=base)
    (header,) = batches(batch)

    assert crc_is_valid(batch, header)
    assert (header.base_offset, header.record_count, header.next_offset) == (base, len(content), base + len(content))
    assert header.max_timestamp == max(r.timestamp for r in content)
    assert read(batch) == rebased(content, base)


def test_a_built_record_batch_header_has_the_given_values() -> None:
    batch = build_batch(
        SAMPLE,
        Codec.GZIP,
        base_offset=7,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    header = header_at(memoryview(batch))

    assert (header.base_offset, header.last_offset, header.size, header.partition_leader_epoch) == (
        7,
        15,
        len(batch),
        3,
    )
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (11, 2, 6)
    assert (header.codec, header.is_transactional, header.is_control, header.has_producer) == (
        Codec.GZIP,
        True,
        False,
        True,
    )
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header_at(build_batch(SAMPLE)).last_sequence == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_kafka_python_reads_record_batches_built_by_klamm(codec: Codec) -> None:
    batch = MemoryRecords(build_batch(SAMPLE, codec, base_offset=5)).next_batch()

    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == rebased(SAMPLE, 5)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_klamm_reads_record_batches_built_by_kafka_python(codec: Codec) -> None:
    builder = MemoryRecordsBuilder(2, int(codec), 1 << 20)
    for record in SAMPLE:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())

    assert all(crc_is_valid(batch, header) for header in batches(batch))
    assert read(batch) == rebased(SAMPLE, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_record_batches_built_by_klamm(codec: Codec) -> None:
    batch = DefaultRecordBatch(bytearray(build_batch(SAMPLE, codec, base_offset=5)))

    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == rebased(SAMPLE, 5)


@pytest.mark.parametrize("codec", list(Codec))
def test_klamm_reads_record_batches_built_by_aiokafka(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 20)
    for offset, record in enumerate(SAMPLE):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())

    assert all(crc_is_valid(batch, header) for header in batches(batch))
    assert read(batch) == rebased(SAMPLE, 0)


def test_an_incomplete_record_batch_at_the_end_is_skipped() -> None:
    first, second = build_batch(SAMPLE), build_batch(SAMPLE, Codec.ZSTD, base_offset=9)
    buffer = first + second

    for size in range(len(buffer) + 1):
        whole = [h.base_offset for h in batches(memoryview(buffer)[:size])]
        assert whole == [0, 9][: (size >= len(first)) + (size >= len(buffer))]
    assert [h.position for h in batches(b"xx" + buffer, 2)] == [2, 2 + len(first)]
    assert [h.position for h in batches(buffer, end=len(first))] == [0]


@pytest.mark.parametrize("position", range(12))
def test_flipped_bits_in_a_batch_header_are_detected_after_the_base_offset(position: int) -> None:
    batch = bytearray(build_batch(SAMPLE))
    batch[position] ^= 0x41

    try:
        found = list(batches(batch))
    except CorruptRecords:
        return
    assert not found or position < 8 or not crc_is_valid(batch, found[0])


@given(position=st.integers(16, 10_000), mask=st.integers(1, 255), codec=st.sampled_from(Codec))
def test_flipped_bits_after_the_crc_field_of_a_batch_are_detected(position: int, mask: int, codec: Codec) -> None:
    batch = bytearray(build_batch(SAMPLE, codec))
    batch[16 + position % (len(batch) - 16)] ^= mask

    try:
        (header,) = batches(batch)
    except CorruptRecords:
        return
    assert not crc_is_valid(batch, header)


@given(payload=st.binary(max_size=60), count=st.integers(-1, 5))
def test_a_batch_of_random_bytes_gives_the_declared_records_or_raises_corrupt_records(
    payload: bytes, count: int
) -> None:
    header = header_at(build_batch(SAMPLE))._replace(record_count=count, batch_length=49 + len(payload))
    buffer = bytes(61) + payload
    with contextlib.suppress(CorruptRecords):
        assert len(list(records(buffer, header))) == max(count, 0)


MALFORMED = {
    "length beyond the batch": lambda p: bytes([0x7E]) + p[1:],
    "bytes left over": lambda p: p + b"x",
    "null header key": lambda p: p,
}


@pytest.mark.parametrize("change", [MALFORMED["length beyond the batch"], MALFORMED["bytes left over"]])
def test_a_record_with_a_wrong_length_raises_corrupt_records(change: object) -> None:
    batch = build_batch([NewRecord(b"v")])
    payload = change(batch[61:])  # type: ignore[operator]
    buffer = batch[:61] + payload
    header = header_at(batch)._replace(batch_length=49 + len(payload))

    with pytest.raises(CorruptRecords):
        list(records(buffer, header))


def test_a_record_key_or_value_with_a_negative_length_is_read_as_null() -> None:
    """As Apache Kafka reads it (Utils.readBytes), though it writes -1."""
    body = b"\0\0\0\x03\x7f\0"  # a key of length -2, a value of -64, no headers
    plain = build_batch([NewRecord(b"")])
    batch = sealed_batch(header_at(plain), b"\x0c" + body)

    (record,) = records(batch, header_at(batch))

    assert (record.key, record.value) == (None, None)


def test_bytes_of_a_header_name_that_are_not_utf_8_are_replaced() -> None:
    """As by Apache Kafka's consumers (Utils.utf8); its brokers do not look at them."""
    plain = build_batch([NewRecord(b"v", headers=[("n?me", b"x")])])
    batch = sealed_batch(header_at(plain), plain[61:].replace(b"n?me", b"n\xffme"))

    (record,) = records(batch, header_at(batch))

    assert record.headers == (("n\N{REPLACEMENT CHARACTER}me", b"x"),)


@pytest.mark.parametrize(
    ("field", "value"),
    [("key length", 100), ("header count", -1), ("header count", 90), ("header key", -1)],
)
def test_an_impossible_length_inside_a_record_raises_corrupt_records(field: str, value: int) -> None:
    body = bytearray(3)
    append_varint(body, value if field == "key length" else -1)
    append_varint(body, -1)
    append_varint(body, value if field == "header count" else 1)
    append_varint(body, value if field == "header key" else 0)
    body += b"\1"
    payload = bytearray()
    append_varint(payload, len(body))
    payload += body
    header = header_at(build_batch([NewRecord(b"v")]))._replace(batch_length=49 + len(payload))

    with pytest.raises(CorruptRecords, match="batch at offset 0, record 0: "):
        list(records(bytes(61) + payload, header))


def test_the_log_append_time_of_a_batch_applies_to_every_record() -> None:
    batch = build_batch(SAMPLE, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=5_000)

    assert {r.timestamp for r in read(batch)} == {5_000}


@pytest.mark.parametrize("codec", list(Codec))
def test_setting_log_append_time_in_a_batch_header_keeps_records_and_a_valid_crc(codec: Codec) -> None:
    batch = b"...." + build_batch(SAMPLE, codec)
    header = header_at(batch, 4)

    stamped = stamped_header(batch, header, 70, 3, 9_999) + batch[4 + 61 :]

    (now,) = batches(stamped)
    assert crc_is_valid(stamped, now)
    assert (now.base_offset, now.partition_leader_epoch, now.max_timestamp) == (70, 3, 9_999)
    assert [(r.offset, r.timestamp, r.value) for r in read(stamped)] == [
        (70 + n, 9_999, r.value) for n, r in enumerate(SAMPLE)
    ]


def test_assigning_offset_and_leader_epoch_to_a_batch_keeps_its_crc_valid() -> None:
    batch = build_batch(SAMPLE)

    assigned = assigned_prefix(header_at(batch), 1 << 40, 12) + batch[16:]

    now = header_at(assigned)
    assert (now.base_offset, now.partition_leader_epoch, crc_is_valid(assigned, now)) == (1 << 40, 12, True)


def test_an_encoded_transaction_marker_is_read_back() -> None:
    for kind in ControlType:
        batch = build_end_marker(EndMarker(kind, 8), 5, 1, 1234)
        header = header_at(batch)

        assert end_marker_of(batch, header) == EndMarker(kind, 8)
        assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)


def control(key: bytes | None, value: bytes | None) -> bytes:
    """A control batch with this key and value."""
    return build_batch([NewRecord(value, key)], control=True)


def test_unknown_control_record_types_are_skipped_and_malformed_control_records_refused() -> None:
    unknown = control(struct.pack(">hh", 0, 4), b"")
    assert end_marker_of(unknown, header_at(unknown)) is None
    empty = header_at(unknown)._replace(record_count=0, batch_length=49)
    assert end_marker_of(unknown, empty) is None
    for key, value in ((None, b""), (b"\0", b""), (struct.pack(">hh", 0, 1), None), (struct.pack(">hh", 0, 1), b"\0")):
        broken = control(key, value)
        with pytest.raises(CorruptRecords):
            end_marker_of(broken, header_at(broken))


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_an_encoded_signed_varint_decodes_to_the_same_number(value: int) -> None:
    encoded = bytearray()
    append_varint(encoded, value)

    assert read_varint(encoded, 0) == (value, len(encoded))


def test_decoding_an_unterminated_varint_raises_index_error() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\xff" * 11, 0)


def test_producer_sequence_numbers_wrap_to_0_after_the_maximum() -> None:
    assert [add_to_sequence(2**31 - 1, n) for n in (0, 1, 2)] == [2**31 - 1, 0, 1]
    assert add_to_sequence(1, -2) == 2**31 - 1


# -- what only old log directories hold --------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_old_format_message_sets_are_listed_but_decoding_their_records_is_refused(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic, 0, 1 << 20)
    for n in range(3):
        builder.append(timestamp=500 + n, key=None, value=b"v" * n)
    builder.close()
    buffer = bytes(builder.buffer())

    found = list(batches(buffer))

    assert [h.magic for h in found] == [magic] * 3
    assert [h.last_offset for h in found] == [0, 1, 2]
    assert [h.max_timestamp for h in found] == ([500, 501, 502] if magic else [-1] * 3)
    assert all(crc_is_valid(buffer, h) for h in found)
    hurt = bytearray(buffer)
    hurt[-1] ^= 1
    assert not crc_is_valid(hurt, list(batches(hurt))[-1])
    with pytest.raises(CorruptRecords, match="magic"):
        list(records(buffer, found[0]))


IMPOSSIBLE = {
    "length of 0": struct.pack(">qi", 0, 0) + bytes(60),
    "negative length": struct.pack(">qi", 0, -5) + bytes(60),
    "short magic 2": struct.pack(">qiib", 0, 30, 0, 2) + bytes(60),
    "short magic 1": struct.pack(">qiib", 0, 15, 0, 1) + bytes(60),
    "unknown magic": struct.pack(">qiib", 0, 70, 0, 3) + bytes(70),
    "cut magic 2": struct.pack(">qiib", 0, 14, 0, 2) + bytes(9),
}


@pytest.mark.parametrize("buffer", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_malformed_record_batches_raise_corrupt_records(buffer: bytes) -> None:
    with pytest.raises(CorruptRecords):
        list(batches(buffer))


def test_an_incomplete_record_batch_header_raises_corrupt_records() -> None:
    with pytest.raises(CorruptRecords, match="the header of the batch at byte 0 is cut off after 16 bytes"):
        header_at(bytes(16))
    assert entry_size(build_batch(SAMPLE)[:12]) == len(build_batch(SAMPLE))


def test_a_batch_with_an_undefined_compression_codec_raises_corrupt_records() -> None:
    with pytest.raises(CorruptRecords, match="6 in its attributes is not a compression codec"):
        _ = header_at(build_batch(SAMPLE))._replace(attributes=6).codec


def test_the_crc_of_a_large_record_batch_detects_a_flipped_bit() -> None:
    batch = build_batch([NewRecord(bytes(300_000))])
    assert crc_is_valid(memoryview(batch), header_at(batch))
    hurt = bytearray(batch)
    hurt[200_000] ^= 1
    assert not crc_is_valid(hurt, header_at(hurt))
