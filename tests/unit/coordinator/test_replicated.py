"""Coordinators on real replicas: a commit counts once it is replicated, and the next leader has it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster
from tests.unit.coordinator.groups_room import P0 as ORDERS
from tests.unit.coordinator.groups_room import Room

from klamm.broker.leadership_check import LeadershipCheck
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.replicated_log import ReplicatedLog
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import CountedSlices
from klamm.sim.loop import SimulatedLoop
from klamm.wire.messages import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from klamm.zk.errors import ConnectionLoss
from klamm.zk.store import Store

PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
NONE = ErrorCode.NONE


def no_session() -> Store:
    """ZooKeeper cannot be reached."""
    raise ConnectionLoss("", "there is no session")


class Coordinators:
    """Brokers 1, 2 and 3, each with a coordinator, and the only partition of the offsets topic."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        cluster.metadata.topics = {OFFSETS_TOPIC: TOPIC_ID}
        self.rooms = {number: self._room(number) for number in cluster.brokers}

    def _room(self, number: int) -> Room:
        replicas = self.cluster.brokers[number]
        settings = GroupSettings()
        check = LeadershipCheck(BrokerId(number), replicas, no_session)
        own_log = ReplicatedLog(replicas, OFFSETS_TOPIC, check.confirm)
        groups = GroupCoordinator(self.cluster.world, settings, own_log, CountedSlices())
        replicas.on_leadership_change = groups.on_leadership_change
        groups.start(1)
        loop = asyncio.get_running_loop()
        return Room(loop, None, groups, settings)  # type: ignore[arg-type]

    async def elect(self, leader: int) -> Room:
        """The coordinator of the new leader, once it has loaded the groups."""
        await self.cluster.elect(leader, partition=PARTITION)
        await asyncio.sleep(1)
        return self.rooms[leader]

    def cut(self, *followers: int, leader: int = 1) -> None:
        self.cluster.cut |= {(follower, leader) for follower in followers}


