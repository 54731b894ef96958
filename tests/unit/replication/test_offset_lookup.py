"""ListOffsets and OffsetForLeaderEpoch on the broker that is asked."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.support.cold_disk import evict_from_cache
from tests.support.memory_log import MemoryLog, batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.lookup import find_in_files
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.fetch_data import Isolation
from klamm.replication.offset_lookup import DEBUGGING_CONSUMER, FoundOffset, Timestamp
from klamm.wire.records import CorruptRecords, NewRecord, build_batch

NOTHING = FoundOffset()


async def led(cluster: ReplicaCluster) -> None:
    """Broker 1 leads in epoch 7; offsets 0 to 3 from epoch 2 at time 10, 20, 40, 40, of which 0 to 2 are committed."""
    await cluster.elect(1, (1,), epoch=2, tell=[1])
    for timestamp in (10, 20, 40):
        await cluster.brokers[1].append(1, 0, {P0: batch(timestamp=timestamp)})
    await cluster.elect(1, (1, 2), epoch=7, tell=[1])
    await cluster.brokers[1].append(1, 0, {P0: batch(timestamp=40)})
    assert (cluster.log(1).high_watermark, cluster.log(1).end_offset) == (3, 4)


async def look(cluster: ReplicaCluster, timestamp: int, broker: int = 1, **more: Any) -> FoundOffset:
    """Look up an offset by timestamp at a broker."""
    return await cluster.brokers[broker].look_up_offset(P0, timestamp, **more)


def found(timestamp: int, offset: int, epoch: int) -> FoundOffset:
    """The expected result of a lookup."""
    return FoundOffset(ErrorCode.NONE, timestamp, offset, epoch)


LIST_OFFSETS_CASES = {
    "latest": (Timestamp.LATEST, found(-1, 3, 7)),
    "earliest": (Timestamp.EARLIEST, found(-1, 0, 2)),
    "earliest local": (Timestamp.EARLIEST_LOCAL, found(-1, 0, 2)),
    "latest tiered": (Timestamp.LATEST_TIERED, NOTHING),
    "max timestamp": (Timestamp.MAX, found(40, 2, 2)),
    "timestamp between two records": (15, found(20, 1, 2)),
    "timestamp after the last record": (41, NOTHING),
}


@pytest.mark.parametrize(("timestamp", "expected"), LIST_OFFSETS_CASES.values(), ids=LIST_OFFSETS_CASES)
def test_list_offsets_resolves_timestamps_and_kafkas_special_timestamps(
    run: Run, timestamp: int, expected: FoundOffset
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        assert await look(cluster, timestamp) == expected

    run(scenario)


def test_list_offsets_latest_is_the_log_end_only_for_replicas_and_debugging_consumers(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        assert (await look(cluster, Timestamp.LATEST, replica_id=2)).offset == 4
        assert (await look(cluster, Timestamp.LATEST, replica_id=DEBUGGING_CONSUMER)).offset == 4
        assert (await look(cluster, Timestamp.LATEST, isolation=Isolation.READ_COMMITTED)).offset == 3
        cluster.log(1).high_watermark = 2
        cluster.partition(1).leader_epoch_start = 2
        assert await look(cluster, 40) == NOTHING  # offset 2 lies beyond what a consumer may read
        assert (await look(cluster, 40, replica_id=2)).offset == 2

    run(scenario)


@pytest.mark.parametrize("timestamp", [Timestamp.LATEST, 10])
def test_list_offsets_with_read_committed_is_refused_while_producers_are_restored_after_a_truncation(
    run_on_disk: Run, timestamp: int
) -> None:
    """The log start would be the answer to LATEST: the consumer would read the whole log again."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), epoch=2, tell=[1])
        for sequence in range(100):
            content = build_batch([NewRecord(b"x" * 1000, None, 10)], producer_id=1, base_sequence=sequence)
            await cluster.brokers[1].append(1, 0, {P0: content})
        own_log = cast(Log, cluster.log(1))
        own_log.truncate_to(90)  # as a follower would
        assert own_log.is_restoring_producers

        async def answer(isolation: Isolation) -> tuple[ErrorCode, int]:
            cluster.partition(1).leader_epoch_start = 0
            result = await look(cluster, timestamp, isolation=isolation)
            return result.error, result.offset

        assert await answer(Isolation.READ_COMMITTED) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        latest = 90 if timestamp == Timestamp.LATEST else 0
        assert await answer(Isolation.READ_UNCOMMITTED) == (ErrorCode.NONE, latest)
        await asyncio.sleep(1)
        assert await answer(Isolation.READ_COMMITTED) == (ErrorCode.NONE, latest)

    run_on_disk(scenario)


