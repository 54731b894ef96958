"""What kafka-python wrote, the decoder reads: every codec, both ways of finding records, whatever the records hold."""

import struct
from typing import Never

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.spark.batch_bytes import (
    ALL_COLUMNS,
    CODECS,
    ORDERS,
    Record,
    batch,
    comparable,
    marker,
    milliseconds,
    plain_rows,
    restamped,
    rows_of,
    with_crc,
)

from klamm.client.read_committed import Aborted
from klamm.model.ids import TopicPartition
from klamm.spark import decoder
from klamm.spark.columns import MAX_MS, TIMESTAMP_ERROR, BadTimestamp, beyond_spark
from klamm.spark.decoder import MAX_ROWS_PER_BATCH, RecordSelection, decode
from klamm.wire.compression import Codec, compress
from klamm.wire.records.batch import LOG_APPEND_TIME_BIT
from klamm.wire.vectors.batches import CorruptBatch, read_run
from klamm.wire.vectors.starts import Finder, find_in_a_loop, find_in_lockstep

WAYS = {"loop": find_in_a_loop, "lockstep": find_in_lockstep}

some_bytes = st.one_of(st.none(), st.binary(max_size=8), st.binary(min_size=60, max_size=70), st.just(b"x" * 9000))
records = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    timestamp=st.one_of(st.integers(0, 4_000_000_000_000), st.just(-1)),
    headers=st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
)
runs = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=6), st.sampled_from(list(CODECS.values()))), max_size=5
)


def joined(run: list[tuple[list[Record], int]]) -> bytes:
    """Batches of these records, with an offset gap after each."""
    offset, parts = 10, []
    for batch_records, codec in run:
        parts.append(batch(batch_records, offset, codec))
        offset += len(batch_records) + 2  # a gap, as compaction leaves it
    return b"".join(parts)


@pytest.mark.parametrize("find", WAYS.values(), ids=WAYS)
@settings(max_examples=60)
@given(run=runs)
def test_records_decoded_by_the_spark_source_equal_those_of_kafka_python(
    find: Finder, run: list[tuple[list[Record], int]]
) -> None:
    data = joined(run)

    assert [comparable(r) for r in rows_of(data, find=find)] == plain_rows(data)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_the_spark_decoder_returns_the_same_rows_for_each_compression_codec(codec: int) -> None:
    given_records = [Record(b"k%d" % i, b"v" * i, 1_000 + i, [("h", b"1")]) for i in range(300)]
    data = batch(given_records, 7, codec)

    assert data[22] & 7 == codec
    assert [comparable(r) for r in rows_of(data)] == [
        (r.key, r.value, 7 + i, r.timestamp, (("h", b"1"),)) for i, r in enumerate(given_records)
    ]


def test_snappy_records_without_java_framing_are_decoded() -> None:
    import cramjam

    plain = batch([Record(b"k", b"v" * 100)])
    body = bytes(cramjam.snappy.compress_raw(plain[61:]))
    raw = bytearray(plain[:61] + body)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    raw[22] |= CODECS["snappy"]

    assert [r["value"] for r in rows_of(with_crc(raw))] == [b"v" * 100]


def test_the_spark_decoder_fills_the_columns_topic_partition_offset_and_timestamp_type() -> None:
    (row,) = rows_of(batch([Record(b"k", b"v", 5)], 42))

    assert row["topic"] == "orders"
    assert (row["partition"], row["offset"], row["timestampType"], row["headers"]) == (3, 42, 0, None)


def test_the_log_append_time_of_a_batch_becomes_the_timestamp_of_its_rows() -> None:
    data = batch([Record(timestamp=1_000), Record(timestamp=9_000)], extra_attributes=LOG_APPEND_TIME_BIT)

    assert [(milliseconds(r["timestamp"]), r["timestampType"]) for r in rows_of(data)] == [(9_000, 1), (9_000, 1)]


def test_the_spark_decoder_omits_records_outside_the_planned_offset_range() -> None:
    data = b"".join(batch([Record(b"%d" % (o + i)) for i in range(10)], o) for o in range(0, 100, 10))

    assert [r["offset"] for r in rows_of(data, 17, 34)] == list(range(17, 34))
    assert rows_of(data, 100, 200) == []


