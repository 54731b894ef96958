"""Reassignments that another controller takes over, and requests that are refused."""

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.reassigning import ask, assigned, join, room_with

from klamm.controller.events import (
    BrokerChange,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.model.errors import ErrorCode
from klamm.model.ids import parse_topic_partition

# ---- controllers that take over


async def test_a_new_controller_resumes_a_reassignment_that_is_adding_replicas() -> None:
    room = await room_with(1)
    await ask(room, a_0=[2])

    await room.become_controller()
    requests = room.channels.take()

    assert assigned(room) == "[2, 1] + [2] - [1]"
    assert room.now("a-0") == "1 / [1] / 2 / 2"
    assert "LISR a-0=1/[1]/1/1 -> 1,2" in requests  # the start: not as new
    assert "LISR a-0=1/[1]/2/2+new -> 2" in requests

    await join(room, 1, 2)
    assert assigned(room) == "[2] + [] - []"


@pytest.mark.parametrize("writes", range(5))
async def test_the_next_controller_completes_a_reassignment_interrupted_after_any_write(writes: int) -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])
    room.crash_after(writes)
    with pytest.raises(ConnectionError):
        await join(room, 1, 2, 3, 4)

    await room.become_controller()
    if writes == 0:  # the ISR itself was not written
        await join(room, 1, 2, 3, 4)

    assert assigned(room) == "[3, 4] + [] - []"
    state = room.stored("a-0")
    assert state.leader in (3, 4)
    assert set(state.isr) == {3, 4}


@pytest.mark.parametrize("writes", range(4))
async def test_an_interrupted_reassignment_cancellation_leaves_only_assigned_replicas_in_the_isr(writes: int) -> None:
    room = await room_with(1, 2, brokers=(1, 2, 3, 4))
    await ask(room, a_0=[3, 4])
    await join(room, 1, 2, 3)
    room.crash_after(writes)
    with pytest.raises(ConnectionError):
        await ask(room, a_0=None)

    await room.become_controller()

    state, assignment = room.stored("a-0"), room.partition("a-0").assignment
    assert set(state.isr) <= set(assignment.replicas)
    assert state.leader == 1


# ---- refusals


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
async def test_invalid_reassignment_requests_are_refused_and_change_nothing(
    target: list[int] | None, error: ErrorCode
) -> None:
    room = await room_with()

    answer, requests = await ask(room, a_0=target)

    assert answer.refused[parse_topic_partition("a-0")].error is error
    assert (requests, room.now("a-0"), assigned(room)) == ([], "1 / [1,2,3] / 0 / 0", "[1, 2, 3] + [] - []")


async def test_broker_0_may_be_the_target_of_a_reassignment() -> None:
    room = await Room.open((0, 1), topics={"a": [(1,)]})

    answer, _ = await ask(room, a_0=[0])

    assert (answer.refused, assigned(room)) == ({}, "[0, 1] + [0] - [1]")


async def test_a_refused_reassignment_does_not_stop_other_reassignments_of_the_request() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1,), (1,)]})

    answer, _ = await ask(room, a_0=[9], a_1=[2], b_0=[1])

    assert {str(p): r.error for p, r in answer.refused.items()} == {
        "a-0": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "b-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert assigned(room, "a-1") == "[2, 1] + [2] - [1]"


async def test_a_reassignment_may_keep_existing_replicas_on_dead_brokers() -> None:
    room = await room_with(1, 2)
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())

    answer, _ = await ask(room, a_0=[3, 2])

    assert answer.refused == {}
    assert assigned(room) == "[3, 2, 1] + [3] - [1]"
