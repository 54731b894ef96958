"""Record batches as stored on disk and sent on the wire: headers only; the records stay opaque bytes.

Source: DefaultRecordBatch.java; AbstractLegacyRecordBatch.java for the entries of magic 0 and 1, which only old log
directories still contain: they are located and checked here, never written.
"""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import google_crc32c

from klamm.model.errors import KlammError
from klamm.wire.compression import Codec

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
PREFIX_BYTES: Final = 12
"""Base offset and batch length, in front of every entry of every magic."""
IDENTIFYING_BYTES: Final = 17
"""Enough to tell any entry's offset, size and magic."""

MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
"""The base timestamp is the time from which on compaction drops the batch's tombstones, or its end marker."""
USED_ATTRIBUTES: Final = 0x7F
"""All other bits are cleared where a broker writes a header again."""

_PREFIX: Final = struct.Struct(">qi")
_ASSIGNED: Final = struct.Struct(">qii")  # what a leader overwrites; the CRC does not cover it
_IDENTIFYING: Final = struct.Struct(">qiIb")
_CRC_POSITION: Final = 17
_CHECKED_POSITION: Final = 21
_CHECKED_HEADER: Final = struct.Struct(">hiqqqhii")
_LEGACY_TIMESTAMP: Final = struct.Struct(">q")
_MIN_LEGACY_BYTES: Final = {0: 14, 1: 22}
_CRC_PIECE_BYTES: Final = 64 * 1024
_MAX_SEQUENCE: Final = 2**31 - 1


class CorruptRecords(KlammError):
    """Bytes that cannot be a record batch, or whose CRC does not match."""


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields in wire order, and `position`, where in the buffer or file the batch begins.

    A magic 0 or 1 entry has its own offset as base offset, its timestamp as maximum, and no producer.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int = 0

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, also where compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The compression codec. Raises CorruptRecords for 5 to 7, which are no codecs."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptRecords(
                f"batch at offset {self.base_offset}: {number} in its attributes is not a compression codec (0 to 4)"
            )
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps: the producer (CreateTime) or the broker (LogAppendTime)."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, as data or as its end marker."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch has a control record, such as a transaction marker, in place of data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2³¹-1 to 0; -1 where the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, increment: int) -> int:
    """Add to a producer sequence, which wraps from 2³¹-1 to 0."""
    return (sequence + increment) & _MAX_SEQUENCE


def entry_size(buffer: Buffer, position: int = 0) -> int:
    """The size of the batch or message at `position`, of which at least 12 bytes must be given.

    Raises CorruptRecords.
    """
    offset, length = _PREFIX.unpack_from(buffer, position)
    if length < _MIN_LEGACY_BYTES[0]:
        minimum = _MIN_LEGACY_BYTES[0]
        raise CorruptRecords(f"batch at offset {offset}: its length is {length}, but must be at least {minimum}")
    return int(length) + PREFIX_BYTES


def produced_entry_size(buffer: Buffer, position: int = 0) -> int | None:
    """The size of the complete batch or message at `position` of a Produce request; None where none is complete.

    Raises CorruptRecords for a length or a magic that cannot be, also of an incomplete one. Source:
    ByteBufferLogInputStream.java.
    """
    left = len(buffer) - position
    if left < PREFIX_BYTES:
        return None
    size = entry_size(buffer, position)
    if left < IDENTIFYING_BYTES:
        return None
    if not 0 <= (magic := buffer[position + IDENTIFYING_BYTES - 1]) <= MAGIC:
        raise CorruptRecords(f"the entry at byte {position} has magic {magic}, but only 0, 1 and 2 are valid")
    return size if size <= left else None


def crc_mismatch(header: BatchHeader) -> CorruptRecords:
    """Return the error for a batch whose CRC does not match its bytes."""
    return CorruptRecords(f"batch at offset {header.base_offset}: its CRC does not match its bytes")


