"""What is offered, and how a client of the future learns of it; whole frames in and out."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.dispatch import Dispatcher, Offered, Route
from klamm.broker.handlers.api_versions import API_VERSIONS, ApiVersions
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ClientConnection, Peer
from klamm.net.server import CloseConnection
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

CONNECTION = ClientConnection(Peer("PLAINTEXT", "h", 1))
OFFERED = [Offered(ApiKey.FETCH, 4, 17), API_VERSIONS]


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher([Route(API_VERSIONS, ApiVersions(OFFERED).handle)])


def frame(version: int, message: Any, key: ApiKey = ApiKey.API_VERSIONS) -> bytes:
    return b"".join(encode_request(RequestHeader(key, version, 7, "c"), message))[4:]


def ask(dispatcher: Dispatcher, request: bytes, version: int) -> ApiVersionsResponse:
    answer = dispatcher(request, CONNECTION)
    assert isinstance(answer, list | tuple)
    correlation_id, response = decode_response(b"".join(answer)[4:], ApiKey.API_VERSIONS, version)
    assert isinstance(response, ApiVersionsResponse)
    assert correlation_id == 7
    return response


NAMED = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="3.9.1")


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_the_api_versions_response_lists_the_offered_apis_and_versions(
    dispatcher: Dispatcher, version: int
) -> None:
    response = ask(dispatcher, frame(version, NAMED if version >= 3 else ApiVersionsRequest()), version)

    assert response.error_code == ErrorCode.NONE
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(1, 4, 17), (18, 0, 4)]


async def test_an_api_versions_request_of_an_unknown_version_is_answered_in_version_0(dispatcher: Dispatcher) -> None:
    request = bytearray(frame(4, NAMED))
    request[2:4] = (9).to_bytes(2, "big")
    request += b"whatever a later version may bring"

    response = ask(dispatcher, bytes(request), 9)

    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä"])
async def test_an_api_versions_request_with_an_invalid_client_software_name_gets_invalid_request(
    dispatcher: Dispatcher, name: str
) -> None:
    wrong = ApiVersionsRequest(client_software_name=name, client_software_version="1")

    assert ask(dispatcher, frame(3, wrong), 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "software"), [(2, ""), (3, "apache-kafka-java"), (4, "apache-kafka-java")])
async def test_the_client_software_name_is_read_from_api_versions_requests_since_version_3(
    version: int, software: str
) -> None:
    connection = ClientConnection(Peer("PLAINTEXT", "h", 1))
    request: Any = SimpleNamespace(version=version, connection=connection)
    before = connection.software

    ApiVersions([]).handle(request, NAMED)

    assert connection.software.name == (software or before.name)


CLOSED = {
    "empty": b"",
    "no header": b"\0\x12\0",
    "unknown key": b"\x7f\xff\0\0\0\0\0\0\xff\xff",
    "negative key": b"\xff\xff\0\0\0\0\0\0\xff\xff",
    "not offered here": frame(12, MetadataRequest(), ApiKey.METADATA),
    "body cut": frame(3, NAMED)[:-3],
    "client id longer than the frame": b"\0\x12\0\0\0\0\0\x07\x7f\xff",
}


@pytest.mark.parametrize("request_", CLOSED.values(), ids=CLOSED)
async def test_a_request_of_an_api_that_the_broker_does_not_offer_closes_the_connection(
    dispatcher: Dispatcher, request_: bytes
) -> None:
    with pytest.raises(CloseConnection):
        dispatcher(request_, CONNECTION)


async def test_an_api_versions_request_with_a_flipped_bit_is_answered_or_closes_the_connection(
    dispatcher: Dispatcher,
) -> None:
    whole = frame(3, NAMED)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(CloseConnection):
            assert dispatcher(bytes(flipped), CONNECTION)
