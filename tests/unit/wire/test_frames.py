"""Frames and headers, in both directions, whole and in pieces."""

import struct

import pytest

from klamm.wire.api import ApiKey
from klamm.wire.errors import MalformedHeader, MalformedMessage, UnknownApi
from klamm.wire.frames import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from klamm.wire.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    FetchableTopicResponse,
    FetchResponse,
    FetchResponsePartitionData,
    HeartbeatRequest,
    HeartbeatResponse,
)


def with_length_prefix(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(b)) + b for b in bodies)


def unframed(parts: list[bytes | memoryview]) -> bytes:
    """The parts joined, without the size."""
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


@pytest.mark.parametrize("version", [0, 3, 4])
def test_an_encoded_request_with_header_decodes_to_the_same_request(version: int) -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, version, 77, "kläm")
    body = HeartbeatRequest("g", 3, "m")

    frame = unframed(encode_request(header, body))

    read, at = decode_request_header(frame)
    assert read == header
    assert HeartbeatRequest.decode(frame, version, at) == body


def test_the_header_of_controlled_shutdown_version_0_has_no_client_id() -> None:
    frame = unframed(
        encode_request(RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 5, "dropped"), ControlledShutdownRequest(3))
    )

    assert frame == bytes.fromhex("0007 0000 00000005 00000003")
    assert decode_request_header(frame) == (RequestHeader(7, 0, 5, ""), 8)


def test_a_null_client_id_in_a_request_header_is_decoded_as_empty() -> None:
    header, at = decode_request_header(bytes.fromhex("000c 0000 00000001 ffff"))

    assert (header.client_id, at) == ("", 10)


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    header, at = decode_request_header(bytes.fromhex("000c 0004 00000001 0001 61 01 07 02 dead 99"))

    assert (header.client_id, at) == ("a", 16)


def test_the_header_of_an_api_versions_request_of_unknown_version_is_decoded() -> None:
    header, _ = decode_request_header(bytes.fromhex("0012 0063 00000009 0000 00"))

    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 9, "")


@pytest.mark.parametrize("version", [3, 4])
def test_a_truncated_request_header_raises_malformed_header(version: int) -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, version, 77, "client")
    frame = unframed(encode_request(header, HeartbeatRequest("g", 3, "m")))
    _, body_at = decode_request_header(frame)

    for cut in range(body_at):
        with pytest.raises(MalformedHeader):
            decode_request_header(frame[:cut])


def test_an_unknown_api_key_in_a_request_header_raises_unknown_api() -> None:
    with pytest.raises(UnknownApi):
        decode_request_header(bytes.fromhex("4745 5420 2f20 4854"))


@pytest.mark.parametrize("version", [0, 3, 4])
def test_an_encoded_response_decodes_to_the_same_response(version: int) -> None:
    body = HeartbeatResponse(error_code=27)

    frame = unframed(encode_response(ApiKey.HEARTBEAT, version, 77, body))

    assert decode_response(frame, ApiKey.HEARTBEAT, version) == (77, body)


def test_a_response_with_large_records_is_encoded_and_decoded_unchanged() -> None:
    records = memoryview(bytes(50_000))
    body = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[FetchResponsePartitionData(0, records=records)])]
    )

    parts = encode_response(ApiKey.FETCH, 11, 1, body)

    assert any(part is records for part in parts)
    assert decode_response(unframed(parts), ApiKey.FETCH, 11)[1] == body


def test_an_unsupported_api_versions_request_is_answered_in_version_0() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)])

    frame = unframed(encode_response(ApiKey.API_VERSIONS, 9, 1, answer))

    assert frame == bytes.fromhex("00000001 0023 00000001 0012 0000 0004")
    assert decode_response(frame, ApiKey.API_VERSIONS, 4) == (1, answer)


def test_the_api_versions_response_header_has_no_tagged_fields() -> None:
    frame = unframed(encode_response(ApiKey.API_VERSIONS, 3, 1, ApiVersionsResponse()))

    assert frame == bytes.fromhex("00000001 0000 01 00000000 00")


def test_the_api_versions_request_from_version_3_has_the_flexible_header() -> None:
    frame = unframed(encode_request(RequestHeader(18, 3, 1, "c"), ApiVersionsRequest("klamm", "1")))

    assert frame == bytes.fromhex("0012 0003 00000001 0001 63 00 06 6b6c616d6d 02 31 00")


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\x80"])
def test_a_truncated_response_header_raises_malformed_header(frame: bytes) -> None:
    with pytest.raises(MalformedHeader):
        decode_response(frame, ApiKey.HEARTBEAT, 4)


def test_the_error_for_a_truncated_response_names_the_incomplete_field() -> None:
    with pytest.raises(
        MalformedMessage, match="HeartbeatResponse v4, field throttle_time_ms at byte 5: the field needs 4 bytes"
    ):
        decode_response(b"\0\0\0\1\0", ApiKey.HEARTBEAT, 4)
