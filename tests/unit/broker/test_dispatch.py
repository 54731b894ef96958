"""From a frame to its handler."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from klamm.broker.dispatch import Dispatcher, Offered, Pieces, Request, Route
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ClientConnection, Peer
from klamm.net.server import CloseConnection, EndsWithClient
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)
from klamm.wire.source import STEP

METADATA = Offered(ApiKey.METADATA, 1, 9)
FRAME = b"".join(encode_request(RequestHeader(ApiKey.METADATA, 4, 7, "c"), MetadataRequest(topics=[])))[4:]


@pytest.mark.parametrize("ends_with_client", [True, False])
async def test_a_disconnecting_client_cancels_only_requests_of_apis_that_allow_cancellation(
    ends_with_client: bool,
) -> None:
    release = asyncio.Event()

    async def handle(request: Request, message: MetadataRequest) -> MetadataResponse:
        await release.wait()
        return MetadataResponse()

    dispatcher = Dispatcher([Route(METADATA, handle, is_hot=True, ends_with_client=ends_with_client)])
    answer = dispatcher(FRAME, ClientConnection(Peer("PLAINTEXT", "h", 1)))

    assert isinstance(answer, EndsWithClient) is ends_with_client
    release.set()
    assert await (answer.answer if isinstance(answer, EndsWithClient) else answer)  # type: ignore[misc]


async def test_request_handlers_receive_the_connection_and_its_principal() -> None:
    seen: list[ClientConnection] = []

    def handle(request: Request, message: MetadataRequest) -> MetadataResponse:
        seen.append(request.connection)
        return MetadataResponse()

    connection = ClientConnection(Peer("PLAINTEXT", "h", 1))
    Dispatcher([Route(METADATA, handle)])(FRAME, connection)

    assert seen == [connection]
    assert str(seen[0].principal) == "User:ANONYMOUS"


TOPICS = 20_000
CONNECTION = ClientConnection(Peer("PLAINTEXT", "h", 1))


def large_frame(topics: int = TOPICS) -> bytes:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{n}") for n in range(topics)])
    return b"".join(encode_request(RequestHeader(ApiKey.METADATA, 4, 7, "c"), message))[4:]


async def echo(_request: Request, message: MetadataRequest) -> MetadataResponse:
    assert message.topics is not None
    return MetadataResponse(topics=[MetadataResponseTopic(name=topic.name) for topic in message.topics])


@contextmanager
def counted_passes() -> Iterator[list[int]]:
    """Counts the passes of the event loop."""
    passes = [0]

    def count() -> None:
        passes[0] += 1
        handle[0] = asyncio.get_running_loop().call_soon(count)

    handle = [asyncio.get_running_loop().call_soon(count)]
    yield passes
    handle[0].cancel()


async def response_of(answer: Any) -> MetadataResponse:
    parts: Any = await (answer.answer if isinstance(answer, EndsWithClient) else answer)
    _, response = decode_response(b"".join(parts)[4:], ApiKey.METADATA, 4)
    assert isinstance(response, MetadataResponse)
    return response


@pytest.mark.parametrize("ends_with_client", [True, False])
async def test_a_request_with_many_elements_is_decoded_and_answered_in_time_slices(ends_with_client: bool) -> None:
    dispatcher = Dispatcher([Route(METADATA, echo, is_hot=ends_with_client, ends_with_client=ends_with_client)])

    with counted_passes() as passes:
        answer = dispatcher(large_frame(), CONNECTION)
        assert isinstance(answer, EndsWithClient) is ends_with_client
        response = await response_of(answer)

    assert [topic.name for topic in response.topics] == [f"topic-{n}" for n in range(TOPICS)]
    assert passes[0] >= 2 * TOPICS / 250  # both decoding and encoding; 250 elements of a pass


async def test_a_large_request_with_few_elements_is_handled_at_once() -> None:
    def handle(_request: Request, message: MetadataRequest) -> MetadataResponse:
        return MetadataResponse()

    message = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 20_000)])
    frame = b"".join(encode_request(RequestHeader(ApiKey.METADATA, 4, 7, "c"), message))[4:]

    assert not isinstance(Dispatcher([Route(METADATA, handle)])(frame, CONNECTION), Awaitable)


async def test_a_request_with_more_elements_than_allowed_closes_its_connection() -> None:
    dispatcher = Dispatcher([Route(METADATA, echo)], max_elements=TOPICS - 1)

    with pytest.raises(CloseConnection, match=f"more than {TOPICS - 1} elements.*klamm.max.request.elements"):
        await response_of(dispatcher(large_frame(), CONNECTION))


async def test_a_large_request_that_is_malformed_at_its_end_closes_its_connection() -> None:
    with pytest.raises(CloseConnection, match=r"cannot decode METADATA v4: .* do not parse"):
        await response_of(Dispatcher([Route(METADATA, echo)])(large_frame()[:-5], CONNECTION))


async def test_a_large_request_of_independent_elements_is_divided_into_small_requests_for_its_handler() -> None:
    seen: list[int] = []

    async def handle(request: Request, message: MetadataRequest) -> MetadataResponse:
        assert message.topics is not None
        seen.append(len(message.topics))
        return await echo(request, message)

    dispatcher = Dispatcher([Route(METADATA, handle, pieces=Pieces("topics", "topics"))])
    response = await response_of(dispatcher(large_frame(), CONNECTION))

    assert [topic.name for topic in response.topics] == [f"topic-{n}" for n in range(TOPICS)]
    assert (max(seen), sum(seen)) == (STEP, TOPICS)


SIZES = {"one large topic": (5_000,), "many small ones": (1,) * 5_000, "both": (3, 400, 2, 127, 128, 129, 4_000, 0, 1)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
async def test_a_large_topic_is_divided_and_its_results_are_joined(sizes: tuple[int, ...]) -> None:
    topics = [TopicRequest(f"t-{n}", tuple(range(size))) for n, size in enumerate(sizes)]
    seen: list[int] = []

    def handle(_request: Request, message: DescribeProducersRequest) -> DescribeProducersResponse:
        seen.append(sum(1 + len(topic.partition_indexes) for topic in message.topics))
        return DescribeProducersResponse(
            topics=[TopicResponse(t.name, [PartitionResponse(p) for p in t.partition_indexes]) for t in message.topics]
        )

    message = DescribeProducersRequest(topics)
    frame = b"".join(encode_request(RequestHeader(ApiKey.DESCRIBE_PRODUCERS, 0, 7, "c"), message))[4:]
    offered = Offered(ApiKey.DESCRIBE_PRODUCERS, 0, 0)
    pieces = Pieces("topics", "topics", ("partition_indexes", "partitions"))
    answer: Any = Dispatcher([Route(offered, handle, pieces=pieces)])(frame, CONNECTION)
    _, response = decode_response(b"".join(await answer)[4:], ApiKey.DESCRIBE_PRODUCERS, 0)

    found = [(topic.name, tuple(p.partition_index for p in topic.partitions)) for topic in response.topics]
    assert found == [(topic.name, topic.partition_indexes) for topic in topics]
    assert max(seen) <= 2 * STEP


async def test_an_error_of_the_whole_request_ends_a_request_that_is_handled_in_pieces() -> None:
    seen: list[int] = []

    def handle(_request: Request, message: LeaveGroupRequest) -> LeaveGroupResponse:
        seen.append(len(message.members))
        return LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR if len(seen) == 2 else ErrorCode.NONE)

    message = LeaveGroupRequest("g", members=[MemberIdentity(f"member-{n}") for n in range(5_000)])
    frame = b"".join(encode_request(RequestHeader(ApiKey.LEAVE_GROUP, 5, 7, "c"), message))[4:]
    route = Route(Offered(ApiKey.LEAVE_GROUP, 0, 5), handle, pieces=Pieces("members", "members"))
    answer: Any = Dispatcher([route])(frame, CONNECTION)
    _, response = decode_response(b"".join(await answer)[4:], ApiKey.LEAVE_GROUP, 5)

    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert seen == [STEP, STEP]
