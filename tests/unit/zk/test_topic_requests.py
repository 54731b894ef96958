"""Topic administration by any node: partitions are added once, also where the answer of ZooKeeper is lost."""

import uuid

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.zk.jute import Stat
from klamm.zk.operations import Set
from klamm.zk.store import Store
from klamm.zk.znodes import encode_topic, topic_path

B1, B2 = BrokerId(1), BrokerId(2)
TOPIC_ID = uuid.UUID(int=7)


async def topic_a(client: MemoryZooKeeper) -> Store:
    """A store with topic `a` that has one partition."""
    store = Store(client)
    await store.create_top_level_paths()
    await store.create_topic("a", {0: ReplicaAssignment((B1,))}, TOPIC_ID, {})
    return store


async def test_partitions_whose_write_was_answered_too_late_count_as_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection broke after the server had applied the write: the client sends it again."""
    client = MemoryEnsemble().client()
    store = await topic_a(client)
    set_once = client.set

    async def set_twice(path: str, data: bytes | None, version: int = -1) -> Stat:
        await set_once(path, data, version)
        return await set_once(path, data, version)

    monkeypatch.setattr(client, "set", set_twice)
    read = await store.topic_requests.read("a")
    assert read is not None

    assert await store.topic_requests.add_partitions("a", read[0], {1: (B2,)}, read[1])
    assert await store.read_partition_count("a") == 2


async def test_partitions_that_another_client_added_first_are_not_taken_for_ours() -> None:
    ensemble = MemoryEnsemble()
    store = await topic_a(ensemble.client())
    read = await store.topic_requests.read("a")
    assert read is not None
    others = {0: ReplicaAssignment((B1,)), 1: ReplicaAssignment((B1,))}
    ensemble.apply([Set(topic_path("a"), encode_topic(TOPIC_ID, others))])

    assert not await store.topic_requests.add_partitions("a", read[0], {1: (B2,)}, read[1])
