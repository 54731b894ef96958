"""What a fetch in a session reads, sends and waits for."""

import asyncio
import uuid
from typing import Any, cast

import pytest
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr
from tests.unit.replication.fetching import SIZE, alone, at, now, one, put
from tests.unit.replication.runs import Run

from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchParams, FetchPartition, Isolation
from klamm.replication.fetch_sessions import FetchAnswer, FetchRequested
from klamm.wire.records import NewRecord, build_batch


async def ask(
    cluster: ReplicaCluster, *partitions: FetchPartition, session_id: int = 0, epoch: int = 0, **params: Any
) -> FetchAnswer:
    requested = FetchRequested(partitions, session_id, epoch, replica_id=BrokerId(params.get("replica_id", -1)))
    return await cluster.brokers[1].fetch(FetchParams(**params), requested)


def numbers(answer: FetchAnswer) -> list[int]:
    return [w.request.partition for w, _ in answer.partitions]


def test_an_incremental_fetch_reads_only_partitions_with_new_records(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 100)
        first = await ask(cluster, *(at(0, n) for n in range(100)))
        assert len(first.partitions) == 100
        session = cluster.brokers[1].fetch_sessions.get(first.session_id)
        assert session is not None
        assert not session.waiter.changed
        reads = []
        log = cluster.log(1, TopicPartition("orders", 42))
        read = log.slice

        def counted_read(*arguments: Any) -> Any:
            reads.append(arguments)
            return read(*arguments)

        monkeypatch.setattr(log, "slice", counted_read)
        await put(cluster, number=42)
        assert [w.request.partition for w in session.waiter.changed] == [42]
        second = await ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=500)
        assert (numbers(second), len(reads), now()) == ([42], 1, 0)

    run(scenario)


def test_a_waiting_incremental_fetch_completes_when_a_partition_gets_records(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 10)
        first = await ask(cluster, *(at(0, n) for n in range(10)))
        waiting = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=500))
        await asyncio.sleep(0.1)
        await put(cluster, number=7)
        assert (numbers(await waiting), now()) == ([7], 0.1)

    run(scenario)


def test_the_next_incremental_fetch_returns_records_that_exceeded_max_bytes(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 3)
        first = await ask(cluster, *(at(0, n) for n in range(3)))
        for n in range(3):
            await put(cluster, number=n)
        seen = []
        wanted: list[FetchPartition] = []
        for epoch in (1, 2, 3):
            answer = await ask(cluster, *wanted, session_id=first.session_id, epoch=epoch, max_bytes=SIZE)
            got = [w.request.partition for w, d in answer.partitions if d.records]
            seen += got
            wanted = [at(1, n) for n in got]
        assert seen == [0, 1, 2]

    run(scenario)


def test_a_high_watermark_change_reaches_a_follower_without_ending_its_waiting_fetch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2, 3), tell=[1])
        await put(cluster)
        first = await ask(cluster, at(0), replica_id=2)
        waiting = asyncio.create_task(
            ask(cluster, at(1), session_id=first.session_id, epoch=1, max_wait_ms=500, replica_id=2)
        )
        await asyncio.sleep(0.1)
        await one(cluster, at(1), replica_id=3)
        assert cluster.log(1).high_watermark == 1
        answer = await waiting
        assert ([d.high_watermark for _, d in answer.partitions], now()) == ([1], 0.5)

    run(scenario)


def test_a_second_fetch_of_a_session_ends_the_wait_of_the_first(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        first = await ask(cluster, at(0))
        waiting = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=5_000))
        await asyncio.sleep(1)
        second = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=2, max_wait_ms=5_000))
        assert (await waiting).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await put(cluster)
        assert numbers(await second) == [0]
        assert now() == 1

    run(scenario)


def test_a_waiting_fetch_fails_at_once_when_its_session_is_replaced(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        first = await ask(cluster, at(0))
        waiting = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=5_000))
        await asyncio.sleep(1)
        await ask(cluster, at(0), session_id=first.session_id, epoch=0)
        assert (await waiting).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert now() == 1

    run(scenario)


