"""What a leader checks and changes before it writes a batch. Source: UnifiedLog.scala, LogValidator.java (ref. 3.6).

Records are walked only where a topic is compacted or bounds its timestamps; everywhere else the header is trusted,
whose CRC its sender vouches for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.config.config_types import MAX_LONG
from klamm.config.topic_config import TopicConfig
from klamm.log.errors import AppendRefused, RecordError
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer
from klamm.wire.compression import Codec
from klamm.wire.records import (
    BatchHeader,
    CorruptRecords,
    Record,
    batches,
    check_plausible,
    crc_is_valid,
    header_at,
    recompressed,
    records,
)
from klamm.wire.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    assigned_prefix,
    stamped_header,
)

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LZ4_USUAL_LEVEL: Final = 9  # Kafka's number for the fast compressor
_ASSIGNED_BYTES: Final = 16
_MOST_UNFOLDED_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's config as far as an append by a leader needs it, worked out once."""

    max_message_bytes: int
    segment_bytes: int
    codec: Codec | None  # None: as the producer chose
    level: int | None
    log_append_time: bool
    needs_keys: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> "AppendRules":
        codec = _CODECS.get(config.compression_type)
        return cls(
            config.max_message_bytes,
            config.segment_bytes,
            codec,
            _level(config, codec),
            config.uses_log_append_time,
            config.is_compacted,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    @property
    def walks_records(self) -> bool:
        return self.needs_keys or self.bounds_timestamps

    @property
    def bounds_timestamps(self) -> bool:
        return not self.log_append_time and not self.before_max_ms == self.after_max_ms == MAX_LONG


def _level(config: TopicConfig, codec: Codec | None) -> int | None:
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    if codec is Codec.LZ4 and config.compression_lz4_level != _LZ4_USUAL_LEVEL:
        return config.compression_lz4_level
    return None


class CheckedBatch(NamedTuple):
    """A batch fit to be written: its header, and the bytes that hold it at the header's position."""

    header: BatchHeader
    buffer: Buffer


def check_batch(buffer: Buffer, rules: AppendRules, origin: Origin, now_ms: int) -> CheckedBatch:
    """The one batch that a leader was given, in the topic's codec. Raises AppendRefused."""
    try:
        header = _only_batch(buffer)
        _check_header(header, rules, origin)
        if not crc_is_valid(buffer, header):
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"CRC does not match that of the {header.size} bytes")
        codec = header.codec
    except CorruptRecords as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    try:
        check_plausible(buffer, header)
    except CorruptRecords as error:  # the CRC is right: sending it again does not help
        raise AppendRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    if rules.walks_records and not header.is_control:
        _check_records(buffer, header, rules, now_ms)
    if rules.codec is not None and rules.codec != codec and not header.is_control:
        buffer, header = _in_codec(buffer, header, rules)
        _check_size(header.size, rules)
    if header.size > rules.segment_bytes:
        raise AppendRefused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {header.size} bytes does not fit a segment of {rules.segment_bytes}",
        )
    return CheckedBatch(header, buffer)


def _only_batch(buffer: Buffer) -> BatchHeader:
    if len(buffer) < HEADER_BYTES:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{len(buffer)} bytes hold no record batch")
    header = header_at(buffer)
    if header.magic != MAGIC:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"batch has magic {header.magic}; {MAGIC} is accepted")
    if header.size > len(buffer):
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE, f"batch of {header.size} bytes is cut off after {len(buffer)} bytes"
        )
    if header.size < len(buffer) and next(batches(buffer, header.size), None) is not None:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "more than one record batch for one partition")
    return header


def _check_header(header: BatchHeader, rules: AppendRules, origin: Origin) -> None:
    if header.size > rules.max_message_bytes:
        _check_size(header.size, rules)
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"batch announces {count} records and {header.last_offset_delta + 1} offsets"
        )
    if header.attributes & LOG_APPEND_TIME_BIT and not rules.log_append_time:
        raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, "batch says LogAppendTime, the topic is of CreateTime")
    if origin is not Origin.CLIENT:
        return
    if header.base_offset != 0:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"batch begins at offset {header.base_offset}, not at 0")
    if header.is_control:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.has_producer and header.base_sequence <= NO_SEQUENCE:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} sent sequence {header.base_sequence}"
        )


def _check_size(size: int, rules: AppendRules) -> None:
    if size > rules.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes exceeds max.message.bytes, which is {rules.max_message_bytes}",
        )


def _in_codec(buffer: Buffer, header: BatchHeader, rules: AppendRules) -> tuple[bytes, BatchHeader]:
    assert rules.codec is not None
    try:
        changed = recompressed(buffer, header, rules.codec, rules.level, _MOST_UNFOLDED_BYTES)
    except CorruptRecords as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return changed, header_at(changed)


def _check_records(buffer: Buffer, header: BatchHeader, rules: AppendRules, now_ms: int) -> None:
    try:
        walked = list(records(buffer, header, _MOST_UNFOLDED_BYTES))
    except CorruptRecords as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    keyless = list(_without_key(walked)) if rules.needs_keys else []
    untimely = list(_out_of_time(walked, rules, now_ms)) if rules.bounds_timestamps else []
    if keyless or untimely:
        code = ErrorCode.INVALID_TIMESTAMP if untimely else ErrorCode.INVALID_RECORD
        errors = sorted({error.batch_index: error for error in (*untimely, *keyless)}.values())
        raise AppendRefused(code, f"{len(errors)} of {len(walked)} records are invalid", errors)


def _without_key(walked: list[Record]) -> Iterator[RecordError]:
    for index, record in enumerate(walked):
        if record.key is None:
            yield RecordError(index, "a compacted topic takes no record without a key")


def _out_of_time(walked: list[Record], rules: AppendRules, now_ms: int) -> Iterator[RecordError]:
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    for index, record in enumerate(walked):
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
            yield RecordError(index, f"timestamp {record.timestamp} is not between {earliest} and {latest}")


def assigned(
    batch: CheckedBatch, base_offset: int, leader_epoch: int, log_append_time_ms: int
) -> tuple[Buffer, Buffer]:
    """The batch as it goes to disk, in two pieces and without a copy of its records.

    `log_append_time_ms` is -1 where records keep the producer's time.
    """
    header, buffer = batch
    view = memoryview(buffer)
    if log_append_time_ms == NO_TIMESTAMP:
        return assigned_prefix(header, base_offset, leader_epoch), view[_ASSIGNED_BYTES : header.size]
    front = stamped_header(buffer, header, base_offset, leader_epoch, log_append_time_ms)
    return front, view[HEADER_BYTES : header.size]
