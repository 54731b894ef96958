"""A registration that somebody deletes while its broker lives comes back; one of a session that is over is not ours."""

import asyncio

from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.broker.registration_watch import RegistrationWatch
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.operations import Delete
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.store import Store
from klamm.zk.watches import EventType, WatchEvent
from klamm.zk.znodes import broker_path

PATH = broker_path(BrokerId(1))


class Room:
    """Broker 1, whose znode others can reach."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.registrar = BrokerRegistrar(Broker(BrokerId(1), ()))
        self.epochs: list[int] = []
        self.own = RegistrationWatch(lambda: Store(self.session), BrokerId(1), self.register)
        self.session = self.new_session()

    def new_session(self) -> MemoryZooKeeper:
        session = self.ensemble.client()
        session.on_watch = self.own.on_watch
        return session

    async def register(self, store: Store) -> None:
        self.epochs.append(await self.registrar.register(store.client, 0))
        self.own.on_registered(store.client.session_id)

    async def begin(self) -> None:
        await Store(self.session).create_top_level_paths()
        await self.register(Store(self.session))
        self.own.start()
        await asyncio.sleep(1)

    @property
    def owner(self) -> int | None:
        """The session that owns the registration; None without one."""
        node = self.ensemble.nodes.get(PATH)
        return node.stat().ephemeral_owner if node is not None else None

    async def delete(self) -> None:
        self.ensemble.apply([Delete(PATH)])
        await asyncio.sleep(2)


def test_a_broker_whose_registration_is_deleted_registers_again_with_a_new_broker_epoch() -> None:
    async def main() -> None:
        room = Room()
        await room.begin()
        for count in (2, 3):
            await room.delete()
            assert (room.owner, len(room.epochs)) == (room.session.session_id, count)

        assert sorted(set(room.epochs)) == room.epochs
        await room.own.close()

    SimulatedLoop().run(main())


def test_the_registration_watch_of_an_expired_session_does_not_register_the_broker_again() -> None:
    async def main() -> None:
        room = Room()
        await room.begin()
        old, room.session = room.session, room.new_session()
        room.ensemble.expire(old)
        room.own.on_watch(WatchEvent(EventType.DELETED, PATH))
        await asyncio.sleep(2)
        assert room.owner is None

        await room.register(Store(room.session))
        await asyncio.sleep(1)
        await room.delete()
        assert room.owner == room.session.session_id
        await room.own.close()

    SimulatedLoop().run(main())