def test_a_change_read_by_a_cancelled_fetch_is_returned_by_the_next_fetch(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        first = await ask(cluster, at(1), at(0, 1))
        await put(cluster)
        cluster.log(1).start_offset = 1
        waiting = asyncio.create_task(
            ask(cluster, at(2), session_id=first.session_id, epoch=1, max_wait_ms=5_000, min_bytes=1)
        )
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        answer = await ask(cluster, session_id=first.session_id, epoch=2)
        assert [(w.request.partition, d.high_watermark) for w, d in answer.partitions] == [(0, 2)]

    run(scenario)


def test_a_change_read_by_a_superseded_fetch_is_returned_by_the_fetch_after_it(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        first = await ask(cluster, at(1), at(0, 1))
        await put(cluster)
        earlier = asyncio.create_task(ask(cluster, at(2), session_id=first.session_id, epoch=1, max_wait_ms=5_000))
        await asyncio.sleep(1)
        later = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=2, max_wait_ms=500))
        assert (await earlier).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert [(w.request.partition, d.high_watermark) for w, d in (await later).partitions] == [(0, 2)]

    run(scenario)


def test_a_superseded_fetch_does_not_return_to_the_session_what_the_later_one_forgot(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        for number in (0, 1):
            await put(cluster, number=number)
        first = await ask(cluster, at(1), at(1, 1))
        for number in (0, 1):
            await put(cluster, number=number)
        both = at(2), at(2, 1)
        earlier = asyncio.create_task(ask(cluster, *both, session_id=first.session_id, epoch=1, max_wait_ms=5_000))
        await asyncio.sleep(1)
        forgets = FetchRequested((), first.session_id, 2, forgotten=[("orders", TOPIC_ID, 0)])
        later = asyncio.create_task(cluster.brokers[1].fetch(FetchParams(max_wait_ms=500), forgets))
        assert (await earlier).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert numbers(await later) == [1]
        assert not cluster.partition(1)._consumers

    run(scenario)


def test_a_fetch_session_reads_a_partition_that_was_removed_and_created_again(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        first = await ask(cluster, at(0))
        cluster.brokers[1]._hosted.remove(P0)
        gone = await ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=500)
        assert [d.error for _, d in gone.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await alone(cluster)
        back = await ask(cluster, session_id=first.session_id, epoch=2)
        assert [d.error for _, d in back.partitions] == [ErrorCode.NONE]

    run(scenario)


def test_a_fetch_session_gets_no_records_of_the_next_topic_of_that_name(run: Run) -> None:
    """The session looks the partition up while LeaderAndIsr still opens its log, so that no topic id is known."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster)
        first = await ask(cluster, at(0))
        hosted = cluster.brokers[1]._hosted
        hosted.remove(P0)
        del cluster.logs[1].logs[P0]
        hosted.create(P0)
        early = await ask(cluster, session_id=first.session_id, epoch=1)
        assert [data.error for _, data in early.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        request = leader_and_isr(1, (1,), (1,), 0, 1, topic_id=uuid.UUID(int=78))
        await cluster.brokers[1].become_leader_or_follower(request, 7)
        await put(cluster)
        late = await ask(cluster, session_id=first.session_id, epoch=2)
        assert [data.error for _, data in late.partitions] == [ErrorCode.INCONSISTENT_TOPIC_ID]

    run(scenario)


def test_records_are_read_with_read_committed_once_producers_are_restored_after_a_truncation(run_on_disk: Run) -> None:
    """Nothing else changes: the log of an idle topic is truncated, and its replica leads before the restore ends."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        for sequence in range(100):
            content = build_batch([NewRecord(b"x" * 1000, None, 10)], producer_id=1, base_sequence=sequence)
            await cluster.brokers[1].append(1, 0, {P0: content})
        own_log = cast(Log, cluster.log(1))
        own_log.truncate_to(90)  # as a follower would
        assert own_log.is_restoring_producers
        first = await ask(cluster, at(0), isolation=Isolation.READ_COMMITTED)
        assert [len(data.records) for _, data in first.partitions] == [0]
        await asyncio.sleep(1)
        assert not own_log.is_restoring_producers

        second = await ask(cluster, session_id=first.session_id, epoch=1, isolation=Isolation.READ_COMMITTED)

        assert [len(data.records) > 0 for _, data in second.partitions] == [True]

    run_on_disk(scenario)
