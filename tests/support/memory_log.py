"""Logs in memory, for tests of replication. Batches have magic 2 and no records inside."""

import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.log.epochs import EpochEntry, LeaderEpochs
from klamm.log.errors import AppendRefused, OffsetOutOfRange, RecordError, StorageFailed, UnexpectedOffset
from klamm.log.producers import Producers
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID

HEADER = struct.Struct(">qiibIhiqqqhii")
Buffer = bytes | bytearray | memoryview


def batch(count: int = 1, *, base: int = 0, epoch: int = -1, timestamp: int = 0, filler: bytes = b"") -> bytes:
    """A batch that claims `count` records; `filler` tells two batches apart."""
    length = HEADER.size - 12 + len(filler)
    numbers = (base, length, epoch, 2, 0, 0, count - 1, timestamp, timestamp, -1, -1, -1, count)
    return HEADER.pack(*numbers) + filler


class Piece(NamedTuple):
    """One batch of a buffer."""

    base: int
    last: int
    epoch: int
    timestamp: int
    filler: bytes

    def encoded(self) -> bytes:
        count = self.last - self.base + 1
        return batch(count, base=self.base, epoch=self.epoch, timestamp=self.timestamp, filler=self.filler)


def split_batches(records: Buffer) -> list[Piece]:
    """The batches of a buffer."""
    found, at = [], 0
    view = bytes(records)
    while at < len(view):
        base, length, epoch, _, _, _, delta, timestamp, *_ = HEADER.unpack_from(view, at)
        end = at + 12 + length
        found.append(Piece(base, base + delta, epoch, timestamp, view[at + HEADER.size : end]))
        at = end
    return found


