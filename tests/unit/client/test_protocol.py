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
    def test_a_request_carries_its_number_and_the_client_id(self) -> None:
        protocol: ClientProtocol[InFlight] = ClientProtocol("b1:9092", "me")

        frames = [b"".join(protocol.send(InFlight(FETCH, 4), FetchRequest()))[4:] for _ in range(2)]

        assert [decode_request_header(f)[0] for f in frames] == [(FETCH, 4, 0, "me"), (FETCH, 4, 1, "me")]

    def test_answers_are_matched_in_order(self) -> None:
        protocol, sent = protocol_with(3)

        assert [protocol.match(answer(n)) for n in range(3)] == sent
        assert len(protocol) == 0

    def test_an_answer_out_of_order_is_refused(self) -> None:
        protocol, _ = protocol_with(2)

        with pytest.raises(ConnectionLost, match="b1:9092: answer 1 came where 0 was due"):
            protocol.match(answer(1))

    @pytest.mark.parametrize("frame", [b"\0", answer(0)])
    def test_bytes_that_no_request_waits_for_are_refused(self, frame: bytes) -> None:
        protocol, _ = protocol_with(0)

        with pytest.raises(ConnectionLost, match="bytes came that no request is waiting for"):
            protocol.match(frame)

    def test_an_unreadable_answer_is_named_with_its_request(self) -> None:
        protocol, _ = protocol_with(1)
        frame = answer(0)[:-1]

        with pytest.raises(ConnectionLost, match="b1:9092: unreadable answer to API_VERSIONS v0"):
            protocol.decode(protocol.match(frame), frame)

    def test_the_end_tells_what_will_not_be_answered(self) -> None:
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
    def test_a_broker_is_asked_once(self) -> None:
        versions, agreed = handshake(OFFER)

        assert versions == [3]
        assert agreed.agreed(Request(FETCH, FetchRequest())) == 12

    def test_an_old_broker_is_asked_again_in_the_oldest_version(self) -> None:
        assert handshake(REFUSAL, OFFER)[0] == [3, 0]

    def test_a_broker_that_refuses_that_too_is_given_up(self) -> None:
        with pytest.raises(ConnectionLost, match="does not say which versions it speaks: UNSUPPORTED_VERSION"):
            handshake(REFUSAL, REFUSAL)

    def test_the_caller_bounds_the_version(self) -> None:
        _, agreed = handshake(OFFER)

        assert agreed.agreed(Request(FETCH, FetchRequest(), newest=11)) == 11
        with pytest.raises(UnsupportedVersion, match=r"b1:9092 offers Fetch 4-12, needed is 13-17 .*upgrade"):
            agreed.agreed(Request(FETCH, FetchRequest(), oldest=13))

    def test_an_api_that_is_not_offered_is_named(self) -> None:
        with pytest.raises(UnsupportedVersion, match="b1:9092 does not offer Metadata"):
            handshake(OFFER)[1].agreed(Request(ApiKey.METADATA, ApiVersionsRequest()))

    def test_the_message_may_depend_on_the_version(self) -> None:
        build: Callable[[int], FetchRequest] = lambda version: FetchRequest(min_bytes=version)  # noqa: E731

        assert Request(FETCH, build).body(7) == FetchRequest(min_bytes=7)
