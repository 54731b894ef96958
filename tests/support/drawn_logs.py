"""Logs to compact, drawn by a seed: every format and codec, transactions, tombstones, gaps, batches without records."""

from random import Random

from klamm.wire.compression import Codec
from klamm.wire.records import (
    ControlType,
    EndMarker,
    NewRecord,
    TimestampType,
    build_batch,
    build_end_marker,
    header_at,
)
from klamm.wire.records.batch import sealed_batch
from klamm.wire.records.legacy import Message, encode_messages

LEGACY_CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
KINDS = {
    "plain": 6,
    "idempotent": 3,
    "transaction": 4,
    "end of a transaction": 3,
    "without records": 1,
    "old format": 5,
}


class DrawnBatches:
    """Batches as a follower gets them from its leader, each with the offsets after the one before."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.end_offset = 0
        self.keys = [b"key-%d" % n for n in range(rng.choice([3, 12, 40]))]
        self.kinds = [kind for kind, weight in KINDS.items() if rng.random() < 0.8 for _ in range(weight)] or ["plain"]
        self._sequences: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._open: set[int] = set()

    def draw(self, count: int, now_ms: int) -> list[bytes]:
        """So many batches; a part of the transactions stays open."""
        return [self._draw(self.rng.choice(self.kinds), now_ms) for _ in range(count)]

    def end_transactions(self, now_ms: int) -> list[bytes]:
        """The markers that end the open transactions."""
        return [self._end(producer, now_ms) for producer in sorted(self._open)]

    def _draw(self, kind: str, now_ms: int) -> bytes:
        if self.rng.random() < 0.1:
            self.end_offset += self.rng.randint(1, 50)
        match kind:
            case "old format":
                return self._legacy(now_ms)
            case "idempotent":
                return self._batch(now_ms, self.rng.choice([1, 2, 3]))
            case "transaction":
                producer = self.rng.choice([11, 12, 13])
                self._open.add(producer)
                return self._batch(now_ms, producer, transactional=True)
            case "end of a transaction":
                return self._end(self.rng.choice(sorted(self._open) or [11, 12, 13, 14]), now_ms)
            case "without records":
                return self._emptied(now_ms)
        return self._batch(now_ms, -1)

    def _batch(self, now_ms: int, producer: int, *, transactional: bool = False) -> bytes:
        content = [
            NewRecord(m.value, m.key, m.timestamp, (("h", b"x"),) if self.rng.random() < 0.2 else ())
            for m in self._messages(now_ms)
        ]
        sequence = -1
        if producer >= 0:
            if producer not in self._open and self.rng.random() < 0.1:
                self._epochs[producer] = self._epochs.get(producer, 0) + 1
                self._sequences[producer] = 0
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + len(content)
        is_append_time = self.rng.random() < 0.15
        batch = build_batch(
            content,
            self.rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
            base_offset=self.end_offset,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=self._epochs.get(producer, 0) if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
            log_append_time_ms=now_ms if is_append_time else -1,
        )
        self.end_offset += len(content)
        return batch

    def _emptied(self, now_ms: int) -> bytes:
        """What an earlier cleaning left of a batch: its header."""
        batch = self._batch(now_ms, self.rng.choice([1, 2, 3, 4]))
        header = header_at(batch)
        left = header._replace(record_count=0, base_timestamp=-1, attributes=header.attributes & ~0x07)
        return sealed_batch(left, b"")

    def _end(self, producer: int, now_ms: int) -> bytes:
        self._open.discard(producer)
        kind = self.rng.choice([ControlType.COMMIT, ControlType.ABORT])
        marker = EndMarker(kind, self.rng.choice([1, 1, 2]))
        batch = build_end_marker(marker, producer, self._epochs.get(producer, 0), now_ms, leader_epoch=0)
        batch = self.end_offset.to_bytes(8) + batch[8:]
        self.end_offset += 1
        return batch

    def _legacy(self, now_ms: int) -> bytes:
        """Messages of format 0 or 1: some alone, or compressed in one."""
        magic, codec = self.rng.choice([0, 1]), self.rng.choice(LEGACY_CODECS)
        messages = [
            m._replace(offset=self.end_offset + n, timestamp=m.timestamp if magic else -1, magic=magic)
            for n, m in enumerate(self._messages(now_ms))
        ]
        if codec is not Codec.NONE and self.rng.random() < 0.3 and len(messages) > 1:
            del messages[self.rng.randrange(len(messages) - 1)]  # an earlier cleaning took it
        self.end_offset = messages[-1].offset + 1
        return encode_messages(messages, magic, codec, now_ms if self.rng.random() < 0.2 else None)

    def _messages(self, now_ms: int) -> list[Message]:
        """Keys and values, a few without a key."""
        return [
            Message(
                0,
                now_ms - self.rng.randint(0, 500),
                None if self.rng.random() < 0.03 else self.rng.choice(self.keys),
                None if self.rng.random() < 0.25 else self.rng.randbytes(self.rng.choice([0, 5, 60])),
            )
            for _ in range(self.rng.randint(1, 6))
        ]
