"""Compacts drawn logs with Apache Kafka's cleaner and with klamm's, and compares everything that is left.

Each log exists twice. Both get the same batches and are compacted at the same time of a clock, three times over.
Compared are offsets, keys, values, timestamps, delete horizons, batches without records, markers, transaction indexes,
segments, checkpoints, and the producers that either loads from either log.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import IO, Any, NamedTuple

from tests.support import apache_kafka
from tests.support.drawn_logs import DrawnBatches

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.settings import CleanerSettings
from klamm.log.transactions import AbortedTransaction
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import InlineWorkers
from klamm.runtime.world import World, real_world
from klamm.wire.records import batches, records
from klamm.wire.records.batch import CONTROL_BIT, DELETE_HORIZON_BIT, MAGIC, BatchHeader
from klamm.wire.records.legacy import messages_of

ORDERS = TopicPartition("orders", 0)
BEGIN_MS = 1_700_000_000_000
ROUNDS = 3
MANY_KEYS = 10_000
FEW_KEYS = 25
"""Less than what most of the drawn logs have: several passes, in which either cleaner gets to other offsets."""


LEGACY_FIELDS = 5
"""What a batch of format 0 or 1 has in `Contents`; those of format 2 have more."""


class FixedClock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.ms = BEGIN_MS

    def now_ms(self) -> int:
        return self.ms


class KafkaCleaner:
    """The Java process with Apache Kafka's cleaner. See tests/support/java/KafkaCleaner.java."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, *words: object) -> list[str]:
        """The words of its answer. Raises AssertionError where it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        verdict, *answer = self._process.stdout.readline().split()
        assert verdict == "ok", " ".join(answer)
        return answer


@contextmanager
def kafka_cleaner(output: IO[bytes]) -> Iterator[KafkaCleaner]:
    """`output` takes what Kafka logs."""
    command = apache_kafka.program("KafkaCleaner", apache_kafka.KAFKA)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=output, text=True) as process:
        try:
            yield KafkaCleaner(process)
        finally:
            process.kill()


class Contents(NamedTuple):
    """What a log directory has, in a form that does not depend on how records are compressed."""

    segments: dict[int, list[tuple[Any, ...]]]
    aborted: dict[int, list[AbortedTransaction]]
    modified_ms: dict[int, int]

    @property
    def last_values(self) -> dict[bytes, bytes]:
        """The last value of each key, without those that were deleted, and without transaction markers.

        A marker may be there in one log only: the log that takes more passes removes it earlier.
        """
        every = [batch for segment in self.segments.values() for batch in segment]
        found = [entry for batch in every if not _is_control(batch) for entry in batch[-1]]
        last = {key: value for _, _, key, value, _ in found if key is not None}
        return {key: value for key, value in last.items() if value is not None}


def contents(directory: Path) -> Contents:
    segments, aborted, modified = {}, {}, {}
    for path in sorted(directory.glob("*.log")):
        base, content = int(path.stem), path.read_bytes()
        segments[base] = [_batch(content, header) for header in batches(content)]
        modified[base] = path.stat().st_mtime_ns // 1_000_000
        index = path.with_suffix(".txnindex")
        entries = index.read_bytes() if index.exists() else b""
        aborted[base] = [_aborted(entries[at : at + 34]) for at in range(0, len(entries), 34)]
    return Contents(segments, aborted, modified)


def _aborted(entry: bytes) -> AbortedTransaction:
    return AbortedTransaction(*(int.from_bytes(entry[at : at + 8], signed=True) for at in range(2, 34, 8)))


def _batch(content: bytes, header: BatchHeader) -> tuple[Any, ...]:
    if header.magic < MAGIC:
        found = [(m.offset, m.timestamp, m.key, m.value, m.magic) for m in messages_of(content, header, 1 << 24)]
        return header.magic, header.attributes, header.base_offset, header.max_timestamp, found
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
    found_records = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records(content, header)]
    left = header._replace(base_timestamp=0, batch_length=0, crc=0, position=0)
    return *left, horizon, found_records


def _is_control(batch: tuple[Any, ...]) -> bool:
    """Whether a batch as `_batch` returns it has a transaction marker; formats 0 and 1 have none."""
    return len(batch) > LEGACY_FIELDS and bool(batch[5] & CONTROL_BIT)


class Comparison:
    """One log, twice."""

    def __init__(self, directory: Path, seed: int, kafka: KafkaCleaner) -> None:
        self._rng = rng = Random(seed)
        self._drawn = DrawnBatches(rng)
        self._kafka = kafka
        self._clock = FixedClock()
        self._world: World = replace(real_world(), clock=self._clock)
        self._map_keys = FEW_KEYS if rng.random() < 0.2 else MANY_KEYS
        self._texts = {
            "cleanup.policy": "compact",
            "segment.bytes": rng.choice([1500, 4000, 20_000]),
            "index.interval.bytes": rng.choice([0, 100, 4096]),
            "delete.retention.ms": rng.choice([0, 1000]),
            "min.compaction.lag.ms": rng.choice([0, 0, 0, 900]),
            "min.cleanable.dirty.ratio": 0,
        }
        self._config = TopicConfig.parse({key: str(value) for key, value in self._texts.items()})
        self.ours, self.theirs = directory / "ours" / str(ORDERS), directory / "theirs" / str(ORDERS)
        self._our_checkpoint: int | None = None
        self._their_checkpoint = -1
        self.seen: set[str] = set()

    def run(self) -> str | None:
        """Append and compact, three times; the first difference, None where there is none."""
        for number in range(ROUNDS):
            drawn = self._drawn.draw(self._rng.randint(1, 60), self._clock.ms)
            if self._rng.random() < 0.7:
                drawn += self._drawn.end_transactions(self._clock.ms)
            rolls = self._rng.random() < 0.8
            for directory in (self.ours, self.theirs):
                self._append(directory, drawn, rolls=rolls)
            difference = self._compact() or self._difference()
            if difference is not None:
                return f"round {number}: {difference}"
            self._clock.ms += self._rng.choice([300, 1100, 2500])
        return self._producer_difference()

    def _open(self, directory: Path) -> Log:
        log = Log.open(self._world, str(directory), ORDERS, self._config, known=CheckpointedState(is_clean=True))
        assert not log.notes, log.notes
        log.update_high_watermark(log.end_offset)
        return log

    def _append(self, directory: Path, drawn: list[bytes], *, rolls: bool) -> None:
        """Write the batches, close the log, and give its new segments the time of the clock."""
        log = self._open(directory)
        first = log.segments.active.base_offset
        for batch in drawn:
            log.append_as_follower(batch)
        if rolls:
            log.roll()
        log.close()
        assert log.end_offset == self._drawn.end_offset
        for segment in log.segments:
            if segment.base_offset >= first:
                os.utime(segment.log_path, ns=(self._clock.ms * 1_000_000,) * 2)

    def _compact(self) -> str | None:
        """Clean both until nothing is left to do; why their checkpoints differ, None where they do not."""
        texts = ",".join(f"{key}={value}" for key, value in self._texts.items())
        while True:
            words = self._kafka.ask("clean", self.theirs, self._their_checkpoint, self._clock.ms, self._map_keys, texts)
            if int(words[0]) == self._their_checkpoint:
                break
            self._their_checkpoint = int(words[0])
        log = self._open(self.ours)
        log.cleaning.first_dirty = self._our_checkpoint
        asyncio.run(self._clean(log))
        log.close()
        self._our_checkpoint = log.cleaning.first_dirty
        if (-1 if self._our_checkpoint is None else self._our_checkpoint) != self._their_checkpoint:
            return f"cleaned up to {self._our_checkpoint}, Apache Kafka up to {self._their_checkpoint}"
        return None

    async def _clean(self, log: Log) -> None:
        settings = CleanerSettings(dedupe_buffer_size=self._map_keys * 48, io_buffer_size=64 << 10)
        cleaner = LogCleaner(self._world, _OneLog(log), settings)
        while await cleaner.clean_next(InlineWorkers()):
            pass
        assert log.cleaning.why_uncleanable is None, log.cleaning.why_uncleanable

    def _difference(self) -> str | None:
        ours, theirs = contents(self.ours), contents(self.theirs)
        self._note(theirs)
        if self._map_keys == FEW_KEYS:
            same = ours.last_values == theirs.last_values
            return None if same else f"the last values differ: {ours.last_values} and {theirs.last_values}"
        for what in Contents._fields:
            mine: dict[int, Any] = getattr(ours, what)
            other: dict[int, Any] = getattr(theirs, what)
            bases = [base for base in sorted(mine | other) if mine.get(base) != other.get(base)]
            if bases:
                return f"{what} differ at {bases}:\n{mine.get(bases[0])}\n{other.get(bases[0])}"
        return None

    def _note(self, found: Contents) -> None:
        """Remember what the logs had, so that a test can tell that they were not all alike."""
        for batch in (batch for segment in found.segments.values() for batch in segment):
            if batch[0] in (0, 1) and len(batch) == LEGACY_FIELDS:
                self.seen.add(f"format {batch[0]}, {'compressed' if batch[1] & 7 else 'plain'}")
            elif not batch[-1]:
                self.seen.add("empty batch")
            elif batch[-2] is not None:
                self.seen.add("marker with horizon" if batch[5] & 0x20 else "tombstone with horizon")
        if any(found.aborted.values()):
            self.seen.add("aborted transaction")

    def _producer_difference(self) -> str | None:
        """What either finds of producers after a crash, in either log without its snapshots and indexes."""
        texts = ",".join(f"{key}={value}" for key, value in self._texts.items())
        found = {}
        for name, directory in (("ours", self.ours), ("theirs", self.theirs)):
            copy = directory.parent / "recovered" / str(ORDERS)
            shutil.copytree(directory, copy)
            for path in copy.iterdir():
                if path.suffix in (".snapshot", ".index", ".timeindex", ".txnindex"):
                    path.unlink()
            again = directory.parent / "again" / str(ORDERS)
            shutil.copytree(copy, again)
            log = Log.open(self._world, str(again), ORDERS, self._config)
            log.close()
            found[f"klamm in {name}"] = [str(log.end_offset), *_producers(log)]
            found[f"Apache Kafka in {name}"] = self._kafka.ask("recover", copy, self._clock.ms, texts)
        expected = found["Apache Kafka in theirs"]
        if self._map_keys == FEW_KEYS:
            expected = found["Apache Kafka in ours"]
            del found["klamm in theirs"], found["Apache Kafka in theirs"]
        wrong = {who: what for who, what in found.items() if what != expected}
        return f"producers differ: {wrong}, but {expected}" if wrong else None


class _OneLog:
    """What the cleaner knows of a node: this log."""

    def __init__(self, log: Log) -> None:
        self.logs = {ORDERS: log}

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    async def secure_recovery_point(self, partition: TopicPartition, offset: int) -> bool:
        return True

    async def write_cleaned_offsets(self) -> None:
        return


def _producers(log: Log) -> list[str]:
    return [
        f"{p.producer_id}:{p.epoch}:{p.last_sequence}:{p.last_offset}:{p.coordinator_epoch}"
        for _, p in sorted(log.producers.by_id.items())
    ]