Body = Callable[[Coordinators], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def play(body: Body) -> None:
        async def main() -> None:
            cluster = await ReplicaCluster.on_disk(str(tmp_path), min_insync_replicas=2)
            coordinators = Coordinators(cluster)
            try:
                await body(coordinators)
            finally:
                for room in coordinators.rooms.values():
                    await room.groups.close()
                await cluster.close()

        SimulatedLoop().run(main())

    return play


def test_the_next_group_coordinator_has_the_committed_offsets(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        first = await coordinators.elect(1)
        assert await first.commit({ORDERS: 5}) == {ORDERS: NONE}
        [member] = await first.stable()

        second = await coordinators.elect(2)

        assert second.fetch() == {ORDERS: 5}
        assert second.heartbeat(member) is NONE
        assert first.heartbeat(member) is ErrorCode.NOT_COORDINATOR
        assert await first.commit({ORDERS: 6}) == {ORDERS: ErrorCode.NOT_COORDINATOR}

    run(body)


def test_an_offset_commit_waits_for_the_followers_and_times_out_without_them(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        room = await coordinators.elect(1)
        coordinators.cut(2, 3)
        commit = asyncio.ensure_future(room.commit({ORDERS: 5}))
        await asyncio.sleep(4)
        assert not commit.done()
        assert room.fetch([ORDERS]) == {ORDERS: -1}
        assert await commit == {ORDERS: ErrorCode.REQUEST_TIMED_OUT}
        coordinators.cluster.cut.clear()
        await asyncio.sleep(5)
        assert await room.commit({ORDERS: 6}) == {ORDERS: NONE}

    run(body)


def test_an_offset_commit_without_enough_in_sync_replicas_is_refused(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        coordinators.cut(2, 3)
        await coordinators.cluster.elect(1, isr=(1,), partition=PARTITION)
        await asyncio.sleep(1)
        room = coordinators.rooms[1]
        assert await room.commit({ORDERS: 5}) == {ORDERS: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(body)


def test_a_coordinator_that_was_replaced_unheard_does_not_tell_its_old_committed_offsets(run: Run) -> None:
    """Apache Kafka's does: an exactly-once copier that reads them copies records a second time."""

    async def body(coordinators: Coordinators) -> None:
        first = await coordinators.elect(1)
        assert await first.commit({ORDERS: 5}) == {ORDERS: NONE}
        assert await first.groups.confirm_coordinator(["flights"]) == {"flights": NONE}
        coordinators.cut(2, 3)
        await coordinators.cluster.elect(2, isr=(2, 3), tell=(2, 3), partition=PARTITION)
        await asyncio.sleep(1)
        second = coordinators.rooms[2]
        assert await second.commit({ORDERS: 6}) == {ORDERS: NONE}

        assert await second.groups.confirm_coordinator(["flights"]) == {"flights": NONE}
        assert await first.groups.confirm_coordinator(["flights"]) == {"flights": ErrorCode.NOT_COORDINATOR}

    run(body)


def test_an_unfinished_offset_commit_gets_not_coordinator_when_the_leader_changes(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        room = await coordinators.elect(1)
        coordinators.cut(2, 3)
        commit = asyncio.ensure_future(room.commit({ORDERS: 5}))
        await asyncio.sleep(1)
        coordinators.cluster.cut.clear()

        await coordinators.elect(2)

        assert await commit == {ORDERS: ErrorCode.NOT_COORDINATOR}

    run(body)


def test_deleting_a_consumer_offsets_replica_unloads_its_groups(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        room = await coordinators.elect(1)
        await room.commit({ORDERS: 5})
        state = StopReplicaPartitionState(0, leader_epoch=5, delete_partition=True)
        topics = [StopReplicaTopicState(OFFSETS_TOPIC, [state])]
        request = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=topics)

        await coordinators.cluster.brokers[1].stop_replicas(request, 4)

        assert await room.commit({ORDERS: 6}) == {ORDERS: ErrorCode.NOT_COORDINATOR}

    run(body)


def test_a_group_coordinator_resigns_where_the_log_directory_of_its_partition_fails(run: Run) -> None:
    """The replica accepts no instruction any more: nothing else would ever tell the coordinator that it is replaced."""

    async def body(coordinators: Coordinators) -> None:
        room = await coordinators.elect(1)
        [member] = await room.stable()

        coordinators.cluster.brokers[1].set_offline([PARTITION])

        assert room.heartbeat(member) is ErrorCode.NOT_COORDINATOR
        error, _ = room.groups.fetch_offsets("flights", None, require_stable=False)
        assert error is ErrorCode.NOT_COORDINATOR

    run(body)


def test_groups_are_loaded_from_all_segments_of_the_consumer_offsets_partition(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        first = await coordinators.elect(1)
        for number in range(50):
            await first.commit({ORDERS: number}, group_id=f"g{number % 7}")
        own_log = coordinators.cluster.partition(1, PARTITION).leader_log
        own_log.roll()
        await first.commit({ORDERS: 100}, group_id="g3")

        second = await coordinators.elect(3)

        assert [second.fetch(group_id=f"g{n}")[ORDERS] for n in range(7)] == [49, 43, 44, 100, 46, 47, 48]

    run(body)


def test_becoming_leader_of_another_topics_partition_loads_no_groups(run: Run) -> None:
    async def body(coordinators: Coordinators) -> None:
        room = await coordinators.elect(1)
        other = TopicPartition("orders", 0)
        await coordinators.cluster.elect(2, partition=other)
        await coordinators.cluster.elect(3, partition=other)
        await asyncio.sleep(1)
        assert await room.commit({ORDERS: 5}) == {ORDERS: NONE}
        assert await coordinators.rooms[3].commit({ORDERS: 5}) == {ORDERS: ErrorCode.NOT_COORDINATOR}

    run(body)
