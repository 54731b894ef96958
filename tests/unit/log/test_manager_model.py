"""Random lives of a log manager with two directories against a model: what must be there after a kill or a power loss.

Logs are created, deleted, created again, truncated, moved between the directories and flushed; threads take any time.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.unit.log.support import ManualClock, batch

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import OffsetOutOfRange, ProducersRestoring, StorageFailed
from klamm.log.log import Log
from klamm.log.manager import LogManager, LogRequest
from klamm.log.settings import LogManagerSettings
from klamm.model.ids import TopicPartition
from klamm.replication.log_copy import LogCopy
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness, Rng
from klamm.runtime.world import World
from klamm.sim.disk import SimulatedDisk
from klamm.sim.loop import SimulatedLoop
from klamm.sim.power_loss import PowerLoss
from klamm.wire.records import batches, records

PARTITIONS = [TopicPartition(topic, number) for topic in ("lamps", "orders") for number in (0, 1)]
CONFIG = TopicConfig.parse({"segment.bytes": "400", "index.interval.bytes": "1", "file.delete.delay.ms": "2000"})
SETTINGS = LogManagerSettings(
    recovery_checkpoint_interval_ms=5_000, log_start_checkpoint_interval_ms=3_000, retention_check_interval_ms=4_000
)
LIVES = 5
STEPS = 25
Values = dict[int, str]
"""Offset -> value."""


class SlowDisk(SimulatedDisk):
    """Its threads begin and end late."""

    def __init__(self, seed: int) -> None:
        super().__init__(Rng(seed))
        self._delays = Random(seed)

    async def in_thread(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        await asyncio.sleep(self._delays.choice([0, 0, 0.01, 0.2, 3]))
        result = call(*args, **named)
        await asyncio.sleep(self._delays.choice([0, 0, 0.01]))
        return result


class Replica:
    """What the log of one partition must have; `topic_id` is None while there is none."""

    def __init__(self) -> None:
        self.topic_id: UUID | None = None
        self.values: Values = {}
        self.leader_epoch = 0
        """Another one after each truncation and start: one leader appends no two batches at an offset."""
        self.flushed = 0
        """Values below this offset survive a power loss."""
        self.earlier: list[tuple[UUID | None, Values]] = []
        """What a power loss may bring back: before a truncation, and deleted logs."""

    def change(self, topic_id: UUID | None, values: Values) -> None:
        """A deletion, creation or truncation: a power loss may undo it."""
        self.earlier.append((self.topic_id, self.values))
        self.topic_id, self.values = topic_id, values
        self.leader_epoch += 1
        self.flushed = min(self.flushed, max(values, default=-1) + 1)

    def adopt(self, log: Log | None) -> None:
        """Go on with what a start found."""
        self.topic_id = None if log is None else log.topic_id
        self.values = {} if log is None else content(log)
        self.leader_epoch += 1
        self.flushed, self.earlier = 0, []


def content(log: Log) -> Values:
    """Every value, read in small pieces."""
    found: Values = {}
    position = log.start_offset
    while position < log.end_offset:
        piece = log.read(position, 200).records
        assert isinstance(piece, bytes)
        for header in batches(piece):
            values = {record.offset: (record.value or b"").decode() for record in records(piece, header)}
            found |= {offset: value for offset, value in values.items() if offset >= log.start_offset}
            position = header.next_offset
    return found


class Life:
    """One node over several lives of its process."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SlowDisk(seed)
        self.replicas = {partition: Replica() for partition in PARTITIONS}
        self.created = self.written = 0
        self.logs: LogManager

    def run(self) -> None:
        lost_power = False
        for _ in range(LIVES):
            SimulatedLoop().run(self.live(lost_power=lost_power))
            self.disk.process_died()
            lost_power = self.rng.random() < 0.5
            if lost_power:
                self.disk.lose_power(self.rng.choice(list(PowerLoss)))

    async def live(self, *, lost_power: bool) -> None:
        """Start, check what is there, do some of everything, and end cleanly or not."""
        failures: list[object] = []
        world = World(ManualClock(), RealNetwork(), self.disk, RealRandomness())
        self.logs = LogManager(
            world, ["/x", "/y"], 1, "cluster", settings=SETTINGS, on_directory_failed=failures.append
        )
        await self.logs.load({})
        self.logs.start()
        for partition, replica in self.replicas.items():
            log = self.logs.get(partition)
            self.check(log, replica, lost_power=lost_power)
            replica.adopt(log)
        works = [self.create, self.append, self.flush, self.truncate, self.delete, self.recreate, self.move, self.wait]
        for _ in range(STEPS):
            (work,) = self.rng.choices(works, [4, 12, 3, 2, 2, 2, 3, 3])
            await work(self.rng.choice(PARTITIONS))
            assert not failures
        if self.rng.random() < 0.4:
            await self.logs.close()
            for replica in self.replicas.values():
                replica.flushed, replica.earlier = max(replica.values, default=-1) + 1, []

    def check(self, log: Log | None, replica: Replica, *, lost_power: bool) -> None:
        """The log is what it was; after a power loss, it has at least what was flushed, or is an earlier one."""
        if not lost_power:
            assert (log and log.topic_id) == replica.topic_id
            assert log is None or content(log) == replica.values
            return
        if log is None:
            assert not replica.flushed, "a flushed log is gone"
            return
        found = content(log)
        flushed = {offset: value for offset, value in replica.values.items() if offset < replica.flushed}
        is_current = found.items() <= replica.values.items() and flushed.items() <= found.items()
        if is_current and log.topic_id == replica.topic_id:
            return
        # a topic id may be lost as long as nothing was flushed
        assert any(
            found.items() <= values.items() and log.topic_id in (topic_id, None) for topic_id, values in replica.earlier
        ) or (is_current and not flushed and log.topic_id is None), (log, found, log.topic_id, vars(replica))

    # -- what may happen

    async def create(self, partition: TopicPartition) -> None:
        if self.logs.get(partition) is None:
            await self.logs.sync_deletions()  # as before the answer to the controller
            self.created += 1
            topic_id = UUID(int=self.created)
            self.replicas[partition].change(topic_id, {})
            (log,) = await self.logs.get_or_create_many([LogRequest(partition, CONFIG, topic_id, is_new=True)])
            assert isinstance(log, Log)
            assert (log.end_offset, log.topic_id) == (0, topic_id)

    async def append(self, partition: TopicPartition) -> None:
        log, replica = self.logs.get(partition), self.replicas[partition]
        if log is None:
            return
        if log.has_unsynced_truncation:
            await log.wait_until_durable()
        if log.is_restoring_producers:
            return
        values = [f"{self.written + number}" for number in range(self.rng.randint(1, 3))]
        self.written += len(values)
        replica.values |= dict(enumerate(values, log.end_offset))
        log.append_as_leader(batch(*values), replica.leader_epoch)

    async def flush(self, partition: TopicPartition) -> None:
        log, replica = self.logs.get(partition), self.replicas[partition]
        if log is not None:
            await log.flush()
            replica.flushed = log.recovery_point

    async def truncate(self, partition: TopicPartition) -> None:
        log, replica = self.logs.get(partition), self.replicas[partition]
        if log is None:
            return
        if self.rng.random() < 0.3:
            log.truncate_fully_and_start_at(self.rng.randint(0, log.end_offset + 3))
            replica.change(replica.topic_id, {})
        else:
            log.truncate_to(self.rng.randint(log.start_offset, log.end_offset))
            replica.change(replica.topic_id, {o: v for o, v in replica.values.items() if o < log.end_offset})

    async def delete(self, partition: TopicPartition) -> None:
        if self.logs.delete(partition):
            self.replicas[partition].change(None, {})
            if self.rng.random() < 0.7:
                await self.logs.sync_deletions()
                self.replicas[partition].earlier = []

    async def recreate(self, partition: TopicPartition) -> None:
        if self.logs.get(partition) is not None:
            await self.delete(partition)
            await self.create(partition)

    async def move(self, partition: TopicPartition) -> None:
        """Copy some of the log to the other directory; the complete copy replaces it."""
        log, moves = self.logs.get(partition), self.logs.moves
        if log is None:
            return
        copy = moves.futures.get(partition) or moves.create_future(
            partition, "/y" if moves.directory_of(partition) == "/x" else "/x"
        )
        copying = LogCopy(log, copy, 300)
        for _ in range(self.rng.choice([1, 3, 200])):
            try:
                await copying.copy_chunk()
            except (OffsetOutOfRange, ProducersRestoring, StorageFailed):
                await asyncio.sleep(0.1)
                continue
            if copying.is_complete:
                await copy.flush()
                if log.recovery_point > copy.recovery_point:
                    copy.flush_now()
                moves.promote_future(partition)
                return

    async def wait(self, _: TopicPartition) -> None:
        await asyncio.sleep(self.rng.choice([0.1, 1, 6]))


@pytest.mark.parametrize("first", range(100, 140, 10))
def test_no_life_of_a_log_manager_loses_flushed_records_or_brings_back_deleted_ones(first: int) -> None:
    for seed in range(first, first + 10):
        Life(seed).run()
