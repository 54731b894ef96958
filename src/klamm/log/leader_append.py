"""Checks and changes of a batch before a leader writes it. Source: UnifiedLog.scala, LogValidator.java.

This module checks the header, the CRC and the first records, at a bounded cost. Where a topic is compacted, bounds
its timestamps or has its own codec, all records are needed: `preparation.py`.
"""

from typing import Final, NamedTuple

from klamm.log.append_rules import WRONG_CLIENT, AppendRules, check_size
from klamm.log.errors import AppendRefused
from klamm.log.preparation import Preparation, Refusal
from klamm.log.producers import Origin
from klamm.log.up_conversion import is_legacy, is_small, prepare_any
from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer
from klamm.wire.records import BatchHeader, CorruptRecords, batches, check_plausible, crc_is_valid, header_at
from klamm.wire.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    assigned_prefix,
    stamped_header,
)

_ASSIGNED_BYTES: Final = 16
_MAGIC_AT: Final = 16
_OFFSET_BYTES: Final = 8
_MIN_LENGTH: Final = 14
"""Of a message of any format."""


class CheckedBatch(NamedTuple):
    """A batch that may be written: its header and the buffer that contains it."""

    header: BatchHeader
    buffer: Buffer


def check_batch(buffer: Buffer, rules: AppendRules, origin: Origin, now_ms: int) -> CheckedBatch:
    """Check the one batch of a produce and convert it to the topic's codec. Raises AppendRefused."""
    if is_legacy(buffer):
        return prepared_batch(prepare_any(Preparation(bytes(buffer), rules, now_ms)), rules)
    batch = _check_header_and_crc(buffer, rules, origin)
    preparation = _preparation_if_needed(batch, rules, origin, now_ms)
    if preparation is not None:
        return prepared_batch(prepare_any(preparation), rules)
    return _check_fits_segment(batch, rules)


def preparation_for(buffer: Buffer, rules: AppendRules, origin: Origin, now_ms: int) -> Preparation | None:
    """Return the work on all records that should not run on the event loop; None where there is none or little.

    Raises AppendRefused.
    """
    if is_legacy(buffer):
        return None if is_small(buffer) else Preparation(bytes(buffer), rules, now_ms)
    if not rules.may_need_records:
        return None
    preparation = _preparation_if_needed(_check_header_and_crc(buffer, rules, origin), rules, origin, now_ms)
    return None if preparation is None or preparation.is_small else preparation


def prepared_batch(result: bytes | Refusal, rules: AppendRules) -> CheckedBatch:
    """The checked batch that a preparation returned. Raises AppendRefused."""
    if isinstance(result, Refusal):
        raise AppendRefused(result.code, result.message, result.record_errors)
    return _check_fits_segment(CheckedBatch(header_at(result), result), rules)


def _check_header_and_crc(buffer: Buffer, rules: AppendRules, origin: Origin) -> CheckedBatch:
    """Check the header, the CRC and the plausibility of a produced batch. Raises AppendRefused."""
    try:
        header = _only_batch(buffer)
        _check_before_crc(header, rules, origin)
        if not crc_is_valid(buffer, header):
            raise CorruptRecords(f"the CRC of the produced batch of {header.size} bytes does not match its bytes")
    except CorruptRecords as error:
        if origin is Origin.CLIENT and buffer[_MAGIC_AT] == MAGIC and _has_base_offset(buffer):
            raise _base_offset_refused(int.from_bytes(buffer[:_OFFSET_BYTES], signed=True)) from error
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE, f"the batch is corrupt: {error}. Send the batch again."
        ) from error
    _check_header(header, origin)
    try:
        check_plausible(buffer, header)
    except CorruptRecords as error:  # the CRC is right: sending it again does not help
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"the batch is malformed: {error}. {WRONG_CLIENT}") from error
    return CheckedBatch(header, buffer)


