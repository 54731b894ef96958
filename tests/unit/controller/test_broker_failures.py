"""Leader epochs, partition epochs and requests, step by step, as Kafka's controller makes them.

Three brokers; partition `a-0` on 1, 2, 3 unless a test says otherwise. A state reads leader / ISR / leader epoch /
partition epoch; a request `LISR a-0=1/[1,2,3]/0/0+new -> 1,2,3`. What the steps of one event tell is left apart here.
"""

import pytest
from tests.support.controller_room import Room, alter_partition
from tests.support.replica_cluster import ids

from klamm.controller.events import BrokerChange, ControlledShutdown, TopicChange
from klamm.controller.handlers.brokers import on_broker_change, on_controlled_shutdown
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.topics import on_topic_change
from klamm.controller.request_batch import RequestBatch
from klamm.controller.settings import ControllerSettings
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


@pytest.fixture(autouse=True)
def _steps_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestBatch, "coalesces_requests", False)


async def room_with(*replicas: int) -> Room:
    return await Room.open(topics={"a": [replicas or (1, 2, 3)]})


async def test_a_created_topic_gets_a_leader_and_its_brokers_get_leader_and_isr() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2, 3)])

    requests = await room.handle(on_topic_change, TopicChange())

    assert room.now("a-0") == "1 / [1,2,3] / 0 / 0"
    assert requests == ["LISR a-0=1/[1,2,3]/0/0+new -> 1,2,3", "UMR a-0=1/[1,2,3]/0/0 -> 1,2,3"]


async def test_another_replica_leads_after_the_leader_dies_and_the_old_leader_rejoins_the_isr() -> None:
    room = await room_with()
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert requests == [
        "LISR a-0=2/[2,3]/1/1 -> 2,3",  # the election
        "UMR a-0=2/[2,3]/1/1 -> 2,3",
        "LISR a-0=2/[2,3]/1/1 -> 2,3",  # replica 1 goes offline: not in the ISR, no write, told again
        "UMR a-0=2/[2,3]/1/1 -> 2,3",
    ]

    await room.register(1)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert requests == [
        "UMR -> 2,3",
        "UMR a-0=2/[2,3]/1/1 -> 1",
        "LISR a-0=2/[2,3]/1/1 -> 1",
        "UMR a-0=2/[2,3]/1/1 -> 1,2,3",
    ]

    event = alter_partition(room, 2, leader_epoch=1, partition_epoch=1, isr=(2, 3, 1))
    requests = await room.handle(on_alter_partition, event)

    assert room.now("a-0") == "2 / [2,3,1] / 1 / 2"
    assert requests == ["UMR a-0=2/[2,3,1]/1/2 -> 1,2,3"]  # no LeaderAndIsr: the leader learns from the answer
    [topic] = event.reply.result().topics
    [answer] = topic.partitions
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, (2, 3, 1), 1, 2)


async def test_a_follower_whose_broker_dies_leaves_the_isr() -> None:
    room = await room_with()
    room.kill(3)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "1 / [1,2] / 1 / 1"
    assert requests == ["LISR a-0=1/[1,2]/1/1 -> 1,2", "UMR a-0=1/[1,2]/1/1 -> 1,2"]


@pytest.mark.parametrize("unclean", [False, True])
async def test_a_partition_is_offline_while_the_broker_of_its_only_replica_is_dead(unclean: bool) -> None:
    """Whatever may be elected: there is nobody else."""
    settings = ControllerSettings(BrokerId(1), unclean_leader_election=unclean)
    room = await Room.open(topics={"a": [(1,)]}, settings=settings)
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "-1 / [1] / 1 / 1"
    assert requests == ["UMR a-0=-1/[1]/1/1 -> 2,3"]

    await room.register(1)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "1 / [1] / 2 / 2"
    assert requests == [
        "UMR -> 2,3",
        "UMR a-0=-1/[1]/1/1 -> 1",
        "LISR a-0=-1/[1]/1/1 -> 1",
        "UMR a-0=-1/[1]/1/1 -> 1,2,3",
        "LISR a-0=1/[1]/2/2 -> 1",
        "UMR a-0=1/[1]/2/2 -> 1,2,3",
    ]


async def test_controlled_shutdown_of_a_leaders_broker_moves_leadership_first() -> None:
    room = await room_with()
    event = ControlledShutdown(BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)

    requests = await room.handle(on_controlled_shutdown, event)

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert requests == ["LISR a-0=2/[2,3]/1/1 -> 1,2,3", "UMR a-0=2/[2,3]/1/1 -> 1,2,3"]
    assert event.reply.result() == (ErrorCode.NONE, ())

    room.kill(1)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert requests == ["LISR a-0=2/[2,3]/1/1 -> 2,3", "UMR a-0=2/[2,3]/1/1 -> 2,3"]


async def test_controlled_shutdown_of_a_followers_broker_removes_the_follower_from_the_isr() -> None:
    room = await room_with()
    event = ControlledShutdown(BrokerId(3), room.term.context.registered[BrokerId(3)].epoch)

    requests = await room.handle(on_controlled_shutdown, event)

    assert room.now("a-0") == "1 / [1,2] / 1 / 1"
    assert requests == [
        "SR a-0@0 -> 3",
        "LISR a-0=1/[1,2]/1/1 -> 1,2",
        "UMR a-0=1/[1,2]/1/1 -> 1,2,3",
        "SR a-0@0 -> 3",
    ]
    assert event.reply.result() == (ErrorCode.NONE, ())


async def test_controller_failover_replaces_a_dead_leader_that_is_still_in_the_isr() -> None:
    room = await room_with()
    room.kill(1)

    await room.become_controller()

    assert room.now("a-0") == "2 / [2,3] / 2 / 2"


async def test_each_controller_failover_writes_the_state_of_a_partition_with_only_dead_replicas() -> None:
    room = await room_with(1)
    room.kill(1)

    await room.become_controller()
    assert room.now("a-0") == "-1 / [1] / 1 / 1"
    await room.become_controller()
    assert room.now("a-0") == "-1 / [1] / 2 / 2"


async def test_an_unclean_leader_is_elected_if_the_topic_config_allows_unclean_election() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2)], unclean_leader_election_enable="true")
    await room.handle(on_topic_change, TopicChange())
    event = alter_partition(room, 1, leader_epoch=0, partition_epoch=0, isr=(1,))
    await room.handle(on_alter_partition, event)
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2] / 1 / 2"
    assert room.stored("a-0").recovery == 1
    assert requests[0] == "LISR a-0=2/[2]/1/2 -> 2"

    event = alter_partition(room, 2, leader_epoch=1, partition_epoch=2, isr=(2,))
    await room.handle(on_alter_partition, event)

    assert room.now("a-0") == "2 / [2] / 1 / 3"
    assert room.stored("a-0").recovery == 0


async def test_the_controller_rereads_a_state_whose_isr_the_leader_shrank_before_the_write() -> None:
    room = await room_with()
    room.kill(1)
    shrunk = room.stored("a-0")._replace(isr=ids(1, 3))
    room.ensemble.before_multi = lambda ops: (
        room.write_state("a-0", shrunk) if room.stored("a-0").partition_epoch == 0 else None
    )

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "3 / [3] / 1 / 2"
