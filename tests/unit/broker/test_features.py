"""A node follows `/feature`, and tells its clients."""

import asyncio

from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper
from tests.unit.broker.cluster_state import request

from klamm.broker.features import NOTHING_FINALIZED, Features
from klamm.broker.handlers.api_versions import ApiVersions
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import ApiKey
from klamm.wire.messages import ApiVersionsRequest
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.store import Store


class Room:
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.session = self._connect()
        self.features = Features(lambda: Store(self.session))

    def _connect(self) -> MemoryZooKeeper:
        session = self.ensemble.client()
        session.on_watch = lambda event: self.features.on_watch(event)
        return session

    def put(self, text: str) -> None:
        op = Set if "/feature" in self.ensemble.nodes else Create
        self.ensemble.apply([op("/feature", text.encode())])


ENABLED = '{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
DISABLED = '{"version":1,"status":0,"features":{}}'


def test_the_finalized_features_of_a_broker_follow_changes_of_the_feature_znode() -> None:
    async def main() -> None:
        room = Room()
        room.features.start()
        await asyncio.sleep(1)
        assert (room.features.levels, room.features.epoch) == ({}, NOTHING_FINALIZED)

        waiting = asyncio.ensure_future(room.features.wait_for_epoch(1, 30))
        room.put(ENABLED)
        await asyncio.sleep(1)
        assert (room.features.levels, room.features.epoch) == ({"f": 3}, 0)
        assert not waiting.done()

        room.put(DISABLED)
        assert await waiting
        assert (room.features.levels, room.features.epoch) == ({}, NOTHING_FINALIZED)

        room.put("{nonsense")
        await asyncio.sleep(1)
        room.ensemble.apply([Delete("/feature")])
        await asyncio.sleep(1)
        room.put(ENABLED)
        await asyncio.sleep(1)
        assert room.features.epoch == 0
        await room.features.close()

    SimulatedLoop().run(main())


def test_waiting_for_a_finalized_features_epoch_ends_at_the_timeout() -> None:
    async def main() -> None:
        room = Room()
        room.features.start()
        assert not await room.features.wait_for_epoch(0, 5)
        await room.features.close()

    SimulatedLoop().run(main())


async def test_api_versions_lists_finalized_features_from_version_3_on() -> None:
    room = Room()
    room.put(ENABLED)
    await room.features.read()
    handler = ApiVersions([], room.features)

    answer = handler.handle(request(ApiKey.API_VERSIONS, 3), ApiVersionsRequest("klamm", "1"))

    answer.encode(3)
    assert answer.finalized_features_epoch == 0
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [("f", 3)]
