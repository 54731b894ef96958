"""What `klamm consume` prints of messages in the formats 0 and 1, which logs of old brokers still have."""

import json
from typing import Any

import pytest
from tests.support.old_messages import FORMATS_AND_CODECS, message_set, old_records

from klamm.cli.records.printing import Printer
from klamm.client.reader import Fetched
from klamm.model.ids import TopicPartition
from klamm.wire.compression import Codec, compress
from klamm.wire.records import CorruptRecords, NewRecord, build_batch
from klamm.wire.records.legacy import Message, encode_message, encode_messages

OFFSETS = (50, 51, 53, 54)
ORDERS = TopicPartition("orders", 0)


def printed(content: bytes, position: int, next_position: int) -> list[Any]:
    """The JSON of each record from `position` on."""
    fetched = Fetched(ORDERS, position, next_position, content, next_position, ())
    blocks = list(Printer(None).blocks(fetched, None, None))
    assert blocks[-1].next_position == next_position
    return [json.loads(line) for block in blocks for line in block.content.splitlines()]


def text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


@pytest.mark.parametrize(("magic", "codec"), FORMATS_AND_CODECS)
def test_messages_of_old_formats_are_printed_from_the_asked_offset_on(magic: int, codec: Codec) -> None:
    records = old_records(magic, OFFSETS)

    found = printed(message_set(records, magic, codec), 51, 55)

    assert [(r["offset"], r["ts"], r["key"], r["payload"]) for r in found] == [
        (r.offset, r.timestamp, text(r.key), text(r.value)) for r in records[1:]
    ]
    assert {r["tstype"] for r in found} == {"create" if magic else "unknown"}


def test_messages_of_old_formats_before_batches_of_format_2_are_printed_with_them() -> None:
    content = message_set(old_records(0, OFFSETS), 0, Codec.GZIP) + build_batch([NewRecord(b"new")], base_offset=55)

    assert [r["offset"] for r in printed(content + content[:30], 50, 56)] == [*OFFSETS, 55]


def test_messages_with_log_append_time_are_printed_with_that_time() -> None:
    messages = [Message(*record) for record in old_records(1, OFFSETS)]

    found = printed(encode_messages(messages, 1, Codec.SNAPPY, append_time=77), 50, 55)

    assert {(r["ts"], r["tstype"]) for r in found} == {(77, "logappend")}


def damaged(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position:][1:]


def nested() -> bytes:
    """A compressed message that wraps a compressed one."""
    inner = message_set(old_records(1, OFFSETS), 1, Codec.GZIP)
    return wrapped(inner)


def wrapped(inner: bytes) -> bytes:
    """A wrapper of format 1 with these messages, and a valid CRC of its own."""
    return encode_message(Message(54, 5, None, compress(Codec.GZIP, inner)), 1, Codec.GZIP)


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        "a message": (damaged(message_set(old_records(1, OFFSETS), 1, Codec.NONE), 30), "does not match its CRC"),
        "a wrapper": (damaged(message_set(old_records(1, OFFSETS), 1, Codec.GZIP), -1), "does not match its CRC"),
        "within a wrapper": (
            wrapped(damaged(message_set(old_records(1, OFFSETS), 1, Codec.NONE), -1)),
            "message at offset 54: its CRC does not match its bytes",
        ),
        "a wrapper in a wrapper": (nested(), "message at offset 54 is compressed, and within a compressed message"),
    }.values(),
)
def test_a_damaged_message_of_an_old_format_is_not_printed(content: bytes, problem: str) -> None:
    with pytest.raises(CorruptRecords, match=f"Cannot decode records of orders-0: .*{problem}"):
        printed(content, 54, 55)
