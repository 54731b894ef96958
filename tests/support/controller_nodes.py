"""Whole controllers on ZooKeeper in memory, each with a broker that answers at once unless told not to."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.controller_room import FixedClock, ListSink, broker
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.controller.controller import Controller
from klamm.controller.observer import Observer
from klamm.controller.settings import ControllerSettings
from klamm.controller.standby import StandbyPorts
from klamm.controller.term_context import WaitForFeatures
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import Entry, parse_lines
from klamm.wire.api import ApiKey, api
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.store import Store
from klamm.zk.znodes import CONTROLLER_EPOCH

QUIET_PASSES = 40
"""Passes of the loop without any activity after which the nodes count as settled."""


class Receiver:
    """A broker as the controller sees it: keeps decoded requests, answers with success or what `answer` says."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.received: list[tuple[str, Any]] = []
        self.refuses_connections = False
        self.hold: asyncio.Event | None = None
        self.answer: Callable[[ApiKey, Any], Any] = lambda key, request: None

    def take(self, name: str) -> list[Any]:
        """Remove and return the requests of this API."""
        taken = [request for kind, request in self.received if kind == name]
        self.received = [(kind, request) for kind, request in self.received if kind != name]
        return taken


class FakeConnection:
    def __init__(self, receiver: Receiver, activity: Callable[[], None]) -> None:
        self.closed = False
        self._receiver = receiver
        self._activity = activity

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        self._activity()
        about = api(api_key)
        decoded = about.request.decode(b"".join(message.encode_pieces(version)), version)
        self._receiver.received.append((about.name, decoded))
        await asyncio.sleep(0)
        if self._receiver.hold is not None:
            await self._receiver.hold.wait()
        if self.closed or self._receiver.refuses_connections:
            raise KlammError("connection lost")
        answer = self._receiver.answer(api_key, decoded) or about.response()
        return about.response.decode(answer.encode(version), version)

    def close(self) -> None:
        self.closed = True


async def _has_all_features(epoch: int, timeout_s: float) -> bool:
    return True


class Nodes:
    """Whole controllers on one ZooKeeper in memory, with brokers that answer their requests."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.receivers: dict[int, Receiver] = {}
        self.controllers: dict[int, Controller] = {}
        self.clients: dict[int, MemoryZooKeeper] = {}
        self.registrars: dict[int, BrokerRegistrar] = {}
        self.sinks: dict[int, ListSink] = {}
        self._busy = 0

    @property
    def controller_epoch(self) -> int:
        """As ZooKeeper has it."""
        return int(self.ensemble.nodes[CONTROLLER_EPOCH].data or b"")

    async def start(
        self,
        number: int,
        settings: ControllerSettings | None = None,
        observer: Observer | None = None,
        wait_for_features: WaitForFeatures = _has_all_features,
        standby: StandbyPorts | None = None,
    ) -> Controller:
        """Register broker `number`, and start its controller; with `standby` it keeps a mirror."""
        self.receivers[number] = Receiver(number)
        client = self._connect(number)
        store = Store(client)
        await store.create_top_level_paths()
        self.registrars[number] = BrokerRegistrar(broker(number))
        await self._register(number, store)
        self.sinks[number] = ListSink()
        controller = Controller(
            World(FixedClock(), None, None, RealRandomness()),  # type: ignore[arg-type]
            settings or ControllerSettings(BrokerId(number), resend_pause_ms=0),
            self._connect_to,
            Journal(self.sinks[number], number, FixedClock()),
            lambda s: self._register(number, s),
            observer or Observer(),
            wait_for_features,
            standby=standby,
        )
        self.controllers[number] = controller
        client.on_watch = controller.on_watch
        controller.start(store)
        return controller

    async def expire(self, number: int) -> None:
        """Expire the session, and give the controller a new one, as a node does."""
        self.ensemble.expire(self.clients[number])
        await self.controllers[number].session_expired()
        client = self._connect(number)
        client.on_watch = self.controllers[number].on_watch
        self.controllers[number].session_established(Store(client))

    async def stop(self, number: int) -> None:
        await self.controllers.pop(number).stop()
        self.ensemble.expire(self.clients.pop(number))

    async def close(self) -> None:
        for number in list(self.controllers):
            await self.stop(number)

    def _connect(self, number: int) -> MemoryZooKeeper:
        client = self.clients[number] = self.ensemble.client()
        return client

    async def _register(self, number: int, store: Store) -> int:
        return await self.registrars[number].register(store.client, 0)

    async def _connect_to(self, host: str, port: int, client_id: str, timeout_s: float) -> FakeConnection:
        receiver = self.receivers[port - 9000]
        if receiver.refuses_connections:
            raise KlammError(f"no connection to {host}:{port}")
        return FakeConnection(receiver, self._count_activity)

    def _count_activity(self) -> None:
        self._busy += 1

    async def settle(self) -> None:
        """Wait until there was no event, no write and no request for many passes of the loop."""
        quiet = 0
        before: tuple[int, ...] = ()
        while quiet < QUIET_PASSES:
            await asyncio.sleep(0)
            queues = sum(c.queue_size + c.state for c in self.controllers.values())
            now = (self.ensemble.zxid, self._busy, queues)
            quiet = quiet + 1 if now == before else 0
            before = now

    async def eventually(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds: also for timers of some ms, which take any number of passes of the loop."""
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - no event of its own
                await asyncio.sleep(0)

    async def topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until the controllers have handled it."""
        partitions = {i: ReplicaAssignment(tuple(map(BrokerId, r))) for i, r in enumerate(assignment)}
        client = self.ensemble.client()
        await Store(client).create_topic(name, partitions, None, config or {})
        await self.settle()

    @property
    def active(self) -> list[int]:
        """The numbers of the active controllers."""
        return [n for n, c in self.controllers.items() if c.is_active]

    def journal(self, number: int, kind: str) -> list[Entry]:
        return [e for e in parse_lines(self.sinks[number].content) if e.kind == kind]
