"""Produce from a frame to the replicas' logs: transactional batches, and the memory of requests that wait."""

import asyncio
import gc
import struct
from collections.abc import Awaitable

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.broker.cluster_state import cache, partition, request, update
from tests.unit.broker.test_records_handlers import Replicas

from klamm.broker.dispatch import Dispatcher, Route
from klamm.broker.handlers.produce import PRODUCE, Produce
from klamm.model.errors import ErrorCode
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


async def produce(
    replicas: Replicas, message: ProduceRequest, version: int = VERSION
) -> list[PartitionProduceResponse]:
    known = cache(update({"orders": [partition(0, 1), partition(1, 1)]}))
    response = await Produce(known, replicas).handle(request(ApiKey.PRODUCE, version), message)  # type: ignore[arg-type]
    assert response is not None
    response.encode(version)
    return list(response.responses[0].partition_responses)


@pytest.mark.parametrize("batch", [TRANSACTIONAL, TRANSACTIONAL_WITHOUT_PRODUCER])
@pytest.mark.parametrize("version", [3, 8, 11])
async def test_transactional_batch_without_transactional_id_refuses_the_whole_request(
    batch: bytes, version: int
) -> None:
    replicas = Replicas()

    answers = await produce(replicas, two_partitions(PLAIN, batch, None), version)

    assert [a.error_code for a in answers] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert replicas.appended == {}


@pytest.mark.parametrize("batch", [TRANSACTIONAL, TRANSACTIONAL_WITHOUT_PRODUCER])
@pytest.mark.parametrize("version", [3, 8, 11])
async def test_transactional_batch_of_an_unverified_transactional_id_is_refused(batch: bytes, version: int) -> None:
    replicas = Replicas()

    answers = await produce(replicas, two_partitions(PLAIN, batch, "made up"), version)

    assert [a.error_code for a in answers] == [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert list(replicas.appended) == [P0]
    if version >= 8:
        assert "cannot verify transactions" in (answers[1].error_message or "")


async def test_idempotent_batches_need_no_transactional_id() -> None:
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


def test_request_that_waits_for_replicas_does_not_keep_its_frame() -> None:
    async def scenario() -> None:
        cluster = ReplicaCluster()
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        handler = Produce(cache(update({"orders": [partition(0, 1)]})), cluster.brokers[1])
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
