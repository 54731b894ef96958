"""Converts batches for consumers that know only the message formats 0 or 1.

Source: RecordsUtil.java (downConvert), LazyDownConversionRecords.java.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.wire.compression import Codec
from klamm.wire.records.batch import MAGIC, BatchHeader, Buffer, CorruptRecords, TimestampType, batches
from klamm.wire.records.legacy import Message, encode_messages, messages_of
from klamm.wire.records.record import records

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024


class Converted(NamedTuple):
    """Converted messages, and the next offset to convert; `problem` is why the next batch cannot be converted."""

    content: bytes
    next_offset: int
    problem: str | None = None
    has_zstd: bool = False


def down_convert(content: Buffer, magic: int, first_offset: int, max_bytes: int) -> Converted:
    """Convert complete batches to a format, from `first_offset` on, until about `max_bytes` are written.

    Control batches and headers are left out, and of uncompressed records those before `first_offset`.
    """
    parts: list[bytes] = []
    size, next_offset = 0, first_offset
    try:
        for header in batches(content):
            if header.magic == MAGIC and header.codec is Codec.ZSTD and not header.is_control:
                return Converted(
                    b"".join(parts),
                    next_offset,
                    "records compressed with zstd cannot be converted to a format before 2",
                    has_zstd=True,
                )
            part = _convert_batch(content, header, magic, first_offset)
            parts.append(part)
            size += len(part)
            next_offset = max(next_offset, header.next_offset)
            if size >= max_bytes:
                break
    except CorruptRecords as error:
        return Converted(b"".join(parts), next_offset, str(error))
    return Converted(b"".join(parts), next_offset)


def _convert_batch(content: Buffer, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    """Return the batch converted to message format `magic`, empty for a control batch. Raises CorruptRecords."""
    if header.magic <= magic:
        return bytes(memoryview(content)[header.position : header.position + header.size])
    if header.is_control and header.magic == MAGIC:
        return b""
    codec = header.codec
    messages = [m for m in _messages(content, header) if codec is not Codec.NONE or m.offset >= first_offset]
    if not messages:
        return b""
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return encode_messages(messages, magic, codec, header.max_timestamp if is_append_time else None)


def _messages(content: Buffer, header: BatchHeader) -> Iterator[Message]:
    """The records of a batch of any format. Raises CorruptRecords."""
    if header.magic != MAGIC:
        yield from messages_of(content, header, MAX_DECOMPRESSED_BYTES)
        return
    for record in records(content, header, MAX_DECOMPRESSED_BYTES):
        yield Message(record.offset, record.timestamp, record.key, record.value)
