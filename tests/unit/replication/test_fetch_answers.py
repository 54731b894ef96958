"""What of an answer is in memory, and what is read later from the log's files."""

from typing import Any, cast

import pytest
from tests.support.cold_disk import evict_from_cache
from tests.support.real_logs import real_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import alone, at, fetch, one
from tests.unit.replication.runs import Run

from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.fetch_data import FetchData, FetchParams, Isolation
from klamm.replication.fetch_sessions import FetchRequested
from klamm.replication.fetching import READ_AT_ONCE_BYTES
from klamm.wire.codec import LARGE_BYTES

PARTITIONS = 40


async def filled(cluster: ReplicaCluster, size: int) -> None:
    """Make broker 1 the only replica, and append a batch of this size to each partition."""
    await alone(cluster, PARTITIONS)
    for number in range(PARTITIONS):
        content = real_batch(filler=b"x" * size)
        await cluster.brokers[1].append(1, 0, {TopicPartition("orders", number): content})


def in_memory(answers: list[FetchData]) -> int:
    """Bytes of records that the answers hold in memory."""
    return sum(len(data.records) for data in answers if not isinstance(data.records, FileSlice))


def test_a_large_fetch_response_is_read_from_file_in_pieces_with_bounded_memory(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster, 30_000)
        answers = await fetch(cluster, *(at(0, number) for number in range(PARTITIONS)))
        assert sum(len(data.records) for data in answers) > PARTITIONS * 30_000
        assert 0 < in_memory(answers) <= READ_AT_ONCE_BYTES

    run_on_disk(scenario)


def test_a_follower_fetch_of_large_records_returns_a_file_slice(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        await cluster.produce(1, b"x" * 500_000, acks=1)
        (data,) = await fetch(cluster, at(0, max_bytes=2**31 - 1), replica_id=2, max_bytes=2**31 - 1)
        assert isinstance(data.records, FileSlice)
        assert len(data.records) > 500_000

    run_on_disk(scenario)


def test_a_fetch_of_any_number_of_small_batches_is_read_into_memory(run_on_disk: Run) -> None:
    """The encoder joins small parts, which slices cannot be."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster, LARGE_BYTES - 200)
        answers = await fetch(cluster, *(at(0, number) for number in range(PARTITIONS)))
        assert in_memory(answers) == sum(len(data.records) for data in answers) > READ_AT_ONCE_BYTES

    run_on_disk(scenario)


def test_fetched_records_outside_the_page_cache_are_read_in_a_thread(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster, 100)
        log = cast(Log, cluster.log(1, TopicPartition("orders", 0)))
        expected = log.read(0, 1 << 20).records
        file = log.segments.active._files._get(log.segments.active.log_path)
        pread, threads = file.file.pread, []

        class Cold:
            def pread_cached(self, count: int, position: int) -> None:
                return None

            def pread(self, count: int, position: int) -> bytes:
                threads.append(count)
                return pread(count, position)

            def __getattr__(self, name: str) -> object:
                return getattr(real, name)

        real, file.file = file.file, Cold()  # type: ignore[assignment]
        (data,) = await fetch(cluster, at(0))
        assert bytes(data.records) == expected  # type: ignore[arg-type]
        assert threads == [len(expected)]

    run_on_disk(scenario)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("offset", [0, 7, 14])
def test_a_fetch_of_a_closed_segment_outside_the_page_cache_looks_offsets_up_in_threads(
    run_on_disk: Run, isolation: Isolation, offset: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        log = cast(Log, cluster.log(1, P0))
        for number in range(20):
            await cluster.brokers[1].append(1, 0, {P0: real_batch(filler=b"%d" % number * 3_000)})
            if number == 14:
                log.roll()
        expected = bytes(log.read(offset, 10_000).records)  # type: ignore[arg-type]
        disk = evict_from_cache(log)

        data = await one(cluster, at(offset, max_bytes=10_000), isolation=isolation)

        found = bytes(data.records)  # type: ignore[arg-type]
        assert found
        assert expected.startswith(found)
        assert disk.cached
        assert disk.waited_for == []

    run_on_disk(scenario)


def test_a_fetch_outside_the_page_cache_ends_when_its_session_is_removed_meanwhile(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await cluster.brokers[1].append(1, 0, {P0: real_batch()})
        log = cast(Log, cluster.log(1, P0))
        log.roll()
        await cluster.brokers[1].append(1, 0, {P0: real_batch()})
        sessions = cluster.brokers[1].fetch_sessions
        first = await cluster.brokers[1].fetch(FetchParams(), FetchRequested([at(2)], session_epoch=0))
        disk = evict_from_cache(log)
        load = disk.in_thread

        async def close_session(*arguments: Any) -> Any:
            sessions.remove(first.session_id)
            return await load(*arguments)

        disk.in_thread = close_session  # type: ignore[method-assign,assignment]
        again = FetchRequested([at(0)], first.session_id, 1)
        answer = await cluster.brokers[1].fetch(FetchParams(), again)

        assert answer.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        partition = cluster.partition(1)
        assert not [*partition._followers, *partition._consumers]

    run_on_disk(scenario)
