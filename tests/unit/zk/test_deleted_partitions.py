"""Which partitions are deleted, by the newest state of ZooKeeper."""

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.loop import SimulatedLoop
from klamm.zk import znodes
from klamm.zk.operations import Create
from klamm.zk.store import Store

PRESENT, ADDED, GONE, LEAVING, DAMAGED = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("gone", 0),
    TopicPartition("leaving", 0),
    TopicPartition("damaged", 0),
)


@pytest.mark.parametrize(("requests_count", "requested"), [(True, [LEAVING]), (False, [])])
def test_partitions_without_a_znode_or_with_a_deletion_request_are_deleted(
    requests_count: bool, requested: list[TopicPartition]
) -> None:
    """Where deletion of topics is disabled, a request deletes nothing."""

    async def main() -> None:
        ensemble = MemoryEnsemble()
        store = Store(ensemble.client())
        await store.create_top_level_paths()
        one_partition = znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))})
        ensemble.apply(
            [
                Create(znodes.topic_path("orders"), one_partition),
                Create(znodes.topic_path("leaving"), one_partition),
                Create(znodes.topic_path("damaged"), b"{"),
                Create(znodes.delete_topic_path("leaving")),
            ]
        )

        deleted = await store.deleted_partitions([PRESENT, ADDED, GONE, LEAVING, DAMAGED], requests_count)

        assert deleted == {ADDED, GONE, *requested}

    SimulatedLoop().run(main())