def header_at(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Decode the batch header at `position`; the records need not be in the buffer. Raises CorruptRecords."""
    if position + HEADER_BYTES <= len(buffer):
        header = BatchHeader._make((*HEADER.unpack_from(buffer, position), position))
        if header.magic == MAGIC:
            if header.batch_length < HEADER_BYTES - PREFIX_BYTES:
                raise CorruptRecords(
                    f"batch at offset {header.base_offset}: its length is {header.batch_length}, but must be at "
                    f"least {HEADER_BYTES - PREFIX_BYTES}"
                )
            return header
    return _legacy_header(buffer, position)


def header_cut_off(position: int, size: int) -> CorruptRecords:
    """Return the error for a batch of whose header only `size` bytes are present."""
    return CorruptRecords(f"the header of the batch at byte {position} is cut off after {size} bytes")


def _legacy_header(buffer: Buffer, position: int) -> BatchHeader:
    """Decode the header of a message in an old format (magic 0 or 1)."""
    if position + IDENTIFYING_BYTES > len(buffer):
        raise header_cut_off(position, len(buffer) - position)
    offset, length, crc, magic = _IDENTIFYING.unpack_from(buffer, position)
    minimum = _MIN_LEGACY_BYTES.get(magic)
    if minimum is None:
        what = f"its magic is {magic}, but only 0, 1 and 2 are valid"
        if magic == MAGIC:
            what = f"only {len(buffer) - position} of the {HEADER_BYTES} bytes of its header are present"
        raise CorruptRecords(f"batch at offset {offset}: {what}")
    if length < minimum:
        raise CorruptRecords(
            f"message at offset {offset}: its length is {length}, but must be at least {minimum} for magic {magic}"
        )
    attributes = buffer[position + IDENTIFYING_BYTES] if position + IDENTIFYING_BYTES < len(buffer) else 0
    timestamp = NO_TIMESTAMP
    if magic == 1 and position + 26 <= len(buffer):
        (timestamp,) = _LEGACY_TIMESTAMP.unpack_from(buffer, position + 18)
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, -1, position)


def batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Yield the header of each complete batch between `start` and `end`; an incomplete one at the end is skipped.

    Raises CorruptRecords where a header cannot be one.
    """
    stop = len(buffer) if end is None else end
    position = start
    while position + PREFIX_BYTES <= stop:
        size = entry_size(buffer, position)
        if position + size > stop:
            return
        yield header_at(buffer, position)
        position += size


def crc_is_valid(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the batch of this header, which must be complete in the buffer, matches its CRC."""
    end = header.position + header.size
    if header.magic == MAGIC:
        return crc32c(buffer, header.position + _CHECKED_POSITION, end) == header.crc
    return zlib.crc32(memoryview(buffer)[header.position + 16 : end]) == header.crc


def crc32c(buffer: Buffer, start: int, end: int, crc: int = 0) -> int:
    """The CRC-32C of a range of bytes, continued from `crc`.

    It is computed in pieces: the library accepts only `bytes`, and copying a piece that fits the cache is cheap.
    """
    if end - start <= _CRC_PIECE_BYTES:
        return int(google_crc32c.extend(crc, bytes(buffer[start:end])))
    view = memoryview(buffer)
    for position in range(start, end, _CRC_PIECE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[position : min(position + _CRC_PIECE_BYTES, end)]))
    return crc


def assigned_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The batch's first 16 bytes with its assigned base offset and leader epoch; the rest stays unchanged."""
    return _ASSIGNED.pack(base_offset, header.batch_length, leader_epoch)


def stamped_header(
    buffer: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int, log_append_time_ms: int
) -> bytes:
    """The 61 header bytes of a batch with LogAppendTime and a new CRC; the records stay unchanged."""
    checked = _CHECKED_HEADER.pack(
        header.attributes & USED_ATTRIBUTES | LOG_APPEND_TIME_BIT,
        header.last_offset_delta,
        header.base_timestamp,
        log_append_time_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    crc = crc32c(buffer, header.position + HEADER_BYTES, header.position + header.size, google_crc32c.value(checked))
    return pack_batch_prefix(base_offset, header.batch_length, leader_epoch, crc) + checked


def pack_batch_prefix(base_offset: int, batch_length: int, leader_epoch: int, crc: int) -> bytes:
    """The first 21 bytes of a batch, which the CRC does not cover."""
    return _FRONT.pack(base_offset, batch_length, leader_epoch, MAGIC, crc)


_FRONT: Final = struct.Struct(">qiibI")


def sealed_batch(header: BatchHeader, payload: Buffer) -> bytes:
    """A complete batch of these header fields and records; length and CRC are computed."""
    checked = _CHECKED_HEADER.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    crc = crc32c(payload, 0, len(payload), google_crc32c.value(checked))
    length = HEADER_BYTES - PREFIX_BYTES + len(payload)
    return b"".join(
        (pack_batch_prefix(header.base_offset, length, header.partition_leader_epoch, crc), checked, payload)
    )
