"""Controlled shutdown: the new leaders, and requests that are refused."""

import pytest
from tests.support.controller_room import Room

from klamm.controller.events import (
    BrokerChange,
    ControlledShutdown,
)
from klamm.controller.handlers import brokers
from klamm.controller.handlers.brokers import on_broker_change, on_controlled_shutdown
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


async def leave(room: Room, number: int, epoch: int | None = None) -> ControlledShutdown:
    """Handle a ControlledShutdown request of this broker; returns the event with its reply."""
    registered = room.term.context.registered.get(BrokerId(number))
    event = ControlledShutdown(BrokerId(number), epoch if epoch is not None else registered.epoch if registered else 0)
    await room.handle(on_controlled_shutdown, event)
    return event


REFUSED = {
    "unknown broker": (9, 5, ErrorCode.UNKNOWN_SERVER_ERROR),
    "unknown broker, no epoch": (9, -1, ErrorCode.BROKER_NOT_AVAILABLE),
    "an epoch of before": (1, 1, ErrorCode.STALE_BROKER_EPOCH),
}


@pytest.mark.parametrize(("number", "epoch", "error"), REFUSED.values(), ids=REFUSED)
async def test_a_controlled_shutdown_of_an_unknown_broker_or_with_a_stale_epoch_is_refused(
    number: int, epoch: int, error: ErrorCode
) -> None:
    room = await Room.open()

    event = await leave(room, number, epoch)

    assert event.reply.result() == (error, ())
    assert not room.term.context.shutting_down


async def test_a_controlled_shutdown_without_a_broker_epoch_is_accepted_from_a_known_broker() -> None:
    room = await Room.open()

    assert (await leave(room, 1, -1)).reply.result().error is ErrorCode.NONE


async def test_controlled_shutdown_returns_partitions_without_a_new_leader_except_single_replica_ones() -> None:
    room = await Room.open(topics={"alone": [(1,)], "a": [(1, 2)], "b": [(1, 3)]})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())

    event = await leave(room, 1)

    assert [str(p) for p in event.reply.result().remaining] == ["a-0"]
    assert room.now("a-0") == "1 / [1] / 1 / 1"
    assert room.now("b-0") == "3 / [3] / 1 / 1"
    assert room.now("alone-0") == "1 / [1] / 0 / 0"
    assert "alone" not in str(room.entries("refused"))


async def test_a_follower_is_stopped_after_its_leader_got_the_isr_without_it() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(2, 1, 3)]})
    room.term.batch.coalesces_requests = True

    event = ControlledShutdown(BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)
    requests = await room.handle(on_controlled_shutdown, event)

    stop = requests.index("SR b-0@0 -> 1")
    assert stop > requests.index("LISR b-0=2/[2,3]/1/1 -> 2,3")
    assert [r for r in requests if r.startswith("SR")] == [requests[stop]]


async def test_leader_and_isr_of_a_controlled_shutdown_is_sent_in_small_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "SHUTDOWN_PARTITIONS", 2)
    room = await Room.open(topics={"a": [(1, 2)] * 3, "b": [(2, 1)] * 3})
    room.term.batch.coalesces_requests = True

    event = ControlledShutdown(BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)
    requests = await room.handle(on_controlled_shutdown, event)

    to_2 = [r.split(" -> ")[0].split()[1:] for r in requests if r.startswith("LISR") and "2" in r.split(" -> ")[1]]
    assert [len(partitions) for partitions in to_2] == [2, 1, 2, 1]
    assert sorted(p.split("=")[0] for told in to_2 for p in told) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]
    assert room.term.batch.max_partitions is None


async def test_a_broker_in_controlled_shutdown_is_not_elected_until_its_return() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await leave(room, 2)
    assert room.now("a-0") == "1 / [1,3] / 1 / 1"
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "3 / [3] / 2 / 2"

    room.kill(2)
    await room.register(2)
    await room.handle(on_broker_change, BrokerChange())
    assert BrokerId(2) in room.term.context.live


async def test_a_repeated_controlled_shutdown_moves_the_remaining_leaders() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    assert (await leave(room, 1)).reply.result().remaining

    room.write_state("a-0", room.stored("a-0")._replace(isr=(BrokerId(1), BrokerId(2))))
    await room.register(2)
    await room.handle(on_broker_change, BrokerChange())
    event = await leave(room, 1)

    assert not event.reply.result().remaining
    assert room.partition("a-0").leader == 2
