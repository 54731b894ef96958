"""Leaders of old protocol versions write their ISR themselves, and tell the controller once in a while."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble

from klamm.broker.isr_znodes import (
    CHECK_INTERVAL_S,
    MAX_DELAY_S,
    MAX_PARTITIONS_PER_NOTIFICATION,
    MIN_QUIET_S,
    IsrZnodes,
)
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.sim.loop import SimulatedLoop
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
)
from klamm.zk.admin_znodes import decode_isr_change
from klamm.zk.jute import Stat
from klamm.zk.operations import Create, Set
from klamm.zk.session import SERVER_PACKET_BYTES
from klamm.zk.store import Store
from klamm.zk.znodes import ISR_CHANGES, decode_state, encode_state, state_path

ORDERS = TopicPartition("orders", 0)
FIRST = LeaderAndIsr(BrokerId(1), 4, (BrokerId(1), BrokerId(2)), 7, 0)


class Room:
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.session = self.ensemble.client()
        self.isr = IsrZnodes(lambda: Store(self.session), 1)

    async def begin(self) -> "Room":
        await Store(self.session).create_top_level_paths()
        await self.session.ensure_path(state_path(ORDERS).rpartition("/")[0])
        self.ensemble.apply([Create(state_path(ORDERS), encode_state(FIRST))])
        return self

    async def propose(
        self, isr: Sequence[int], partition_epoch: int = 0, leader_epoch: int = 4
    ) -> AlterPartitionResponsePartitionData:
        """Send an ISR change; the result of the partition."""

        def build(version: int) -> AlterPartitionRequest:
            data = AlterPartitionRequestPartitionData(
                partition_index=0, leader_epoch=leader_epoch, new_isr=tuple(isr), partition_epoch=partition_epoch
            )
            topic = AlterPartitionRequestTopicData(topic_name="orders", partitions=[data])
            request = AlterPartitionRequest(broker_id=1, topics=[topic])
            request.encode(version)
            return request

        response = await self.isr.send(build, 3)
        (answer,) = response.topics[0].partitions
        return answer

    @property
    def stored(self) -> LeaderAndIsr:
        """The partition state in ZooKeeper."""
        node = self.ensemble.nodes[state_path(ORDERS)]
        return decode_state(ORDERS, node.data, node.version)

    @property
    def notices(self) -> list[list[TopicPartition]]:
        """The partitions of each notification."""
        children = self.ensemble.nodes[ISR_CHANGES].children
        return [decode_isr_change(c, self.ensemble.nodes[f"{ISR_CHANGES}/{c}"].data) for c in sorted(children)]


async def test_a_leaders_isr_write_to_zookeeper_keeps_leader_epoch_and_controller_epoch() -> None:
    room = await Room().begin()

    answer = await room.propose([1])

    assert (answer.error_code, tuple(answer.isr), answer.partition_epoch) == (ErrorCode.NONE, (1,), 1)
    assert room.stored == FIRST._replace(isr=(BrokerId(1),), partition_epoch=1)


async def test_the_isr_write_of_an_uncleanly_elected_leader_marks_it_as_recovered() -> None:
    """A controller with a newer protocol marks such leaders, and a recovering leader has no followers in sync."""
    room = await Room().begin()
    recovering = FIRST._replace(isr=(BrokerId(1),), recovery=LeaderRecoveryState.RECOVERING)
    room.ensemble.apply([Set(state_path(ORDERS), encode_state(recovering))])

    answer = await room.propose([1, 2], partition_epoch=1)

    assert answer.leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert room.stored == FIRST._replace(partition_epoch=2)


async def test_a_leader_syncs_a_lagging_zookeeper_server_before_writing_the_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused, the leader would wait for orders that nobody sends, and its ISR stay as it is for ever."""
    room = await Room().begin()
    get, sync, old = room.session.get, room.session.sync, await room.session.get(state_path(ORDERS))
    is_behind = True

    async def old_until_synced(path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        return old if is_behind else await get(path, watch)

    async def catch_up(path: str) -> None:
        nonlocal is_behind
        await sync(path)
        is_behind = False

    monkeypatch.setattr(room.session, "get", old_until_synced)
    monkeypatch.setattr(room.session, "sync", catch_up)
    room.ensemble.apply([Set(state_path(ORDERS), encode_state(FIRST._replace(leader_epoch=5)))])

    answer = await room.propose([1], partition_epoch=1, leader_epoch=5)

    assert (answer.error_code, tuple(answer.isr), answer.partition_epoch) == (ErrorCode.NONE, (1,), 2)


async def test_a_leaders_isr_write_does_not_overwrite_a_changed_partition_state() -> None:
    room = await Room().begin()
    room.ensemble.apply([Set(state_path(ORDERS), encode_state(FIRST._replace(leader_epoch=5)))])

    for partition_epoch, leader_epoch in ((0, 4), (1, 4), (0, 5)):
        answer = await room.propose([1], partition_epoch, leader_epoch)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert room.stored.isr == (1, 2)


async def test_a_leaders_isr_write_does_not_overwrite_another_leaders_state_with_equal_epochs() -> None:
    """The topic was deleted and made again while ZooKeeper was slow: its epochs began again, somebody else leads."""
    room = await Room().begin()
    room.ensemble.nodes[state_path(ORDERS)].data = encode_state(FIRST._replace(leader=BrokerId(2)))

    answer = await room.propose([1])

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert room.stored.isr == (1, 2)


async def test_a_leaders_isr_write_succeeds_when_zookeepers_response_was_lost() -> None:
    room = await Room().begin()
    await room.propose([1])

    answer = await room.propose([1])

    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 1)
    assert room.stored.partition_epoch == 1


