"""Groups of a compacted log are those of the log before: compaction keeps what a coordinator needs."""

import asyncio
from random import Random

import pytest
from tests.unit.coordinator.groups_room import P0, P1, Room
from tests.unit.coordinator.test_loading import offset_records
from tests.unit.log.compaction import compacted_log
from tests.unit.log.test_cleaner import OVERRIDES, CleanerNode

from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.topic_partitions import Appended, LogBounds
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import CountedSlices
from klamm.wire.records import ControlType, EndMarker, build_batch, build_end_marker

GROUPS = ("a", "b", "c")
OPEN = 8
"""The producer whose transactions stay open until they are aborted."""


class OnePartition:
    """A log without followers as the only partition of the offsets topic."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def append(self, partition: int, batch: bytes, acks: int, timeout_ms: int) -> Appended:
        info = self.log.append_as_leader(batch, 1, Origin.COORDINATOR)
        self.log.update_high_watermark(self.log.end_offset)
        return Appended(ErrorCode.NONE, info.first_offset)

    async def confirm_leadership(self, partition: int) -> bool:
        return True

    def max_batch_bytes(self, partition: int) -> int:
        return self.log.config.max_message_bytes

    def bounds(self, partition: int) -> LogBounds | None:
        return LogBounds(self.log.start_offset, self.log.end_offset)

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        found = self.log.read(offset, max_bytes).records
        assert isinstance(found, bytes | memoryview)
        return found


async def coordinator_of(node: CleanerNode, log: Log) -> Room:
    """A coordinator that has loaded the log."""
    settings = GroupSettings(offsets_retention_ms=2**62)
    groups = GroupCoordinator(node.world, settings, OnePartition(log), CountedSlices())
    groups.start(1)
    groups._ownership.elected(0, 1)
    await asyncio.sleep(1)
    return Room(asyncio.get_running_loop(), None, groups, settings)  # type: ignore[arg-type]


async def contents(node: CleanerNode, log: Log) -> dict[str, object]:
    """What a coordinator knows of each group after loading the log."""
    room = await coordinator_of(node, log)
    found: dict[str, object] = {}
    for group in GROUPS:
        offsets = room.fetch(group_id=group), room.fetch([P0, P1], group_id=group, require_stable=True)
        found[group] = room.groups.describe_group(group), offsets
    await room.groups.close()
    return found


async def change(room: Room, rng: Random) -> None:
    """A commit, a deletion, or a member that comes and goes."""
    group = rng.choice(GROUPS)
    kind = rng.choice(["commit", "commit", "commit", "delete offset", "delete group", "member"])
    if kind == "commit":
        await room.commit({rng.choice([P0, P1]): rng.randrange(1_000)}, group_id=group)
    elif kind == "delete offset":
        await room.groups.delete_offsets(group, [rng.choice([P0, P1])])
    elif kind == "delete group":
        await room.groups.delete_groups([group])
    else:
        room.join(group_id=group)
        await asyncio.sleep(20)


def write_transaction(log: Log, rng: Random, sequences: dict[int, int]) -> None:
    """Offsets of a producer, and the end of its transaction; those of another producer stay open.

    Records of others between offsets and marker are left out: a tombstone among them is undone by the marker where the
    offsets are still in the log, and not where compaction removed them, in Kafka as here.
    """
    producer = rng.choice([7, 8])
    records = offset_records(rng.randrange(1_000), group=rng.choice(GROUPS))
    sequence = sequences.get(producer, 0)
    sequences[producer] = sequence + len(records)
    batch = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(batch, 1, Origin.COORDINATOR)
    if producer != OPEN:
        kind = rng.choice([ControlType.COMMIT, ControlType.ABORT])
        log.append_as_leader(build_end_marker(EndMarker(kind, 1), producer, 0, 1), 1, Origin.COORDINATOR)
    log.update_high_watermark(log.end_offset)


def abort_open_transactions(log: Log) -> None:
    log.append_as_leader(build_end_marker(EndMarker(ControlType.ABORT, 1), OPEN, 0, 1), 1, Origin.COORDINATOR)
    log.update_high_watermark(log.end_offset)


@pytest.mark.parametrize("seed", range(8))
def test_the_group_coordinator_loads_the_same_state_from_a_compacted_log(seed: int) -> None:
    node, rng, sequences = CleanerNode(seed), Random(seed), dict[int, int]()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        cleanings = 0
        for _ in range(3):
            room = await coordinator_of(node, log)
            for _ in range(30):
                await change(room, rng)
                if rng.random() < 0.3:
                    write_transaction(log, rng, sequences)
            await room.groups.close()
            log.roll()
            log.flush_now()
            before = await contents(node, log)
            cleanings += await node.clean(logs)
            assert await contents(node, log) == before
            abort_open_transactions(log)  # they would keep all that follows from being cleaned
            node.clock.ms += 2_000
        assert cleanings

    node.run(main, OVERRIDES)
