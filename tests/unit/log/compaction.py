"""Logs to compact: keyed records of plain, idempotent and transactional producers, and what readers must find."""

from random import Random

from tests.support.managed_logs import get_or_create
from tests.unit.log.support import ORDERS

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.producers import Origin
from klamm.log.settings import CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.wire.compression import Codec
from klamm.wire.records import ControlType, EndMarker, NewRecord, batches, build_batch, build_end_marker, records

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "index.interval.bytes": "100",
    "delete.retention.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}
Content = dict[int, tuple[bytes | None, bytes | None, int]]
"""Offset -> key, value, timestamp."""


class Workload:
    """Appends drawn by a seed; `latest` is what a reader of committed records ends with."""

    def __init__(self, seed: int, keys: int = 12) -> None:
        self.rng = Random(seed)
        self.keys = [f"key-{n}".encode() for n in range(keys)]
        self.latest: dict[bytes | None, bytes | None] = {}
        self._sequences: dict[int, int] = {}
        self._written = 0

    def append(self, log: Log, batches_: int, now_ms: int) -> None:
        """Append so many batches or transactions; all are replicated and flushed, and the last segment is closed."""
        for _ in range(batches_):
            self._append_some(log, now_ms)
            log.update_high_watermark(log.end_offset)
        log.roll()
        log.flush_now()

    def _append_some(self, log: Log, now_ms: int) -> None:
        kind = self.rng.choice(["plain", "plain", "idempotent", "committed", "aborted", "empty"])
        if kind == "plain":
            self._append_batch(log, now_ms, -1, transactional=False)
        elif kind == "idempotent":
            self._append_batch(log, now_ms, self.rng.choice([1, 2]), transactional=False)
        else:
            self._append_transaction(log, now_ms, kind)

    def _append_transaction(self, log: Log, now_ms: int, kind: str) -> None:
        producer = self.rng.choice([11, 12])
        before = dict(self.latest)
        for _ in range(0 if kind == "empty" else self.rng.randint(1, 3)):
            self._append_batch(log, now_ms, producer, transactional=True)
            if self.rng.random() < 0.4:
                before.update(self._append_batch(log, now_ms, -1, transactional=False))
        if kind == "aborted":
            self.latest = before
        marker = ControlType.ABORT if kind == "aborted" else ControlType.COMMIT
        end = build_end_marker(EndMarker(marker, 1), producer, 0, now_ms, leader_epoch=1)
        log.append_as_leader(end, 1, Origin.COORDINATOR)

    def _append_batch(
        self, log: Log, now_ms: int, producer: int, *, transactional: bool
    ) -> dict[bytes | None, bytes | None]:
        """Returns the keys and values of the batch."""
        content = [self._draw_record(now_ms) for _ in range(self.rng.randint(1, 6))]
        codec = self.rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        self._sequences[producer] = sequence + len(content)
        encoded = build_batch(
            content,
            codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        log.append_as_leader(encoded, 1, Origin.COORDINATOR)
        return {record.key: record.value for record in content}

    def _draw_record(self, now_ms: int) -> NewRecord:
        key = self.rng.choice(self.keys)
        self._written += 1
        value = None if self.rng.random() < 0.2 else b"%d-" % self._written + bytes(self.rng.randint(0, 60))
        self.latest[key] = value
        return NewRecord(value, key, now_ms + self.rng.randint(0, 50))

    @property
    def values(self) -> dict[bytes, bytes]:
        """The last value of each key that has one."""
        return {key: value for key, value in self.latest.items() if key is not None and value is not None}


def committed(log: Log) -> Content:
    """Every record that a reader of committed records gets."""
    aborted = log.aborted_transactions(log.start_offset, log.end_offset)
    content: Content = {}
    position = log.start_offset
    while position < log.end_offset:
        content_read = log.read(position, 1 << 20).records
        assert isinstance(content_read, bytes)
        found = list(batches(content_read))
        if not found:
            break  # compaction left nothing up to the end
        for header in found:
            is_aborted = header.is_transactional and any(
                a.producer_id == header.producer_id and a.first_offset <= header.base_offset <= a.last_offset
                for a in aborted
            )
            if not header.is_control and not is_aborted:
                for record in records(content_read, header):
                    content[record.offset] = (record.key, record.value, record.timestamp)
        position = found[-1].next_offset
    return content


def last_values(log: Log) -> dict[bytes, bytes]:
    """The last value of each key, without those that were deleted."""
    values: dict[bytes, bytes] = {}
    for key, value, _ in committed(log).values():
        assert key is not None
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def compacted_log(logs: LogManager, partition: TopicPartition = ORDERS, **configs: str) -> Log:
    """The partition's log; configs have underscores for dots."""
    texts = COMPACTED | {name.replace("_", "."): value for name, value in configs.items()}
    return get_or_create(logs, partition, TopicConfig.parse(texts), None, is_new=True)


def cleaner(world: World, logs: LogManager, settings: CleanerSettings | None = None) -> LogCleaner:
    return LogCleaner(world, logs, settings or CleanerSettings())
