"""Messages of the formats 0 and 1, decoded and encoded. Source: LegacyRecord.java, AbstractLegacyRecordBatch.java.

A message set is a sequence of messages. A compressed message is a wrapper: its value is another message set. Inner
offsets are absolute in format 0. In format 1 they count from the wrapper's first message, and the wrapper has the
offset of the last one; where a client wrote others, the distance to the last one counts.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.wire.compression import BadCompression, Codec, compress
from klamm.wire.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
    CorruptRecords,
    batches,
)
from klamm.wire.unfolding import decompress

_FRONT: Final = struct.Struct(">qiIbb")  # offset, size, CRC, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC_AT: Final = 12
_CHECKED_AT: Final = 16
_LZ4_DESCRIPTOR_AT: Final = 4
_LZ4_HEADER_CHECKSUM_AT: Final = 6
"""A frame of Kafka's has neither content size nor dictionary: its descriptor has two bytes."""


class Message(NamedTuple):
    """One message; `timestamp` is -1 in format 0, `has_valid_crc` is False only for one within a wrapper."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    codec: Codec = Codec.NONE
    magic: int = 1
    has_valid_crc: bool = True


def messages_of(buffer: Buffer, header: BatchHeader, max_bytes: int) -> Iterator[Message]:
    """The messages in the entry at the header's position: itself, or those that it wraps.

    Raises CorruptRecords where it cannot be parsed, or decompresses to more than `max_bytes`.
    """
    outer = _message_at(buffer, header)
    codec = header.codec
    if codec is Codec.NONE:
        yield outer
        return
    if codec is Codec.ZSTD or outer.value is None:
        raise CorruptRecords(
            f"message at offset {header.base_offset}: {codec.name.lower()} compression does not exist in formats "
            "0 and 1"
        )
    try:
        payload = outer.value
        if codec is Codec.LZ4 and header.magic == 0:
            payload = with_lz4_header_checksum(payload, is_kafkas=False)
        content = decompress(codec, payload, max_bytes)
    except BadCompression as error:
        raise CorruptRecords(f"message at offset {header.base_offset}: {error}") from error
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT and header.magic else None
    last = max((each.base_offset for each in _complete_batches(content)), default=0)
    shift = _shift_of_inner_offsets(header, last)
    for each in batches(content):
        message = _message_at(content, each)
        timestamp = message.timestamp if append_time is None else append_time
        yield message._replace(offset=message.offset + shift, timestamp=timestamp)


def readable_messages(buffer: Buffer, header: BatchHeader, max_bytes: int) -> Iterator[Message]:
    """The messages in the entry, as `messages_of` gives them, for a consumer: each matches its CRC, none wraps others.

    The checksum of a wrapper itself is not verified. Raises CorruptRecords.
    """
    for message in messages_of(buffer, header, max_bytes):
        if not message.has_valid_crc:
            raise CorruptRecords(f"message at offset {message.offset}: its CRC does not match its bytes")
        if message.codec is not Codec.NONE:
            raise CorruptRecords(f"message at offset {message.offset} is compressed, and within a compressed message")
        yield message


def _shift_of_inner_offsets(wrapper: BatchHeader, last: int) -> int:
    """What to add to the offsets within a wrapper, the last of which is `last`. Raises CorruptRecords.

    In format 1 the wrapper has the offset of its last message, or 0, as old clients write it.
    """
    if wrapper.magic == 0 or wrapper.base_offset == 0:
        return 0
    if wrapper.base_offset < last:
        raise CorruptRecords(
            f"message at offset {wrapper.base_offset}: the last message that it wraps has the offset {last}"
        )
    return wrapper.base_offset - last


def _complete_batches(content: Buffer) -> Iterator[BatchHeader]:
    """The entries of a message set that must be whole. Raises CorruptRecords."""
    end = 0
    for header in batches(content):
        end = header.position + header.size
        yield header
    if end != len(content) or not end:
        raise CorruptRecords(
            f"a compressed message decompresses to {len(content)} bytes, and the last {len(content) - end} are "
            "not a complete message"
        )


def _message_at(buffer: Buffer, header: BatchHeader) -> Message:
    """Decode the message at the header's position, a wrapper as it is. Raises CorruptRecords."""
    view = memoryview(buffer)[header.position : header.position + header.size]
    if header.magic not in (0, 1):
        raise CorruptRecords(f"message at offset {header.base_offset}: its magic is {header.magic}, but must be 0 or 1")
    position = _FRONT.size + (_TIMESTAMP.size if header.magic else 0)
    try:
        key, position = _nullable(view, position)
        value, position = _nullable(view, position)
    except struct.error as error:
        raise CorruptRecords(f"message at offset {header.base_offset}: it is cut off: {error}") from error
    if position != len(view):
        raise CorruptRecords(
            f"message at offset {header.base_offset}: its size is {len(view)} bytes, but its fields have {position}"
        )
    is_valid = zlib.crc32(view[_CHECKED_AT:]) == header.crc
    return Message(header.base_offset, header.max_timestamp, key, value, header.codec, header.magic, is_valid)


