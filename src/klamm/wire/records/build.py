"""Building batches, for coordinators, tools and tests. Source: MemoryRecordsBuilder.java."""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from klamm.wire.compression import Codec, compress
from klamm.wire.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    CorruptRecords,
    TimestampType,
    sealed_batch,
)
from klamm.wire.records.record import NewRecord, append_record, records


def build_batch(
    content: Sequence[NewRecord],
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytes:
    """Build one batch of at least one record, with consecutive offsets."""
    assert content, "a batch holds at least one record"
    base_timestamp = content[0].timestamp
    max_timestamp = max(record.timestamp for record in content)
    attributes = codec | (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    payload = bytearray()
    for delta, record in enumerate(content):
        append_record(payload, record, delta, base_timestamp)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(content) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(content),
    )
    return sealed_batch(header, compress(codec, payload, level))


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """What a transaction coordinator writes at the end of a transaction."""

    type: ControlType
    coordinator_epoch: int


_MAX_CONTROL_BYTES: Final = 64 * 1024
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKER_VALUE: Final = struct.Struct(">hi")


def build_end_marker(
    marker: EndMarker, producer_id: int, producer_epoch: int, timestamp: int, *, leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """Build the control batch that commits or aborts a transaction."""
    record = NewRecord(
        value=_END_MARKER_VALUE.pack(0, marker.coordinator_epoch),
        key=_CONTROL_KEY.pack(0, marker.type),
        timestamp=timestamp,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def end_marker_of(buffer: Buffer, header: BatchHeader) -> EndMarker | None:
    """The transaction marker in a control batch; None for another control type. Raises CorruptRecords."""
    record = next(records(buffer, header, _MAX_CONTROL_BYTES), None)
    if record is None:
        return None  # compacted away: an empty batch is kept for its header alone
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptRecords(
            f"control batch at offset {header.base_offset}: the key of its record must have {_CONTROL_KEY.size} bytes "
            f"(version and type), it has {len(record.key or b'')}"
        )
    _version, kind = _CONTROL_KEY.unpack_from(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_MARKER_VALUE.size:
        raise CorruptRecords(
            f"control batch at offset {header.base_offset}: the value of its transaction marker must have "
            f"{_END_MARKER_VALUE.size} bytes (version and coordinator epoch), it has {len(record.value or b'')}"
        )
    _version, coordinator_epoch = _END_MARKER_VALUE.unpack_from(record.value)
    return EndMarker(ControlType(kind), coordinator_epoch)
