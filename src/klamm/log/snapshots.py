"""The producer snapshot file format. Source: ProducerStateManager.java (readSnapshot)."""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

import google_crc32c

from klamm.log.errors import CorruptFile
from klamm.log.producers import BatchMark, Producer

_VERSION: Final = 1
_FRONT: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NONE: Final = -1


def snapshot_bytes(producers: Mapping[int, Producer]) -> bytes:
    """The content of a snapshot file; only each producer's last batch is included."""
    body = _COUNT.pack(len(producers)) + b"".join(map(_entry, producers.values()))
    return _FRONT.pack(_VERSION, google_crc32c.value(body)) + body


def _entry(producer: Producer) -> bytes:
    """The snapshot entry of one producer."""
    mark = producer.marks[-1] if producer.marks else BatchMark(_NONE, _NONE, 0, producer.last_timestamp)
    start = _NONE if producer.transaction_start is None else producer.transaction_start
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        mark.last_sequence,
        mark.last_offset,
        mark.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        start,
    )


def parse_snapshot(content: bytes, path: str) -> list[Producer]:
    """The producers in a snapshot file. Raises CorruptFile."""
    least = _FRONT.size + _COUNT.size
    if len(content) < least:
        raise CorruptFile(f"{path} has {len(content)} bytes; a producer snapshot has at least {least}")
    version, crc = _FRONT.unpack_from(content)
    if version != _VERSION:
        raise CorruptFile(f"{path} has version {version}; only version {_VERSION} can be read")
    if google_crc32c.value(content[_FRONT.size :]) != crc:
        raise CorruptFile(f"{path}: its CRC does not match its bytes")
    (count,) = _COUNT.unpack_from(content, _FRONT.size)
    if len(content) != least + count * _ENTRY.size:
        raise CorruptFile(
            f"{path} announces {count} producers, which need {least + count * _ENTRY.size} bytes; it has {len(content)}"
        )
    return list(_producers(content[least:]))


def _producers(entries: bytes) -> Iterable[Producer]:
    """The producers of the snapshot entries."""
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start in _ENTRY.iter_unpack(entries):
        marks = [BatchMark(sequence, offset, delta, timestamp)] if offset >= 0 else []
        yield Producer(producer_id, epoch, marks, coordinator_epoch, timestamp, start if start >= 0 else None)
