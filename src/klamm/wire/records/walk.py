"""A walk over all records of a batch that looks at what a broker checks and holds little of the content.

Pieces come decompressed, as `unfold` gives them. Source: DefaultRecordBatch.java (skipKeyValueIterator).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.wire.records.record import append_varint, read_varint

_MAX_HELD_BYTES: Final = 256 * 1024
"""A record up to this size is looked at whole, a larger one as its pieces go by."""
_MAX_FIELD_HEAD_BYTES: Final = 10


class RecordSummary(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    has_key: bool


class MalformedRecord(Exception):
    """A record's lengths do not fit together; `index` counts from the batch's first."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"record {index} is malformed: {why}")


def walk(pieces: Iterable[bytes], count: int) -> Iterator[RecordSummary]:
    """Each record. Raises MalformedRecord where there are not `count` of them, or a length is wrong."""
    window = _Window(iter(pieces))
    for index in range(count):
        try:
            length = window.varint()
            if length < 1:
                raise IndexError(f"its length is {length}")
            if length <= _MAX_HELD_BYTES:
                start = window.hold(length)
                yield _summary(window.content, start, start + length)
            else:
                yield _passing_summary(window, length)
        except IndexError as error:
            raise MalformedRecord(index, str(error)) from error
    if not window.is_at_end():
        raise MalformedRecord(count, f"bytes follow the {count} records that the batch announces")


def renumbered(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The encoded records, which `walk` has found well formed, with offset deltas 0, 1, 2 and so on."""
    window = _Window(iter(pieces))
    for index in range(count):
        length = window.varint()
        start = window.hold(length)
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
    """Of the record between these positions. Raises IndexError."""
    timestamp_delta, position = read_varint(content, position + 1)  # the byte skipped: attributes, unused
    offset_delta, position = read_varint(content, position)
    key_bytes, position = read_varint(content, position)
    if key_bytes > 0:
        position += key_bytes
    value_bytes, position = read_varint(content, position)
    if value_bytes > 0:
        position += value_bytes
    headers, position = read_varint(content, position)
    if headers:
        if not 0 < headers <= end - position:
            raise IndexError(f"it announces {headers} headers")
        for _ in range(headers):
            name_bytes, position = read_varint(content, position)
            if name_bytes < 0:
                raise IndexError("a header has no name")
            header_bytes, position = read_varint(content, position + name_bytes)
            position += max(header_bytes, 0)
    if position != end:
        raise IndexError(f"its fields end {position - end} bytes behind it")
    return RecordSummary(timestamp_delta, offset_delta, key_bytes >= 0)


def _passing_summary(window: "_Window", length: int) -> RecordSummary:
    end = window.passed + length
    window.skip(1)
    timestamp_delta, offset_delta, key_bytes = window.varint(), window.varint(), window.varint()
    window.skip(max(key_bytes, 0))
    window.skip(max(window.varint(), 0))
    headers = window.varint()
    if not 0 <= headers <= max(end - window.passed, 0):
        raise IndexError(f"it announces {headers} headers")
    for _ in range(headers):
        name_bytes = window.varint()
        if name_bytes < 0:
            raise IndexError("a header has no name")
        window.skip(name_bytes)
        window.skip(max(window.varint(), 0))
    if window.passed != end:
        raise IndexError(f"its fields end {window.passed - end} bytes behind it")
    return RecordSummary(timestamp_delta, offset_delta, key_bytes >= 0)


class _Window:
    """The pieces as one stream, of which a stretch is in memory. Raises IndexError where the stream ends early."""

    __slots__ = ("_before", "_pieces", "_position", "content")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._before = 0  # bytes dropped in front of `content`
        self._position = 0
        self.content = b""

    @property
    def passed(self) -> int:
        return self._before + self._position

    def hold(self, count: int) -> int:
        """Where in `content` the next `count` bytes begin; they are passed with that."""
        start = self._position
        if start + count > len(self.content):
            self._fill(count)
            start = 0
        self._position = start + count
        return start

    def varint(self) -> int:
        content, position = self.content, self._position
        if position + _MAX_FIELD_HEAD_BYTES > len(content):
            self._fill(_MAX_FIELD_HEAD_BYTES, may_end=True)
            content, position = self.content, 0
        value, self._position = read_varint(content, position)
        return value

    def skip(self, count: int) -> None:
        left = len(self.content) - self._position
        while count > left:
            count -= left
            self._before += len(self.content)
            self._position = 0
            self.content = next(self._pieces, b"")
            left = len(self.content)
            if not left:
                raise IndexError("the batch ends inside it")
        self._position += count

    def is_at_end(self) -> bool:
        while self._position == len(self.content):
            self._before += len(self.content)
            self._position = 0
            self.content = next(self._pieces, b"")
            if not self.content:
                return True
        return False

    def _fill(self, count: int, *, may_end: bool = False) -> None:
        parts = [self.content[self._position :]]
        self._before += self._position
        self._position = 0
        held = len(parts[0])
        while held < count:
            piece = next(self._pieces, None)
            if piece is None:
                if may_end:
                    break
                raise IndexError("the batch ends inside it")
            parts.append(piece)
            held += len(piece)
        self.content = b"".join(parts)
