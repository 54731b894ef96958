"""Converts stored messages of the formats 0 and 1 to batches of format 2, for readers that decode only these.

Offsets, timestamps, timestamp type and codec stay. Source: AbstractLegacyRecordBatch.java (deepIterator).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klamm.wire.compression import compress_pieces
from klamm.wire.records.batch import (
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    CorruptRecords,
    crc_is_valid,
    crc_mismatch,
    sealed_batch,
)
from klamm.wire.records.legacy import Message, is_compressed, readable_messages
from klamm.wire.records.record import NewRecord, append_record
from klamm.wire.unfolding import MAX_OUTPUT_BYTES

MAX_GROUP_BYTES: Final = 1 << 20
"""Of uncompressed messages that become one batch."""
_MAX_OFFSET_DELTA: Final = 2**31 - 1


def grouped(headers: Iterable[BatchHeader]) -> Iterator[list[BatchHeader]]:
    """Group adjacent messages that fit into one batch of format 2; a wrapper, or a batch of format 2, is alone."""
    group: list[BatchHeader] = []
    size = 0
    for header in headers:
        size += header.size
        if group and (size > MAX_GROUP_BYTES or not _fits(group[0], header)):
            yield group
            group, size = [], header.size
        group.append(header)
    if group:
        yield group


def _fits(first: BatchHeader, header: BatchHeader) -> bool:
    """Whether the message can be in the batch that begins with `first`: a batch has one timestamp type and codec."""
    is_same = (first.magic, append_time_of(first)) == (header.magic, append_time_of(header))
    is_plain = first.magic != MAGIC and not is_compressed(first) and not is_compressed(header)
    return is_same and is_plain and header.base_offset - first.base_offset <= _MAX_OFFSET_DELTA


def append_time_of(header: BatchHeader) -> int | None:
    """The LogAppendTime of a message; None where it has a CreateTime, or none as in format 0."""
    return header.max_timestamp if header.magic and header.attributes & LOG_APPEND_TIME_BIT else None


def up_convert(content: Buffer, group: Sequence[BatchHeader]) -> bytes:
    """The messages of the group as one batch, with their offsets. The checksums of all of them are verified.

    Raises CorruptRecords.
    """
    for header in group:
        if not crc_is_valid(content, header):
            raise crc_mismatch(header)
    first = group[0]
    source = _Source(content, group)
    pieces = compress_pieces(first.codec, source.encoded_records())
    payload = b"".join(pieces)
    attributes = first.codec | (0 if append_time_of(first) is None else LOG_APPEND_TIME_BIT)
    last_offset_delta = max(source.last_offset, group[-1].base_offset) - source.base_offset
    if last_offset_delta > _MAX_OFFSET_DELTA:
        raise _not_rising(first)
    header = converted_header(attributes, last_offset_delta, source.base_timestamp, source.max_timestamp, source.count)
    return sealed_batch(header._replace(base_offset=source.base_offset), payload)


class _Source:
    """The messages of a group as they are encoded, one at a time; the fields are right once all of them are."""

    def __init__(self, content: Buffer, group: Sequence[BatchHeader]) -> None:
        self._content = content
        self._group = group
        self.base_offset = self.last_offset = -1
        self.base_timestamp = self.max_timestamp = NO_TIMESTAMP
        self.count = 0

    def encoded_records(self) -> Iterator[bytes]:
        """The messages as records of format 2. Raises CorruptRecords."""
        return encode_records(self._numbered(self._messages()))

    def _messages(self) -> Iterator[Message]:
        """The messages of the group, unwrapped. Raises CorruptRecords."""
        for header in self._group:
            yield from readable_messages(self._content, header, MAX_OUTPUT_BYTES)

    def _numbered(self, messages: Iterator[Message]) -> Iterator[tuple[int, Message]]:
        """The messages with their offset deltas. Raises CorruptRecords for offsets that do not rise."""
        for message in messages:
            if not self.count:
                self.base_offset, self.base_timestamp = message.offset, message.timestamp
                self.last_offset = message.offset - 1
            delta = message.offset - self.base_offset
            if message.offset <= self.last_offset or delta > _MAX_OFFSET_DELTA:
                raise _not_rising(self._group[0])
            self.count += 1
            self.last_offset = message.offset
            self.max_timestamp = max(self.max_timestamp, message.timestamp)
            yield delta, message


def _not_rising(header: BatchHeader) -> CorruptRecords:
    """Return the error for offsets that fall, or are too far from each other for one batch."""
    return CorruptRecords(f"message at offset {header.base_offset}: the offsets from there on do not follow each other")


def encode_records(numbered: Iterable[tuple[int, Message]]) -> Iterator[bytes]:
    """The messages, with their offset deltas, as records of format 2; the first one has the base timestamp."""
    base_timestamp: int | None = None
    for delta, message in numbered:
        base_timestamp = message.timestamp if base_timestamp is None else base_timestamp
        encoded = bytearray()
        append_record(encoded, NewRecord(message.value, message.key, message.timestamp), delta, base_timestamp)
        yield bytes(encoded)


def converted_header(
    attributes: int, last_offset_delta: int, base_timestamp: int, max_timestamp: int, count: int
) -> BatchHeader:
    """The header of a batch made of old messages, which have no producer and no leader epoch; its base offset is 0."""
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )
