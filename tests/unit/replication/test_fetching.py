"""What a fetch answers for one partition, and how much."""

import asyncio
import uuid

import pytest
from tests.support.memory_log import Records, batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import SIZE, alone, at, fetch, now, one, put
from tests.unit.replication.runs import Run

from klamm.log.epochs import EpochEnd
from klamm.log.file_slice import FileSlice
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_data import FetchData, FetchPartition, Isolation
from klamm.wire.records import CorruptRecords


def test_a_fetch_returns_records_from_the_offset_up_to_the_high_watermark(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster)
        await put(cluster)
        found = await one(cluster, at(1))
        assert found == FetchData(ErrorCode.NONE, 2, 2, 0, batch(base=1, epoch=0, filler=b"xxxx"))

    run(scenario)


def test_a_consumer_fetches_up_to_the_high_watermark_and_a_follower_to_the_log_end(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        await put(cluster)
        assert (await one(cluster, at(0))).records == b""
        assert (await one(cluster, at(1))).error is ErrorCode.NONE  # between high watermark and end
        assert len((await one(cluster, at(0), replica_id=2)).records) == SIZE
        assert (await one(cluster, at(0), isolation=Isolation.READ_COMMITTED)).records == b""

    run(scenario)


@pytest.mark.parametrize("offset", [-1, 3, 99])
def test_a_fetch_beyond_the_log_end_gets_offset_out_of_range(run: Run, offset: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, count=2)
        found = await one(cluster, at(offset), max_wait_ms=1000)
        assert (found.error, found.high_watermark, now()) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)

    run(scenario)


def test_a_fetch_below_the_log_start_gets_offset_out_of_range(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, count=3)
        cluster.log(1).start_offset = 2
        assert (await one(cluster, at(1))).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await one(cluster, at(1, last_fetched_epoch=0))).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await one(cluster, at(2))).error is ErrorCode.NONE

    run(scenario)


ABSENT = {
    "not hosted by this broker": (at(0, 5), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "unknown topic name": (at(0, 0, topic="no such", topic_id=ZERO_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown topic id": (at(0, 0, topic=None, topic_id=uuid.UUID(int=1)), ErrorCode.UNKNOWN_TOPIC_ID),
    "topic id of another topic": (at(0, 0, topic_id=uuid.UUID(int=1)), ErrorCode.INCONSISTENT_TOPIC_ID),
    "name found by id": (at(0, 0, topic=None), ErrorCode.NONE),
    "zero topic id": (at(0, 0, topic_id=ZERO_ID), ErrorCode.NONE),
}


@pytest.mark.parametrize(("partition", "error"), ABSENT.values(), ids=ABSENT)
def test_a_fetched_partition_is_identified_by_topic_id_or_name_with_kafkas_errors(
    run: Run, partition: FetchPartition, error: ErrorCode
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        assert (await one(cluster, partition)).error is error

    run(scenario)


def test_a_fetch_of_an_offline_partition_gets_kafka_storage_error(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        cluster.brokers[1].set_offline([P0])
        assert (await one(cluster, at(0))).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_read_error_takes_all_partitions_of_the_log_directory_offline(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        cluster.log(1).is_broken = True
        assert (await one(cluster, at(0))).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.brokers[1].offline_partitions == {P0, TopicPartition("orders", 1)}
        assert (await one(cluster, at(0, 1))).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_corrupt_records_on_disk_fail_a_fetch_only_for_their_own_partition(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower asks for everything at once: an exception would end the fetching of all its partitions."""

    def refuse(*_args: int) -> None:
        raise CorruptRecords("the segment ends at byte 0")

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        await put(cluster, number=1)
        monkeypatch.setattr(cluster.log(1), "slice", refuse)
        bad, good = await fetch(cluster, at(0), at(0, 1))
        assert bad.error is ErrorCode.CORRUPT_MESSAGE
        assert (good.error, len(good.records)) == (ErrorCode.NONE, SIZE)

    run(scenario)


def test_records_that_become_unreadable_during_a_fetch_fail_only_their_own_partition(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a slice is truncated, or its device dies, between the decision what to answer and the read."""

    class Truncated:
        valid_bytes = 0

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        await put(cluster, number=1)
        lost = FileSlice(None, "0.log", Truncated(), 0, SIZE, lambda error: None)  # type: ignore[arg-type]
        monkeypatch.setattr(cluster.log(1), "slice", lambda *_args: Records(lost))  # type: ignore[arg-type]
        bad, good = await fetch(cluster, at(0), at(0, 1))
        assert bad.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (good.error, len(good.records)) == (ErrorCode.NONE, SIZE)

    run(scenario)


EPOCHS = {"older": (3, ErrorCode.FENCED_LEADER_EPOCH), "same": (4, ErrorCode.NONE), "none": (-1, ErrorCode.NONE)}
EPOCHS["newer"] = (5, ErrorCode.UNKNOWN_LEADER_EPOCH)


@pytest.mark.parametrize(("epoch", "error"), EPOCHS.values(), ids=EPOCHS)
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_a_fetch_with_an_older_or_newer_leader_epoch_is_rejected(
    run: Run, epoch: int, error: ErrorCode, replica_id: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, epoch=4, tell=[1])
        assert (await one(cluster, at(0, current_leader_epoch=epoch), replica_id=replica_id)).error is error

    run(scenario)


def test_only_consumers_that_support_follower_fetching_may_fetch_from_a_follower(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await cluster.produce(1)
        await asyncio.sleep(1)
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await one(cluster, at(0), broker=2)).error is not_leader
        assert (await one(cluster, at(0), broker=2, replica_id=3)).error is not_leader
        found = await one(cluster, at(0), broker=2, leader_only=False)
        assert (found.error, found.high_watermark, len(found.records) > 0) == (ErrorCode.NONE, 1, True)

    run(scenario)


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_fetch_by_a_replica_that_is_not_assigned_is_rejected(run: Run, epoch: int, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1, 2))
        assert (await one(cluster, at(0, current_leader_epoch=epoch), replica_id=9)).error is error

    run(scenario)


# epochs 2 from offset 0, 5 from 3, 7 (the leader's own) from 6 to the end 8
DIVERGING = {
    "same epoch, before its end": (5, 6, None),
    "same epoch, but the leader's ended earlier": (5, 7, EpochEnd(5, 6)),
    "an epoch the leader never had": (4, 4, EpochEnd(2, 3)),
    "an epoch below all": (1, 0, None),
    "an epoch below all, but further on": (1, 2, EpochEnd(1, 0)),
    "the latest epoch": (7, 8, None),
}


@pytest.mark.parametrize(("epoch", "offset", "expected"), DIVERGING.values(), ids=DIVERGING)
def test_a_diverged_follower_gets_the_diverging_epoch_and_its_end_offset(
    run: Run, epoch: int, offset: int, expected: EpochEnd | None
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        found = await one(cluster, at(offset, last_fetched_epoch=epoch), replica_id=2, max_wait_ms=1000)
        assert (found.error, found.diverging) == (ErrorCode.NONE, expected)
        if expected is not None:
            assert (found.records, now()) == (b"", 0)
            assert cluster.partition(1).replicas[BrokerId(2)].log_end_offset == -1  # KAFKA-13141: not taken as a fetch

    run(scenario)


def test_a_diverged_followers_fetch_below_the_log_start_gets_offset_out_of_range(run: Run) -> None:
    """KAFKA-12996"""

    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        cluster.log(1).start_offset = 2
        found = await one(cluster, at(1, last_fetched_epoch=4), replica_id=2)
        assert (found.error, found.diverging) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)

    run(scenario)


def test_a_fetch_with_a_last_fetched_epoch_above_the_leaders_gets_offset_out_of_range(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        found = await one(cluster, at(6, last_fetched_epoch=8), replica_id=2)
        assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


async def diverged(cluster: ReplicaCluster) -> None:
    """Give the leader a log with the leader epochs 2, 5 and 7."""
    for epoch, records in ((2, 3), (5, 3), (7, 2)):
        await cluster.elect(1, epoch=epoch, tell=[1])
        await put(cluster, count=records)


# ---- sizes


def test_a_fetch_returns_the_first_batch_even_above_max_bytes(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, b"x" * 1000)
        assert len((await one(cluster, at(0, max_bytes=10))).records) > 1000
        assert len((await one(cluster, at(0), max_bytes=10)).records) > 1000
        assert (await one(cluster, at(0, max_bytes=10), first_may_exceed=False)).records == b""

    run(scenario)


def test_only_the_first_partition_with_data_may_exceed_max_bytes_of_a_fetch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 3)
        await put(cluster, number=1)
        await put(cluster, number=2)
        sizes = [len(d.records) for d in await fetch(cluster, at(0, 0), at(0, 1), at(0, 2), max_bytes=10)]
        assert sizes == [0, SIZE, 0]
        sizes = [len(d.records) for d in await fetch(cluster, at(0, 0), at(0, 1), at(0, 2), max_bytes=2 * SIZE)]
        assert sizes == [0, SIZE, SIZE]

    run(scenario)