def _preparation_if_needed(batch: CheckedBatch, rules: AppendRules, origin: Origin, now_ms: int) -> Preparation | None:
    """Return the check of all records, if the topic's config requires one; else None.

    The records of a coordinator have keys and the present time: only a different codec makes the check necessary.
    """
    header, buffer = batch
    needs_records = rules.needs_records if origin is Origin.CLIENT else rules.needs_recompression
    if header.is_control or not needs_records(header.codec):
        return None
    return Preparation(bytes(memoryview(buffer)[: header.size]), rules, now_ms)


def _check_fits_segment(batch: CheckedBatch, rules: AppendRules) -> CheckedBatch:
    """Return the batch; raises AppendRefused where it exceeds `segment.bytes`."""
    if batch.header.size > rules.segment_bytes:
        raise AppendRefused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {batch.header.size} bytes, but segment.bytes of the topic is {rules.segment_bytes}. Lower "
            "batch.size in the producer, or raise segment.bytes.",
        )
    return batch


def _only_batch(buffer: Buffer) -> BatchHeader:
    """The header of the buffer's only batch. Raises AppendRefused."""
    if len(buffer) < HEADER_BYTES:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the request has {len(buffer)} bytes for this partition, but a record batch has at least {HEADER_BYTES}. "
            f"{WRONG_CLIENT}",
        )
    header = header_at(buffer)
    if header.magic != MAGIC:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the batch has magic {header.magic}, but only magic {MAGIC} is accepted. Update the producer's client.",
        )
    if header.size > len(buffer):
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the batch header announces {header.size} bytes, but the request has only {len(buffer)} for this "
            f"partition. {WRONG_CLIENT}",
        )
    if header.size < len(buffer) and next(batches(buffer, header.size), None) is not None:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            "the request has more than one record batch for this partition. Send one batch per partition.",
        )
    return header


def _has_base_offset(buffer: Buffer) -> bool:
    """Whether a batch whose header cannot be read has a base offset, and a length that Apache Kafka reads on with."""
    length = int.from_bytes(buffer[_OFFSET_BYTES : _OFFSET_BYTES + 4], signed=True)
    return any(buffer[:_OFFSET_BYTES]) and length >= _MIN_LENGTH


def _base_offset_refused(base_offset: int) -> AppendRefused:
    """Return the refusal of a batch with this base offset."""
    return AppendRefused(
        ErrorCode.INVALID_RECORD,
        f"the batch has base offset {base_offset}, but a producer must send 0. {WRONG_CLIENT}",
    )


def _check_before_crc(header: BatchHeader, rules: AppendRules, origin: Origin) -> None:
    """Raise AppendRefused for what Apache Kafka refuses before it looks at the checksum."""
    if origin is Origin.CLIENT and header.base_offset != 0:
        raise _base_offset_refused(header.base_offset)
    if header.size > rules.max_message_bytes:
        check_size(header.size, rules)


def _check_header(header: BatchHeader, origin: Origin) -> None:
    """Raise AppendRefused where the header breaks a rule of Kafka."""
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"the batch header announces {count} records, but has last offset delta {header.last_offset_delta}. "
            f"{WRONG_CLIENT}",
        )
    if origin is Origin.CLIENT and header.is_control:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, "the batch is a control batch, which only brokers may write. Send data batches."
        )
    if origin is Origin.CLIENT and header.has_producer and header.base_sequence <= NO_SEQUENCE:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent base sequence {header.base_sequence}, which must not be negative. "
            f"{WRONG_CLIENT}",
        )
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "the batch has timestamp type LogAppendTime, which only a broker may set. Send CreateTime.",
        )


def with_assigned_offsets(
    batch: CheckedBatch, base_offset: int, leader_epoch: int, log_append_time_ms: int
) -> tuple[Buffer, Buffer]:
    """The batch as it is written to disk, in two buffers and without a copy of its records.

    `log_append_time_ms` is -1 where records keep the producer's time.
    """
    header, buffer = batch
    view = memoryview(buffer)
    if log_append_time_ms == NO_TIMESTAMP:
        return assigned_prefix(header, base_offset, leader_epoch), view[_ASSIGNED_BYTES : header.size]
    front = stamped_header(buffer, header, base_offset, leader_epoch, log_append_time_ms)
    return front, view[HEADER_BYTES : header.size]
