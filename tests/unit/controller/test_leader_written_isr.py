"""Reassignments where leaders write their ISRs themselves: their protocol, or also the controller's, is before 2.7."""

from contextlib import suppress
from typing import Any

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.reassigning import ask, assigned, ids

from klamm.controller.events import (
    IsrChangeNotification,
    PartitionReassignmentIsrChange,
)
from klamm.controller.handlers.isr import on_isr_change_notification
from klamm.controller.handlers.reassignment_requests import (
    on_state_change,
)
from klamm.controller.settings import ControllerSettings
from klamm.controller.watches import event_for
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_isr_change
from klamm.zk.operations import Create, Set
from klamm.zk.registrations import VERSION_WITH_LISTENERS
from klamm.zk.watches import WatchEvent

Setting = dict[str, Any]
SETTINGS: dict[str, Setting] = {
    "all have an old protocol": {"settings": ControllerSettings(BrokerId(1), ibp=(2, 6, 0))},
    "only the brokers have it": {"registration_version": VERSION_WITH_LISTENERS},
}


@pytest.fixture(params=list(SETTINGS.values()), ids=list(SETTINGS))
def setting(request: pytest.FixtureRequest) -> Setting:
    """How a cluster comes to have leaders that write their ISRs."""
    chosen: Setting = request.param
    return chosen


async def old_room(setting: Setting) -> Room:
    """A cluster where leaders write their ISRs, with a reassignment whose target is in sync."""
    room = await Room.open(topics={"a": [(1,)]}, **setting)
    await ask(room, a_0=[2])
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))
    return room


async def test_an_isr_change_notification_completes_a_waiting_reassignment(setting: Setting) -> None:
    room = await old_room(setting)
    announced = encode_isr_change([parse_topic_partition("a-0")])
    room.ensemble.apply([Create(f"{znodes.ISR_CHANGES}/isr_change_", announced, sequential=True)])

    await room.handle(on_isr_change_notification, IsrChangeNotification())

    assert assigned(room) == "[2] + [] - []"
    assert room.now("a-0") == "2 / [2] / 3 / 4"
    assert not room.ensemble.nodes[znodes.ISR_CHANGES].children


async def test_reading_an_isr_that_a_leader_wrote_is_retried_after_a_failure(setting: Setting) -> None:
    """The refused read set no watch: nobody would tell of the next change."""
    room = await old_room(setting)
    room.ensemble.unreadable.add(znodes.state_path(parse_topic_partition("a-0")))
    change = PartitionReassignmentIsrChange(parse_topic_partition("a-0"))

    with pytest.raises(KlammError, match="state znode of a-0 cannot be read"):
        await room.handle(on_state_change, change)
    assert room.entries("refused")[-1].facts["why"] == "ZooKeeper answered NO_AUTH"

    room.ensemble.unreadable.clear()
    await room.handle(on_state_change, change)
    assert assigned(room) == "[2] + [] - []"


async def test_a_leaders_change_of_the_state_znode_completes_a_waiting_reassignment(setting: Setting) -> None:
    room = await Room.open(topics={"a": [(1,)]}, **setting)
    heard: list[WatchEvent] = []
    room.client.on_watch = heard.append
    await ask(room, a_0=[2])

    for _ in range(2):  # our own write of the leader epoch is heard first
        event = next(e for e in map(event_for, heard) if isinstance(e, PartitionReassignmentIsrChange))
        heard.clear()
        await room.handle(on_state_change, event)
        if room.partition("a-0").assignment.is_being_reassigned:
            room.write_state("a-0", room.stored("a-0")._replace(isr=ids(1, 2)))

    assert assigned(room) == "[2] + [] - []"


@pytest.mark.parametrize("target", [None, [3]])
@pytest.mark.parametrize("writes", range(5))
async def test_a_leader_that_writes_the_isr_to_zookeeper_cannot_add_a_replica_being_removed(
    setting: Setting, target: list[int] | None, writes: int
) -> None:
    """It has been told of the state as it was before, and writes after any of the controller's writes."""
    room = await Room.open(topics={"a": [(1,)]}, **setting)
    await ask(room, a_0=[2])
    told = room.stored("a-0")
    room.crash_after(writes)
    with suppress(ConnectionError):
        await ask(room, a_0=target)

    own_write = Set(
        znodes.state_path(parse_topic_partition("a-0")),
        znodes.encode_state(told._replace(isr=ids(1, 2))),
        told.partition_epoch,
    )
    room.ensemble.apply([own_write])

    name = znodes.decode_topic("a", room.ensemble.nodes[znodes.topic_path("a")].data)
    assert set(room.stored("a-0").isr) <= set(name.partitions[0].replicas)


async def test_a_replaced_reassignment_uses_the_isr_written_by_the_leader_before_its_notification(
    setting: Setting,
) -> None:
    room = await old_room(setting)
    writes: list[str] = []
    room.ensemble.before_multi = lambda ops: writes.extend(op.path for op in ops if isinstance(op, Set))

    await ask(room, a_0=[3])

    state, topic = znodes.state_path(parse_topic_partition("a-0")), znodes.topic_path("a")
    assert [w for w in writes if w in (state, topic)][:3] == [state, state, topic]
    assert room.stored("a-0").isr == (1,)


async def test_replacing_a_reassignment_is_refused_if_the_leader_epoch_cannot_be_incremented(setting: Setting) -> None:
    room = await Room.open(topics={"a": [(1,)]}, **setting)
    await ask(room, a_0=[2])
    before = assigned(room)
    room.write_state("a-0", room.stored("a-0")._replace(controller_epoch=99))

    answer, requests = await ask(room, a_0=None)

    [refusal] = answer.refused.values()
    assert "could not be kept from taking replica 2" in refusal.why
    assert (requests, assigned(room)) == ([], before)


async def test_state_znode_changes_of_partitions_that_are_not_being_reassigned_are_ignored(setting: Setting) -> None:
    room = await old_room(setting)
    await room.handle(on_state_change, PartitionReassignmentIsrChange(parse_topic_partition("a-0")))

    for name in ("a-0", "gone-0"):
        event = PartitionReassignmentIsrChange(parse_topic_partition(name))
        assert await room.handle(on_state_change, event) == []
