"""Notifications of brokers are handled once, and kept while ZooKeeper does not let the controller read them."""

import pytest
from tests.support.controller_room import Room

from klamm.controller.events import IsrChangeNotification, LogDirEventNotification
from klamm.controller.handlers.isr import on_isr_change_notification
from klamm.controller.handlers.responses import on_log_dir_event
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk.admin_znodes import encode_isr_change, encode_log_dir_event
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Create, Set
from klamm.zk.znodes import ISR_CHANGES, LOG_DIR_EVENTS, state_path


async def room_with_isr_changes(*partitions: str) -> Room:
    room = await Room.open(topics={"a": [(1, 2), (1, 2)]})
    for name in partitions:
        listed = encode_isr_change([parse_topic_partition(name)])
        room.ensemble.apply([Create(f"{ISR_CHANGES}/isr_change_", listed, sequential=True)])
    return room


def left(room: Room) -> list[str]:
    """The notifications that are still in ZooKeeper."""
    return sorted(room.ensemble.nodes[ISR_CHANGES].children)


async def test_an_unreadable_notification_znode_is_kept_until_the_controller_can_read_its_content() -> None:
    room = await room_with_isr_changes("a-0", "a-1")
    hidden = left(room)[0]
    room.ensemble.unreadable.add(f"{ISR_CHANGES}/{hidden}")

    with pytest.raises(KlammError, match=f"{hidden} .NO_AUTH"):
        await room.handle(on_isr_change_notification, IsrChangeNotification())
    assert room.channels.take() == ["UMR a-1=1/[1,2]/0/0 -> 1,2,3"]
    assert left(room) == [hidden]

    room.ensemble.unreadable.clear()
    requests = await room.handle(on_isr_change_notification, IsrChangeNotification())
    assert requests == ["UMR a-0=1/[1,2]/0/0 -> 1,2,3"]
    assert not left(room)


async def test_an_isr_change_notification_is_kept_until_the_partition_state_can_be_read() -> None:
    room = await room_with_isr_changes("a-0", "a-1")
    hidden = left(room)[0]
    room.ensemble.unreadable.add(state_path(parse_topic_partition("a-0")))
    shrunk = room.stored("a-0")._replace(isr=(BrokerId(1),))
    room.write_state("a-0", shrunk)

    with pytest.raises(KlammError, match=f"{hidden} .ZooKeeper answered NO_AUTH for the state of a-0"):
        await room.handle(on_isr_change_notification, IsrChangeNotification())
    assert left(room) == [hidden]
    assert [(e.facts["what"], e.facts["why"]) for e in room.entries("refused")] == [
        ("ISR change", "ZooKeeper answered NO_AUTH")
    ]

    room.ensemble.unreadable.clear()
    room.channels.take()
    assert await room.handle(on_isr_change_notification, IsrChangeNotification()) == ["UMR a-0=1/[1]/0/1 -> 1,2,3"]
    assert not left(room)


async def test_an_isr_change_notification_for_a_malformed_state_is_journalled_and_removed() -> None:
    room = await room_with_isr_changes("a-0")
    room.ensemble.apply([Set(state_path(parse_topic_partition("a-0")), b"{nonsense")])

    await room.handle(on_isr_change_notification, IsrChangeNotification())

    assert [e.facts["what"] for e in room.entries("refused")] == ["ISR change"]
    assert not left(room)


async def test_a_log_dir_event_notification_that_cannot_be_read_is_kept_and_handled_later() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    path = f"{LOG_DIR_EVENTS}/log_dir_event_0"
    room.ensemble.apply([Create(path, encode_log_dir_event(BrokerId(2)))])
    room.ensemble.unreadable.add(path)

    with pytest.raises(KlammError):
        await room.handle(on_log_dir_event, LogDirEventNotification())
    room.ensemble.unreadable.clear()

    assert await room.handle(on_log_dir_event, LogDirEventNotification())
    assert path not in room.ensemble.nodes


@pytest.mark.parametrize(("error", "stays"), [(MalformedReply("garbled"), True), (RuntimeError("a mistake"), False)])
async def test_notification_znodes_are_kept_after_a_zookeeper_failure_but_not_after_a_handler_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, stays: bool
) -> None:
    """The next controller would make the same mistake with them, and so would every other."""
    room = await room_with_isr_changes("a-0")

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(room.term.store, "read_states", fail)
    with pytest.raises(type(error)):
        await room.handle(on_isr_change_notification, IsrChangeNotification())

    assert bool(left(room)) is stays
