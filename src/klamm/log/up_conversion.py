"""Converts a produced message set of format 0 or 1 to one batch of format 2. Source: LogValidator.java (3.9).

With an inter-broker protocol of 3.0 and newer Apache Kafka stores nothing else, whatever message.format.version says.
"""

from collections.abc import Iterator
from typing import Final

from klamm.log.append_rules import WRONG_CLIENT, AppendRules, check_size
from klamm.log.errors import AppendRefused, RecordError
from klamm.log.preparation import (
    MAX_DECOMPRESSED_BYTES,
    MAX_RECORD_ERRORS,
    Preparation,
    Refusal,
    check_records,
    join_within_limit,
    prepare,
)
from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer
from klamm.wire.compression import Codec, compress_pieces
from klamm.wire.records.batch import (
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecords,
    crc_is_valid,
    header_at,
    produced_entry_size,
    sealed_batch,
)
from klamm.wire.records.legacy import Message, is_compressed, messages_of
from klamm.wire.records.up_conversion import converted_header, encode_records

_MAGIC_AT: Final = 16
_OFFSET_BYTES: Final = 8
_MAX_INLINE_BYTES: Final = 2 * 1024


def is_legacy(records: Buffer) -> bool:
    """Whether the records begin with a message of format 0 or 1."""
    return len(records) > _MAGIC_AT and records[_MAGIC_AT] < MAGIC


def is_small(records: Buffer) -> bool:
    """Whether the conversion takes less than a millisecond, so that the event loop can do it."""
    has_wrapper = len(records) > _MAGIC_AT + 1 and records[_MAGIC_AT + 1] & 0x07
    return len(records) <= _MAX_INLINE_BYTES and not has_wrapper


def prepare_any(preparation: Preparation) -> bytes | Refusal:
    """Check the records and convert them as `prepare` does, but also accept messages of format 0 and 1."""
    if not is_legacy(preparation.batch):
        return prepare(preparation)
    try:
        return _convert(preparation)
    except AppendRefused as refused:
        return Refusal(refused.code, refused.message, refused.record_errors)


def _convert(preparation: Preparation) -> bytes:
    """Convert the messages to one batch of format 2, which is appended instead. Raises AppendRefused."""
    content, rules, now_ms = preparation
    headers = _checked_headers(content, rules)
    source = headers[0].codec

    def messages() -> Iterator[Message]:
        """The messages, decoded again each time: all at once may take much more memory than their bytes."""
        for header in headers:
            yield from messages_of(content, header, MAX_DECOMPRESSED_BYTES)

    try:
        count, base_timestamp = _check_messages(headers[0], messages())
        checked = ((message.timestamp, True, message.key is not None) for message in messages())
        facts = check_records(rules, now_ms, count, checked)
    except CorruptRecords as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error}. {WRONG_CLIENT}") from error
    target = source if rules.codec is None else rules.codec
    pieces = compress_pieces(target, encode_records(enumerate(messages())), rules.level)
    payload = join_within_limit(pieces, rules)
    header = converted_header(target, count - 1, base_timestamp, facts.max_timestamp, count)
    return sealed_batch(header, payload)


def _checked_headers(content: bytes, rules: AppendRules) -> list[BatchHeader]:
    """The headers of the message set; an incomplete message at its end is left out. Raises AppendRefused."""
    entries: list[tuple[int, int]] = []
    try:
        position = 0
        while (size := produced_entry_size(content, position)) is not None:  # of all, before one is checked
            entries.append((position, size))
            position += size
        headers = [_checked_header(content, position, size, rules) for position, size in entries]
    except CorruptRecords as error:
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE, f"the messages are corrupt: {error}. Send the messages again."
        ) from error
    if any(header.magic != headers[0].magic for header in headers):
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"the messages are of different formats. {WRONG_CLIENT}")
    if len(headers) > 1 and any(map(is_compressed, headers)):
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            "the request has a compressed message and others for the same partition. Send one compressed "
            "message per partition.",
        )
    if any(header.magic and header.attributes & LOG_APPEND_TIME_BIT for header in headers):
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "a message has timestamp type LogAppendTime, which only a broker may set. Send CreateTime.",
        )
    return headers


def _checked_header(content: bytes, position: int, size: int, rules: AppendRules) -> BatchHeader:
    """The header of the message of this size, checked in Kafka's order: base offset, size, checksum.

    A damaged message may look like a batch of format 2, whose base offset must be 0. Raises AppendRefused,
    CorruptRecords.
    """
    if content[position + _MAGIC_AT] == MAGIC and any(content[position : position + _OFFSET_BYTES]):
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the entry at byte {position} has magic {MAGIC} and a base offset, but a producer must send 0. "
            f"{WRONG_CLIENT}",
        )
    check_size(size, rules)
    header = header_at(content, position)
    if not crc_is_valid(content, header):
        raise CorruptRecords(f"the CRC of the message at byte {position} does not match its bytes")
    return header


def _check_messages(wrapper: BatchHeader, messages: Iterator[Message]) -> tuple[int, int]:
    """Check the messages of a message set or of a compressed message; returns their number and first timestamp.

    Raises AppendRefused, CorruptRecords.
    """
    count, first_timestamp = 0, NO_TIMESTAMP
    nested: list[int] = []
    for count, message in enumerate(messages, 1):
        if count == 1:
            first_timestamp = message.timestamp
        if not is_compressed(wrapper):
            continue
        if not message.has_valid_crc:
            raise AppendRefused(
                ErrorCode.CORRUPT_MESSAGE,
                f"message {count - 1} within a compressed message does not match its CRC. Send the messages again.",
            )
        if message.magic != wrapper.magic:
            raise CorruptRecords(
                f"a compressed message of format {wrapper.magic} contains a message of format {message.magic}"
            )
        if message.codec is not Codec.NONE and len(nested) < MAX_RECORD_ERRORS:
            nested.append(count - 1)
    if nested:
        text = "a compressed message contains this compressed message: compress only the outer one"
        errors = [RecordError(n, text) for n in nested]
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"record {nested[0]}: {text}", errors)
    return count, first_timestamp
