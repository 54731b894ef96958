"""Message sets of format 0 and 1 become one batch of format 2, or are refused with Kafka's code."""

import struct

import pytest
from tests.unit.log.support import NOW_MS, Partition, headers_of

from klamm.config.topic_config import TopicConfig
from klamm.log.append_rules import AppendRules
from klamm.log.errors import AppendRefused
from klamm.log.leader_append import preparation_for
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.wire.compression import Codec, compress
from klamm.wire.records import TimestampType, records
from klamm.wire.records.legacy import Message, encode_message, encode_messages

THREE = [Message(n, NOW_MS + n, b"k%d" % n, b"v%d" % n) for n in range(3)]
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def wrapped(content: bytes, magic: int = 1) -> bytes:
    """A message with this message set within."""
    return encode_message(Message(2, NOW_MS, None, compress(Codec.GZIP, content)), magic, Codec.GZIP)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stored", ["producer", "gzip", "uncompressed"])
def test_a_message_set_of_an_old_format_is_converted_to_one_record_batch(
    orders: Partition, magic: int, codec: Codec, stored: str
) -> None:
    log = orders.open(compression_type=stored)
    messages = THREE if magic else [m._replace(timestamp=-1) for m in THREE]
    for _ in range(2):
        info = log.append_as_leader(encode_messages(messages, magic, codec), 7)

    assert (info.first_offset, info.last_offset) == (3, 5)
    _, header = headers_of(log)
    expected = {"producer": codec, "gzip": Codec.GZIP, "uncompressed": Codec.NONE}[stored]
    assert (header.magic, header.codec, header.record_count, header.producer_id) == (2, expected, 3, -1)
    assert (header.partition_leader_epoch, header.max_timestamp) == (7, NOW_MS + 2 if magic else -1)
    content = log.read(3, 1 << 20).records
    assert isinstance(content, bytes)
    found = [(r.offset, r.timestamp, r.key, r.value) for r in records(content, header._replace(position=0))]
    assert found == [(3 + n, m.timestamp, m.key, m.value) for n, m in enumerate(messages)]


def test_converting_old_messages_for_a_log_append_time_topic_sets_the_batch_timestamp(orders: Partition) -> None:
    log = orders.open(message_timestamp_type="LogAppendTime")
    log.append_as_leader(encode_messages(THREE, 1, Codec.GZIP), 0)

    (header,) = headers_of(log)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS)


def test_converting_an_old_message_set_omits_an_incomplete_message_at_the_end(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(encode_messages(THREE, 1, Codec.NONE)[:-1], 0)

    assert log.end_offset == 2


def _with_wrong_crc(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _with_later_magic_2(offset: int) -> bytes:
    """A message of format 0, and another with this offset, whose magic is damaged: it looks like a batch."""
    first, second = (encode_message(Message(n, -1, b"k", b"v" * 60), 0) for n in (0, offset))
    return first + second[:16] + b"\x02" + second[17:]


REFUSED = {
    "a later entry with magic 2, and then a wrong length": (
        _with_later_magic_2(1) + bytes(12),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a later entry with magic 2 and a base offset": (_with_later_magic_2(1), ErrorCode.INVALID_RECORD),
    "a later entry with magic 2 and without": (_with_later_magic_2(0), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC": (_with_wrong_crc(encode_messages(THREE, 1, Codec.NONE)), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC within": (wrapped(_with_wrong_crc(encode_messages(THREE, 1, Codec.NONE))), ErrorCode.CORRUPT_MESSAGE),
    "nested": (wrapped(encode_messages(THREE, 1, Codec.GZIP)), ErrorCode.INVALID_RECORD),
    "other format within": (wrapped(encode_messages(THREE, 0, Codec.NONE)), ErrorCode.INVALID_RECORD),
    "nothing within": (wrapped(b""), ErrorCode.INVALID_RECORD),
    "half a message within": (wrapped(encode_messages(THREE, 1, Codec.NONE)[:-1]), ErrorCode.INVALID_RECORD),
    "wrapper before the last within": (
        struct.pack(">q", 1) + encode_messages(THREE, 1, Codec.GZIP)[8:], ErrorCode.INVALID_RECORD,
    ),
    "wrapper at a negative offset": (
        struct.pack(">q", -(2**63)) + encode_messages(THREE, 1, Codec.GZIP)[8:], ErrorCode.INVALID_RECORD,
    ),
    "two wrappers": (encode_messages(THREE, 1, Codec.GZIP) * 2, ErrorCode.INVALID_RECORD),
    "zstd": (encode_messages(THREE, 1, Codec.ZSTD), ErrorCode.INVALID_RECORD),
    "two formats": (
        encode_messages(THREE, 1, Codec.NONE) + encode_messages(THREE, 0, Codec.NONE), ErrorCode.INVALID_RECORD,
    ),
    "LogAppendTime": (encode_messages(THREE, 1, Codec.NONE, NOW_MS), ErrorCode.INVALID_TIMESTAMP),
    "too large": (encode_messages([Message(0, 1, None, bytes(2_000))], 1, Codec.NONE), ErrorCode.MESSAGE_TOO_LARGE),
    "no key": (encode_messages([Message(0, NOW_MS, None, b"v")], 1, Codec.GZIP), ErrorCode.INVALID_RECORD),
    "late": (encode_messages([Message(0, 5, b"k", b"v")], 1, Codec.GZIP), ErrorCode.INVALID_TIMESTAMP),
}  # fmt: skip


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_message_set_of_an_old_format_is_refused_and_not_written(
    orders: Partition, content: bytes, code: ErrorCode
) -> None:
    log = orders.open(cleanup_policy="compact", max_message_bytes=1_000, message_timestamp_before_max_ms=3_600_000)

    with pytest.raises(AppendRefused) as caught:
        log.append_as_leader(content, 0)

    assert caught.value.code is code
    assert log.end_offset == 0


@pytest.mark.parametrize(
    ("content", "is_inline"),
    [
        (encode_messages(THREE, 1, Codec.NONE), True),
        (encode_messages(THREE, 1, Codec.GZIP), False),
        (encode_messages(THREE * 50, 0, Codec.NONE), False),
    ],
)
def test_converting_many_or_compressed_old_messages_runs_in_a_worker_process(content: bytes, is_inline: bool) -> None:
    rules = AppendRules.of(TopicConfig.parse())

    assert (preparation_for(content, rules, Origin.CLIENT, NOW_MS) is None) == is_inline
