"""A whole node on a simulated machine, and clients that send frames to it and tell what became of each."""

import asyncio
import gc
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from tests.frame_fuzzer.frames import TOPIC

from klamm.broker.node import Node, start_node
from klamm.client.connection import Connection
from klamm.config.node_config import parse_node_config
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.cluster_tier.watch import unexpected_errors
from klamm.sim.hosts import ScheduledCallback
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import Universe
from klamm.sim.zookeeper.ensemble import Ensemble
from klamm.sim.zookeeper.server import Server
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.errors import WireError
from klamm.wire.frames import decode_request_header, decode_response
from klamm.wire.messages import CreatableTopic, CreateTopicsRequest

T = TypeVar("T")
MAX_HOLD_S: Final = 0.050
MIN_MEASURED_S: Final = 0.001
STEP_S: Final = 0.002
ROUNDS_BETWEEN_COLLECTIONS: Final = 64
"""After so many rounds all garbage is collected, after the others what is young."""
MAX_ANSWER_STEPS: Final = 25
"""After so many steps of simulated time without an answer the clients leave."""
CONFIG: Final = b"""broker.id=1
zookeeper.connect=zk:2181
listeners=PLAINTEXT://:9092
log.dirs=/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
num.partitions=1
socket.request.max.bytes=1000000
klamm.controller.standby=false
"""


class Outcome(NamedTuple):
    """What a frame led to: `response`, `closed`, `no answer yet`; and what is wrong about it."""

    kind: str
    problem: str | None = None


class Round(NamedTuple):
    """What the frames led to that were sent together, in their order."""

    outcomes: list[Outcome]
    held_s: float
    """Processor time of the longest callback."""
    problem: str | None = None
    """What is wrong that may come of any of the frames."""


class FuzzedNode:
    """The client's side of a started node."""

    def __init__(self, loop: "_MeasuredLoop", node: Node, client: World, errors: list[str]) -> None:
        self._loop = loop
        self._node = node
        self._client = client
        self._errors = errors
        self._connections: list[_Client] = []
        self._rounds = 0
        self.topic_id = uuid.UUID(int=0)

    async def create_topic(self) -> None:
        """Create the topic that frames name, once the node is controller."""
        while not self._node.parts.controller.is_active:  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(0.1)
        connection = await Connection.open(self._client, "node", 9092, "fuzzer", 30)
        made = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], timeout_ms=10_000)
        answer = await connection.request(ApiKey.CREATE_TOPICS, 7, made, 30)
        assert not answer.topics[0].error_code, answer
        self.topic_id = answer.topics[0].topic_id
        connection.close()

    async def send(self, frames: Sequence[bytes]) -> Round:
        """Send each frame over a connection of its own, all at once.

        Wait until each is answered or its connection closed, or until nothing happens for long.
        """
        self._collect_garbage()
        self._loop.measure_anew()  # also what the frames of the round before left to do
        clients = await self._connect(len(frames))
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame)
        for _ in range(MAX_ANSWER_STEPS):
            await asyncio.sleep(STEP_S)
            if all(client.has_answer or client.is_closed for client in clients):
                break
        longest = self._loop.longest_s
        outcomes = [_outcome(client, frame) for client, frame in zip(clients, frames, strict=True)]
        return Round(outcomes, longest, self._unexpected(longest))

    def _collect_garbage(self) -> None:
        """Free what the simulated connections of the rounds before left in cycles: these frames do not cost that."""
        self._rounds += 1
        gc.collect(1 if self._rounds % ROUNDS_BETWEEN_COLLECTIONS else 2)

    async def _connect(self, count: int) -> list["_Client"]:
        """Return so many open connections, those of the round before among them."""
        connections = [client for client in self._connections if not client.is_closed]
        while len(connections) < count:
            connections.append(await self._client.network.connect(_Client, "node", 9092))
        self._connections = connections
        return connections[:count]

    @property
    def has_failed(self) -> bool:
        """Whether the node gives up."""
        return self._node.parts.context.status.failure.done()

    def _unexpected(self, held_s: float) -> str | None:
        """What nobody foresaw: an error with a trace, a node that gives up, a held loop."""
        if self._errors:
            first = self._errors[0]
            self._errors.clear()
            return first
        if self.has_failed:
            return f"the node fails: {self._node.parts.context.status.failure.result()}"
        return f"the loop is held for {held_s * 1000:.0f} ms" if held_s > MAX_HOLD_S else None


