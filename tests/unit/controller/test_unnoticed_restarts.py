"""Brokers that restart while there is no controller: the next one treats them as restarted, by their registration."""

import pytest
from tests.support.controller_room import Room, alter_partition

from klamm.controller.events import ResumeAfterFailure
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.operations import Create

B1, B2 = BrokerId(1), BrokerId(2)


async def restart(room: Room, *brokers: int) -> None:
    """The brokers come back with new registrations before any controller sees that they were away."""
    for number in brokers:
        room.kill(number)
        await room.register(number)


async def take_over(room: Room) -> list[str]:
    """Begin another term; returns the requests of its failover."""
    room.channels.take()
    await room.become_controller()
    return room.channels.take()


async def test_a_failover_replaces_a_leader_whose_broker_restarted_while_no_controller_was_active() -> None:
    """It may have lost records in a power loss that the others have."""
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await restart(room, 1)

    requests = await take_over(room)

    assert room.now("a-0") == "2 / [2,3] / 2 / 2"
    assert room.partition("a-0").state is PartitionState.ONLINE
    assert not [r for r in requests if "a-0=1/" in r], "nobody hears of the old leader"


async def test_a_failover_removes_a_follower_that_restarted_while_no_controller_was_active_from_isr() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await restart(room, 2)

    await take_over(room)

    assert room.now("a-0") == "1 / [1,3] / 1 / 1"


@pytest.mark.parametrize("restarted", [1, 2], ids=["leader", "follower"])
async def test_a_restarted_member_that_zookeeper_refuses_to_replace_is_replaced_once_it_does_not(
    restarted: int,
) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(1, 2, 3)]})
    await restart(room, restarted)
    room.ensemble.unwritable.add("/brokers/topics/a/partitions/0/state")
    await take_over(room)
    assert room.now("a-0") == "1 / [1,2,3] / 0 / 0"
    room.ensemble.unwritable.clear()

    await room.handle(on_resume_after_failure, ResumeAfterFailure())

    replaced = {1: "2 / [2,3] / 2 / 2", 2: "1 / [1,3] / 1 / 1"}[restarted]
    assert (room.now("a-0"), room.now("b-0")) == (replaced, replaced)
    assert room.partition("a-0").state is PartitionState.ONLINE
    assert await room.handle(on_resume_after_failure, ResumeAfterFailure()) == []


async def test_a_restarted_member_that_left_the_isr_meanwhile_is_not_removed_again() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await restart(room, 2)
    room.ensemble.unwritable.add("/brokers/topics/a/partitions/0/state")
    await take_over(room)
    room.ensemble.unwritable.clear()
    await room.handle(on_alter_partition, alter_partition(room, 1, 0, 0, [1, 3]))

    assert await room.handle(on_resume_after_failure, ResumeAfterFailure()) == []
    assert room.now("a-0") == "1 / [1,3] / 0 / 1"


async def test_a_failover_keeps_the_isr_and_increments_the_leader_epoch_if_all_members_restarted() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(2, 3)]})
    await restart(room, 1, 2, 3)

    await take_over(room)

    assert room.now("a-0") == "1 / [1,2] / 1 / 1"
    assert room.now("b-0") == "2 / [2,3] / 1 / 1"


async def test_a_failover_keeps_a_restarted_isr_member_if_all_other_members_are_dead() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await restart(room, 2)
    room.kill(1)

    await take_over(room)

    assert room.now("a-0") == "2 / [2] / 2 / 2"


async def test_a_failover_keeps_a_partition_state_written_after_its_brokers_restarted() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await restart(room, 1, 2)
    room.write_state("a-0", LeaderAndIsr(B1, 7, (B1, B2), 1))

    await take_over(room)

    assert room.now("a-0") == "1 / [1,2] / 7 / 1"


async def test_a_single_replica_partition_keeps_its_leader_epoch_if_its_broker_restarted_before_failover() -> None:
    room = await Room.open(topics={"a": [(3,)]})
    await restart(room, 3)

    await take_over(room)

    assert room.now("a-0") == "3 / [3] / 0 / 0"


async def test_a_restarted_leader_of_a_topic_to_be_deleted_is_not_replaced_at_failover() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await restart(room, 1)
    room.ensemble.apply([Create(f"{znodes.DELETE_TOPICS}/a")])

    requests = await take_over(room)

    assert room.now("a-0") == "1 / [1,2,3] / 0 / 0"
    assert not [r for r in requests if r.startswith("LISR")]


async def test_a_failover_ignores_broker_restarts_without_controller_if_configured_to() -> None:
    settings = ControllerSettings(B1, replaces_restarted_replicas=False)
    room = await Room.open(topics={"a": [(1, 2, 3)]}, settings=settings)
    await restart(room, 1)

    await take_over(room)

    assert room.now("a-0") == "1 / [1,2,3] / 0 / 0"


@pytest.mark.parametrize("restarted", [(1,), (1, 2)])
async def test_the_journal_names_brokers_that_restarted_while_no_controller_was_active(
    restarted: tuple[int, ...],
) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await restart(room, *restarted)

    await take_over(room)

    [decision] = [e.facts for e in room.entries("decision") if e.facts["decision"] == "restart"]
    why = "restarted while there was no controller"
    assert [tuple(each) for each in decision["rejected"]] == [(b, why) for b in restarted]
