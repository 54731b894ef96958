"""A fetch on the broker that is asked: what it answers, and when."""

import asyncio
import uuid

import pytest
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr

from klamm.log.epochs import EpochEnd
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_data import FetchData, FetchParams, FetchPartition, Isolation
from klamm.replication.fetch_sessions import FetchRequested
from klamm.wire.records import CorruptRecords

MAX = 1 << 20
SIZE = len(batch(filler=b"xxxx"))


def now() -> float:
    return asyncio.get_running_loop().time()


async def alone(cluster: ReplicaCluster, partitions: int = 1) -> None:
    """Broker 1 leads everything by itself."""
    for number in range(partitions):
        request = leader_and_isr(1, (1,), (1,), 0, 1, TopicPartition("orders", number))
        await cluster.brokers[1].become_leader_or_follower(request, 7)


async def put(cluster: ReplicaCluster, filler: bytes = b"xxxx", number: int = 0, count: int = 1) -> None:
    await cluster.brokers[1].append(1, 0, {TopicPartition("orders", number): batch(count, filler=filler)})


def at(offset: int, number: int = 0, max_bytes: int = MAX, topic: str | None = "orders", **more) -> FetchPartition:
    return FetchPartition(topic, more.pop("topic_id", TOPIC_ID), number, offset, max_bytes, **more)


async def fetch(cluster: ReplicaCluster, *partitions: FetchPartition, broker: int = 1, **params) -> list[FetchData]:
    replica_id = BrokerId(params.get("replica_id", -1))
    session = {k: params.pop(k) for k in ("session_id", "session_epoch", "forgotten") if k in params}
    requested = FetchRequested(partitions, replica_id=replica_id, **session)
    answer = await cluster.brokers[broker].fetch(FetchParams(**params), requested)
    return [data for _, data in answer.partitions]


async def one(cluster: ReplicaCluster, partition: FetchPartition, **params) -> FetchData:
    (data,) = await fetch(cluster, partition, **params)
    return data


# ---- one partition


def test_records_up_to_the_high_watermark(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster)
        await put(cluster)
        found = await one(cluster, at(1))
        assert found == FetchData(ErrorCode.NONE, 2, 2, 0, batch(base=1, epoch=0, filler=b"xxxx"))

    run(scenario)


def test_a_consumer_sees_nothing_above_the_high_watermark_and_a_follower_all(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        await put(cluster)
        assert (await one(cluster, at(0))).records == b""
        assert (await one(cluster, at(1))).error is ErrorCode.NONE  # between high watermark and end
        assert len((await one(cluster, at(0), replica_id=2)).records) == SIZE
        assert (await one(cluster, at(0), isolation=Isolation.READ_COMMITTED)).records == b""

    run(scenario)


@pytest.mark.parametrize("offset", [-1, 3, 99])
def test_out_of_range(run, offset: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, count=2)
        found = await one(cluster, at(offset), max_wait_ms=1000)
        assert (found.error, found.high_watermark, now()) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)

    run(scenario)


def test_below_the_log_start_is_out_of_range(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, count=3)
        cluster.log(1).start_offset = 2
        assert (await one(cluster, at(1))).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await one(cluster, at(1, last_fetched_epoch=0))).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await one(cluster, at(2))).error is ErrorCode.NONE

    run(scenario)


