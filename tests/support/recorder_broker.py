"""A broker that only records: it registers, keeps every control request, and answers with success."""

import asyncio
from typing import Any

from tests.support.frames import read_frames
from tests.support.waiting import eventually

from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId
from klamm.runtime.world import real_world
from klamm.wire.api import api
from klamm.wire.frames import decode_request_header, encode_response
from klamm.zk.client import ZooKeeper
from klamm.zk.registrar import BrokerRegistrar


def broker_at(server: asyncio.Server, number: int) -> Broker:
    """Return the broker with this id that is reachable at the server's port."""
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", port)
    return Broker(BrokerId(number), (endpoint,), rack=None)


class RecorderBroker:
    def __init__(self, number: int, hosts: str, session_timeout_ms: int = 30_000) -> None:
        self.number = number
        self.received: list[tuple[str, int, Any]] = []
        self.epoch = 0
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._server: asyncio.Server | None = None
        self.zookeeper: ZooKeeper | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.zookeeper = ZooKeeper(real_world(), self._hosts, self._session_timeout_ms)
        await self.zookeeper.connect(10)
        self.epoch = await BrokerRegistrar(self.broker).register(self.zookeeper, 1_700_000_000_000)

    @property
    def broker(self) -> Broker:
        assert self._server is not None
        return broker_at(self._server, self.number)

    async def stop(self) -> None:
        if self.zookeeper is not None:
            await self.zookeeper.close()
        if self._server is not None:
            self._server.close()

    def requests(self, name: str) -> list[Any]:
        """The received requests with this name."""
        return [message for kind, _, message in self.received if kind == name]

    async def wait_for_leader_and_isr(self, topic: str, number: int = 0) -> Any:
        """The newest state of a partition that this broker received; waits for the first."""
        await eventually(lambda: bool(self._states(topic, number)))
        return self._states(topic, number)[-1]

    def _states(self, topic: str, number: int) -> list[Any]:
        """The states of a partition that this broker received."""
        return [
            s
            for request in self.requests("LeaderAndIsr")
            for t in request.topic_states
            for s in t.partition_states
            if t.topic_name == topic and s.partition_index == number
        ]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in read_frames(reader):
            header, at = decode_request_header(frame)
            about = api(header.api_key)
            message = about.request.decode(frame, header.api_version, at)
            self.received.append((about.name, header.api_version, message))
            parts = encode_response(header.api_key, header.api_version, header.correlation_id, about.response())
            writer.write(b"".join(parts))
        writer.close()
