"""Produce from a frame to the replicas' logs: transactional batches, and the memory of requests that wait."""

import asyncio
import gc
import struct
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.broker.cluster_state import cache, partition, request, update
from tests.unit.broker.test_records_handlers import Replicas

from klamm.broker.dispatch import Dispatcher, Route
from klamm.broker.handlers.produce import PRODUCE, Produce
from klamm.broker.transaction_verification import RETRIED_AS_NOT_ENOUGH_REPLICAS, TransactionalBatches
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.net.client_connection import ClientConnection, Peer
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import ApiKey
from klamm.wire.messages import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from klamm.wire.records import NewRecord, build_batch

VERSION = 9
RECORDS = [NewRecord(b"v", b"k", 1)]
PLAIN = build_batch(RECORDS)
IDEMPOTENT = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)
TRANSACTIONAL = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
TRANSACTIONAL_WITHOUT_PRODUCER = build_batch(RECORDS, transactional=True)


def two_partitions(first: bytes, second: bytes, transactional_id: str | None) -> ProduceRequest:
    data = [PartitionProduceData(0, first), PartitionProduceData(1, second)]
    return ProduceRequest(transactional_id, -1, 100, [TopicProduceData("orders", data)])


P1 = TopicPartition("orders", 1)


class Verification:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self, *errors: ErrorCode) -> None:
        self._errors = errors
        self.asked: list[tuple[TransactionalBatches, bool]] = []

    async def verify(self, batches: TransactionalBatches, *, knows_abortable: bool) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((batches, knows_abortable))
        return {p: error for p, error in zip(batches.sequences, self._errors, strict=False) if error}


NOT_ASKED: Any = None


async def produce(
    replicas: Replicas, message: ProduceRequest, version: int = VERSION, verification: Any = None
) -> list[PartitionProduceResponse]:
    known = cache(update({"orders": [partition(0, 1), partition(1, 1)]}))
    handler = Produce(known, replicas, verification or Verification())  # type: ignore[arg-type]
    response = await handler.handle(request(ApiKey.PRODUCE, version), message)
    assert response is not None
    response.encode(version)
    return list(response.responses[0].partition_responses)


@pytest.mark.parametrize("batch", [TRANSACTIONAL, TRANSACTIONAL_WITHOUT_PRODUCER])
@pytest.mark.parametrize("version", [3, 8, 11])
async def test_a_produce_request_with_a_transactional_batch_but_no_transactional_id_is_refused(
    batch: bytes, version: int
) -> None:
    replicas = Replicas()

    answers = await produce(replicas, two_partitions(PLAIN, batch, None), version)

    assert [a.error_code for a in answers] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert replicas.appended == {}


@pytest.mark.parametrize("version", [3, 10, 11])
async def test_a_transactional_batch_is_appended_after_its_coordinator_confirms_the_partition(version: int) -> None:
    replicas, verification = Replicas(), Verification(ErrorCode.NONE)

    answers = await produce(replicas, two_partitions(PLAIN, TRANSACTIONAL, "t"), version, verification)

    assert [a.error_code for a in answers] == [ErrorCode.NONE] * 2
    assert list(replicas.appended) == [P0, P1]
    batches = TransactionalBatches("t", ProducerIdAndEpoch(7, 0), {P1: 0})
    assert verification.asked == [(batches, version >= 11)]


@pytest.mark.parametrize(
    ("unverified", "answered"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        *((code, ErrorCode.NOT_ENOUGH_REPLICAS) for code in RETRIED_AS_NOT_ENOUGH_REPLICAS),
    ],
)
async def test_a_transactional_batch_whose_partition_the_coordinator_does_not_confirm_is_refused(
    unverified: ErrorCode, answered: ErrorCode
) -> None:
    replicas = Replicas()

    answers = await produce(replicas, two_partitions(PLAIN, TRANSACTIONAL, "t"), verification=Verification(unverified))

    assert [a.error_code for a in answers] == [ErrorCode.NONE, answered]
    assert unverified.name in (answers[1].error_message or "")
    assert list(replicas.appended) == [P0]


