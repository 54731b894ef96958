"""Requests and answers of one connection, against a peer that the test plays byte by byte."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.net.transports import RecordingTransport, connect, feed

from klamm.client.connection import Connection
from klamm.client.errors import AnswerTimedOut, ConnectionLost, ConnectionRefused
from klamm.client.versions import Request
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

LONG_S = 1000.0


@pytest.fixture
async def connection() -> Connection:
    return Connection("b1:9092", "7")


@pytest.fixture
async def peer(connection: Connection) -> RecordingTransport:
    return connect(connection)


def versions(connection: Connection, timeout_s: float = LONG_S) -> "asyncio.Future[ApiVersionsResponse]":
    return connection.send(ApiKey.API_VERSIONS, 2, ApiVersionsRequest(), timeout_s)


def answer(correlation_id: int, key: int = 0) -> bytes:
    body = ApiVersionsResponse(api_keys=[ApiVersion(api_key=key, min_version=0, max_version=1)])
    return b"".join(encode_response(ApiKey.API_VERSIONS, 2, correlation_id, body))


async def test_requests_of_a_connection_carry_the_client_id_and_increasing_correlation_ids(
    connection: Connection, peer: RecordingTransport
) -> None:
    versions(connection)
    first = bytes(peer.written[4:])
    peer.written.clear()
    versions(connection)

    assert decode_request_header(first)[0] == (ApiKey.API_VERSIONS, 2, 0, "7")
    assert decode_request_header(bytes(peer.written[4:]))[0].correlation_id == 1


async def test_responses_to_pipelined_requests_are_matched_in_order(
    connection: Connection, peer: RecordingTransport
) -> None:
    asked = [versions(connection) for _ in range(3)]

    feed(peer, b"".join(answer(n, key=n) for n in range(3)), at_most=5)

    assert [(await a).api_keys[0].api_key for a in asked] == [0, 1, 2]
    assert connection.in_flight == 0


async def test_a_response_with_a_flexible_header_is_decoded(connection: Connection, peer: RecordingTransport) -> None:
    asked = connection.send(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(), LONG_S)

    feed(peer, b"".join(encode_response(ApiKey.DESCRIBE_CLUSTER, 1, 0, DescribeClusterResponse(cluster_id="c"))))

    assert (await asked).cluster_id == "c"


async def test_a_lost_connection_fails_all_requests_in_flight(connection: Connection, peer: RecordingTransport) -> None:
    asked = [versions(connection) for _ in range(2)]

    connection.connection_lost(ConnectionResetError("reset by peer"))

    for one in asked:
        with pytest.raises(ConnectionLost, match=r"b1:9092: .*reset by peer"):
            await one
    assert connection.closed
    with pytest.raises(ConnectionLost):
        versions(connection)


async def test_a_response_with_an_unexpected_correlation_id_closes_the_connection(
    connection: Connection, peer: RecordingTransport
) -> None:
    asked = versions(connection)

    feed(peer, answer(5))

    with pytest.raises(ConnectionLost, match="correlation id 5 came, but 0 was expected"):
        await asked
    assert peer.aborted


async def test_a_response_without_a_request_in_flight_closes_the_connection(
    connection: Connection, peer: RecordingTransport
) -> None:
    feed(peer, answer(0))

    assert peer.aborted


async def test_a_malformed_response_closes_the_connection(connection: Connection, peer: RecordingTransport) -> None:
    asked = versions(connection)

    feed(peer, b"\0\0\0\x08" + bytes(4) + b"\0\0\xff\xff")

    with pytest.raises(ConnectionLost):
        await asked
    assert peer.aborted


async def test_a_response_with_an_impossible_length_closes_the_connection(
    connection: Connection, peer: RecordingTransport
) -> None:
    asked = versions(connection)

    feed(peer, b"\xff\xff\xff\x00")

    with pytest.raises(ConnectionLost, match=r"^b1:9092 does not speak Kafka's protocol: .* of -256 bytes"):
        await asked
    assert peer.aborted


async def test_a_bug_in_a_decoder_ends_the_request(
    connection: Connection, peer: RecordingTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("bug")

    monkeypatch.setattr("klamm.client.protocol.decode_response", fail)
    asked = versions(connection)

    with pytest.raises(AssertionError):
        feed(peer, answer(0))  # the transport closes the connection

    with pytest.raises(AssertionError):
        await asked


async def test_a_request_timeout_closes_the_connection(connection: Connection, peer: RecordingTransport) -> None:
    late, next_ = versions(connection, timeout_s=0.0), versions(connection)

    with pytest.raises(AnswerTimedOut, match="API_VERSIONS v2 within 0 s"):
        await late
    with pytest.raises(ConnectionLost):
        await next_
    assert peer.aborted


async def test_the_response_of_a_cancelled_request_is_skipped(connection: Connection, peer: RecordingTransport) -> None:
    gone, waiting = versions(connection), versions(connection)
    gone.cancel()

    feed(peer, answer(0) + answer(1, key=9))

    assert (await waiting).api_keys[0].api_key == 9


async def test_closing_a_connection_fails_its_requests_in_flight(
    connection: Connection, peer: RecordingTransport
) -> None:
    asked = versions(connection)

    connection.close()

    with pytest.raises(ConnectionLost, match="this side closed the connection"):
        await asked


@pytest.mark.parametrize("is_in_flight", [True, False])
async def test_a_request_in_flight_is_not_delivered_after_its_connection_is_closed(
    connection: Connection, peer: RecordingTransport, is_in_flight: bool
) -> None:
    asked = versions(connection)
    if not is_in_flight:
        feed(peer, answer(0))
        await asked

    connection.close()

    assert (peer.discarded, peer.aborted) == (is_in_flight, True)


class NetworkOnDemand:
    """Connects when the test says so."""

    def __init__(self) -> None:
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self, make: Callable[[], asyncio.Protocol], _host: str, _port: int) -> asyncio.Protocol:
        await self.connected
        return make()


@pytest.mark.parametrize("steps_between", range(5))
async def test_cancelling_a_task_that_opens_a_connection_cancels_the_task(steps_between: int) -> None:
    world = SimpleNamespace(network=NetworkOnDemand())
    opening = asyncio.create_task(Connection.open(cast(World, world), "b1", 9092, "7", LONG_S))
    await asyncio.sleep(0)

    world.network.connected.set_result(None)
    for _ in range(steps_between):
        await asyncio.sleep(0)
    was_cancelled = opening.cancel()
    await asyncio.wait([opening])

    assert opening.cancelled() == was_cancelled


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9), [Errno 111] ..."), True),
        (OSError("Multiple exceptions: [Errno 101] Network is unreachable, [Errno 111] Connect call failed"), True),
        (OSError("Multiple exceptions: [Errno 113] No route to host, [Errno 111] Connect call failed"), False),
        (OSError(113, "No route to host"), False),
        (OSError("[Errno 101] Network is unreachable"), False),
    ],
)
async def test_a_refused_connection_raises_another_error_than_other_connect_failures(
    error: OSError, is_refusal: bool
) -> None:
    class Network:
        async def connect(self, *_: object) -> Connection:
            raise error

    world = type("World", (), {"network": Network()})
    with pytest.raises(ConnectionLost) as lost:
        await Connection.open(cast(Any, world), "h", 1, "c", 1.0)

    assert isinstance(lost.value, ConnectionRefused) is is_refusal


async def test_the_negotiated_api_version_is_used_for_later_requests_of_the_connection(
    connection: Connection, peer: RecordingTransport
) -> None:
    negotiating = asyncio.ensure_future(connection.negotiate(LONG_S))
    await asyncio.sleep(0)
    offer = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.DESCRIBE_CLUSTER, 0, 0)])
    feed(peer, b"".join(encode_response(ApiKey.API_VERSIONS, 3, 0, offer)))
    await negotiating
    peer.written.clear()

    asked = asyncio.ensure_future(connection.ask(Request(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest()), LONG_S))
    await asyncio.sleep(0)

    assert decode_request_header(bytes(peer.written[4:]))[0][:2] == (ApiKey.DESCRIBE_CLUSTER, 0)
    asked.cancel()


async def test_a_cancelled_version_negotiation_closes_the_connection(
    connection: Connection, peer: RecordingTransport
) -> None:
    negotiating = asyncio.ensure_future(connection.negotiate(LONG_S))
    await asyncio.sleep(0)

    negotiating.cancel()
    await asyncio.gather(negotiating, return_exceptions=True)

    assert connection.closed


async def test_a_broker_that_rejects_api_versions_twice_is_disconnected(
    connection: Connection, peer: RecordingTransport
) -> None:
    negotiating = asyncio.ensure_future(connection.negotiate(LONG_S))
    for number, version in enumerate((99, 0)):  # 99: in the layout of version 0
        await asyncio.sleep(0)
        refusal = ApiVersionsResponse(error_code=35)
        feed(peer, b"".join(encode_response(ApiKey.API_VERSIONS, version, number, refusal)))

    with pytest.raises(ConnectionLost, match="refused ApiVersions with UNSUPPORTED_VERSION"):
        await negotiating
    assert connection.closed