async def test_a_leaders_isr_write_succeeds_when_the_zookeeper_client_repeated_the_write() -> None:
    """The first was taken and its answer lost; the second meets its own version."""
    room = await Room().begin()
    write = room.session.set

    async def write_twice(path: str, data: bytes, version: int) -> Stat:
        await write(path, data, version)
        return await write(path, data, version)

    room.session.set = write_twice  # type: ignore[method-assign,assignment]

    answer = await room.propose([1])

    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 1)
    assert room.stored == FIRST._replace(isr=(BrokerId(1),), partition_epoch=1)


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_an_unreadable_partition_state_does_not_hold_up_isr_writes_of_other_partitions(is_hidden: bool) -> None:
    room = await Room().begin()
    other = state_path(TopicPartition("orders", 1))
    await room.session.ensure_path(other.rpartition("/")[0])
    room.ensemble.apply([Create(other, b"rubbish")])
    if is_hidden:
        room.ensemble.unreadable.add(other)

    def build(_version: int) -> AlterPartitionRequest:
        proposed = [
            AlterPartitionRequestPartitionData(partition_index=n, leader_epoch=4, new_isr=(BrokerId(1),))
            for n in range(2)
        ]
        topics = [AlterPartitionRequestTopicData(topic_name="orders", partitions=proposed)]
        return AlterPartitionRequest(broker_id=1, topics=topics)

    response = await room.isr.send(build, 3)

    refused = ErrorCode.OPERATION_NOT_ATTEMPTED if is_hidden else ErrorCode.INVALID_UPDATE_VERSION
    assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.NONE, refused]
    assert room.stored.isr == (1,)


def test_isr_changes_written_to_zookeeper_share_one_notification_after_a_pause() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.isr.start()
        await room.propose([1], 0)
        await asyncio.sleep(MIN_QUIET_S - 2)
        assert room.notices == []
        await asyncio.sleep(5)
        assert room.notices == [[ORDERS]]

        await asyncio.sleep(30)
        assert len(room.notices) == 1
        await room.isr.close()

    SimulatedLoop().run(main())


def test_continuous_isr_changes_are_notified_after_the_maximum_delay() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.isr.start()
        for number in range(40):
            await room.propose([1] if number % 2 else [1, 2], number)
            await asyncio.sleep(2)

        assert len(room.notices) == 1
        assert MAX_DELAY_S < 80
        await room.isr.close()

    SimulatedLoop().run(main())


def test_many_isr_changes_are_split_into_several_notification_znodes() -> None:
    async def main() -> None:
        room = await Room().begin()
        changed = [TopicPartition("t" * 249, n) for n in range(MAX_PARTITIONS_PER_NOTIFICATION + 1)]
        room.isr._changed = dict.fromkeys(changed)
        room.isr.start()
        await asyncio.sleep(MIN_QUIET_S + 2 * CHECK_INTERVAL_S)

        assert [len(notice) for notice in room.notices] == [MAX_PARTITIONS_PER_NOTIFICATION, 1]
        sizes = [len(room.ensemble.nodes[f"{ISR_CHANGES}/{c}"].data or b"") for c in children(room)]
        assert max(sizes) < SERVER_PACKET_BYTES
        await room.isr.close()

    def children(room: Room) -> list[str]:
        return sorted(room.ensemble.nodes[ISR_CHANGES].children)

    SimulatedLoop().run(main())
