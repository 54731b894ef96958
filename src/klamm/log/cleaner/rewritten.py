"""The batches of a new segment: copied, with fewer records, with a delete horizon, or without records."""

from klamm.log.cleaner.batches import WrittenBatch
from klamm.wire.compression import Codec, compress
from klamm.wire.records import BatchHeader
from klamm.wire.records.batch import CODEC_MASK, DELETE_HORIZON_BIT, NO_TIMESTAMP, sealed_batch
from klamm.wire.records.record import append_varint, read_varint
from klamm.wire.vectors.batches import Run


def delete_horizon(header: BatchHeader) -> int | None:
    """The time in ms from which the tombstones or marker in the batch may be removed; None if it is not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def copied(run: Run, number: int, header: BatchHeader) -> WrittenBatch:
    """Return batch number `number` of the run unchanged, for the new segment."""
    return WrittenBatch(run.content(number), header.base_offset, header.last_offset, header.max_timestamp)


def emptied(header: BatchHeader) -> WrittenBatch:
    """The batch without its records; its header still tells the producer's last sequence and epoch."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_BIT
    empty = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return WrittenBatch(sealed_batch(empty, b""), header.base_offset, header.last_offset, header.max_timestamp)


def rebuilt(header: BatchHeader, payload: bytes) -> WrittenBatch:
    """Return a batch of this header and these encoded records.

    The records are compressed by the header's codec, and the checksum is calculated.
    """
    content = payload if header.codec is Codec.NONE else compress(header.codec, payload)
    return WrittenBatch(sealed_batch(header, content), header.base_offset, header.last_offset, header.max_timestamp)


def with_horizon(header: BatchHeader, payload: bytes, horizon_ms: int) -> WrittenBatch:
    """Return the batch with a delete horizon: the time from which its tombstones or marker may be removed."""
    records = _rebased(payload, header.base_timestamp - horizon_ms)
    attributes = header.attributes | DELETE_HORIZON_BIT
    return rebuilt(header._replace(base_timestamp=horizon_ms, attributes=attributes), records)


def _rebased(payload: bytes, shift: int) -> bytes:
    """The encoded records with `shift` added to each timestamp delta."""
    rebased = bytearray()
    position = 0
    while position < len(payload):
        length, start = read_varint(payload, position)
        position = start + length
        delta, behind = read_varint(payload, start + 1)
        body = bytearray(payload[start : start + 1])
        append_varint(body, delta + shift)
        body += payload[behind:position]
        append_varint(rebased, len(body))
        rebased += body
    return bytes(rebased)