def test_decoded_columns_are_those_of_the_schema_in_the_same_order() -> None:
    assert list(rows_of(batch([Record(b"k")]), columns=("offset", "key"))[0]) == ["offset", "key"]


def test_invalid_utf8_in_a_record_header_name_is_replaced() -> None:
    raw = bytearray(batch([Record(headers=[("ab", b"1")])]))
    at = raw.index(b"ab", 61)
    raw[at : at + 2] = b"\xff\xfe"

    (row,) = rows_of(with_crc(raw))

    assert row["headers"] == [{"key": "��", "value": b"1"}]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_decoding_batches_in_several_groups_returns_the_same_rows_as_decoding_all_together(
    monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    monkeypatch.setattr(decoder, "GROUP_BYTES", 500)
    data = b"".join(batch([Record(b"%d" % (o + i)) for i in range(10)], o, codec) for o in range(0, 400, 10))

    rows = rows_of(data, 5, 395)

    assert [(r["offset"], r["key"]) for r in rows] == [(o, b"%d" % o) for o in range(5, 395)]


def test_decoded_rows_are_split_into_arrow_record_batches_of_limited_size() -> None:
    data = batch([Record(None, b"")] * (MAX_ROWS_PER_BATCH + 1))

    pieces = list(decode(read_run(data), RecordSelection(ORDERS, 0, MAX_ROWS_PER_BATCH + 1, ("offset",))))

    assert [p.num_rows for p in pieces] == [MAX_ROWS_PER_BATCH, 1]


def test_an_incomplete_batch_at_the_end_of_a_fetch_is_decoded_with_the_next_fetch() -> None:
    whole, torn = batch([Record(b"a")], 0), batch([Record(b"b")], 1)

    for cut in range(len(torn)):
        run = read_run(whole + torn[:cut])
        assert (len(run.positions), run.next_offset) == (1, 1)


class TestHeadersAlone:
    COLUMNS = ("offset", "partition", "timestampType")

    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
    def test_offsets_are_read_from_batch_headers_without_decoding_a_record(self, codec: int) -> None:
        data = b"".join(
            batch([Record(value=b"x" * 40)] * 5, base, codec, extra_attributes=LOG_APPEND_TIME_BIT * (base % 2))
            for base in (0, 5, 20)
        )

        def find(*_: object) -> Never:
            raise AssertionError("records were decoded")

        expected = [{k: row[k] for k in self.COLUMNS} for row in rows_of(data, 2, 23)]
        assert rows_of(data, 2, 23, self.COLUMNS, find=find) == expected
        assert [row["offset"] for row in expected] == [2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22]

    def test_a_batch_with_missing_offsets_is_decoded(self) -> None:
        raw = bytearray(batch([Record()] * 3))
        struct.pack_into(">i", raw, 23, 9)  # compaction keeps the last offset of a batch

        assert [row["offset"] for row in rows_of(with_crc(raw), columns=("offset",))] == [0, 1, 2]

    def test_a_count_of_more_records_than_bytes_is_not_believed(self) -> None:
        raw = bytearray(batch([Record()]))
        struct.pack_into(">i", raw, 23, 10**9 - 1)
        struct.pack_into(">i", raw, 57, 10**9)

        with pytest.raises(CorruptBatch):
            rows_of(with_crc(raw), columns=("offset",))


class TestTransactions:
    DATA = b"".join(
        [
            batch([Record(b"aborted")], 0, producer=7),
            batch([Record(b"committed")], 1, producer=8),
            batch([Record(b"plain")], 2),
            marker(3, 7, 0),
            marker(4, 8, 1),
            batch([Record(b"next of the same producer")], 5, producer=7),
        ]
    )

    def test_the_spark_decoder_returns_no_rows_for_transaction_markers(self) -> None:
        assert [r["offset"] for r in rows_of(self.DATA)] == [0, 1, 2, 5]

    def test_the_spark_decoder_with_read_committed_skips_aborted_batches(self) -> None:
        assert [r["offset"] for r in rows_of(self.DATA, aborted=[Aborted(0, 7)])] == [1, 2, 5]

    def test_an_abort_marker_ends_only_one_transaction_of_its_producer(self) -> None:
        assert [r["offset"] for r in rows_of(self.DATA, aborted=[Aborted(5, 7), Aborted(0, 7)])] == [1, 2]


class TestDamage:
    """Nothing damaged is ever given out as rows, and nothing but CorruptBatch is raised."""

    def test_the_spark_decoder_reports_every_flipped_byte_after_the_length_as_corrupt(self) -> None:
        data = batch([Record(b"key", b"value", headers=[("h", b"1")])], 5)
        for at in [*range(16, len(data))]:
            raw = bytearray(data)
            raw[at] ^= 0x41
            with pytest.raises(CorruptBatch):
                rows_of(bytes(raw))

    def test_the_error_for_a_corrupt_batch_names_partition_and_offsets(self) -> None:
        raw = bytearray(batch([Record(b"a"), Record(b"b")], 40))
        raw[-1] ^= 1

        with pytest.raises(
            CorruptBatch, match=r"orders-3: the batches at offsets 40 to 41 cannot be decoded: .* checksum"
        ):
            rows_of(bytes(raw))

    @pytest.mark.parametrize("find", WAYS.values(), ids=WAYS)
    @settings(max_examples=300)
    @given(at=st.integers(61, 140), value=st.integers(0, 255), count=st.integers(-2, 6))
    def test_a_damaged_record_with_a_valid_checksum_never_gives_rows_outside_the_range(
        self, find: Finder, at: int, value: int, count: int
    ) -> None:
        raw = bytearray(batch([Record(b"key", b"v" * 20, headers=[("h", b"1")])] * 2, 5))
        raw[min(at, len(raw) - 1)] = value
        struct.pack_into(">i", raw, 57, count)
        try:
            rows = rows_of(with_crc(raw), find=find)
        except CorruptBatch:
            return
        assert {r["offset"] for r in rows} <= {5, 6}

    @pytest.mark.parametrize("find", WAYS.values(), ids=WAYS)
    @settings(max_examples=200)
    @given(body=st.binary(max_size=60), count=st.integers(0, 9))
    def test_a_batch_of_random_bytes_with_a_valid_checksum_is_reported_as_corrupt(
        self, find: Finder, body: bytes, count: int
    ) -> None:
        raw = bytearray(batch([Record()])[:61] + body)
        struct.pack_into(">i", raw, 8, len(raw) - 12)
        struct.pack_into(">i", raw, 23, max(count - 1, 0))
        struct.pack_into(">i", raw, 57, count)
        try:
            rows_of(with_crc(raw), find=find)
        except CorruptBatch:
            return

    def test_a_batch_with_a_record_count_beyond_its_bytes_is_reported_as_corrupt(self) -> None:
        raw = bytearray(batch([Record(b"a")]))
        struct.pack_into(">i", raw, 57, 2_000_000_000)

        with pytest.raises(CorruptBatch, match="announces 2,000,000,000 records"):
            rows_of(with_crc(raw))

    def test_a_batch_with_bytes_after_its_last_record_is_reported_as_corrupt(self) -> None:
        raw = bytearray(batch([Record(b"a")] * 3))
        struct.pack_into(">i", raw, 57, 2)

        for find in WAYS.values():
            with pytest.raises(CorruptBatch, match="do not add up"):
                rows_of(with_crc(raw), find=find)

    @pytest.mark.parametrize("find", WAYS.values(), ids=WAYS)
    def test_a_batch_with_a_negative_record_length_is_reported_as_corrupt(self, find: Finder) -> None:
        raw = bytearray(batch([Record(b"a")] * 3))
        raw[61] = 1  # -1

        with pytest.raises(CorruptBatch, match=r"longer than the rest of its batch|do not add up"):
            rows_of(with_crc(raw), find=find)

    @pytest.mark.parametrize("find", WAYS.values(), ids=WAYS)
    @pytest.mark.parametrize("field", ["key", "value"])
    def test_a_key_or_value_longer_than_its_record_is_reported_as_corrupt(self, find: Finder, field: str) -> None:
        raw = bytearray(batch([Record(b"kkkk", b"vvvv"), Record(b"x" * 50, b"y" * 50)]))
        at = raw.index(b"kkkk" if field == "key" else b"vvvv") - 1
        raw[at] = 40  # 20 bytes: they are there, but the next record's

        with pytest.raises(CorruptBatch, match="key, value or headers of a record exceed its length"):
            rows_of(with_crc(raw), columns=("key", "value"), find=find)

    def test_a_record_with_an_impossible_header_count_is_reported_as_corrupt(self) -> None:
        raw = bytearray(batch([Record(b"k", b"v", headers=[("h", b"1")])]))
        raw[raw.index(b"v", 61) + 1] = 80

        with pytest.raises(CorruptBatch, match="key, value or headers of a record exceed its length"):
            rows_of(with_crc(raw))

    def test_batches_with_repeated_offsets_are_reported_as_corrupt(self) -> None:
        twice = batch([Record(b"a"), Record(b"b")], 5)

        with pytest.raises(CorruptBatch, match="not in order"):
            rows_of(twice + restamped(twice, 6))

    def test_records_with_decreasing_offset_deltas_are_reported_as_corrupt(self) -> None:
        raw = bytearray(batch([Record(b"a"), Record(b"b")], 5))
        raw[raw.index(b"b") - 2] = 0  # the second record's offset delta becomes 0

        with pytest.raises(CorruptBatch, match="do not increase"):
            rows_of(with_crc(raw))

    @pytest.mark.parametrize("magic", [0, 1, 3])
    def test_an_unsupported_message_format_is_refused_with_its_magic_number(self, magic: int) -> None:
        raw = bytearray(batch([Record(b"a")]))
        raw[16] = magic

        with pytest.raises(CorruptBatch, match=f"has magic {magic}, but klamm reads only magic 2"):
            read_run(bytes(raw))

    def test_a_batch_shorter_than_its_header_is_reported_as_corrupt(self) -> None:
        raw = bytearray(batch([Record(b"a")]))
        struct.pack_into(">i", raw, 8, 10)

        with pytest.raises(CorruptBatch, match="its header has 61"):
            read_run(bytes(raw))

    @pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
    def test_random_bytes_instead_of_compressed_records_are_reported_as_corrupt(self, codec: int) -> None:
        raw = bytearray(batch([Record(b"a" * 50)]))
        raw[22] |= codec

        with pytest.raises(CorruptBatch, match="the batch at offset 0"):
            rows_of(with_crc(raw))

    def test_a_batch_that_decompresses_to_an_excessive_size_is_refused(self) -> None:
        body = compress(Codec.GZIP, bytes(300 << 20), 1)
        raw = bytearray(batch([Record()])[:61] + body)
        struct.pack_into(">i", raw, 8, len(raw) - 12)
        raw[22] |= CODECS["gzip"]

        with pytest.raises(CorruptBatch, match="decompresses to more"):
            rows_of(with_crc(raw))


def test_decoding_an_empty_fetch_response_returns_no_rows() -> None:
    assert list(decode(read_run(b""), RecordSelection(TopicPartition("t", 0), 0, 9, ALL_COLUMNS))) == []


@pytest.mark.parametrize("timestamp", [MAX_MS, -MAX_MS, 1_700_000_000_000_000, -1])
def test_the_spark_source_returns_timestamps_far_from_now_as_they_are(timestamp: int) -> None:
    data = batch([Record(timestamp=timestamp)])

    [found] = decode(read_run(data), RecordSelection(ORDERS, 0, 1, ("timestamp",)))

    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [timestamp * 1000]


@pytest.mark.parametrize("timestamp", [MAX_MS + 1, -MAX_MS - 1, 1_700_000_000_000_000_000])
def test_the_spark_source_names_a_record_whose_timestamp_spark_cannot_hold(timestamp: int) -> None:
    data = batch([Record(), Record(timestamp=timestamp)], 7)

    with pytest.raises(BadTimestamp, match=rf"orders-3, offset 8: timestamp {timestamp} ms .* without the column"):
        list(decode(read_run(data), RecordSelection(ORDERS, 0, 9, ("value", "timestamp"))))
    [told] = decode(read_run(data), RecordSelection(ORDERS, 0, 9, ("timestamp", TIMESTAMP_ERROR)))
    assert told.column("timestamp").cast(pa.int64()).to_pylist() == [Record().timestamp * 1000, None]
    assert told.column(TIMESTAMP_ERROR).to_pylist() == [None, beyond_spark(timestamp)]
    assert [row["offset"] for row in rows_of(data, columns=("offset", "value"))] == [7, 8]
