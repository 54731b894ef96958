"""A transaction that is open in a log: described by its leader, ended by markers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.broker.cluster_state import request

from klamm.broker.handlers.transactions import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS, Transactions
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.appending import AppendResult
from klamm.replication.replica_manager import ReplicaManager
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import SimulatedClock
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.wire.records import NewRecord, build_batch

PRODUCER = 7
EPOCH = 2

Body = Callable[[ReplicaCluster, Transactions], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three brokers; broker 1 leads and has a transaction open that begins at offset 1."""

    def play(body: Body) -> None:
        async def main() -> None:
            cluster = await ReplicaCluster.on_disk(str(tmp_path))
            try:
                await cluster.elect(1)
                await cluster.produce(1, b"before")
                cluster.partition(1).append_as_leader(
                    build_batch(
                        [NewRecord(b"undecided")],
                        producer_id=PRODUCER,
                        producer_epoch=EPOCH,
                        base_sequence=0,
                        transactional=True,
                    ),
                    1,
                )
                await body(cluster, Transactions(cluster.brokers[1], cluster.world.clock, 5_000))
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play


def marker(*partitions: int, epoch: int = EPOCH, commit: bool = False, producer: int = PRODUCER) -> WritableTxnMarker:
    return WritableTxnMarker(producer, epoch, commit, [WritableTxnMarkerTopic(P0.topic, partitions)], 3)


async def write(transactions: Transactions, *markers: WritableTxnMarker, version: int = 1) -> dict[int, dict[int, int]]:
    """Producer -> partition -> error."""
    message = WriteTxnMarkersRequest(list(markers))
    response = await transactions.write_markers(request(ApiKey.WRITE_TXN_MARKERS, version), message)
    response.encode(version)
    return {
        result.producer_id: {p.partition_index: p.error_code for t in result.topics for p in t.partitions}
        for result in response.markers
    }


async def describe(transactions: Transactions, partition: int = 0, topic: str = P0.topic) -> PartitionResponse:
    message = DescribeProducersRequest([TopicRequest(topic, (partition,))])
    response = await transactions.describe_producers(request(ApiKey.DESCRIBE_PRODUCERS, 0), message)
    response.encode(DESCRIBE_PRODUCERS.max_version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("version", range(WRITE_TXN_MARKERS.min_version, WRITE_TXN_MARKERS.max_version + 1))
def test_write_txn_markers_is_answered_after_the_replicas_have_the_marker(run: Run, commit: bool, version: int) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        assert cluster.partition(1).hosted_log.last_stable_offset == 1

        errors = await write(transactions, marker(0, commit=commit), version=version)

        log = cluster.partition(1).hosted_log
        assert errors == {PRODUCER: {0: ErrorCode.NONE}}
        assert (log.high_watermark, log.last_stable_offset) == (3, 3)
        assert [a.first_offset for a in log.aborted_transactions(0, 3)] == ([] if commit else [1])

    run(body)


def test_write_txn_markers_returns_errors_for_a_fenced_epoch_and_an_unknown_partition(run: Run) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        errors = await write(transactions, marker(0, 9, epoch=EPOCH - 1), marker(9, producer=8))

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == {PRODUCER: {0: ErrorCode.INVALID_PRODUCER_EPOCH, 9: unknown}, 8: {9: unknown}}
        assert cluster.partition(1).hosted_log.end_offset == 2

    run(body)


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (PRODUCER, -1)])
def test_a_transaction_marker_without_a_producer_id_is_refused_and_not_written(
    run: Run, producer: int, epoch: int
) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        errors = await write(transactions, marker(0, 9, producer=producer, epoch=epoch))

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == {producer: {0: ErrorCode.UNKNOWN_SERVER_ERROR, 9: unknown}}
        assert cluster.partition(1).hosted_log.end_offset == 2

    run(body)


def test_write_txn_markers_on_a_follower_is_refused(run: Run) -> None:
    async def body(cluster: ReplicaCluster, _: Transactions) -> None:
        on_follower = Transactions(cluster.brokers[2], cluster.world.clock, 5_000)

        assert await write(on_follower, marker(0)) == {PRODUCER: {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}}

    run(body)


def test_describe_producers_is_answered_by_a_follower(run: Run) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        await write(transactions, marker(0))  # is answered once the followers have it
        on_follower = Transactions(cluster.brokers[2], cluster.world.clock, 5_000)

        described = await describe(on_follower)

        assert described.error_code == ErrorCode.NONE
        assert [p.producer_id for p in described.active_producers] == [PRODUCER]

    run(body)


def test_describe_producers_refuses_partitions_without_a_replica_here_and_illegal_topic_names(run: Run) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        elsewhere = await describe(transactions, 9)
        illegal = await describe(transactions, topic="a/b")

        assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "'a/b'" in (illegal.error_message or "")

    run(body)


def test_describe_producers_of_many_producers_works_in_time_slices(run: Run) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        for producer in range(100, 1_100):
            batch = build_batch([NewRecord(b"v")], producer_id=producer, producer_epoch=0, base_sequence=0)
            cluster.partition(1).append_as_leader(batch, 1)

        describing = asyncio.create_task(describe(transactions))
        await asyncio.sleep(0)

        assert not describing.done()
        assert len((await describing).active_producers) == 1_001

    run(body)


def test_describe_producers_returns_a_producer_with_an_open_transaction(run: Run) -> None:
    async def body(cluster: ReplicaCluster, transactions: Transactions) -> None:
        (producer,) = (await describe(transactions)).active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER, EPOCH, 0)
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (1, -1)

        await write(transactions, marker(0))

        (producer,) = (await describe(transactions)).active_producers
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, 3)

    run(body)


def test_a_marker_of_offsets_is_reported_while_another_marker_of_its_request_is_not_replicated() -> None:
    """Else the next transaction of its producer may have begun, and its offsets would count before it ends."""
    slow, offsets = TopicPartition("orders", 0), TopicPartition(OFFSETS_TOPIC, 3)

    class Replicas:
        """Leads every partition; the followers of `slow` do not answer."""

        replicated = asyncio.Event()

        def partition(self, _: TopicPartition) -> bool:
            return True

        async def append(
            self, _acks: int, _timeout_ms: int, batches: Mapping[TopicPartition, object], _origin: Origin
        ) -> dict[TopicPartition, AppendResult]:
            if slow in batches:
                await self.replicated.wait()
            else:
                await asyncio.sleep(0.01)
            return dict.fromkeys(batches, AppendResult())

    async def main() -> None:
        reported: list[tuple[int, Sequence[int], bool]] = []
        replicas = Replicas()
        transactions = Transactions(
            cast(ReplicaManager, replicas), SimulatedClock(loop), 5_000, lambda *ended: reported.append(ended)
        )
        markers = [
            WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic(slow.topic, (slow.partition,))], 3),
            WritableTxnMarker(2, 0, True, [WritableTxnMarkerTopic(offsets.topic, (offsets.partition,))], 3),
        ]
        writing = asyncio.ensure_future(write(transactions, *markers))
        await asyncio.sleep(1)

        assert (reported, writing.done()) == ([(2, [offsets.partition], True)], False)

        replicas.replicated.set()
        assert await writing == {1: {slow.partition: ErrorCode.NONE}, 2: {offsets.partition: ErrorCode.NONE}}
        assert len(reported) == 1

    loop = SimulatedLoop()
    loop.run(main())
