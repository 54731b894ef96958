"""What is checked and changed with all records of a batch in view."""

import pickle
import struct
import tracemalloc

import pytest
from tests.unit.log.support import NOW_MS

from klamm.config.topic_config import TopicConfig
from klamm.log import preparation
from klamm.log.append_rules import AppendRules
from klamm.log.preparation import MAX_RECORD_ERRORS, Preparation, Refusal, prepare
from klamm.model.errors import ErrorCode
from klamm.wire.compression import Codec, compress
from klamm.wire.records import NewRecord, Record, build_batch, crc_is_valid, header_at, records
from klamm.wire.records.batch import sealed_batch
from klamm.wire.records.record import append_record

COMPACTED = {"cleanup.policy": "compact"}
KEYED = [NewRecord(b"v%d" % n, b"k", NOW_MS + n) for n in range(500)]


def preparation_of(batch: bytes, **configs: str) -> Preparation:
    texts = {name.replace("_", "."): value for name, value in configs.items()}
    return Preparation(batch, AppendRules.of(TopicConfig.parse({**COMPACTED, **texts})), NOW_MS)


def prepared(batch: bytes, **configs: str) -> bytes:
    result = prepare(preparation_of(batch, **configs))
    assert isinstance(result, bytes), result
    return result


def refused(batch: bytes, **configs: str) -> Refusal:
    result = prepare(preparation_of(batch, **configs))
    assert isinstance(result, Refusal)
    return result


def read(batch: bytes) -> list[Record]:
    header = header_at(batch)
    assert crc_is_valid(batch, header)
    return list(records(batch, header))


def with_payload(codec: Codec, count: int, payload: bytes) -> bytes:
    """A batch that announces `count` records, whatever its payload is."""
    header = header_at(build_batch([NewRecord(b"", b"k", NOW_MS)]))
    return sealed_batch(
        header._replace(attributes=codec, record_count=count, last_offset_delta=count - 1), compress(codec, payload)
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_validation_returns_a_valid_batch_unchanged(codec: Codec) -> None:
    batch = build_batch(KEYED, codec)

    assert prepared(batch) is batch


def test_a_batch_validation_job_and_its_result_can_be_pickled() -> None:
    asked = preparation_of(build_batch([NewRecord(b"no key")]))

    again = pickle.loads(pickle.dumps(asked))

    assert again == asked
    assert pickle.loads(pickle.dumps(prepare(again))) == prepare(asked)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [10, 300_000, 2_000_000])
def test_records_larger_than_the_read_window_of_the_validation_are_validated(codec: Codec, size: int) -> None:
    headers = [("name", b"value"), ("null", None), ("large", bytes(size))]
    content = [
        NewRecord(bytes(size), b"key", NOW_MS, headers),
        NewRecord(None, bytes(size), NOW_MS),
        NewRecord(b"last", None, NOW_MS),
    ]

    result = refused(build_batch(content, codec), max_message_bytes="100000000")

    assert [error.batch_index for error in result.record_errors] == [2]


def test_the_listed_record_errors_of_a_batch_are_bounded_and_the_message_counts_all() -> None:
    result = refused(build_batch([NewRecord(b"no key")] * 3000, Codec.ZSTD))

    assert len(result.record_errors) == MAX_RECORD_ERRORS
    assert "3000 of 3000" in result.message


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [499, 501, 100_000])
def test_a_batch_with_a_wrong_record_count_gets_invalid_record(codec: Codec, count: int) -> None:
    result = refused(with_payload(codec, count, build_batch(KEYED)[61:]))

    assert result.code is ErrorCode.INVALID_RECORD


MALFORMED: dict[str, bytes] = {
    "length 0": b"\0",
    "length beyond the batch": b"\x7f",
    "length without an end": b"\xff" * 12,
    "key beyond the record": b"\x0c\0\0\0\x7e\x01\0",
    "negative count of headers": b"\x0c\0\0\0\x01\x01\x01",
    "more headers than bytes": b"\x0c\0\0\0\x01\x01\x40",
    "header without a name": b"\x10\0\0\0\x01\x01\x02\x01\x01",
    "bytes behind the fields": b"\x0e\0\0\0\x01\x01\0\0",
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_a_batch_with_a_malformed_record_gets_invalid_record(codec: Codec, payload: bytes) -> None:
    first = bytearray()
    append_record(first, NewRecord(b"v", b"k", NOW_MS), 0, NOW_MS)

    result = refused(with_payload(codec, 2, bytes(first) + payload))

    assert result.code is ErrorCode.INVALID_RECORD
    assert "record 1" in result.message


@pytest.mark.parametrize("cut", [1, 100, 5000])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_with_truncated_compressed_data_gets_invalid_record(codec: Codec, cut: int) -> None:
    whole = build_batch([NewRecord(struct.pack(">q", n * n * n), b"k", NOW_MS) for n in range(20_000)], codec)

    result = refused(sealed_batch(header_at(whole), whole[61:-cut]))

    assert result.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_validation_corrects_the_max_timestamp_of_a_batch_header_from_its_records(codec: Codec) -> None:
    batch = build_batch(KEYED, codec)
    lying = sealed_batch(header_at(batch)._replace(max_timestamp=5), batch[61:])

    assert prepared(lying) == batch


def with_deltas(codec: Codec, deltas: list[int]) -> bytes:
    payload = bytearray()
    for delta in deltas:
        append_record(payload, NewRecord(b"v%d" % delta, b"k", NOW_MS, [("h", b"x")]), delta, NOW_MS)
    return with_payload(codec, len(deltas), bytes(payload))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_with_offset_gaps_gets_invalid_record(codec: Codec) -> None:
    """Apache Kafka 3.9.1 means to number them anew, and answers UNKNOWN_SERVER_ERROR."""
    result = refused(with_deltas(codec, [0, 500, 7]))

    assert result.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_of_a_recompressed_batch_get_consecutive_offset_deltas(codec: Codec) -> None:
    result = prepared(with_deltas(codec, [0, 500, 7]), compression_type="gzip")

    assert [(r.offset, r.value, r.headers) for r in read(result)] == [
        (index, b"v%d" % delta, (("h", b"x"),)) for index, delta in enumerate([0, 500, 7])
    ]


def test_an_uncompressed_batch_with_offset_gaps_is_accepted_unchanged() -> None:
    batch = with_deltas(Codec.NONE, [0, 500, 7])

    assert prepared(batch) is batch


def test_a_batch_above_max_message_bytes_after_recompression_gets_message_too_large() -> None:
    batch = build_batch([NewRecord(bytes(50_000), b"k", NOW_MS)], Codec.ZSTD)

    result = refused(batch, compression_type="uncompressed", max_message_bytes="10000")

    assert result.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_decompresses_above_the_size_limit_gets_invalid_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "MAX_DECOMPRESSED_BYTES", 1_000_000)

    result = refused(build_batch([NewRecord(bytes(1_000_001), b"k", NOW_MS)], Codec.ZSTD))

    assert result.code is ErrorCode.INVALID_RECORD
    assert "more than 1000000 bytes" in result.message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("target", ["producer", "gzip", "zstd"])
def test_memory_of_batch_validation_does_not_grow_with_the_decompressed_size(codec: Codec, target: str) -> None:
    batch = build_batch([NewRecord(bytes(30_000_000), b"k", NOW_MS)], codec)

    tracemalloc.start()
    prepared(batch, compression_type=target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3_000_000
