"""Changes a cluster and measures how long the controller under test takes to handle each change."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.control_plane.silent import Key, SilentBrokers
from benchmarks.control_plane.subject import ID, Subject
from benchmarks.control_plane.tree import BROKERS, spread
from klamm.client.connection import Connection
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    ControlledShutdownRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode
from klamm.zk.operations import Create, Delete
from klamm.zk.registrar import BrokerRegistrar

SESSION_MS: Final = 60_000
LOOK_S: Final = 0.05
QUIET_S: Final = 0.4
REST_S: Final = 20.0
ANSWER_S: Final = 1_200
PATIENCE_S: Final = 600
"""The longest wait for one condition; Apache Kafka's slowest step takes a quarter of it."""
TOPICS_PER_REQUEST: Final = 100


class Measured(NamedTuple):
    """Time, processor time and requests of one step."""

    step: str
    took_s: float
    cpu_s: float
    held_ms: float | None
    requests: int
    first_s: float | None = None
    """Until the first partition is led: its leader got a LeaderAndIsr. None where brokers get none."""
    median_s: float | None = None
    """The same for half of the partitions."""
    all_led_s: float | None = None
    """The same for all partitions."""
    memory_mib: float | None = None
    """The resident memory at the end of a time of rest; None for other steps."""


class Stage:
    """The registrations of the silent brokers, and a connection to the node under test."""

    def __init__(self, zookeeper: str, silent: SilentBrokers, subject: Subject) -> None:
        self._world = real_world()
        self._hosts = zookeeper
        self._silent = silent
        self._ports = dict(zip(BROKERS, silent.ports, strict=True))
        self._sessions: dict[int, ZooKeeper] = {}
        self._connection: Connection | None = None
        self.subject = subject
        self.measured: list[Measured] = []
        self.client: ZooKeeper

    async def open(self) -> None:
        self.client = await self._session()

    async def close(self) -> None:
        for session in (*self._sessions.values(), self.client):
            await session.close()
        if self._connection is not None:
            self._connection.close()

    async def _session(self) -> ZooKeeper:
        """Open a ZooKeeper session."""
        client = ZooKeeper(self._world, self._hosts, SESSION_MS)
        await client.connect(30)
        return client

    # ---- acts

    async def register(self, number: int) -> None:
        """Register a silent broker."""
        client = self._sessions[number] = await self._session()
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", self._ports[number])
        await BrokerRegistrar(Broker(BrokerId(number), (endpoint,))).register(client, 0)

    async def unregister(self, numbers: Iterable[int]) -> None:
        """End the sessions of silent brokers."""
        for number in list(numbers):
            await self._sessions.pop(number).close()

    async def unregister_and_wait(self, numbers: Iterable[int]) -> None:
        """End sessions, and wait until the controller has handled it: nobody may be left to receive a request."""
        await self.unregister(numbers)
        await self._through_the_queue()
        await self._through_the_queue()

    async def bounce(self, number: int) -> None:
        """Restart a broker, and wait until the controller has handled it."""
        await self.unregister([number])
        await self.register(number)
        await self._wait_until_settled()

    async def start_subject_as_standby(self) -> None:
        """Start the node under test while another broker is controller."""
        await self.client.create(znodes.CONTROLLER, znodes.encode_controller(BrokerId(1), 0), ephemeral=True)
        await self.subject.start()

        async def registered() -> bool:
            return await self.client.exists(znodes.broker_path(BrokerId(ID))) is not None

        await poll_until(registered, f"broker {ID} is registered")

    async def ask(self, api_key: ApiKey, version: int, message: Any) -> Any:
        """Send a request to the node under test."""
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(self._world, *self.subject.address, "bench", 10)
        return await self._connection.request(api_key, version, message, ANSWER_S)

    async def controlled_shutdown(self, number: int) -> None:
        _, stat = await self.client.get(znodes.broker_path(BrokerId(number)))
        answer = await self.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, ControlledShutdownRequest(number, stat.czxid))
        assert not answer.error_code, ErrorCode(answer.error_code).name
        assert not answer.remaining_partitions, f"{len(answer.remaining_partitions)} partitions remain"

    async def create_topics(self, names: Sequence[str], partitions: int) -> None:
        for start in range(0, len(names), TOPICS_PER_REQUEST):
            placed = [CreatableReplicaAssignment(n, spread(n)) for n in range(partitions)]
            wanted = [CreatableTopic(name, -1, -1, placed) for name in names[start : start + TOPICS_PER_REQUEST]]
            answer = await self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(wanted, timeout_ms=600_000))
            refused = [(t.name, t.error_code, t.error_message) for t in answer.topics if t.error_code]
            assert not refused, refused[:3]

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, and wait until their znodes are deleted."""
        for start in range(0, len(names), TOPICS_PER_REQUEST):
            wanted = [DeleteTopicState(name=n) for n in names[start : start + TOPICS_PER_REQUEST]]
            answer = await self.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(wanted, timeout_ms=600_000))
            refused = [(t.name, t.error_code, t.error_message) for t in answer.responses if t.error_code]
            assert not refused, refused[:3]

        async def gone() -> bool:
            return set(names).isdisjoint((await self.client.children(znodes.TOPICS))[0])

        await poll_until(gone, "the deleted topics are gone")

    async def reassign(self, targets: Iterable[tuple[str, dict[int, tuple[int, ...]]]]) -> None:
        """Start reassignments, and wait until all are complete."""
        wanted = [ReassignableTopic(t, [ReassignablePartition(n, r) for n, r in ps.items()]) for t, ps in targets]
        request = AlterPartitionReassignmentsRequest(600_000, wanted)
        answer = await self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        refused = [(t.name, p.error_code) for t in answer.responses for p in t.partitions if p.error_code]
        assert not answer.error_code, ErrorCode(answer.error_code).name
        assert not refused, refused[:3]

        async def done() -> bool:
            return not (await self._reassignments()).topics

        await poll_until(done, "all reassignments are complete")

    # ---- time

    async def measure(
        self, step: str, act: Callable[[], Awaitable[float | None]], leaderless: Collection[Key] | None = None
    ) -> Measured:
        """Time a step. `act` returns the moment that counts as its beginning, seconds since 1970; None: its call.

        The first and the median partition are those of `leaderless`, which lose their leader in this step; None: all.
        """
        self._silent.forget_leaders()
        before, cpu_s = self._silent.seen(), self.subject.cpu_s()
        self.subject.begin(step)
        called = time.time()
        began = await act() or called
        await self._wait_until_settled()
        seen, held = self._silent.seen(), self.subject.held_ms()
        end = seen.last_s if seen.last_s > began else time.time()
        led = self._silent.led_since(leaderless)
        led_s = [led[n] - began for n in (0, len(led) // 2, -1)] if led else [None] * 3
        requests = seen.requests - before.requests
        found = Measured(step, end - began, self.subject.cpu_s() - cpu_s, held, requests, *led_s)
        self.measured.append(found)
        return found

    async def timed(self, step: str, act: Callable[[], Awaitable[None]]) -> Measured:
        """Time a step that ends when `act` returns, because its caller waits for the response."""
        before, cpu_s = self._silent.seen(), self.subject.cpu_s()
        self.subject.begin(step)
        began = time.time()
        await act()
        took_s, held = time.time() - began, self.subject.held_ms()
        await self._wait_until_settled()
        requests = self._silent.seen().requests - before.requests
        found = Measured(step, took_s, self.subject.cpu_s() - cpu_s, held, requests)
        self.measured.append(found)
        return found

    async def rest(self, step: str) -> Measured:
        """Measure the memory, and the processor time of some seconds in which nothing happens."""
        await asyncio.sleep(QUIET_S)
        cpu_s, requests = self.subject.cpu_s(), self._silent.seen().requests
        self.subject.begin(step)
        await asyncio.sleep(REST_S)
        cpu_s, requests = self.subject.cpu_s() - cpu_s, self._silent.seen().requests - requests
        held, memory_mib = self.subject.held_ms(), self.subject.memory_mib()
        found = Measured(step, REST_S, cpu_s, held, requests, memory_mib=memory_mib)
        self.measured.append(found)
        return found

    async def become_controller(self) -> float:
        """Delete the other controller; returns when the node under test won the election."""
        await self.client.delete(znodes.CONTROLLER)

        async def elected() -> bool:
            return await self._controller_id() == ID

        await poll_until(elected, f"broker {ID} is elected")
        _, stat = await self.client.get(znodes.CONTROLLER_EPOCH)
        return stat.mtime / 1000

    async def become_standby(self, other: int = 1) -> None:
        """Make another broker the controller; wait until the node under test has read its mirror, or has resigned."""
        owner = znodes.encode_controller(BrokerId(other), 0)
        session = self._sessions[other]
        await session.multi([Delete(znodes.CONTROLLER), Create(znodes.CONTROLLER, owner, ephemeral=True)])
        if self.subject.keeps_mirror:
            await self.wait_until_current()
        else:
            await poll_until(self._has_resigned, f"broker {ID} has resigned")

    async def wait_until_current(self) -> None:
        """Wait until the node under test, which is not controller, has read its mirror."""
        await poll_until(self.subject.is_current, "the standby has read its mirror")

    async def _controller_id(self) -> int:
        try:
            found = znodes.decode_controller((await self.client.get(znodes.CONTROLLER))[0])
        except NoNode:
            return -1
        return found.broker if found else -1

    async def _reassignments(self) -> Any:
        """The running reassignments."""
        request = ListPartitionReassignmentsRequest(600_000, None)
        return await self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)

    async def _wait_until_settled(self) -> None:
        """Send two requests through the queue: responses of brokers are events too."""
        for _ in range(2):
            await self._through_the_queue()
            last, since = self._silent.seen().requests, time.monotonic()
            while time.monotonic() < since + QUIET_S:
                await asyncio.sleep(LOOK_S)
                if (now := self._silent.seen().requests) != last:
                    last, since = now, time.monotonic()

    async def _through_the_queue(self) -> None:
        """Send a request through the controller's event queue, and wait for its answer."""

        async def answered() -> bool:
            return await self._answer_of_controller() is ErrorCode.NONE

        await poll_until(answered, f"broker {ID} answers as controller")

    async def _has_resigned(self) -> bool:
        """Whether the node under test says that it is not controller."""
        return await self._answer_of_controller() is ErrorCode.NOT_CONTROLLER

    async def _answer_of_controller(self) -> ErrorCode | None:
        """The error of a request to the controller; None without an answer."""
        try:
            return ErrorCode((await self._reassignments()).error_code)
        except KlammError:
            return None


async def poll_until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition. Raises RuntimeError after PATIENCE_S: the figure would mean nothing."""
    deadline = time.monotonic() + PATIENCE_S
    while not await holds():
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"waited {PATIENCE_S} s until {what}. Was the machine suspended, so that ZooKeeper sessions ended? "
                "Read the node's log, and run the benchmark again."
            )
        await asyncio.sleep(LOOK_S)