ABSENT = {
    "known to the cluster but not here": (at(0, 5), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "unknown": (at(0, 0, topic="no such", topic_id=ZERO_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown id": (at(0, 0, topic=None, topic_id=uuid.UUID(int=1)), ErrorCode.UNKNOWN_TOPIC_ID),
    "id of another topic": (at(0, 0, topic_id=uuid.UUID(int=1)), ErrorCode.INCONSISTENT_TOPIC_ID),
    "name found by id": (at(0, 0, topic=None), ErrorCode.NONE),
    "without id": (at(0, 0, topic_id=ZERO_ID), ErrorCode.NONE),
}


@pytest.mark.parametrize(("partition", "error"), ABSENT.values(), ids=ABSENT)
def test_which_partition(run, partition: FetchPartition, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        assert (await one(cluster, partition)).error is error

    run(scenario)


def test_an_offline_partition(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        cluster.brokers[1].set_offline([P0])
        assert (await one(cluster, at(0))).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_disk_error_takes_the_directory_offline(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        cluster.log(1).is_broken = True
        assert (await one(cluster, at(0))).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.brokers[1].offline_partitions == {P0, TopicPartition("orders", 1)}
        assert (await one(cluster, at(0, 1))).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_corrupt_records_on_disk_fail_their_partition_and_no_other(run) -> None:
    """A follower asks for everything at once: an exception would end the fetching of all its partitions."""

    def refuse(*_args) -> None:
        raise CorruptRecords("the segment has lost its bytes")

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        await put(cluster)
        await put(cluster, number=1)
        cluster.log(1).slice = refuse
        bad, good = await fetch(cluster, at(0), at(0, 1))
        assert bad.error is ErrorCode.CORRUPT_MESSAGE
        assert (good.error, len(good.records)) == (ErrorCode.NONE, SIZE)

    run(scenario)


EPOCHS = {"older": (3, ErrorCode.FENCED_LEADER_EPOCH), "same": (4, ErrorCode.NONE), "none": (-1, ErrorCode.NONE)}
EPOCHS["newer"] = (5, ErrorCode.UNKNOWN_LEADER_EPOCH)


@pytest.mark.parametrize(("epoch", "error"), EPOCHS.values(), ids=EPOCHS)
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_the_leader_epoch_is_fenced(run, epoch: int, error: ErrorCode, replica_id: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, epoch=4, tell=[1])
        assert (await one(cluster, at(0, current_leader_epoch=epoch), replica_id=replica_id)).error is error

    run(scenario)


def test_who_may_read_from_a_follower(run) -> None:
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
def test_a_follower_that_is_not_assigned(run, epoch: int, error: ErrorCode) -> None:
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
def test_a_log_that_left_the_leaders_is_told_where(run, epoch: int, offset: int, expected: EpochEnd | None) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        found = await one(cluster, at(offset, last_fetched_epoch=epoch), replica_id=2, max_wait_ms=1000)
        assert (found.error, found.diverging) == (ErrorCode.NONE, expected)
        if expected is not None:
            assert (found.records, now()) == (b"", 0)
            assert cluster.partition(1).replicas[2].log_end_offset == -1  # KAFKA-13141: not taken as a fetch

    run(scenario)


def test_below_the_log_start_is_out_of_range_even_where_the_logs_diverged(run) -> None:
    """KAFKA-12996"""

    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        cluster.log(1).start_offset = 2
        found = await one(cluster, at(1, last_fetched_epoch=4), replica_id=2)
        assert (found.error, found.diverging) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)

    run(scenario)


def test_an_epoch_the_leader_cannot_know_is_out_of_range(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await diverged(cluster)
        found = await one(cluster, at(6, last_fetched_epoch=8), replica_id=2)
        assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


async def diverged(cluster: ReplicaCluster) -> None:
    for epoch, records in ((2, 3), (5, 3), (7, 2)):
        await cluster.elect(1, epoch=epoch, tell=[1])
        await put(cluster, count=records)


# ---- sizes


def test_the_first_batch_comes_however_large(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        await put(cluster, b"x" * 1000)
        assert len((await one(cluster, at(0, max_bytes=10))).records) > 1000
        assert len((await one(cluster, at(0), max_bytes=10)).records) > 1000
        assert (await one(cluster, at(0, max_bytes=10), first_may_exceed=False)).records == b""

    run(scenario)


def test_only_the_first_partition_with_data_may_exceed(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 3)
        await put(cluster, number=1)
        await put(cluster, number=2)
        sizes = [len(d.records) for d in await fetch(cluster, at(0, 0), at(0, 1), at(0, 2), max_bytes=10)]
        assert sizes == [0, SIZE, 0]
        sizes = [len(d.records) for d in await fetch(cluster, at(0, 0), at(0, 1), at(0, 2), max_bytes=2 * SIZE)]
        assert sizes == [0, SIZE, SIZE]

    run(scenario)


# ---- waiting


def test_a_consumer_at_the_tail_is_woken_by_the_high_watermark(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await asyncio.sleep(1)
        start = now()
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        await cluster.produce(1)
        found = await waiting
        assert len(found.records) > 0
        assert found.high_watermark == 1
        assert now() - start < 1.01

    run(scenario)


def test_a_follower_is_woken_by_an_append(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        found = await waiting
        assert (len(found.records), found.high_watermark, now()) == (SIZE, 0, 1)

    run(scenario)


def test_the_time_runs_out(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 2)
        found = await fetch(cluster, at(0), at(0, 1), max_wait_ms=700)
        assert ([d.error for d in found], now()) == ([0, 0], 0.7)

    run(scenario)


def test_too_few_bytes_go_on_waiting(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, min_bytes=2 * SIZE))
        for _ in range(2):
            await asyncio.sleep(1)
            assert not waiting.done()
            await put(cluster)
        assert len((await waiting).records) == 2 * SIZE
        assert now() == 2
        found = await one(cluster, at(0), max_wait_ms=1_000, min_bytes=9 * SIZE)
        assert (len(found.records), now()) == (2 * SIZE, 3)

    run(scenario)


def test_an_error_beside_good_partitions_is_answered_at_once(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        found = await fetch(cluster, at(0), at(0, 9), max_wait_ms=1_000)
        assert ([d.error for d in found], now()) == ([0, ErrorCode.NOT_LEADER_OR_FOLLOWER], 0)

    run(scenario)


def test_a_fetch_of_nothing_does_not_wait(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        assert await fetch(cluster, max_wait_ms=1_000) == []
        assert now() == 0

    run(scenario)


@pytest.mark.parametrize(
    ("partition", "leader_only", "error"),
    [
        (at(0), True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (at(0, current_leader_epoch=0), False, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_who_waits_on_a_leader_that_steps_down_is_told(run, partition, leader_only: bool, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        waiting = asyncio.create_task(one(cluster, partition, max_wait_ms=5_000, leader_only=leader_only))
        await asyncio.sleep(1)
        await cluster.elect(2)
        assert (await waiting).error is error
        assert now() == 1

    run(scenario)


def test_who_waits_on_a_failed_directory_is_told(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        cluster.brokers[1].set_offline([P0])
        assert (await waiting).error is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_fetch_that_waits_below_a_moved_log_start_fails_at_once(run_on_disk) -> None:
    """Retention and DeleteRecords move it; nothing else happens in the partition."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        for _ in range(2):
            await cluster.produce(1, b"a", acks=1)
        waiting = asyncio.create_task(one(cluster, at(1), max_wait_ms=5_000, min_bytes=10_000))
        await asyncio.sleep(1)
        cluster.partition(1).hosted_log.advance_start_offset(2)
        assert (await waiting).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert now() < 2

    run_on_disk(scenario)


def test_who_goes_away_leaves_no_watcher_behind(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000))
        await asyncio.sleep(1)
        assert len(cluster.partition(1)._consumers) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not cluster.partition(1)._consumers
        await one(cluster, at(0))
        assert not cluster.partition(1)._consumers

    run(scenario)


def test_the_answer_has_the_offsets_from_before_the_fetch(run) -> None:
    """The fetch that lets the high watermark rise is answered with the old one; the next one has the new."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        await put(cluster)
        await one(cluster, at(0), replica_id=2)
        assert cluster.log(1).high_watermark == 0
        found = await one(cluster, at(1), replica_id=2)
        assert (found.high_watermark, cluster.log(1).high_watermark) == (0, 1)
        assert (await one(cluster, at(1), replica_id=2)).high_watermark == 1

    run(scenario)


def test_a_look_after_waiting_is_no_second_fetch(run) -> None:
    """KAFKA-8400: what is read from purgatory does not count as the follower having fetched at that time."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        waiting = asyncio.create_task(one(cluster, at(0), max_wait_ms=5_000, replica_id=2))
        await asyncio.sleep(1)
        await put(cluster)
        await waiting
        replica = cluster.partition(1).replicas[2]
        assert (replica.last_fetch_ms, replica.last_fetch_leader_end) == (0, 0)

    run(scenario)


# ---- sessions


async def ask(cluster: ReplicaCluster, *partitions: FetchPartition, session_id: int = 0, epoch: int = 0, **params):
    requested = FetchRequested(partitions, session_id, epoch, replica_id=BrokerId(params.get("replica_id", -1)))
    return await cluster.brokers[1].fetch(FetchParams(**params), requested)


def numbers(answer) -> list[int]:
    return [w.request.partition for w, _ in answer.partitions]


def test_a_session_looks_only_at_what_moved(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 100)
        first = await ask(cluster, *(at(0, n) for n in range(100)))
        assert len(first.partitions) == 100
        session = cluster.brokers[1].fetch_sessions.get(first.session_id)
        assert not session.waiter.changed
        reads = []
        log = cluster.log(1, TopicPartition("orders", 42))
        read = log.slice
        log.slice = lambda *a: reads.append(a) or read(*a)
        await put(cluster, number=42)
        assert [w.request.partition for w in session.waiter.changed] == [42]
        second = await ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=500)
        assert (numbers(second), len(reads), now()) == ([42], 1, 0)

    run(scenario)


def test_a_waiting_session_is_woken_by_one_partition(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster, 10)
        first = await ask(cluster, *(at(0, n) for n in range(10)))
        waiting = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=500))
        await asyncio.sleep(0.1)
        await put(cluster, number=7)
        assert (numbers(await waiting), now()) == ([7], 0.1)

    run(scenario)


def test_data_that_did_not_fit_comes_next_time(run) -> None:
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


def test_a_follower_hears_of_a_high_watermark_without_being_woken(run) -> None:
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


def test_a_second_fetch_ends_the_wait_of_the_first_on_the_same_session(run) -> None:
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


def test_a_fetch_in_a_session_that_ends_is_answered_at_once(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await alone(cluster)
        first = await ask(cluster, at(0))
        waiting = asyncio.create_task(ask(cluster, session_id=first.session_id, epoch=1, max_wait_ms=5_000))
        await asyncio.sleep(1)
        await ask(cluster, at(0), session_id=first.session_id, epoch=0)
        assert (await waiting).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert now() == 1

    run(scenario)


def test_what_was_found_but_never_told_is_found_again(run) -> None:
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


def test_a_session_finds_a_partition_that_was_made_anew(run) -> None:
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
