"""Damaged records of one replica are repaired with those of another, and nobody is sent them meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
from structlog.testing import capture_logs
from tests.support.real_logs import DiskWithoutThreads
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import at, one
from tests.unit.replication.runs import Run

from klamm.log.log import Log
from klamm.log.repair.checking import DamagedRange
from klamm.log.repair.scrubber import LogScrubber
from klamm.log.segment import Segment
from klamm.log.settings import ScrubberSettings
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.replication import record_repair
from klamm.replication.record_repair import RecordRepair
from klamm.wire.records import batches

VALUES = [b"value-%03d" % number for number in range(12)]
ROLL_EVERY = 4


def log_of(cluster: ReplicaCluster, broker: int) -> Log:
    return cast(Log, cluster.log(broker))


async def with_records(cluster: ReplicaCluster, leader: int = 1) -> None:
    """Three replicas of three segments, the last one still written to."""
    await cluster.elect(leader)
    for number, value in enumerate(VALUES):
        assert await cluster.produce(leader, value) is ErrorCode.NONE
        if number % ROLL_EVERY == ROLL_EVERY - 1 and number < len(VALUES) - 1:
            for broker in cluster.brokers:
                log_of(cluster, broker).roll()
    await asyncio.sleep(1)


def damage(cluster: ReplicaCluster, broker: int, offset: int) -> None:
    """Change the last byte of a batch."""
    log = log_of(cluster, broker)
    segment = log.segments.from_slot(log.segments.slot_of(offset))[0]
    found = segment.find(offset)
    assert found is not None
    size = found.size or next(iter(batches(bytes(log.read(offset, 1).records)))).size  # type: ignore[arg-type]
    with open(segment.log_path, "r+b") as file:
        file.seek(found.position + size - 1)
        byte = file.read(1)
        file.seek(found.position + size - 1)
        file.write(bytes([byte[0] ^ 0x40]))


@asynccontextmanager
async def repairing(cluster: ReplicaCluster, broker: int, *, is_scrubbing: bool = True) -> AsyncIterator[RecordRepair]:
    """A broker that looks for damage, and repairs what it finds."""
    world = replace(cluster.world, disk=DiskWithoutThreads())
    scrubber = LogScrubber(world, cluster.logs[broker], ScrubberSettings(1 << 20 if is_scrubbing else 0, 5_000))
    repair = RecordRepair(
        world,
        BrokerId(broker),
        cluster.brokers[broker].partition,
        cluster.metadata,
        lambda host, port, client_id: cluster._connect(broker, port),
        5.0,
    )
    scrubber.on_damage = repair.on_damage
    cluster.on_corrupt[broker] = scrubber.check_soon
    repair.start()
    scrubber.start()
    try:
        yield repair
    finally:
        await scrubber.close()
        await repair.close()


def damaged_offsets(cluster: ReplicaCluster, broker: int) -> Sequence[int]:
    return [d.first_offset for segment in log_of(cluster, broker).segments for d in segment.damaged]


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_records_of_leader_and_follower_are_repaired_from_another_in_sync_replica(
    run_on_disk: Run, damaged: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, damaged, 1)
        damage(cluster, damaged, 5)
        with capture_logs() as lines:
            async with repairing(cluster, damaged) as repair:
                await asyncio.sleep(20)
        assert cluster.values(damaged) == VALUES
        assert repair.repaired_ranges == 2
        assert damaged_offsets(cluster, damaged) == []
        repaired = [line for line in lines if line["event"].startswith("damaged records of a log were replaced")]
        source = 2 if damaged == 1 else 1
        assert [(line["offsets"], line["source"]) for line in repaired] == [("1 to 1", source), ("5 to 5", source)]
        assert cluster.isr(1) == (1, 2, 3)

    run_on_disk(scenario)


def test_repair_of_a_log_ends_at_an_offset_to_which_the_log_is_truncated_meanwhile(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        first, second, _ = log_of(cluster, 2).segments
        first.damaged = (DamagedRange(0, 1, 0, 1, "a bit flipped"),)
        second.damaged = (DamagedRange(1_000, 1_001, 7, 8, "a bit flipped"),)
        begun: list[int] = []

        async def truncate(_world: object, _workers: object, log: Log, segment: Segment, _fetch: object) -> None:
            begun.append(segment.base_offset)
            log.truncate_to(5)
            segment.damaged = ()

        monkeypatch.setattr(record_repair, "repair_segment", truncate)
        with capture_logs() as lines:
            async with repairing(cluster, 2, is_scrubbing=False) as repair:
                repair.on_damage(log_of(cluster, 2))
                await asyncio.sleep(20)

        assert begun == [0]
        assert not [line for line in lines if line["event"].startswith("unexpected error")]

    run_on_disk(scenario)


def test_repair_uses_the_next_in_sync_replica_if_the_first_is_damaged_too(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, 1, 5)
        damage(cluster, 2, 5)
        async with repairing(cluster, 1):
            await asyncio.sleep(20)
        assert cluster.values(1) == VALUES
        assert cluster.complaints == [(2, P0, 5)]

    run_on_disk(scenario)


def test_damaged_records_without_an_intact_replica_are_repaired_once_an_intact_replica_exists(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        for broker in (1, 2, 3):
            damage(cluster, broker, 5)
        async with repairing(cluster, 1) as repair:
            with capture_logs() as lines:
                await asyncio.sleep(20)
            assert damaged_offsets(cluster, 1) == [5]
            reasons = [
                line["reason"]
                for line in lines
                if line["event"].startswith("damaged records of a log cannot be replaced")
            ]
            assert (
                "broker 2: the Fetch for orders-0 was answered with CORRUPT_MESSAGE; "
                "broker 3: the Fetch for orders-0 was answered with CORRUPT_MESSAGE"
            ) in reasons
            damage(cluster, 3, 5)  # the same byte again: it is intact
            await asyncio.sleep(700)
            assert repair.repaired_ranges == 1
        assert cluster.values(1) == VALUES

    run_on_disk(scenario)


def test_repair_does_not_read_records_from_a_replica_outside_the_isr(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        await cluster.elect(1, isr=(1,), tell=[1])
        cluster.cut |= {(1, 2), (1, 3)}
        damage(cluster, 1, 5)
        with capture_logs() as lines:
            async with repairing(cluster, 1):
                await asyncio.sleep(10)
        assert "no other replica is in the ISR" in [line.get("reason") for line in lines]
        assert not [m for source, _, m, version in cluster.sent if source == 1 and version == 11]

    run_on_disk(scenario)


def test_a_fetch_returns_records_before_a_damaged_batch_and_refuses_the_damaged_batch(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, 1, 6)
        data = await one(cluster, at(4))
        assert [h.base_offset for h in batches(bytes(data.records))] == [4, 5]  # type: ignore[arg-type]
        assert cluster.complaints == [(1, P0, 4)]
        data = await one(cluster, at(6))
        assert (data.error, bytes(data.records)) == (ErrorCode.CORRUPT_MESSAGE, b"")  # type: ignore[arg-type]
        data = await one(cluster, at(7))
        assert [h.base_offset for h in batches(bytes(data.records))] == [7]  # type: ignore[arg-type]

    run_on_disk(scenario)


def test_a_fetch_with_the_crc_check_disabled_returns_damaged_records_unchanged(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, 1, 6)
        cluster.brokers[1].check_crcs(is_on=False)
        data = await one(cluster, at(4))
        assert [h.base_offset for h in batches(bytes(data.records))] == [4, 5, 6, 7]  # type: ignore[arg-type]
        assert cluster.complaints == []

    run_on_disk(scenario)


@pytest.mark.parametrize("limit", [1, 70, 100, 150])
def test_a_fetch_with_the_crc_check_returns_whole_batches_and_at_least_one(run_on_disk: Run, limit: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        data = await one(cluster, at(4, max_bytes=limit))
        size = len(bytes(data.records))  # type: ignore[arg-type]
        found = list(batches(bytes(data.records)))  # type: ignore[arg-type]
        assert found
        assert sum(h.size for h in found) == size
        assert data.error is ErrorCode.NONE

    run_on_disk(scenario)


def test_a_fetch_treats_a_batch_length_beyond_the_available_records_as_damage(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        log = log_of(cluster, 1)
        segment = log.segments.from_slot(log.segments.slot_of(6))[0]
        spot = segment.find(6)
        assert spot is not None
        DiskWithoutThreads().open(segment.log_path).pwrite([(1 << 20).to_bytes(4)], spot.position + 8)
        first = await one(cluster, at(4))
        assert [h.base_offset for h in batches(bytes(first.records))] == [4, 5]  # type: ignore[arg-type]
        assert (await one(cluster, at(6))).error is ErrorCode.CORRUPT_MESSAGE

    run_on_disk(scenario)


def test_a_consumers_fetch_of_damaged_records_triggers_their_repair(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, 1, 6)
        async with repairing(cluster, 1, is_scrubbing=False) as repair:
            assert (await one(cluster, at(6))).error is ErrorCode.CORRUPT_MESSAGE
            await asyncio.sleep(5)
            data = await one(cluster, at(6))
            assert [h.base_offset for h in batches(bytes(data.records))] == [6, 7]  # type: ignore[arg-type]
            assert repair.repaired_ranges == 1

    run_on_disk(scenario)


def test_a_new_follower_of_a_damaged_leader_gets_all_records_after_the_repair(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await with_records(cluster)
        damage(cluster, 1, 6)
        log_of(cluster, 3).truncate_fully_and_start_at(0)
        await cluster.elect(1, isr=(1, 2))
        async with repairing(cluster, 1, is_scrubbing=False):
            await asyncio.sleep(30)
        assert cluster.values(3) == cluster.values(1) == VALUES
        assert cluster.isr(1) == (1, 2, 3)

    run_on_disk(scenario)
