"""Handing leaders over before leaving; the node leaves in any case."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.net.transports import RecordingTransport, connect, feed

from klamm.broker.controlled_shutdown import (
    CLIENTS_TIMEOUT_S,
    LEADERSHIP_TIMEOUT_S,
    ControlledShutdown,
    let_clients_move,
)
from klamm.client.connection import Connection
from klamm.config.node_config import parse_node_config
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.frames import RequestHeader, decode_request_header, encode_response
from klamm.wire.messages import (
    ApiVersion,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from klamm.zk.errors import ConnectionLoss
from klamm.zk.registrations import Registration
from klamm.zk.store import ControllerZnode, Registrations

US = BrokerId(1)
MOVED = ControlledShutdownResponse()
REMAIN = ControlledShutdownResponse(remaining_partitions=[RemainingPartition("orders", 0)])
REFUSED = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


class Surroundings:
    """ZooKeeper and network of a node that shuts down, with scripted answers."""

    def __init__(self, answers: list[ControlledShutdownResponse | None], count: int = 3) -> None:
        self.answers = answers
        self.count = count
        self.asked: list[ControlledShutdownRequest] = []
        self.epochs = [44]
        """The broker epochs one after the other; the last one stays."""
        self.zookeeper_fails = False
        self.has_controller = True
        self.newest = 3
        """Version of ControlledShutdown that the controller knows."""
        self.versions: list[int] = []

    @property
    def store(self) -> "Surroundings":
        return self

    @property
    def epoch(self) -> int:
        return self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]

    async def read_brokers(self) -> Registrations:
        if self.zookeeper_fails:
            raise ConnectionLoss("/brokers/ids")
        found = {}
        for number in range(1, self.count + 1):
            endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, f"h{number}", 9092)
            found[BrokerId(number)] = Registration(Broker(BrokerId(number), (endpoint,)))
        return Registrations(found, {})

    async def read_controller(self) -> ControllerZnode | None:
        return None if not self.has_controller else ControllerZnode(BrokerId(2), 77, 0, is_kraft=False)

    async def connect(self, make: Any, host: str, port: int) -> Connection:
        assert host == "h2"
        connection: Connection = make()
        transport = connect(connection)
        transport.write = lambda sent: self._receive(transport, bytes(sent))  # type: ignore[method-assign,assignment]
        return connection

    async def listen(self, *given: Any) -> Any:
        raise AssertionError

    def host_name(self) -> str:
        raise AssertionError

    def _receive(self, transport: RecordingTransport, sent: bytes) -> None:
        header, body = decode_request_header(sent[4:])
        if header.api_key == ApiKey.API_VERSIONS:
            versions = ApiVersion(ApiKey.CONTROLLED_SHUTDOWN, 0, self.newest)
            self._answer(transport, header, ApiVersionsResponse(api_keys=[versions]))
            return
        self.versions.append(header.api_version)
        assert header.api_key == ApiKey.CONTROLLED_SHUTDOWN
        self.asked.append(ControlledShutdownRequest.decode(sent[4:], header.api_version, body))
        answer = self.answers.pop(0)
        if answer is None:
            transport.protocol.connection_lost(None)
            return
        self._answer(transport, header, answer)

    def _answer(self, transport: RecordingTransport, header: RequestHeader, answer: WireMessage) -> None:
        frame = b"".join(encode_response(header.api_key, header.api_version, header.correlation_id, answer))
        asyncio.get_running_loop().call_soon(feed, transport, frame)


async def leave(around: Surroundings, retry_backoff_ms: int = 0) -> bool:
    """Run a controlled shutdown; whether all leaders moved."""
    text = f"zookeeper.connect=z:1\ncontrolled.shutdown.retry.backoff.ms={retry_backoff_ms}".encode()
    world = World(RealClock(), around, RealDisk(), RealRandomness())  # type: ignore[arg-type]
    config = parse_node_config(text, "x")
    shutdown = ControlledShutdown(world, config, US, lambda: around.epoch, around)  # type: ignore[arg-type]
    return await shutdown.run()


async def test_controlled_shutdown_request_carries_the_broker_epoch() -> None:
    around = Surroundings([MOVED])

    assert await leave(around)
    assert [(r.broker_id, r.broker_epoch) for r in around.asked] == [(1, 44)]


async def test_controlled_shutdown_requests_carry_the_epoch_of_a_registration_made_meanwhile() -> None:
    around = Surroundings([REFUSED, MOVED])
    around.epochs = [44, 51]

    assert await leave(around)
    assert [r.broker_epoch for r in around.asked] == [44, 51]


async def test_controlled_shutdown_is_requested_in_a_version_that_an_older_controller_supports() -> None:
    around = Surroundings([MOVED])
    around.newest = 2

    assert await leave(around)
    assert around.versions == [2]


async def test_controlled_shutdown_is_requested_again_while_the_broker_still_leads_partitions() -> None:
    around = Surroundings([REMAIN, REMAIN, MOVED])

    assert await leave(around)
    assert len(around.asked) == 3


@pytest.mark.parametrize("answer", [REMAIN, REFUSED, None], ids=["remains", "refused", "connection lost"])
async def test_controlled_shutdown_gives_up_after_three_attempts(answer: ControlledShutdownResponse | None) -> None:
    around = Surroundings([answer] * 3)

    assert not await leave(around)
    assert len(around.asked) == 3


def test_a_broker_in_controlled_shutdown_asks_until_another_controller_is_elected() -> None:
    async def main() -> None:
        around = Surroundings([None] * 8 + [MOVED])
        around.has_controller = False
        loop = asyncio.get_running_loop()
        loop.call_later(3.6, setattr, around, "has_controller", True)

        assert await leave(around, 5_000)
        assert loop.time() == pytest.approx(3.6 + 8 * 0.25, abs=0.3), "asked every quarter of a second, for 10 s"

    SimulatedLoop().run(main())


@pytest.mark.parametrize(("answer", "asked"), [(None, 41), (REMAIN, 3)], ids=["connection lost", "remains"])
def test_a_broker_in_controlled_shutdown_gives_up_after_two_pauses(
    answer: ControlledShutdownResponse | None, asked: int
) -> None:
    async def main() -> None:
        around = Surroundings([answer] * 100)

        assert not await leave(around, 5_000)
        assert len(around.asked) == pytest.approx(asked, abs=2)
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.5)

    SimulatedLoop().run(main())


async def test_the_last_live_broker_skips_controlled_shutdown() -> None:
    around = Surroundings([], count=1)

    assert not await leave(around)
    assert around.asked == []


async def test_a_broker_without_a_zookeeper_connection_skips_controlled_shutdown() -> None:
    around = Surroundings([])
    around.zookeeper_fails = True

    assert not await leave(around)


@dataclass
class Led:
    """A partition that this broker leads until the test says otherwise."""

    is_leader: bool = True


def test_a_stopping_broker_serves_clients_for_a_moment_after_its_leaders_have_moved() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        led = [Led(), Led()]
        loop.call_later(0.3, setattr, led[0], "is_leader", False)
        loop.call_later(0.2, setattr, led[1], "is_leader", False)

        await let_clients_move(led)  # type: ignore[arg-type]

        assert 0.3 + CLIENTS_TIMEOUT_S <= loop.time() < 0.4

    SimulatedLoop().run(main())


def test_clients_are_served_for_a_limited_time_while_no_leader_and_isr_comes() -> None:
    async def main() -> None:
        await let_clients_move([Led()])  # type: ignore[list-item]
        assert asyncio.get_running_loop().time() == pytest.approx(LEADERSHIP_TIMEOUT_S + CLIENTS_TIMEOUT_S)

    SimulatedLoop().run(main())


def test_a_broker_that_led_nothing_waits_for_no_client() -> None:
    async def main() -> None:
        await let_clients_move([])
        assert asyncio.get_running_loop().time() == 0

    SimulatedLoop().run(main())
