"""Controllers on a real ZooKeeper, with brokers that only record."""

from functools import partial
from itertools import count

from tests.support.controller_room import ListSink
from tests.support.recorder_broker import RecorderBroker

from klamm.client.connection import Connection
from klamm.controller.controller import Controller
from klamm.controller.settings import ControllerSettings
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.ids import BrokerId
from klamm.runtime.world import real_world
from klamm.telemetry.journal import Journal
from klamm.zk.client import ZooKeeper
from klamm.zk.store import Store

_chroots = count(1)


class World:
    """A chroot of its own on the shared server, and the brokers and controllers that a test starts there."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.hosts = f"{server.connect_string}/controller-{next(_chroots)}"
        self.clients: list[ZooKeeper] = []
        self.controllers: list[Controller] = []
        self.brokers: list[RecorderBroker] = []
        self.sinks: dict[int, ListSink] = {}

    async def client(self, session_timeout_ms: int = 30_000) -> ZooKeeper:
        client = ZooKeeper(real_world(), self.hosts, session_timeout_ms)
        await client.connect(60)
        self.clients.append(client)
        return client

    async def store(self) -> Store:
        store = Store(await self.client())
        await store.create_top_level_paths()
        return store

    async def broker(self, number: int) -> RecorderBroker:
        broker = RecorderBroker(number, self.hosts)
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def controller(self, number: int) -> Controller:
        client = await self.client()
        world = real_world()
        sink = self.sinks[number] = ListSink()
        controller = Controller(
            world,
            ControllerSettings(BrokerId(number)),
            partial(Connection.open, world),
            Journal(sink, number, world.clock),
            self._registration_by_recorder,
        )
        client.on_watch = controller.on_watch
        controller.start(Store(client))
        self.controllers.append(controller)
        return controller

    async def _registration_by_recorder(self, store: Store) -> None:
        return

    async def close(self) -> None:
        for controller in self.controllers:
            await controller.stop()
        for broker in self.brokers:
            await broker.stop()
        for client in self.clients:
            await client.close()