def _nullable(view: memoryview, position: int) -> tuple[bytes | None, int]:
    """A key or value, and the position after it. Raises struct.error where it is cut off."""
    (length,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if position + length > len(view):
        raise struct.error(f"the key or value at byte {position} of the message is cut off")
    return bytes(view[position : position + length]), position + length


def encode_message(message: Message, magic: int, attributes: int = 0) -> bytes:
    """One message in format 0 or 1."""
    body = bytearray()
    if magic:
        body += _TIMESTAMP.pack(message.timestamp)
    for field in (message.key, message.value):
        body += _LENGTH.pack(-1 if field is None else len(field))
        body += field or b""
    checked = struct.pack(">bb", magic, attributes) + body
    size = _FRONT.size - PREFIX_BYTES + len(body)
    return struct.pack(">qiI", message.offset, size, zlib.crc32(checked)) + checked


def encode_messages(messages: Sequence[Message], magic: int, codec: Codec, append_time: int | None = None) -> bytes:
    """Messages with rising offsets in format 0 or 1: one after the other, or within one wrapper.

    `append_time`: the timestamps are LogAppendTime, this one for all.
    """
    attributes = LOG_APPEND_TIME_BIT if append_time is not None and magic else 0
    if codec is Codec.NONE:
        return b"".join(encode_message(message, magic, attributes) for message in messages)
    base = messages[0].offset if magic else 0
    inner = b"".join(
        encode_message(message._replace(offset=message.offset - base), magic, attributes) for message in messages
    )
    content = compress(codec, inner)
    if codec is Codec.LZ4 and magic == 0:
        content = with_lz4_header_checksum(content, is_kafkas=True)
    timestamp = max(message.timestamp for message in messages) if append_time is None else append_time
    wrapper = Message(messages[-1].offset, timestamp if magic else NO_TIMESTAMP, None, content)
    return encode_message(wrapper, magic, attributes | codec)


def is_compressed(header: BatchHeader) -> bool:
    """Whether the entry is a wrapper."""
    return bool(header.attributes & CODEC_MASK)


def with_lz4_header_checksum(frame: bytes, *, is_kafkas: bool) -> bytes:
    """The lz4 frame with the right header checksum, or with that of Kafka's format 0 (KAFKA-3160).

    That one is taken over the frame's magic number, too. Raises BadCompression for another kind of frame.
    """
    if len(frame) <= _LZ4_HEADER_CHECKSUM_AT or frame[_LZ4_DESCRIPTOR_AT] & 0x09:
        raise BadCompression(
            f"lz4 data of {len(frame)} bytes does not begin with the header of an lz4 frame as Kafka writes it"
        )
    start = 0 if is_kafkas else _LZ4_DESCRIPTOR_AT
    checksum = _xxh32_short(frame[start:_LZ4_HEADER_CHECKSUM_AT]) >> 8 & 0xFF
    return frame[:_LZ4_HEADER_CHECKSUM_AT] + bytes([checksum]) + frame[_LZ4_HEADER_CHECKSUM_AT + 1 :]


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK: Final = 0xFFFFFFFF


def _xxh32_short(content: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes."""
    assert len(content) < 16
    accumulator, position = _PRIME_5 + len(content), 0
    while position + 4 <= len(content):
        accumulator += int.from_bytes(content[position : position + 4], "little") * _PRIME_3
        accumulator = _rotate(accumulator & _MASK, 17) * _PRIME_4 & _MASK
        position += 4
    for byte in content[position:]:
        accumulator = _rotate((accumulator + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    accumulator ^= accumulator >> 15
    accumulator = accumulator * _PRIME_2 & _MASK
    accumulator ^= accumulator >> 13
    accumulator = accumulator * _PRIME_3 & _MASK
    return accumulator ^ accumulator >> 16


def _rotate(value: int, bits: int) -> int:
    """Rotate 32 bits to the left."""
    return (value << bits | value >> (32 - bits)) & _MASK
