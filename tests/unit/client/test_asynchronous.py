"""The asyncio driver over brokers in memory: one connection per broker, steps run to their end, a topic read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest
from tests.support.old_messages import FORMATS_AND_CODECS, message_set, old_records
from tests.support.scripted_brokers import ScriptedCluster, ScriptedLog
from tests.unit.net.transports import RecordingTransport, connect, feed
from tests.unit.spark.scripts import log

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.connection import Connection
from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.client.offsets import EARLIEST, LATEST, list_offsets
from klamm.client.versions import Request
from klamm.explain.topic_reading import CannotRead, read_values
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import MetadataRequest

T = TypeVar("T")
ORDERS = TopicPartition("orders", 0)
ONE, TWO = Address("one", 9092), Address("two", 9092)


class Network:
    """Answers each request in the next turn of the loop; a script that raises breaks the connection."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.connected: list[str] = []
        self.down: set[str] = set()

    async def connect(self, make: Callable[[], Connection], host: str, port: int) -> Connection:
        if host in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        self.connected.append(host)
        broker = next(b for b, address in self.cluster.brokers.items() if address == (host, port))
        connection = make()
        transport = connect(connection)
        transport.write = lambda data: self._receive(broker, connection, transport, bytes(data))  # type: ignore[method-assign]
        return connection

    def _receive(self, broker: int, connection: Connection, transport: RecordingTransport, sent: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = b"".join(self.cluster.answer(broker, sent[4:]))
        except ConnectionError as error:
            loop.call_soon(connection.connection_lost, error)
        else:
            loop.call_soon(feed, transport, answer)


@pytest.fixture
def network() -> Network:
    return Network(ScriptedCluster({ORDERS: log(0, 100, leader=2)}))


def world(network: Network) -> World:
    return cast(World, type("World", (), {"network": network}))


def run(network: Network, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """On simulated time."""

    async def main() -> T:
        async with AsyncClient(world(network), [ONE, TWO], AsyncSettings("test", 10.0)) as client:
            return await work(client)

    return SimulatedLoop().run(main())


def backoff() -> Backoff:
    return Backoff(asyncio.get_running_loop().time, 10.0)


def metadata() -> Request:
    return Request(ApiKey.METADATA, MetadataRequest([], allow_auto_topic_creation=False))


def test_concurrent_client_requests_to_one_broker_share_a_connection(network: Network) -> None:
    async def work(client: AsyncClient) -> None:
        await asyncio.gather(*(client.ask(ONE, metadata()) for _ in range(5)))

    run(network, work)

    assert network.connected == ["one"]
    assert network.cluster.requests["API_VERSIONS"] == 1


def test_the_async_client_reads_the_log_end_offset_from_the_leader(network: Network) -> None:
    async def work(client: AsyncClient) -> dict[TopicPartition, int]:
        return await client.run(list_offsets(client.cluster, {ORDERS: LATEST}, backoff()))

    assert run(network, work) == {ORDERS: 100}
    assert network.connected == ["one", "two"]


def test_a_client_request_is_sent_to_the_new_leader_after_a_lost_connection(network: Network) -> None:
    lost: list[int] = []

    def lose_the_first(broker: int, request: Any) -> None:
        if type(request).__name__ == "ListOffsetsRequest" and not lost:
            lost.append(broker)
            network.cluster.logs[ORDERS].leader = 1
            raise ConnectionResetError("gone")

    network.cluster.on_request = lose_the_first

    async def work(client: AsyncClient) -> dict[TopicPartition, int]:
        return await client.run(list_offsets(client.cluster, {ORDERS: EARLIEST}, backoff()))

    assert run(network, work) == {ORDERS: 0}
    assert lost == [2]


def test_the_next_client_request_reopens_a_dropped_connection(network: Network) -> None:
    async def work(client: AsyncClient) -> None:
        await client.ask(ONE, metadata())
        client.drop(ONE)
        await client.ask(ONE, metadata())

    run(network, work)

    assert network.connected == ["one", "one"]


def test_the_async_client_raises_connection_and_version_errors_to_its_caller(network: Network) -> None:
    network.down.add("one")
    network.cluster.offered[ApiKey.METADATA] = (0, 3)

    async def work(client: AsyncClient) -> None:
        with pytest.raises(ConnectionLost, match="no connection to one:9092: Connection refused"):
            await client.ask(ONE, metadata())
        with pytest.raises(
            UnsupportedVersion, match="two:9092 offers Metadata in versions 0-3, klamm needs one of 4-12"
        ):
            await client.ask(TWO, metadata()._replace(oldest=4))

    run(network, work)


class TestReadingATopic:
    """`klamm explain --bootstrap-server` reads the journal topic so."""

    def read(self, network: Network, partition: TopicPartition = ORDERS) -> list[bytes]:
        return SimulatedLoop().run(read_values(world(network), [ONE, TWO], partition))

    def test_the_client_reads_a_topic_from_its_log_start_offset(self, network: Network) -> None:
        network.cluster.logs[ORDERS] = log(40, 100, leader=2)

        assert self.read(network) == [b"%d" % o for o in range(40, 100)]

    @pytest.mark.parametrize(("magic", "codec"), FORMATS_AND_CODECS)
    def test_the_client_reads_messages_of_old_formats(self, network: Network, magic: int, codec: Codec) -> None:
        records = old_records(magic, (50, 51, 54))
        network.cluster.logs[ORDERS] = ScriptedLog(1, [(50, 54, message_set(records, magic, codec))], start=51)

        assert self.read(network) == [r.value for r in records[1:]]

    def test_the_client_continues_reading_at_the_new_leader(self, network: Network) -> None:
        def move(broker: int, request: Any) -> None:
            if type(request).__name__ == "FetchRequest":
                network.cluster.logs[ORDERS].leader = 1

        network.cluster.on_request = move

        assert len(self.read(network)) == 100

    def test_reading_an_unknown_topic_raises_an_error_with_the_topic_name(self, network: Network) -> None:
        with pytest.raises(CannotRead, match="Cannot read the journal from other-0: topic other does not exist"):
            self.read(network, TopicPartition("other", 0))

    def test_reading_a_topic_fails_with_all_addresses_when_no_broker_answers(self, network: Network) -> None:
        network.down |= {"one", "two"}

        with pytest.raises(
            CannotRead, match=r"Cannot read the journal from orders-0: asking for metadata: .* one:9092: .* two:9092"
        ):
            self.read(network)

    def test_reading_a_topic_stops_at_an_authorization_error(self, network: Network) -> None:
        network.cluster.errors[ORDERS] = [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]

        with pytest.raises(CannotRead, match="TOPIC_AUTHORIZATION_FAILED"):
            self.read(network)
