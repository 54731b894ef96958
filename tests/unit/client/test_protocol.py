"""Requests and answers of one connection without a socket; what is agreed upon before the first of them."""

from collections.abc import Callable

import pytest

from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.client.protocol import ClientProtocol, InFlight
from klamm.client.versions import ApiVersions, Request, negotiate
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FetchRequest

FETCH = ApiKey.FETCH


def protocol_with(requests: int) -> tuple[ClientProtocol[InFlight], list[InFlight]]:
    protocol: ClientProtocol[InFlight] = ClientProtocol("b1:9092", "me")
    sent = [InFlight(ApiKey.API_VERSIONS, 0) for _ in range(requests)]
    for one in sent:
        protocol.send(one, ApiVersionsRequest())
    return protocol, sent


def answer(correlation_id: int) -> bytes:
    return b"".join(encode_response(ApiKey.API_VERSIONS, 0, correlation_id, ApiVersionsResponse()))[4:]


class TestProtocol:
    def test_an_encoded_request_carries_correlation_id_and_client_id(self) -> None:
        protocol: ClientProtocol[InFlight] = ClientProtocol("b1:9092", "me")

        frames = [b"".join(protocol.send(InFlight(FETCH, 4), FetchRequest()))[4:] for _ in range(2)]

        assert [decode_request_header(f)[0] for f in frames] == [(FETCH, 4, 0, "me"), (FETCH, 4, 1, "me")]

    def test_received_responses_are_matched_to_requests_in_order(self) -> None:
        protocol, sent = protocol_with(3)

        assert [protocol.match(answer(n)) for n in range(3)] == sent
        assert len(protocol) == 0

    def test_a_response_with_an_unexpected_correlation_id_raises_connection_lost(self) -> None:
        protocol, _ = protocol_with(2)

        with pytest.raises(ConnectionLost, match="b1:9092: a response with correlation id 1 came, but 0 was expected"):
            protocol.match(answer(1))

    @pytest.mark.parametrize("frame", [b"\0", answer(0)])
    def test_received_bytes_without_a_request_in_flight_raise_connection_lost(self, frame: bytes) -> None:
        protocol, _ = protocol_with(0)

        with pytest.raises(ConnectionLost, match="bytes came, but no request is waiting for one"):
            protocol.match(frame)

    def test_a_malformed_response_raises_an_error_that_names_its_request(self) -> None:
        protocol, _ = protocol_with(1)
        frame = answer(0)[:-1]

        with pytest.raises(ConnectionLost, match="b1:9092: cannot decode the response to API_VERSIONS v0"):
            protocol.decode(protocol.match(frame), frame)

    def test_the_end_of_a_connection_returns_the_requests_without_a_response(self) -> None:
        protocol, sent = protocol_with(2)

        assert list(protocol.end()) == sent
        assert len(protocol) == 0


def handshake(*answers: ApiVersionsResponse) -> tuple[list[int], ApiVersions]:
    """The versions of the greetings, and what was agreed upon."""
    greetings = negotiate("b1:9092")
    versions = [next(greetings).version]
    for one in answers:
        try:
            versions.append(greetings.send(one).version)
        except StopIteration as done:
            return versions, done.value
    raise AssertionError("not over yet")


OFFER = ApiVersionsResponse(api_keys=[ApiVersion(FETCH, 4, 12)])
REFUSAL = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


class TestVersions:
    def test_api_version_negotiation_sends_only_one_api_versions_request(self) -> None:
        versions, agreed = handshake(OFFER)

        assert versions == [3]
        assert agreed.agreed_version(Request(FETCH, FetchRequest())) == 12

    def test_the_api_versions_request_is_repeated_in_version_0_for_an_old_broker(self) -> None:
        assert handshake(REFUSAL, OFFER)[0] == [3, 0]

    def test_a_broker_that_rejects_api_versions_version_0_raises_connection_lost(self) -> None:
        with pytest.raises(ConnectionLost, match="refused ApiVersions with UNSUPPORTED_VERSION"):
            handshake(REFUSAL, REFUSAL)

    def test_the_negotiated_api_version_stays_within_the_version_range_of_the_request(self) -> None:
        _, agreed = handshake(OFFER)

        assert agreed.agreed_version(Request(FETCH, FetchRequest(), newest=11)) == 11
        with pytest.raises(
            UnsupportedVersion, match=r"b1:9092 offers Fetch in versions 4-12, klamm needs one of 13-17 .*upgrade"
        ):
            agreed.agreed_version(Request(FETCH, FetchRequest(), oldest=13))

    def test_a_request_of_an_api_that_the_broker_does_not_offer_raises_unsupported_version(self) -> None:
        with pytest.raises(UnsupportedVersion, match="b1:9092 does not offer the API Metadata"):
            handshake(OFFER)[1].agreed_version(Request(ApiKey.METADATA, ApiVersionsRequest()))

    def test_a_request_message_is_built_for_the_negotiated_version(self) -> None:
        build: Callable[[int], FetchRequest] = lambda version: FetchRequest(min_bytes=version)  # noqa: E731

        assert Request(FETCH, build).body(7) == FetchRequest(min_bytes=7)
