"""A transaction marker that meets a cut link and is sent again: the first one must not arrive later.

It has the epoch of the producer's next transaction, too, and would end that one. Here the coordinator and its marker
channel are the real ones, the network between them and the leader is simulated, and the leader's answers are scripted.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinator.groups_room import MemoryOffsetsLog
from tests.unit.coordinator.transactions_room import P0, Room

from klamm.broker.transaction_channels import TransactionMarkers
from klamm.client import connection
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.coordinator.settings import TransactionSettings
from klamm.coordinator.transactions.states import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import SimulatedNetwork
from klamm.wire.api import ApiKey
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import (
    ApiVersion,
    ApiVersionsResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

COORDINATOR, LEADER, PORT = "coordinator", "leader", 9092
TIMEOUT_S = 30.0
OFFERED = [ApiVersion(ApiKey.WRITE_TXN_MARKERS, 0, 1), ApiVersion(ApiKey.API_VERSIONS, 0, 3)]


class LeaderConnection(asyncio.Protocol):
    """Answers ApiVersions and WriteTxnMarkers, and notes what the markers decide, in the order of their arrival."""

    def __init__(self, decisions: list[bool]) -> None:
        self._decisions = decisions
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := int.from_bytes(self._received[:4])):
            frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            header, body = decode_request_header(frame)
            answer: Any = ApiVersionsResponse(api_keys=OFFERED)
            if header.api_key == ApiKey.WRITE_TXN_MARKERS:
                answer = self._mark(WriteTxnMarkersRequest.decode(frame, header.api_version, body))
            parts = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
            self._transport.writelines(parts)

    def _mark(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self._decisions += [marker.transaction_result for marker in request.markers]
        topics = [WritableTxnMarkerTopicResult(P0.topic, [WritableTxnMarkerPartitionResult(P0.partition, 0)])]
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(m.producer_id, topics) for m in request.markers])


class Cache:
    """Knows the leader of every partition."""

    def state(self, partition: object) -> SimpleNamespace:
        return SimpleNamespace(leader=2)

    def endpoint(self, broker: BrokerId) -> tuple[str, int]:
        return LEADER, PORT


def play(cut: tuple[str, str]) -> list[bool]:
    """Cut one direction of the link before the second transaction commits; the decisions that arrive at the leader."""
    loop = SimulatedLoop()
    network = SimulatedNetwork(loop)
    decisions: list[bool] = []

    async def main() -> None:
        listener = await network.of(loop.add_host(LEADER)).listen(lambda: LeaderConnection(decisions), "", PORT)
        await listener.start()
        host = network.of(loop.add_host(COORDINATOR))
        client = AsyncClient(SimpleNamespace(network=host), (), AsyncSettings("markers", TIMEOUT_S))  # type: ignore[arg-type]
        room = Room(loop, MemoryOffsetsLog(), TransactionSettings())
        room.coordinator._context.markers = TransactionMarkers(Cache(), client, None)  # type: ignore[arg-type]
        await room.elect()
        producer = await room.ongoing()
        await room.end(producer)
        await asyncio.sleep(1)
        assert room.transaction.state is COMPLETE_COMMIT

        await room.add(producer, P0)
        network.cut(*cut)
        assert await room.end(producer) == ErrorCode.NONE
        await asyncio.sleep(1.5 * TIMEOUT_S)
        assert room.transaction.state is PREPARE_COMMIT
        network.end_all_cuts()
        await asyncio.sleep(TIMEOUT_S)
        assert room.transaction.state is COMPLETE_COMMIT

        await room.add(producer, P0)
        await asyncio.sleep(2 * TIMEOUT_S)
        assert room.transaction.state is ONGOING
        client.close()
        await room.coordinator.close()

    loop.run(main())
    return decisions


def test_a_marker_that_met_a_cut_link_arrives_once_after_it_was_sent_again() -> None:
    assert play((COORDINATOR, LEADER)) == [True, True]


def test_a_marker_whose_answer_met_a_cut_link_arrives_twice_before_its_transaction_is_complete() -> None:
    assert play((LEADER, COORDINATOR)) == [True, True, True]


def test_a_marker_on_a_connection_that_was_only_closed_arrives_when_the_link_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "discard", lambda transport: transport.abort())

    assert play((COORDINATOR, LEADER)) == [True, True, True]
