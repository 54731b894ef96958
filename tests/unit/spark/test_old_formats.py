"""Messages of the formats 0 and 1, which logs of long-lived clusters still have, as rows."""

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.support.old_messages import FORMATS_AND_CODECS, OldRecord, message_set, old_records
from tests.support.scripted_brokers import ScriptedLog
from tests.unit.spark.batch_bytes import Record, batch, milliseconds
from tests.unit.spark.fetching import ORDERS, orders
from tests.unit.spark.scripts import job, scripted

from klamm.spark.columns import arrow_schema
from klamm.spark.ranges import TaskRanges
from klamm.spark.tasks import read_task
from klamm.wire.compression import Codec, compress
from klamm.wire.records import up_conversion
from klamm.wire.records.batch import LOG_APPEND_TIME_BIT
from klamm.wire.records.legacy import Message, encode_message, encode_messages
from klamm.wire.vectors.any_format import read_run_of_any_format
from klamm.wire.vectors.batches import CorruptBatch

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
OFFSETS = (50, 51, 53, 54)


def read(content: bytes, start: int, end: int, columns: tuple[str, ...] = COLUMNS) -> list[dict[str, object]]:
    """The rows of a range that a leader answers with these bytes."""
    world = scripted(orders_0=ScriptedLog(1, [(0, end - 1, content)]))
    pieces = list(
        read_task(world, job(columns, {"kafkaConsumer__pollTimeoutMs": "1000"}), TaskRanges((orders(start, end),)))
    )
    rows: list[dict[str, object]] = pa.Table.from_batches(pieces, arrow_schema(columns)).to_pylist()
    return rows


def offsets(content: bytes, start: int, end: int) -> list[object]:
    return [row["offset"] for row in read(content, start, end)]


def rows_of(records: Sequence[OldRecord], timestamp_type: int) -> list[tuple[object, ...]]:
    return [(r.key, r.value, r.offset, r.timestamp, timestamp_type) for r in records]


def comparable(row: dict[str, object]) -> tuple[object, ...]:
    return row["key"], row["value"], row["offset"], milliseconds(row["timestamp"]), row["timestampType"]


@pytest.mark.parametrize(("magic", "codec"), FORMATS_AND_CODECS)
def test_messages_of_old_formats_are_rows_from_the_asked_offset_on(magic: int, codec: Codec) -> None:
    records = old_records(magic, OFFSETS)
    content = message_set(records, magic, codec)

    assert [comparable(row) for row in read(content, 51, 55)] == rows_of(records[1:], 0 if magic else -1)
    assert offsets(content, 50, 54) == [50, 51, 53]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_timestamp_type_of_old_messages_is_known_from_the_headers_alone(magic: int) -> None:
    content = message_set(old_records(magic, range(4)), magic, Codec.GZIP)

    found = read(content, 0, 4, ("offset", "timestampType"))

    assert found == [{"offset": n, "timestampType": 0 if magic else -1} for n in range(4)]


def test_old_messages_are_read_before_between_and_after_batches_of_format_2() -> None:
    new = [batch([Record(value=b"new")], base) for base in (52, 55)]
    wrapper = message_set(old_records(0, (50, 51)), 0, Codec.SNAPPY)
    plain = message_set(old_records(1, (53, 54)), 1, Codec.NONE)
    last = message_set(old_records(0, (56,)), 0, Codec.NONE)

    assert offsets(wrapper + new[0] + plain + new[1] + last, 50, 57) == list(range(50, 57))
    assert offsets(new[1] + last, 55, 57) == [55, 56]
    assert offsets(last, 56, 57) == [56]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_answer_that_ends_within_an_old_message_gives_the_messages_before(codec: Codec) -> None:
    whole = message_set(old_records(1, OFFSETS), 1, codec)
    following = message_set(old_records(1, (55,)), 1, codec)
    for size in range(len(following)):
        assert read_run_of_any_format(whole + following[:size]).next_offset == 55


def test_old_messages_keep_the_log_append_time_of_each() -> None:
    messages = [Message(*record) for record in old_records(1, OFFSETS)]
    plain = b"".join(
        encode_message(m._replace(timestamp=76 + m.offset // 53), 1, LOG_APPEND_TIME_BIT) for m in messages
    )
    wrapper = encode_messages([m._replace(offset=m.offset + 5) for m in messages], 1, Codec.LZ4, append_time=80)

    found = read(plain + wrapper, 50, 60)

    assert [milliseconds(row["timestamp"]) for row in found] == [76, 76, 77, 77, 80, 80, 80, 80]
    assert {row["timestampType"] for row in found} == {1}


def test_many_small_old_messages_become_batches_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    content = message_set(old_records(1, range(100)), 1, Codec.NONE)
    assert len(read_run_of_any_format(content).positions) == 1

    monkeypatch.setattr(up_conversion, "MAX_GROUP_BYTES", 1_000)

    assert len(read_run_of_any_format(content).positions) > 3
    assert offsets(content, 0, 100) == list(range(100))


def test_old_messages_with_a_gap_too_large_for_one_batch_become_two() -> None:
    content = message_set(old_records(1, (0, 1, 2**31 + 1)), 1, Codec.NONE)

    run = read_run_of_any_format(content)

    assert [int(offset) for offset in run.last_offsets] == [1, 2**31 + 1]


def test_bytes_with_batches_of_format_2_only_are_not_copied() -> None:
    content = batch([Record()]) + batch([Record()], 1)

    truncated = content + content[:40]

    assert read_run_of_any_format(truncated).buffer.obj is truncated
    assert read_run_of_any_format(content).buffer.obj is content


def wrapped(inner: bytes) -> bytes:
    """A wrapper of format 1 with these messages, and a valid CRC of its own."""
    return encode_message(Message(54, 5, None, compress(Codec.GZIP, inner)), 1, Codec.GZIP)


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


PLAIN = message_set(old_records(1, OFFSETS), 1, Codec.NONE)
WRAPPER = message_set(old_records(1, OFFSETS), 1, Codec.GZIP)
DAMAGED = {
    "a message": (damaged(PLAIN), "CRC does not match"),
    "a wrapper": (damaged(WRAPPER), "CRC does not match"),
    "within a wrapper": (wrapped(damaged(PLAIN)), "CRC does not match"),
    "a wrapper in a wrapper": (wrapped(WRAPPER), "is compressed, and within a compressed message"),
    "offsets that fall": (
        wrapped(b"".join(struct.pack(">q", n) + m[8:] for n, m in ((0, PLAIN), (0, PLAIN)))),
        "do not follow each other",
    ),
    "no codec": (encode_message(Message(54, 5, None, b""), 1, 7), "is not a compression codec"),
}


@pytest.mark.parametrize(("content", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_message_of_an_old_format_fails_the_read_with_partition_and_offset(
    content: bytes, problem: str
) -> None:
    with pytest.raises(CorruptBatch, match=f"{ORDERS}: the answer to a fetch from offset 50 cannot be .*{problem}"):
        read(content, 50, 55)