async def test_a_transactional_batch_for_a_partition_that_is_not_led_here_gets_the_error_for_that() -> None:
    replicas = Replicas()
    verification = Verification(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    answers = await produce(replicas, two_partitions(PLAIN, TRANSACTIONAL, "t"), verification=verification)

    assert [a.error_code for a in answers] == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert "Refresh the metadata" in (answers[1].error_message or "")
    assert list(replicas.appended) == [P0]


async def test_a_produce_request_with_transactional_batches_of_two_producers_is_refused() -> None:
    other = build_batch(RECORDS, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)

    answers = await produce(Replicas(), two_partitions(TRANSACTIONAL, other, "t"))

    assert [a.error_code for a in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


async def test_a_produce_request_with_idempotent_batches_needs_no_transactional_id() -> None:
    answers = await produce(Replicas(), two_partitions(IDEMPOTENT, PLAIN, None))

    assert [a.error_code for a in answers] == [ErrorCode.NONE] * 2


class Frame(bytes):
    """A request that tells when its memory is freed: bytes cannot be referred to weakly."""

    freed = 0

    def __del__(self) -> None:
        Frame.freed += 1


def frame_of(message: ProduceRequest) -> Frame:
    header = struct.pack(">hhih", ApiKey.PRODUCE, VERSION, 1, -1) + b"\0"
    return Frame(header + bytes(message.encode(VERSION)))


def test_a_produce_request_waiting_for_replicas_does_not_keep_its_bytes_in_memory() -> None:
    async def scenario() -> None:
        cluster = ReplicaCluster()
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        handler = Produce(cache(update({"orders": [partition(0, 1)]})), cluster.brokers[1], NOT_ASKED)
        dispatch = Dispatcher([Route(PRODUCE, handler.handle, is_hot=True)])
        message = ProduceRequest(None, -1, 5_000, [TopicProduceData("orders", [PartitionProduceData(0, PLAIN)])])
        freed = Frame.freed

        answer = dispatch(frame_of(message), ClientConnection(Peer("PLAINTEXT", "10.0.0.1", 5000)))
        assert isinstance(answer, Awaitable)
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(1)

        assert cluster.log(1).end_offset == 1
        assert not waiting.done()
        gc.collect()
        assert Frame.freed == freed + 1
        await cluster.elect(1, (1, 2), (1, 2), epoch=0)
        assert await waiting
        await cluster.close()

    SimulatedLoop().run(scenario())


async def append_at(cluster: ReplicaCluster, batch: bytes, timeout_ms: int = 0) -> PartitionProduceResponse:
    """Produce to the leader of orders-0 with acks=all."""
    handler = Produce(cache(update({"orders": [partition(0, 1)]})), cluster.brokers[1], NOT_ASKED)
    message = ProduceRequest(None, -1, timeout_ms, [TopicProduceData("orders", [PartitionProduceData(0, batch)])])
    response = await handler.handle(request(ApiKey.PRODUCE, VERSION), message)
    assert response is not None
    return response.responses[0].partition_responses[0]


def test_a_produce_response_has_the_log_start_offset_when_the_log_refuses_a_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = await ReplicaCluster.on_disk(str(tmp_path))
        await cluster.elect(1, (1,), (1,))
        assert not (await append_at(cluster, IDEMPOTENT)).error_code

        gap = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=5)
        refused = await append_at(cluster, gap)
        damaged = await append_at(cluster, IDEMPOTENT[:-1] + b"\xff")

        offsets = refused.base_offset, refused.log_start_offset
        assert (refused.error_code, *offsets) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 0)
        assert (damaged.error_code, damaged.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
        await cluster.close()

    SimulatedLoop().run(scenario())


def test_a_produce_response_that_timed_out_waiting_for_replicas_has_the_base_offset() -> None:
    async def scenario() -> None:
        cluster = ReplicaCluster()
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])

        late = await append_at(cluster, PLAIN, 10)

        assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert late.log_start_offset == 0
        await cluster.close()

    SimulatedLoop().run(scenario())


def test_the_next_produce_may_begin_once_the_records_are_appended() -> None:
    async def scenario() -> None:
        cluster = ReplicaCluster()
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        handler = Produce(cache(update({"orders": [partition(0, 1)]})), cluster.brokers[1], NOT_ASKED)
        message = ProduceRequest(None, -1, 1_000, [TopicProduceData("orders", [PartitionProduceData(0, PLAIN)])])
        asked = request(ApiKey.PRODUCE, VERSION)
        ends: list[int] = []
        asked.connection.let_next_begin = lambda: ends.append(cluster.log(1).end_offset)

        waiting = asyncio.ensure_future(handler.handle(asked, message))
        await asyncio.sleep(0)

        assert ends == [1]
        assert not waiting.done(), "it waits for the follower"
        await waiting
        await cluster.close()

    SimulatedLoop().run(scenario())
