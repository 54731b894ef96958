"""The checks and changes of a produced batch that need all of its records. Source: LogValidator.java.

`prepare` depends on nothing but its argument, so it runs in any process. It holds pieces of the decompressed records,
never all of them. What depends on the log (sequence numbers, offsets, the leader epoch) is for the append.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.log.append_rules import WRONG_CLIENT, AppendRules, check_size
from klamm.log.errors import AppendRefused, RecordError
from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer
from klamm.wire.compression import BadCompression, Codec, compress_pieces
from klamm.wire.records import BatchHeader, header_at
from klamm.wire.records.batch import CODEC_MASK, HEADER_BYTES, NO_TIMESTAMP, USED_ATTRIBUTES, sealed_batch
from klamm.wire.records.walk import MalformedRecord, renumber_offset_deltas, walk
from klamm.wire.unfolding import decompress_pieces

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
MAX_RECORD_ERRORS: Final = 1_000
"""A response tells of no more invalid records than this."""
MAX_INLINE_BYTES: Final = 16 * 1024
MAX_INLINE_RECORDS: Final = 128


class Preparation(NamedTuple):
    """A batch whose header and CRC are checked, with the rules to check its records against."""

    batch: bytes
    rules: AppendRules
    now_ms: int

    @property
    def header(self) -> BatchHeader:
        """The header of the batch."""
        return header_at(self.batch)

    @property
    def is_small(self) -> bool:
        """Whether the check takes less than a millisecond, so that the event loop can do it."""
        header = self.header
        return (
            header.codec is Codec.NONE
            and self.rules.codec in (None, Codec.NONE)
            and header.size <= MAX_INLINE_BYTES
            and header.record_count <= MAX_INLINE_RECORDS
        )


class Refusal(NamedTuple):
    """An AppendRefused that can be sent from one process to another."""

    code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


def prepare(preparation: Preparation) -> bytes | Refusal:
    """Check the records and convert the batch to the topic's codec. Returns the batch to append, or the refusal."""
    try:
        return _check_and_recompress(preparation)
    except AppendRefused as refused:
        return Refusal(refused.code, refused.message, refused.record_errors)


def _check_and_recompress(preparation: Preparation) -> bytes:
    """Check every record and return the batch to append, recompressed if needed. Raises AppendRefused."""
    batch, rules, now_ms = preparation
    header = preparation.header
    content = memoryview(batch)[HEADER_BYTES : header.size]
    try:
        walked = _walked(header, _decompressed_pieces(header, content))
        facts = check_records(rules, now_ms, header.record_count, walked)
    except (BadCompression, MalformedRecord) as error:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"the batch of {header.size} bytes is malformed: {error}. {WRONG_CLIENT}"
        ) from error
    target = header.codec if rules.codec is None else rules.codec
    payload: Buffer = content
    if target is not header.codec:
        pieces = _decompressed_pieces(header, content)
        records = pieces if facts.is_sequential else renumber_offset_deltas(pieces, header.record_count)
        payload = join_within_limit(compress_pieces(target, records, rules.level), rules)
    elif not facts.is_sequential and target is not Codec.NONE:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the offset deltas in the compressed batch are not 0, 1, 2 and so on. {WRONG_CLIENT}",
        )
    max_timestamp = header.max_timestamp if rules.log_append_time else facts.max_timestamp
    if payload is content and max_timestamp == header.max_timestamp:
        return batch
    attributes = header.attributes & USED_ATTRIBUTES & ~CODEC_MASK | target
    return sealed_batch(header._replace(attributes=attributes, max_timestamp=max_timestamp), payload)


def _decompressed_pieces(header: BatchHeader, content: memoryview) -> Iterator[bytes]:
    """The decompressed records. Raises BadCompression above MAX_DECOMPRESSED_BYTES."""
    size = 0
    for piece in decompress_pieces(header.codec, content):
        size += len(piece)
        if size > MAX_DECOMPRESSED_BYTES:
            raise BadCompression(
                f"the records of the batch have more than {MAX_DECOMPRESSED_BYTES} bytes when decompressed"
            )
        yield piece


def join_within_limit(pieces: Iterable[bytes], rules: AppendRules) -> bytes:
    """Join the pieces of compressed records. Raises AppendRefused above `max.message.bytes`."""
    parts = []
    size = HEADER_BYTES
    for piece in pieces:
        size += len(piece)
        check_size(size, rules)
        parts.append(piece)
    return b"".join(parts)


class RecordFacts(NamedTuple):
    """The result of checking the records of a batch."""

    max_timestamp: int
    is_sequential: bool


def check_records(
    rules: AppendRules, now_ms: int, count: int, records: Iterable[tuple[int, bool, bool]]
) -> RecordFacts:
    """Check each of `count` records: its timestamp, whether its offset follows the one before, whether it has a key.

    Raises AppendRefused for invalid ones, and what `records` raises.
    """
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    bounds_timestamps, needs_keys = rules.bounds_timestamps, rules.needs_keys
    max_timestamp = NO_TIMESTAMP
    all_sequential = True
    invalid = out_of_bounds = 0
    errors: list[RecordError] = []
    for index, (timestamp, is_sequential, has_key) in enumerate(records):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if not is_sequential:
            all_sequential = False
        problem = None
        if needs_keys and not has_key:
            problem = "the record has no key, and the topic is compacted (cleanup.policy): send a key"
        elif bounds_timestamps and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            problem = (
                f"timestamp {timestamp} is not between {earliest} and {latest}, the range of "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms"
            )
            out_of_bounds += 1
        if problem is not None:
            invalid += 1
            if invalid <= MAX_RECORD_ERRORS:
                errors.append(RecordError(index, problem))
    if invalid:
        code = ErrorCode.INVALID_TIMESTAMP if out_of_bounds else ErrorCode.INVALID_RECORD
        text = f"{invalid} of {count} records are not valid: record {errors[0].batch_index}: {errors[0].message}"
        raise AppendRefused(code, text, errors)
    return RecordFacts(max_timestamp, all_sequential)


def _walked(header: BatchHeader, pieces: Iterable[bytes]) -> Iterator[tuple[int, bool, bool]]:
    """Yield, for each record, its timestamp, whether its offset follows the one before, and whether it has a key.

    Raises MalformedRecord, BadCompression.
    """
    base = header.base_timestamp
    for index, (timestamp_delta, offset_delta, has_key) in enumerate(walk(pieces, header.record_count)):
        yield _wrap_to_int64(base + timestamp_delta), offset_delta == index, has_key


def _wrap_to_int64(value: int) -> int:
    """The value wrapped to a signed 64-bit integer, as Java arithmetic does."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63