class _MeasuredLoop(SimulatedLoop):
    """A simulated loop that measures the processor time of the longest callback.

    Callbacks that together take less than `MIN_MEASURED_S` by the clock are measured together: reading the processor
    time takes as long as most callbacks.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.longest_s = 0.0
        self._began = self._clock = 0.0
        self._pop_next = self._ready.pop_next
        self._ready.pop_next = self._measured_pop  # type: ignore[method-assign]

    def measure_anew(self) -> None:
        """Forget what ran until now, also of the running callback."""
        self.longest_s = 0.0
        self._began, self._clock = time.thread_time(), time.perf_counter()

    def _measured_pop(self) -> ScheduledCallback | None:
        """Take the next callback; the one before has ended."""
        if time.perf_counter() - self._clock > MIN_MEASURED_S:
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - self._began)
            self._began, self._clock = now, time.perf_counter()
        return self._pop_next()


class _Client(asyncio.Protocol):
    """A raw connection."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_closed = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def send(self, frame: bytes) -> None:
        self._transport.write(struct.pack(">i", len(frame)) + frame)

    @property
    def has_answer(self) -> bool:
        """Whether a whole response is there."""
        received = self.received
        return len(received) >= 4 and len(received) >= 4 + struct.unpack_from(">i", received)[0]

    def close(self) -> None:
        self.is_closed = True
        self._transport.abort()


def _outcome(client: _Client, frame: bytes) -> Outcome:
    """What the frame that the client sent led to; a client without an answer leaves."""
    if client.has_answer:
        problem = _why_wrong(frame, bytes(client.received))
        client.received.clear()
        return Outcome("response", problem)
    if client.is_closed:
        return Outcome("closed")
    client.close()  # acks=0, or it waits: the next frame gets a connection of its own
    return Outcome("no answer yet")


def _why_wrong(frame: bytes, received: bytes) -> str | None:
    """Why the bytes are no answer to this request; None if they are."""
    (size,) = struct.unpack_from(">i", received)
    if len(received) != size + 4:
        return f"{len(received)} bytes came for a response of {size}"
    header, _ = decode_request_header(frame)
    try:
        correlation_id, _ = decode_response(received[4:], header.api_key, header.api_version)
    except WireError as error:
        return f"the response cannot be decoded: {error}"
    return None if correlation_id == header.correlation_id else f"the response is for request {correlation_id}"


def with_node(seed: int, main: Callable[[FuzzedNode], Awaitable[T]]) -> T:
    """Run `main` with a started node that has one topic, then stop everything."""
    errors: list[str] = []

    async def run() -> T:
        universe = Universe.of(loop)
        _, world = universe.start("ensemble")
        ensemble = Ensemble(world.clock, Rng(f"{seed}/ensemble"))
        ensemble.start()
        host, world = universe.start("zk")
        await loop.spawn(host, Server(ensemble).listen(world.network, "", 2181))
        host, world = universe.start("node")
        universe.disks["node"].make_directories("/data")
        started = await loop.spawn(host, start_node(world, parse_node_config(CONFIG, "fuzzer"), LogLevels()))
        fuzzed = FuzzedNode(loop, started, universe.start("client")[1], errors)
        await fuzzed.create_topic()
        errors.clear()
        freeze_startup_objects()  # as a node does
        return await main(fuzzed)

    loop, thresholds = _MeasuredLoop(seed), gc.get_threshold()
    with unexpected_errors(errors.append):
        try:
            return loop.run(run())
        finally:
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            gc.collect()