def test_list_offsets_with_read_committed_finds_no_record_above_the_last_stable_offset(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        monkeypatch.setattr(MemoryLog, "last_stable_offset", property(lambda log: 1))
        cluster.partition(1).leader_epoch_start = 0
        for timestamp, offset in ((10, 0), (20, 1)):
            assert (await look(cluster, timestamp)).offset == offset
            committed = await look(cluster, timestamp, isolation=Isolation.READ_COMMITTED)
            assert committed == (found(10, 0, 2) if offset == 0 else NOTHING)

    run(scenario)


def test_list_offsets_latest_is_unavailable_until_a_new_leader_commits_in_its_epoch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        cluster.log(1).high_watermark = 1
        for timestamp in (Timestamp.LATEST, 40, 99):
            assert await look(cluster, timestamp) == FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        assert await look(cluster, 5) == found(10, 0, 2)
        assert (await look(cluster, Timestamp.EARLIEST)).error is ErrorCode.NONE
        assert (await look(cluster, Timestamp.LATEST, replica_id=2)).offset == 4

    run(scenario)


def test_list_offsets_on_a_follower_is_answered_only_for_debugging_consumers(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await asyncio.sleep(1)
        not_leader = FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await look(cluster, Timestamp.LATEST, broker=2) == not_leader
        assert await look(cluster, Timestamp.LATEST, broker=2, replica_id=3) == not_leader
        assert (await look(cluster, Timestamp.LATEST, broker=2, replica_id=DEBUGGING_CONSUMER)).offset == 1
        unknown = await cluster.brokers[1].look_up_offset(TopicPartition("no such", 0), Timestamp.LATEST)
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


@pytest.mark.parametrize(
    ("epoch", "error"), [(6, ErrorCode.FENCED_LEADER_EPOCH), (8, ErrorCode.UNKNOWN_LEADER_EPOCH), (7, ErrorCode.NONE)]
)
def test_list_offsets_with_an_older_or_newer_leader_epoch_is_rejected(run: Run, epoch: int, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        assert (await look(cluster, Timestamp.LATEST, current_leader_epoch=epoch)).error is error
        assert cluster.brokers[1].end_of_epoch(P0, 2, epoch)[0] is error

    run(scenario)


EPOCH_ENDS = {-1: (-1, -1), 1: (1, 0), 2: (2, 3), 5: (2, 3), 7: (7, 4), 8: (-1, -1)}


@pytest.mark.parametrize(("epoch", "end"), EPOCH_ENDS.items())
def test_offset_for_leader_epoch_returns_the_end_of_the_largest_epoch_not_above_the_requested(
    run: Run, epoch: int, end: tuple[int, int]
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        assert cluster.brokers[1].end_of_epoch(P0, epoch) == (ErrorCode.NONE, end)

    run(scenario)


def test_an_offset_for_leader_epoch_request_to_a_follower_or_for_an_unknown_partition_is_rejected(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(2)
        assert cluster.brokers[1].end_of_epoch(P0, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (-1, -1))
        unknown = cluster.brokers[1].end_of_epoch(TopicPartition("no such", 0), 0)
        assert unknown == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (-1, -1))

    run(scenario)


def test_an_offset_for_leader_epoch_request_for_an_offline_log_gets_kafka_storage_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)
        cluster.brokers[1].set_offline([P0])
        assert cluster.brokers[1].end_of_epoch(P0, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, (-1, -1))

    run(scenario)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [(StorageFailed("I/O"), ErrorCode.KAFKA_STORAGE_ERROR), (CorruptRecords("CRC"), ErrorCode.CORRUPT_MESSAGE)],
)
def test_list_offsets_reports_storage_errors_and_corrupt_records(
    run: Run, trouble: Exception, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await led(cluster)

        async def search(timestamp: int) -> None:
            raise trouble

        monkeypatch.setattr(cluster.log(1), "offset_for_timestamp", search)
        assert await look(cluster, 15) == FoundOffset(error)

    run(scenario)


def test_list_offsets_of_a_closed_segment_outside_the_page_cache_is_looked_up_in_a_worker(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,), tell=[1])
        log = cast(Log, cluster.log(1))
        for timestamp in (10, 20, 30):
            content = build_batch([NewRecord(b"value", None, timestamp)])
            await cluster.brokers[1].append(1, 0, {P0: content})
            log.roll()
        disk = evict_from_cache(log)
        calls: list[object] = []
        run = cluster.world.workers.run

        async def in_worker(call: Callable[..., Any], *arguments: Any) -> Any:
            calls.append(call)
            disk.is_in_thread = True
            result = await run(call, *arguments)
            disk.is_in_thread = False
            return result

        cluster.world.workers.run = in_worker  # type: ignore[method-assign,assignment]

        assert await look(cluster, 15) == found(20, 1, 0)
        assert await look(cluster, Timestamp.MAX) == found(30, 2, 0)
        assert calls == [find_in_files] * 2
        assert disk.waited_for == []

    run_on_disk(scenario)
