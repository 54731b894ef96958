"""A broker that only records: it registers, keeps every control request, and answers as configured."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.frames import read_frames
from tests.support.recorder_broker import broker_at

from klamm.model.brokers import Broker
from klamm.runtime.world import real_world
from klamm.wire.api import api
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.registrations import encode_registration
from klamm.zk.znodes import broker_path

PATIENT_SESSION_MS = 30_000
SHORT_SESSION_MS = 3_000
"""Long enough for a busy machine: before the session ends, the step before has to be complete."""
NOW_MS = 1_700_000_000_000


class Recorder:
    """One process of a broker that only listens; a restarted broker is another `Recorder`."""

    def __init__(self, number: int, hosts: str, session_timeout_ms: int = PATIENT_SESSION_MS) -> None:
        self.number = number
        self.epoch = -1
        self.received: list[tuple[int, Any]] = []
        """Requests with their versions."""
        self.is_holding = False
        """A request came and waits for its answer."""
        self.errors: dict[str, int] = {}
        """By API: the error of every partition (LeaderAndIsr, StopReplica), or of the request (UpdateMetadata)."""
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._gates: dict[str, asyncio.Event] = {}
        self._to_break: Counter[str] = Counter()
        self.zookeeper: ZooKeeper | None = None

    # ---- start and stop

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.zookeeper = await self._connect()
        self.epoch = await BrokerRegistrar(self.broker).register(self.zookeeper, NOW_MS)

    @property
    def broker(self) -> Broker:
        assert self._server is not None
        return broker_at(self._server, self.number)

    @property
    def session(self) -> int:
        """The id of its ZooKeeper session."""
        assert self.zookeeper is not None
        return self.zookeeper.session_id

    async def die(self) -> None:
        """Close the session: the registration is gone at once."""
        assert self.zookeeper is not None
        await self.zookeeper.close()
        self._hang_up()

    async def vanish(self) -> None:
        """Stop without closing the session: the registration goes when it expires."""
        assert self.zookeeper is not None
        self.zookeeper._abort_session()
        self._hang_up()

    async def bounce(self, others_gone: Sequence[int] = ()) -> None:
        """Replace the registration within one transaction, which also removes those of `others_gone`."""
        assert self.zookeeper is not None
        before, self.zookeeper = self.zookeeper, await self._connect()
        path = broker_path(self.number)
        payload = encode_registration(self.broker, NOW_MS)
        gone = [Delete(broker_path(other)) for other in others_gone]
        anew: list[Op] = [Delete(path), Create(path, None, ephemeral=True), Set(path, payload, 0)]
        done = await self.zookeeper.multi([*gone, *anew])
        assert done[-1].stat is not None, done
        self.epoch = done[-1].stat.czxid
        await before.close()

    async def change_registration(self, content: Callable[[bytes], bytes]) -> None:
        """Rewrite the registration with changed content."""
        assert self.zookeeper is not None
        path = broker_path(self.number)
        await self.zookeeper.set(path, content(encode_registration(self.broker, NOW_MS)))

    async def _connect(self) -> ZooKeeper:
        client = ZooKeeper(real_world(), self._hosts, self._session_timeout_ms)
        await client.connect(60)
        return client

    def _hang_up(self) -> None:
        """Stop listening and close all connections."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        for gate in self._gates.values():
            gate.set()

    # ---- how it answers the next requests

    def hold(self, api_name: str) -> None:
        """Receive requests of this API but answer them only after `release`."""
        self._gates[api_name] = asyncio.Event()

    def release(self, api_name: str) -> None:
        self._gates.pop(api_name).set()

    def break_once(self, api_name: str) -> None:
        """Close the connection instead of the next answer to this API."""
        self._to_break[api_name] += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._serve_frames(reader, writer)
        except ConnectionError:
            pass  # the controller hung up, as it does when it resigns
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in read_frames(reader):
            header, at = decode_request_header(frame)
            about = api(header.api_key)
            message = about.request.decode(frame, header.api_version, at)
            self.received.append((header.api_version, message))
            if (gate := self._gates.get(about.name)) is not None:
                self.is_holding = True
                await gate.wait()
                self.is_holding = False
            if self._to_break[about.name]:
                self._to_break[about.name] -= 1
                return
            answer = self._answer(about.name, header.api_version, message) or about.response()
            parts = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
            writer.write(b"".join(parts))

    def _answer(self, name: str, version: int, message: Any) -> Any:
        """The response, with an entry for every partition; None if an empty response is right."""
        error = self.errors.get(name, 0)
        if isinstance(message, LeaderAndIsrRequest) and version >= 5:
            return LeaderAndIsrResponse(
                topics=[
                    LeaderAndIsrTopicError(
                        t.topic_id,
                        [LeaderAndIsrPartitionError("", p.partition_index, error) for p in t.partition_states],
                    )
                    for t in message.topic_states
                ]
            )
        if isinstance(message, StopReplicaRequest):
            stopped = [(t.topic_name, p.partition_index) for t in message.topic_states for p in t.partition_states]
            return StopReplicaResponse(partition_errors=[StopReplicaPartitionError(*s, error) for s in stopped])
        return api(message.API_KEY).response(error_code=error)
