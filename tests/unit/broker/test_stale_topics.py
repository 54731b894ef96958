"""Topics that are gone leave the metadata, also where no controller tells of it any more."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.memory_zookeeper import MemoryEnsemble
from tests.unit.broker.cluster_state import broker, partition, update

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.stale_topics import StaleTopics
from klamm.sim.loop import SimulatedLoop
from klamm.wire.messages import UpdateMetadataRequest
from klamm.zk import znodes
from klamm.zk.errors import SessionExpired
from klamm.zk.operations import Create, Delete
from klamm.zk.store import Store


class Stage:
    """ZooKeeper with the topic `orders`, and a broker that was told of `orders` and of `gone`."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.cache = MetadataCache("PLAINTEXT")
        self.stores: list[Store] = []
        self.heard: list[str] = []
        self.mistakes: list[str] = []
        self.forgotten = StaleTopics(
            self.cache, self._store, self.heard.append, lambda what, error: self.mistakes.append(f"{what}: {error!r}")
        )
        self.cache.on_update = self.forgotten.metadata_updated

    def _store(self) -> Store:
        if not self.stores:
            raise SessionExpired("", "there is no session")
        return self.stores[-1]

    async def connect(self) -> None:
        store = Store(self.ensemble.client())
        await store.create_top_level_paths()
        self.stores.append(store)

    def tell(self, controller_epoch: int, *topics: str) -> None:
        """Apply an UpdateMetadata of this controller epoch."""
        message: UpdateMetadataRequest = update({t: [partition(0, 1)] for t in topics}, [broker(1)], ids={})
        message.controller_epoch = controller_epoch
        self.cache.update(message)


def play(act: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a scenario in which ZooKeeper and the metadata have the topics orders and gone."""

    async def main() -> None:
        stage = Stage()
        await stage.connect()
        stage.ensemble.apply([Create(znodes.topic_path("orders")), Create(znodes.topic_path("gone"))])
        stage.tell(1, "orders", "gone")
        await asyncio.sleep(1)
        assert sorted(stage.cache.topics()) == ["gone", "orders"]
        await act(stage)
        await stage.forgotten.close()

    SimulatedLoop().run(main())


def test_a_new_controller_epoch_makes_brokers_remove_topics_deleted_in_zookeeper_from_their_metadata() -> None:
    async def act(stage: Stage) -> None:
        stage.ensemble.apply([Delete(znodes.topic_path("gone"))])
        stage.tell(1)
        await asyncio.sleep(1)
        assert stage.cache.has_topic("gone")  # the controller that deleted it will tell

        stage.tell(2)
        await asyncio.sleep(1)

        assert list(stage.cache.topics()) == ["orders"]
        assert stage.heard == ["gone"]

    play(act)


def test_the_check_for_topics_deleted_in_zookeeper_is_retried_without_a_zookeeper_session() -> None:
    async def act(stage: Stage) -> None:
        store = stage.stores.pop()
        stage.ensemble.apply([Delete(znodes.topic_path("gone"))])
        stage.tell(2)
        await asyncio.sleep(5)
        assert stage.cache.has_topic("gone")

        stage.stores.append(store)
        await asyncio.sleep(5)

        assert list(stage.cache.topics()) == ["orders"]

    play(act)


def test_an_unexpected_error_does_not_prevent_later_checks_for_topics_deleted_in_zookeeper() -> None:
    async def act(stage: Stage) -> None:
        stage.ensemble.apply([Delete(znodes.topic_path("gone"))])

        class Broken(Store):
            async def list_topics(self, watch: bool = False) -> list[str]:
                raise ZeroDivisionError

        stage.stores.append(Broken(stage.stores[0].client))
        stage.tell(2)
        await asyncio.sleep(1)
        assert stage.mistakes == ["comparing metadata with ZooKeeper: ZeroDivisionError()"]

        stage.stores.pop()
        stage.tell(3)
        await asyncio.sleep(1)
        assert list(stage.cache.topics()) == ["orders"]

    play(act)


def test_a_topic_recreated_during_the_check_for_deleted_topics_stays_in_the_metadata() -> None:
    """It is told of between the look at ZooKeeper and the answer."""

    async def act(stage: Stage) -> None:
        stage.ensemble.apply([Delete(znodes.topic_path("gone"))])
        list_topics = Store.list_topics
        looks = 0

        class Slow(Store):
            async def list_topics(self, watch: bool = False) -> list[str]:
                nonlocal looks
                found = await list_topics(self, watch)
                looks += 1
                if looks == 2:
                    stage.ensemble.apply([Create(znodes.topic_path("gone"))])
                    stage.tell(2, "gone")
                return found

        stage.stores.append(Slow(stage.stores[-1].client))
        stage.tell(2)
        await asyncio.sleep(5)

        assert looks == 2
        assert sorted(stage.cache.topics()) == ["gone", "orders"]

    play(act)


def test_the_check_for_deleted_topics_reads_zookeeper_after_a_sync() -> None:
    """The server of this session may lag behind the one that a controller wrote the topic to."""

    async def act(stage: Stage) -> None:
        class Lagging(Store):
            is_synced = False

            async def sync(self, path: str) -> None:
                await super().sync(path)
                self.is_synced = True

            async def list_topics(self, watch: bool = False) -> list[str]:
                return await super().list_topics(watch) if self.is_synced else []

        stage.stores.append(Lagging(stage.stores[0].client))
        stage.tell(2)
        await asyncio.sleep(1)

        assert sorted(stage.cache.topics()) == ["gone", "orders"]

    play(act)
