"""Batches that are prepared elsewhere are appended in the order they came in, and only where they still belong."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.appending import AppendResult
from klamm.runtime.disk import Buffer
from klamm.runtime.workers import WorkerFailed, Workers
from klamm.wire.records import Codec, NewRecord, build_batch


class HeldWorkers:
    """Workers whose calls end only when a test finishes them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = []
        self.closed = False

    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((call, args, future))
        return await future

    def finish(self, number: int) -> None:
        call, args, future = self.calls[number]
        future.set_result(call(*args))

    def fail(self, number: int) -> None:
        self.calls[number][2].set_exception(WorkerFailed("killed"))

    async def close(self) -> None:
        self.closed = True


async def held_cluster(cluster: ReplicaCluster) -> HeldWorkers:
    """Broker 1 leads alone; its batches in zstd have to become gzip."""
    await cluster.elect(1, (1,), (1,))
    return hold_workers(cluster, P0)


def hold_workers(cluster: ReplicaCluster, partition: TopicPartition) -> HeldWorkers:
    """Have held workers prepare the batches of broker 1; those of this partition in zstd have to become gzip."""
    workers = HeldWorkers()
    cluster.brokers[1]._produce._preparing._workers = cast(Workers, workers)
    log = cluster.partition(1, partition).hosted_log
    log.update_config(log.config.parse({"compression.type": "gzip", "min.insync.replicas": "1"}))
    return workers


def batch(value: bytes, codec: Codec = Codec.ZSTD) -> bytes:
    return build_batch([NewRecord(value, b"k", 1)], codec)


def produce(cluster: ReplicaCluster, content: bytes) -> "asyncio.Task[AppendResult]":
    async def run() -> AppendResult:
        return (await cluster.brokers[1].append(1, 1000, {P0: content}))[P0]

    return asyncio.ensure_future(run())


async def passes(count: int = 20) -> None:
    """Let the event loop run this many passes."""
    for _ in range(count):
        await asyncio.sleep(0)


def scenario(body: Callable[[ReplicaCluster, HeldWorkers], Awaitable[None]]) -> Callable[[ReplicaCluster], Any]:
    async def run(cluster: ReplicaCluster) -> None:
        await body(cluster, await held_cluster(cluster))

    return run


