"""Logs in memory, for tests of what stands on top of a log. Batches are of magic 2, without records inside."""

import struct
import uuid
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.model.errors import KlammError
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
    base: int
    last: int
    epoch: int
    timestamp: int
    filler: bytes

    def encoded(self) -> bytes:
        count = self.last - self.base + 1
        return batch(count, base=self.base, epoch=self.epoch, timestamp=self.timestamp, filler=self.filler)


def pieces(records: Buffer) -> list[Piece]:
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


class Corrupt(KlammError):
    """What a log raises for bytes it will not take."""


@dataclass
class MemoryLog:
    topic_id: uuid.UUID | None = None
    config: Config = field(default_factory=Config)
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    pieces: list[Piece] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    fault: Exception | None = None
    """Raised by every use, until it is taken away."""
    truncations: list[int] = field(default_factory=list)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def append_as_leader(self, records: Buffer, leader_epoch: int, origin: int) -> Info:
        self._check()
        first = self.end_offset
        for piece in pieces(records):
            count = piece.last - piece.base + 1
            self._add(piece._replace(base=self.end_offset, last=self.end_offset + count - 1, epoch=leader_epoch))
        return Info(first, self.end_offset - 1, -1, self.start_offset)

    def append_as_follower(self, records: Buffer) -> Info:
        self._check()
        found = pieces(records)
        for piece in found:
            assert piece.base >= self.end_offset, "offsets must rise"
            self._add(piece)
        return Info(found[0].base, self.end_offset - 1, -1, self.start_offset)

    def _add(self, piece: Piece) -> None:
        if self.latest_epoch is None or piece.epoch > self.latest_epoch:
            self.epochs.append((piece.epoch, piece.base))
        self.pieces.append(piece)
        self.end_offset = piece.last + 1

    def read(self, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool) -> Records:
        self._check()
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
        self.start_offset = offset

    def truncate_to(self, offset: int) -> None:
        self._check()
        if offset >= self.end_offset:
            return
        self.truncations.append(offset)
        self.pieces = [p for p in self.pieces if p.last < offset]
        self.epochs = [(e, s) for e, s in self.epochs if s < offset]
        self.end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._check()
        self.pieces, self.epochs = [], []
        self.start_offset = self.end_offset = self.high_watermark = offset

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None:
        self._check()
        if self.latest_epoch is None or epoch > self.latest_epoch:
            self.epochs = [(e, s) for e, s in self.epochs if s < start_offset]
            self.epochs.append((epoch, start_offset))

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        self._check()
        self.topic_id = topic_id

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end_offset
        at = bisect_right([e for e, _ in self.epochs], epoch)
        return (epoch, self.epochs[0][1]) if at == 0 else (self.epochs[at - 1][0], self.epochs[at][1])

    def epoch_at(self, offset: int) -> int:
        return max((e for e, s in self.epochs if s <= offset), default=-1)

    def max_timestamp(self) -> Found | None:
        newest = max(self.pieces, key=lambda p: p.timestamp, default=None)
        return None if newest is None else Found(newest.timestamp, newest.last, newest.epoch)

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        found = next((p for p in self.pieces if p.timestamp >= timestamp), None)
        return None if found is None else Found(found.timestamp, found.base, found.epoch)

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def fillers(self) -> list[bytes]:
        return [p.filler for p in self.pieces]


class MemoryLogs:
    """One directory of `MemoryLog`s."""

    def __init__(self, min_insync_replicas: int = 1) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.min_insync_replicas = min_insync_replicas
        self.refused: dict[TopicPartition, OSError | KlammError] = {}
        """Logs that cannot be had, and why."""
        self.deleted: list[TopicPartition] = []
        self.checkpoints: list[dict[TopicPartition, int]] = []
        self.failed = False

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
            if log.topic_id is None and topic_id != ZERO_ID:
                log.topic_id = topic_id
            found.append(log)
        return found

    async def delete(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self.refused:
            raise self.refused[topic_partition]
        if self.logs.pop(topic_partition, None) is not None:
            self.deleted.append(topic_partition)

    async def checkpoint_high_watermarks(self) -> None:
        self.checkpoints.append({tp: log.high_watermark for tp, log in self.logs.items()})

    def directory_failed(self, topic_partition: TopicPartition, error: OSError) -> Collection[TopicPartition]:
        if self.failed:
            return ()
        self.failed = True
        return list(self.logs)
