"""The records of a batch of any message format, as a consumer gets them. Source: AbstractLegacyRecordBatch.java."""

from collections.abc import Iterator

from klamm.wire.records.batch import MAGIC, BatchHeader, Buffer
from klamm.wire.records.legacy import readable_messages
from klamm.wire.records.record import Record, records
from klamm.wire.unfolding import MAX_OUTPUT_BYTES


def records_of_any_format(buffer: Buffer, header: BatchHeader, max_bytes: int = MAX_OUTPUT_BYTES) -> Iterator[Record]:
    """Decode each record of the batch, or of the message of format 0 or 1, at the header's position.

    Messages of format 0 have the timestamp -1. Raises CorruptRecords.
    """
    if header.magic == MAGIC:
        return records(buffer, header, max_bytes)
    return (Record(m.offset, m.timestamp, m.key, m.value) for m in readable_messages(buffer, header, max_bytes))
