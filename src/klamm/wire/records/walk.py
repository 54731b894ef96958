"""A walk over all records of a batch that looks at what a broker checks and holds little of the content.

Pieces come decompressed, as `decompress_pieces` gives them. Source: DefaultRecordBatch.java (skipKeyValueIterator).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from klamm.wire.records.record import (
    TRUNCATED_RECORD,
    UNNAMED_HEADER,
    BadRecord,
    append_varint,
    read_varint,
    reason_of,
    too_many_headers,
    wrong_end,
    wrong_length,
)

_MAX_HELD_BYTES: Final = 256 * 1024
"""A record up to this size is checked whole, a larger one as its pieces go by."""
_MAX_FIELD_HEAD_BYTES: Final = 10


RecordSummary = tuple[int, int, bool]
"""Timestamp delta, offset delta, and whether there is a key."""


class MalformedRecord(Exception):
    """A record of a batch is malformed: `record INDEX of the batch: WHY`; `index` counts from 0."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"record {index} of the batch: {why}")


def walk(pieces: Iterable[bytes], count: int) -> Iterator[RecordSummary]:
    """Yield a summary of each record. Raises MalformedRecord for a wrong length or a count other than `count`."""
    window = _Window(iter(pieces))
    index = 0
    try:
        while index < count:
            for summary in window.summaries(count - index):
                yield summary
                index += 1
            if index < count:  # one that reaches beyond the window
                yield _summary_of_next(window)
                index += 1
    except IndexError as error:
        raise MalformedRecord(index, reason_of(error)) from error
    if not window.is_at_end():
        raise MalformedRecord(count, f"the batch has this record, but its header announces only {count} records")


def renumber_offset_deltas(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the encoded records with the offset deltas 0, 1, 2 and so on. The records were checked by `walk` before."""
    window = _Window(iter(pieces))
    for index in range(count):
        length = window.varint()
        start = window.read_ahead(length)
        content = window.content
        _timestamp_delta, offset_at = read_varint(content, start + 1)
        _offset_delta, behind = read_varint(content, offset_at)
        body = bytearray(content[start:offset_at])
        append_varint(body, index)
        body += content[behind : start + length]
        record = bytearray()
        append_varint(record, len(body))
        yield bytes(record + body)


def _summary(content: bytes, position: int, end: int) -> RecordSummary:
    """Summarize the record between these positions. Raises IndexError.

    Most numbers take one byte and are decoded inline, which halves the time.
    """
    position += 1  # attributes, unused
    timestamp_delta = content[position]
    if timestamp_delta < 0x80:
        timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
        position += 1
    else:
        timestamp_delta, position = read_varint(content, position)
    offset_delta, position = read_varint(content, position)
    key_bytes = content[position]
    if key_bytes < 0x80:
        key_bytes = (key_bytes >> 1) ^ -(key_bytes & 1)
        position += 1
    else:
        key_bytes, position = read_varint(content, position)
    if key_bytes > 0:
        position += key_bytes
    value_bytes, position = read_varint(content, position)
    if value_bytes > 0:
        position += value_bytes
    if content[position]:
        position = _skip_headers(content, position, end)
    else:
        position += 1
    if position != end:
        raise wrong_end(position - end)
    return timestamp_delta, offset_delta, key_bytes >= 0


def _skip_headers(content: bytes, position: int, end: int) -> int:
    """Check the record's headers; returns the position after them."""
    headers, position = read_varint(content, position)
    if not 0 <= headers <= end - position:
        raise too_many_headers(headers, end - position)
    for _ in range(headers):
        name_bytes, position = read_varint(content, position)
        if name_bytes < 0:
            raise BadRecord(UNNAMED_HEADER)
        header_bytes, position = read_varint(content, position + name_bytes)
        position += max(header_bytes, 0)
    return position


def _summary_of_next(window: "_Window") -> RecordSummary:
    """Summarize the next record; a large one is not held in memory completely."""
    length = window.varint()
    if length < 1:
        raise wrong_length(length)
    if length <= _MAX_HELD_BYTES:
        start = window.read_ahead(length)
        return _summary(window.content, start, start + length)
    end = window.position_in_stream + length
    window.skip(1)
    timestamp_delta, offset_delta, key_bytes = window.varint(), window.varint(), window.varint()
    window.skip(max(key_bytes, 0))
    window.skip(max(window.varint(), 0))
    headers = window.varint()
    left = max(end - window.position_in_stream, 0)
    if not 0 <= headers <= left:
        raise too_many_headers(headers, left)
    for _ in range(headers):
        name_bytes = window.varint()
        if name_bytes < 0:
            raise BadRecord(UNNAMED_HEADER)
        window.skip(name_bytes)
        window.skip(max(window.varint(), 0))
    if window.position_in_stream != end:
        raise wrong_end(window.position_in_stream - end)
    return timestamp_delta, offset_delta, key_bytes >= 0


class _Window:
    """The pieces as one stream, part of which is in memory. Raises IndexError at its end."""

    __slots__ = ("_before", "_pieces", "_position", "content")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._before = 0  # bytes dropped in front of `content`
        self._position = 0
        self.content = b""

    @property
    def position_in_stream(self) -> int:
        """The number of bytes of the whole stream before the current position."""
        return self._before + self._position

    def summaries(self, most: int) -> Iterator[RecordSummary]:
        """Summarize up to `most` records that are in memory completely."""
        content, position = self.content, self._position
        last = len(content) - _MAX_FIELD_HEAD_BYTES
        for _ in range(most):
            if position > last:
                return
            length = content[position]
            if length < 0x80 and not length & 1:
                start = position + 1
                length >>= 1
            else:
                length, start = read_varint(content, position)
            end = start + length
            if length < 1 or end > len(content):
                return
            yield _summary(content, start, end)
            self._position = position = end

    def read_ahead(self, count: int) -> int:
        """Consume `count` bytes; returns the position in `content` where they begin."""
        start = self._position
        if start + count > len(self.content):
            self._fill(count)
            start = 0
        self._position = start + count
        return start

    def varint(self) -> int:
        """Consume and decode a varint."""
        content, position = self.content, self._position
        if position + _MAX_FIELD_HEAD_BYTES > len(content):
            self._fill(_MAX_FIELD_HEAD_BYTES, may_end=True)
            content, position = self.content, 0
        value, self._position = read_varint(content, position)
        return value

    def skip(self, count: int) -> None:
        """Consume `count` bytes without holding them in memory."""
        left = len(self.content) - self._position
        while count > left:
            count -= left
            self._before += len(self.content)
            self._position = 0
            self.content = next(self._pieces, b"")
            left = len(self.content)
            if not left:
                raise BadRecord(TRUNCATED_RECORD)
        self._position += count

    def is_at_end(self) -> bool:
        """Whether the stream has no more bytes; loads the next piece when the current one is used up."""
        while self._position == len(self.content):
            self._before += len(self.content)
            self._position = 0
            self.content = next(self._pieces, b"")
            if not self.content:
                return True
        return False

    def _fill(self, count: int, *, may_end: bool = False) -> None:
        """Load pieces until `count` bytes are in memory."""
        parts = [self.content[self._position :]]
        self._before += self._position
        self._position = 0
        held = len(parts[0])
        while held < count:
            piece = next(self._pieces, None)
            if piece is None:
                if may_end:
                    break
                raise BadRecord(TRUNCATED_RECORD)
            parts.append(piece)
            held += len(piece)
        self.content = b"".join(parts)
