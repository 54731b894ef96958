"""Asking the controller, whoever that is."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import settle
from tests.unit.broker.cluster_state import cache, update
from tests.unit.net.transports import RecordingTransport, connect, feed

from klamm.broker.controller_channel import (
    ControllerChannel,
    is_not_controller,
    is_not_controller_for_a_partition,
)
from klamm.broker.metadata_cache import MetadataCache
from klamm.client.connection import Connection
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    ApiVersion,
    ApiVersionsResponse,
)


class Brokers:
    """A network where each host answers as the test tells it: ApiVersions at once, AlterPartition by `answers`."""

    def __init__(self) -> None:
        self.answers: dict[str, AlterPartitionResponse | None] = {}
        self.asked: list[tuple[str, int]] = []
        self.down: set[str] = set()
        self.newest = 3

    async def connect(self, make: Any, host: str, port: int) -> Connection:
        if host in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        connection: Connection = make()
        transport = connect(connection)
        transport.write = lambda sent: self._receive(host, transport, bytes(sent))  # type: ignore[method-assign,assignment]
        return connection

    async def listen(self, *given: Any) -> Any:
        raise AssertionError

    def host_name(self) -> str:
        raise AssertionError

    def _receive(self, host: str, transport: RecordingTransport, sent: bytes) -> None:
        header, _ = decode_request_header(sent[4:])
        if header.api_key == ApiKey.API_VERSIONS:
            offered = ApiVersion(api_key=ApiKey.ALTER_PARTITION, min_version=0, max_version=self.newest)
            answer: Any = ApiVersionsResponse(api_keys=[offered])
        else:
            self.asked.append((host, header.api_version))
            answer = self.answers.get(host)
        self._last = transport, header
        if answer is not None:
            frame = b"".join(encode_response(header.api_key, header.api_version, header.correlation_id, answer))
            asyncio.get_running_loop().call_soon(feed, transport, frame)

    def say(self, answer: AlterPartitionResponse) -> None:
        """Answer the newest request now."""
        transport, header = self._last
        frame = b"".join(encode_response(header.api_key, header.api_version, header.correlation_id, answer))
        feed(transport, frame)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def known() -> MetadataCache:
    return cache()


@pytest.fixture
def channel(brokers: Brokers, known: MetadataCache, monkeypatch: pytest.MonkeyPatch) -> ControllerChannel:
    monkeypatch.setattr("klamm.broker.controller_channel._RETRY_BACKOFF_S", 0)
    world = World(RealClock(), brokers, RealDisk(), RealRandomness())  # type: ignore[arg-type]
    made = ControllerChannel(world, known, BrokerId(3), 100_000, 100_000)
    known.on_update = made.controller_may_have_changed
    return made


async def ask(channel: ControllerChannel) -> AlterPartitionResponse:
    """Send an AlterPartition through the channel."""
    build = lambda version: AlterPartitionRequest(broker_id=3)  # noqa: E731
    answer: AlterPartitionResponse = await channel.ask(
        ApiKey.ALTER_PARTITION, 3, build, is_not_controller, is_not_controller_for_a_partition
    )
    return answer


async def test_a_brokers_requests_go_to_the_controller_named_in_the_metadata(
    brokers: Brokers, channel: ControllerChannel
) -> None:
    brokers.answers["h1"] = AlterPartitionResponse()

    await ask(channel)
    await ask(channel)

    assert brokers.asked == [("h1", 3), ("h1", 3)]


async def test_a_broker_sends_requests_in_a_version_that_the_controller_supports(
    brokers: Brokers, channel: ControllerChannel
) -> None:
    brokers.answers["h1"] = AlterPartitionResponse()
    brokers.newest = 1

    await ask(channel)

    assert brokers.asked == [("h1", 1)]


NOT_CONTROLLER = AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
NOT_CONTROLLER_FOR_A_PARTITION = AlterPartitionResponse(
    topics=[
        AlterPartitionResponseTopicData(
            partitions=[AlterPartitionResponsePartitionData(error_code=ErrorCode.NOT_CONTROLLER)]
        )
    ]
)


async def test_a_not_controller_error_makes_the_broker_wait_for_the_next_controller(
    brokers: Brokers, channel: ControllerChannel, known: MetadataCache
) -> None:
    brokers.answers = {"h1": NOT_CONTROLLER, "h2": AlterPartitionResponse()}
    asking = asyncio.create_task(ask(channel))
    await settle()
    assert known.controller_id is None
    assert brokers.asked == [("h1", 3)]

    known.update(update(controller=2))

    assert (await asking).error_code == ErrorCode.NONE
    assert brokers.asked == [("h1", 3), ("h2", 3)]


async def test_a_not_controller_error_of_one_partition_does_not_discard_the_controller(
    brokers: Brokers, channel: ControllerChannel, known: MetadataCache
) -> None:
    """It may be the controller: another client deleted the state znode, and its epochs began again with 0."""
    brokers.answers = {"h1": NOT_CONTROLLER_FOR_A_PARTITION, "h2": AlterPartitionResponse()}
    asking = asyncio.create_task(ask(channel))
    await settle()
    assert known.controller_id == 1
    assert len(brokers.asked) > 1
    assert set(brokers.asked) == {("h1", 3)}

    known.update(update(controller=2))

    assert (await asking).error_code == ErrorCode.NONE
    assert brokers.asked[-1] == ("h2", 3)


async def test_a_not_controller_error_older_than_the_metadata_does_not_discard_the_controller(
    brokers: Brokers, channel: ControllerChannel, known: MetadataCache
) -> None:
    """It was elected after it refused, and told us so first: no further word of it would come."""
    brokers.answers = {"h1": None}
    asking = asyncio.create_task(ask(channel))
    await settle()
    assert brokers.asked == [("h1", 3)]

    known.update(update(controller=1))
    brokers.answers = {"h1": AlterPartitionResponse()}
    brokers.say(NOT_CONTROLLER)

    assert (await asyncio.wait_for(asking, 60)).error_code == ErrorCode.NONE


async def test_a_request_to_a_frozen_controller_is_resent_to_the_next_controller(
    brokers: Brokers, channel: ControllerChannel, known: MetadataCache
) -> None:
    brokers.answers = {"h1": None, "h2": AlterPartitionResponse()}
    asking = asyncio.create_task(ask(channel))
    await settle()

    known.update(update(controller=2))

    await asking
    assert brokers.asked == [("h1", 3), ("h2", 3)]


async def test_requests_to_an_unreachable_controller_are_retried_until_another_controller_takes_over(
    brokers: Brokers, channel: ControllerChannel, known: MetadataCache
) -> None:
    brokers.down = {"h1"}
    brokers.answers["h2"] = AlterPartitionResponse()
    asking = asyncio.create_task(ask(channel))
    await settle()

    known.update(update(controller=2))

    await asking
    assert brokers.asked == [("h2", 3)]
