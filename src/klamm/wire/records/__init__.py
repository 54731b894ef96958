"""Record batches: headers over buffers, records inside, builders."""

from klamm.wire.compression import Codec
from klamm.wire.records.any_format import records_of_any_format
from klamm.wire.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecords,
    TimestampType,
    batches,
    crc_is_valid,
    entry_size,
    header_at,
)
from klamm.wire.records.build import (
    ControlType,
    EndMarker,
    build_batch,
    build_end_marker,
    end_marker_of,
)
from klamm.wire.records.plausible import check_plausible
from klamm.wire.records.record import NewRecord, Record, payload_of, records

__all__ = [
    "HEADER_BYTES",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Codec",
    "ControlType",
    "CorruptRecords",
    "EndMarker",
    "NewRecord",
    "Record",
    "TimestampType",
    "batches",
    "build_batch",
    "build_end_marker",
    "check_plausible",
    "crc_is_valid",
    "end_marker_of",
    "entry_size",
    "header_at",
    "payload_of",
    "records",
    "records_of_any_format",
]