def test_batches_validated_in_parallel_are_appended_in_the_order_of_their_arrival(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        first = produce(cluster, batch(b"a"))
        await passes()
        second = produce(cluster, batch(b"b"))
        await passes()
        third = produce(cluster, batch(b"c", Codec.GZIP))  # needs no preparation
        await passes()
        assert len(workers.calls) == 2

        workers.finish(1)
        await passes()
        assert not any(task.done() for task in (first, second, third))
        workers.finish(0)

        assert [(await task).base_offset for task in (first, second, third)] == [0, 1, 2]
        assert cluster.values(1) == [b"a", b"b", b"c"]

    run_on_disk(scenario(body))


def test_a_batch_that_needs_no_validation_in_a_worker_is_appended_at_once(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        coroutine = cluster.brokers[1].append(1, 1000, {P0: batch(b"a", Codec.GZIP)})
        with pytest.raises(StopIteration):
            coroutine.send(None)

        assert workers.calls == []

    run_on_disk(scenario(body))


async def three_of_which_the_last_is_prepared(
    cluster: ReplicaCluster, workers: HeldWorkers
) -> list["asyncio.Task[AppendResult]"]:
    """Produce three batches, and finish the preparation of the last one only."""
    tasks = []
    for value in (b"a", b"b", b"c"):
        tasks.append(produce(cluster, batch(value)))
        await passes()
    workers.finish(2)
    return tasks


def test_a_batch_that_fails_validation_does_not_change_the_order_of_other_batches(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        tasks = await three_of_which_the_last_is_prepared(cluster, workers)
        workers.fail(1)
        await passes()
        assert (tasks[0].done(), tasks[1].done(), tasks[2].done()) == (False, True, False)

        workers.finish(0)

        assert (await tasks[0]).base_offset == 0
        assert (await tasks[2]).base_offset == 1
        assert cluster.values(1) == [b"a", b"c"]
        assert (await tasks[1]).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert not cluster.brokers[1]._produce._preparing._last

    run_on_disk(scenario(body))


def test_a_produced_batch_is_appended_even_if_its_client_disconnects(run_on_disk: Run) -> None:
    """As in Kafka: a client with acks=0 may close its connection as soon as it has sent."""

    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        tasks = await three_of_which_the_last_is_prepared(cluster, workers)
        tasks[1].cancel()
        await passes()
        assert (tasks[0].done(), tasks[1].done(), tasks[2].done()) == (False, True, False)

        workers.finish(0)
        await passes()
        workers.finish(1)

        assert (await tasks[2]).base_offset == 2
        assert cluster.values(1) == [b"a", b"b", b"c"]
        assert not cluster.brokers[1]._produce._preparing._last

    run_on_disk(scenario(body))


def test_a_batch_in_validation_is_not_appended_after_another_broker_became_leader(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        task = produce(cluster, batch(b"a"))
        await passes()
        await cluster.elect(2, (1, 2), (1, 2))
        workers.finish(0)

        assert (await task).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.values(1) == []

    run_on_disk(scenario(body))


def test_a_batch_that_was_truncated_while_its_request_waited_is_not_acknowledged(run_on_disk: Run) -> None:
    """Broker 1 leads again when the high watermark is looked at, and another record has the offset."""
    prepared = TopicPartition(P0.topic, 1)

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,), partition=prepared)
        workers = hold_workers(cluster, prepared)
        await cluster.elect(1, (1, 2), (1, 2))
        await asyncio.sleep(2)
        cluster.cut.add((1, 2))
        content: dict[TopicPartition, Buffer] = {P0: batch(b"lost"), prepared: batch(b"a")}
        request = asyncio.ensure_future(cluster.brokers[1].append(-1, 60_000, content))
        await passes()
        assert cluster.values(1) == [b"lost"]

        await cluster.elect(2, (1, 2), (1, 2))
        assert await cluster.produce(2, b"other", acks=1) is ErrorCode.NONE
        cluster.cut.clear()
        await asyncio.sleep(5)
        await cluster.elect(1, (1, 2), (1, 2))
        await asyncio.sleep(5)
        assert (cluster.values(1), cluster.log(1).high_watermark) == ([b"other"], 1)
        workers.finish(0)

        assert (await request)[P0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_on_disk(scenario)


def test_a_batch_is_acknowledged_if_its_leader_stays_in_the_next_leader_epoch(run_on_disk: Run) -> None:
    prepared = TopicPartition(P0.topic, 1)

    async def scenario(cluster: ReplicaCluster) -> None:
        for partition in (P0, prepared):
            await cluster.elect(1, (1,), (1,), partition=partition)
        workers = hold_workers(cluster, prepared)
        content: dict[TopicPartition, Buffer] = {P0: batch(b"a"), prepared: batch(b"b")}
        request = asyncio.ensure_future(cluster.brokers[1].append(-1, 60_000, content))
        await passes()
        await cluster.elect(1, (1,), (1,))
        workers.finish(0)

        assert [result.error for result in (await request).values()] == [ErrorCode.NONE, ErrorCode.NONE]

    run_on_disk(scenario)


def test_the_produce_response_lists_invalid_records_by_their_index_in_the_batch(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        log = cluster.partition(1).hosted_log
        log.update_config(log.config.parse({"cleanup.policy": "compact"}))
        task = produce(cluster, build_batch([NewRecord(b"v", b"k"), NewRecord(b"v")], Codec.LZ4))
        await passes()
        workers.finish(0)

        result = await task
        assert (result.error, [e.batch_index for e in result.record_errors]) == (ErrorCode.INVALID_RECORD, [1])

    run_on_disk(scenario(body))


def test_a_batch_with_a_wrong_crc_is_rejected_without_a_worker_process(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        broken = bytearray(batch(b"a"))
        broken[-1] ^= 1

        assert (await produce(cluster, bytes(broken))).error is ErrorCode.CORRUPT_MESSAGE
        assert workers.calls == []

    run_on_disk(scenario(body))


def test_producer_sequence_numbers_are_checked_when_a_batch_is_appended(run_on_disk: Run) -> None:
    async def body(cluster: ReplicaCluster, workers: HeldWorkers) -> None:
        content = build_batch([NewRecord(b"v")], Codec.ZSTD, producer_id=5, producer_epoch=0, base_sequence=0)
        first = produce(cluster, content)
        await passes()
        repeated = produce(cluster, content)
        await passes()
        workers.finish(1)
        workers.finish(0)

        assert [(await first).base_offset, (await repeated).base_offset] == [0, 0]
        assert cluster.log(1).end_offset == 1

    run_on_disk(scenario(body))


def test_many_bytes_of_one_request_are_appended_in_steps_even_if_it_is_cancelled(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = build_batch([NewRecord(b"a", b"k", 1)])
    monkeypatch.setattr("klamm.replication.appending.BYTES_AT_ONCE", len(content))
    partitions = [TopicPartition(P0.topic, number) for number in range(5)]

    async def body(cluster: ReplicaCluster) -> None:
        for partition in partitions:
            await cluster.elect(1, (1,), (1,), partition=partition)
        request = asyncio.ensure_future(cluster.brokers[1].append(1, 1000, dict.fromkeys(partitions, content)))
        ends: list[int] = []
        for _ in range(20):
            await asyncio.sleep(0)
            ends.append(sum(cluster.partition(1, partition).hosted_log.end_offset for partition in partitions))
            if ends[-1] == 2:
                request.cancel()

        assert request.cancelled()
        assert max(after - before for before, after in itertools.pairwise((0, *ends))) == 1
        assert ends[-1] == len(partitions)

    run_on_disk(body)