class Info(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Records(NamedTuple):
    records: bytes


@dataclass
class Config:
    min_insync_replicas: int = 1
    is_deleted: bool = True


@dataclass
class MemoryLog:
    """A log in memory with the interface of `Log`."""

    topic_id: uuid.UUID | None = None
    config: Config = field(default_factory=Config)
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    pieces: list[Piece] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: Producers = field(default_factory=Producers)
    is_broken: bool = False
    needs_flush_before_ack: bool = False
    """Its disk fails at the next use."""
    on_failed: Callable[[], None] = lambda: None
    on_start_moved: Callable[[], None] = lambda: None
    on_synced: Callable[[], None] = lambda: None
    syncs_before_ack: bool = False
    is_restoring_producers: bool = False
    truncations: list[int] = field(default_factory=list)
    is_durable: bool = True
    """A truncation is to be synced, as nothing else is."""
    possible_loss: int | None = None

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    @property
    def has_unsynced_truncation(self) -> bool:
        return not self.is_durable

    @property
    def durable_end(self) -> int:
        return self.end_offset

    def sync_soon(self) -> None:
        """Memory has nothing to sync."""

    async def wait_until_durable(self) -> None:
        self.is_durable = True

    async def flush_before_ack(self) -> None:
        """Memory has nothing to flush."""

    def preparation(self, records: Buffer, origin: object) -> None:
        return None

    def append_as_leader(self, records: Buffer, leader_epoch: int, origin: object) -> Info:
        try:
            self._raise_failure()
        except StorageFailed as error:
            raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if not records:
            raise AppendRefused(ErrorCode.INVALID_RECORD, "no batch", [RecordError(0, "nothing there")])
        first = self.end_offset
        for piece in split_batches(records):
            count = piece.last - piece.base + 1
            self._store_batch(
                piece._replace(base=self.end_offset, last=self.end_offset + count - 1, epoch=leader_epoch)
            )
        return Info(first, self.end_offset - 1, -1, self.start_offset)

    def append_as_follower(self, records: Buffer) -> Info:
        self._raise_failure()
        found = split_batches(records)
        for piece in found:
            if piece.base < self.end_offset:
                raise UnexpectedOffset("below the end", piece.base, piece.last)
            self._store_batch(piece)
        return Info(found[0].base, self.end_offset - 1, -1, self.start_offset)

    def _store_batch(self, piece: Piece) -> None:
        if self.epochs.latest_epoch != piece.epoch and piece.epoch >= 0:
            self.epochs.assign(piece.epoch, piece.base)
        self.pieces.append(piece)
        self.end_offset = piece.last + 1

    @contextmanager
    def avoiding_device(self, read_before: object = ()) -> Iterator[None]:
        yield

    def slice(self, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool) -> Records:
        self._raise_failure()
        taken = b""
        for piece in self.pieces:
            if piece.last < offset or piece.last >= upper_bound:
                continue
            encoded = piece.encoded()
            if len(taken) + len(encoded) > max_bytes and (taken or not at_least_one):
                break
            taken += encoded
        return Records(taken)

    def update_high_watermark(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset
        self.high_watermark = offset

    def advance_start_offset(self, offset: int) -> None:
        if offset > self.high_watermark:
            raise OffsetOutOfRange(TopicPartition("orders", 0), offset, self.start_offset, self.high_watermark)
        if offset > self.start_offset:
            self.start_offset = offset
            self.on_start_moved()

    def truncation_steps(self, offset: int) -> tuple[int, ...]:
        return ()

    def truncate_to(self, offset: int) -> None:
        self._raise_failure()
        self.epochs.truncate_from_end(offset)
        if offset >= self.end_offset:
            return
        self.truncations.append(offset)
        self.possible_loss = None
        self.is_durable = False
        self.pieces = [p for p in self.pieces if p.last < offset]
        self.end_offset = min(offset, self.pieces[-1].last + 1 if self.pieces else self.start_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._raise_failure()
        self.pieces = []
        self.is_durable = False
        self.epochs.clear()
        self.start_offset = self.end_offset = self.high_watermark = offset

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id

    def aborted_in(self, result: Records, offset: int, bound: int) -> list[object]:
        return []

    async def max_timestamp(self) -> Found | None:
        newest = max(self.pieces, key=lambda p: p.timestamp, default=None)
        return None if newest is None else Found(newest.timestamp, newest.last, newest.epoch)

    async def offset_for_timestamp(self, timestamp: int) -> Found | None:
        found = next((p for p in self.pieces if p.timestamp >= timestamp), None)
        return None if found is None else Found(found.timestamp, found.base, found.epoch)

    def _raise_failure(self) -> None:
        """Raise the error that a test has set."""
        if self.is_broken:
            self.on_failed()
            raise StorageFailed("I/O error")

    def epoch_list(self) -> list[EpochEntry]:
        """The leader epochs and their start offsets."""
        return list(self.epochs.entries)

    def fillers(self) -> list[bytes]:
        """The filler bytes of all batches, in order."""
        return [p.filler for p in self.pieces]


class MemoryLogs:
    """One directory of `MemoryLog`s."""

    def __init__(self, min_insync_replicas: int = 1) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.min_insync_replicas = min_insync_replicas
        self.refused: dict[TopicPartition, OSError | KlammError] = {}
        """Logs that cannot be had, and why."""
        self.deleted: list[TopicPartition] = []
        self.synced: list[TopicPartition] = []
        """Deletions that no power loss can undo."""
        self.fails_to_sync = False
        self.checkpoints: list[dict[TopicPartition, int]] = []
        self.on_failed: Callable[[Collection[TopicPartition]], None] = lambda partitions: None
        """The directory is out of use."""

    def get(self, topic_partition: TopicPartition) -> MemoryLog | None:
        return self.logs.get(topic_partition)

    async def get_or_create_many(
        self, wanted: Sequence[tuple[TopicPartition, uuid.UUID, bool]]
    ) -> list[MemoryLog | OSError | KlammError]:
        found: list[MemoryLog | OSError | KlammError] = []
        for topic_partition, topic_id, _ in wanted:
            if topic_partition in self.refused:
                found.append(self.refused[topic_partition])
                continue
            log = self.logs.get(topic_partition)
            if log is None:
                log = self.logs[topic_partition] = MemoryLog(None, Config(self.min_insync_replicas))
            log.on_failed = lambda: self.on_failed(list(self.logs))
            if log.topic_id is None and topic_id != ZERO_ID:
                log.topic_id = topic_id
            found.append(log)
        return found

    async def delete(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self.refused:
            raise self.refused[topic_partition]
        if self.logs.pop(topic_partition, None) is not None:
            self.deleted.append(topic_partition)

    async def sync_deletions(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        if self.fails_to_sync:
            return list(partitions)
        self.synced += partitions
        return []

    async def checkpoint_high_watermarks(self) -> None:
        self.checkpoints.append({tp: log.high_watermark for tp, log in self.logs.items()})
