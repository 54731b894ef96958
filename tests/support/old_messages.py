"""Messages of the formats 0 and 1 as logs of old brokers have them: written by kafka-python, with assigned offsets."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from klamm.wire.compression import Codec
from klamm.wire.records.legacy import Message, encode_messages

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
FORMATS_AND_CODECS = [(magic, codec) for magic in (0, 1) for codec in CODECS]


class OldRecord(NamedTuple):
    """What a consumer gets of a message; the timestamp is -1 in format 0."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def old_records(magic: int, offsets: Sequence[int]) -> list[OldRecord]:
    """Records with these offsets: with and without keys and values."""
    return [
        OldRecord(o, 1_000 + o if magic else -1, None if o % 2 else b"key", None if o % 5 == 3 else b"value-%d" % o)
        for o in offsets
    ]


def message_set(records: Sequence[OldRecord], magic: int, codec: Codec) -> bytes:
    """The records one after the other, or in one wrapper, as a broker stores them."""
    if codec is Codec.LZ4 and magic == 0:  # kafka-python needs another library for this one
        return encode_messages([Message(*record) for record in records], magic, codec)
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    base = records[0].offset if magic and codec else 0
    for record in records:
        builder.append(record.offset - base, record.timestamp if magic else None, record.key, record.value)
    content = bytes(builder.build())
    return struct.pack(">q", records[-1].offset) + content[8:] if codec else content
