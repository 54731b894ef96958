"""The records inside a batch; walked only where they must be. Source: DefaultRecord.java, ByteUtils.java."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.wire.compression import BadCompression
from klamm.wire.records.batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptRecords,
    TimestampType,
)
from klamm.wire.unfolding import MAX_OUTPUT_BYTES, decompress

Headers = Sequence[tuple[str, bytes | None]]

MAX_VARINT_BYTES: Final = 10


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record on its way into a batch; `timestamp` in ms."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: Headers = ()


def payload_of(buffer: Buffer, header: BatchHeader, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
    """The decompressed records of a batch. Raises CorruptRecords."""
    start = header.position
    content = memoryview(buffer)[start + HEADER_BYTES : start + header.size]
    try:
        return decompress(header.codec, content, max_bytes)
    except BadCompression as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error


def records(buffer: Buffer, header: BatchHeader, max_bytes: int = MAX_OUTPUT_BYTES) -> Iterator[Record]:
    """Decode each record of the batch at the header's position, with absolute offsets and timestamps.

    Raises CorruptRecords where a record's length does not match its fields, bytes are left over, or the batch is of an
    old magic.
    """
    if header.magic != MAGIC:
        raise CorruptRecords(
            f"batch at offset {header.base_offset}: its magic is {header.magic}, but only records of magic "
            f"{MAGIC} are read"
        )
    payload = payload_of(buffer, header, max_bytes)
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position = seen = 0
    try:
        for _ in range(header.record_count):
            record, position = record_at(payload, position, header, append_time)
            yield record
            seen += 1
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}, record {seen}: {reason_of(error)}") from error
    if position != len(payload):
        left = len(payload) - position
        raise CorruptRecords(
            f"batch at offset {header.base_offset}: its header announces {header.record_count} records, "
            f"but {left} more bytes follow them"
        )


class BadRecord(IndexError):
    """A record of a batch is malformed. The caller adds the batch's offset and the number of the record to the text.

    A plain IndexError means that the batch ends within the record.
    """


TRUNCATED_RECORD: Final = "the batch ends within this record"
UNNAMED_HEADER: Final = "a header of the record has no name"


def too_many_headers(count: int, size: int) -> BadRecord:
    """Return the error for a record that announces more headers than fit into the `size` bytes after the count."""
    return BadRecord(f"the record announces {count} headers, but only {size} bytes follow in the record")


def wrong_length(length: int) -> BadRecord:
    """Return the error for a record whose length is impossible in its batch."""
    return BadRecord(f"the record has length {length}, which is less than 1 or more than the rest of its batch")


def wrong_end(excess: int) -> BadRecord:
    """Return the error for a record with `excess` bytes more than its length says; negative means fewer."""
    difference = f"{abs(excess)} bytes {'more' if excess > 0 else 'less'}"
    return BadRecord(f"the fields of the record have {difference} than its length says")


def reason_of(error: IndexError) -> str:
    """What is wrong with the record whose decoding raised the error."""
    return str(error) if isinstance(error, BadRecord) else TRUNCATED_RECORD


def record_at(payload: bytes, position: int, header: BatchHeader, append_time: int | None) -> tuple[Record, int]:
    """Decode the record at `position`; returns it with the position after it. Raises IndexError.

    Bytes of a header's name that are not UTF-8 are replaced, as Apache Kafka's client does.
    Most numbers take one byte and are decoded inline.
    """
    length, position = read_varint(payload, position)
    end = position + length
    if length < 1 or end > len(payload):
        raise wrong_length(length)
    timestamp_delta = payload[position + 1]  # the byte skipped: attributes, unused
    if timestamp_delta < 0x80:
        timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
        position += 2
    else:
        timestamp_delta, position = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _nullable(payload, position)
    value, position = _nullable(payload, position)
    headers: Headers = ()
    if payload[position]:
        headers, position = _headers(payload, position, end)
    else:
        position += 1
    if position != end:
        raise wrong_end(position - end)
    timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _headers(payload: bytes, position: int, end: int) -> tuple[Headers, int]:
    """Decode the headers of a record that ends at `end`; returns them with the position after them."""
    count, position = read_varint(payload, position)
    if count < 0 or count > end - position:
        raise too_many_headers(count, end - position)
    headers = []
    for _ in range(count):
        name, position = _nullable(payload, position)
        if name is None:
            raise BadRecord(UNNAMED_HEADER)
        content, position = _nullable(payload, position)
        headers.append((name.decode(errors="replace"), content))
    return tuple(headers), position


def _nullable(payload: bytes, position: int) -> tuple[bytes | None, int]:
    """Decode a nullable byte string; returns it with the position after it."""
    length = payload[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(payload):
        raise BadRecord(
            f"a key, value or header at byte {position} of the batch has length {length} and passes its end"
        )
    return payload[position:end], end


def read_varint(payload: Buffer, position: int) -> tuple[int, int]:
    """Decode a zig-zag varint or varlong; returns it with the position after it.

    Raises IndexError where it does not end.
    """
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    byte = payload[position + 1]
    raw |= (byte & 0x7F) << 7
    if byte < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 2
    for index in range(2, MAX_VARINT_BYTES):
        byte = payload[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise BadRecord(f"the varint at byte {position} of the batch is longer than {MAX_VARINT_BYTES} bytes")


def append_varint(output: bytearray, value: int) -> None:
    """Encode a zig-zag varint at the end of `output`."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        output.append((raw & 0x7F) | 0x80)
        raw >>= 7
    output.append(raw)


def append_record(output: bytearray, record: NewRecord, offset_delta: int, base_timestamp: int) -> None:
    """Encode one record at the end of `output`."""
    body = bytearray(1)  # attributes: none are defined
    append_varint(body, record.timestamp - base_timestamp)
    append_varint(body, offset_delta)
    _append_nullable(body, record.key)
    _append_nullable(body, record.value)
    append_varint(body, len(record.headers))
    for name, content in record.headers:
        _append_nullable(body, name.encode())
        _append_nullable(body, content)
    append_varint(output, len(body))
    output += body


def _append_nullable(output: bytearray, content: bytes | None) -> None:
    """Encode a nullable byte string at the end of `output`."""
    if content is None:
        output.append(0x01)
    else:
        append_varint(output, len(content))
        output += content
