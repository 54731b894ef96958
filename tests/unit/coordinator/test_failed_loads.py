"""Loading a partition of a coordinator's topic where an unexpected error ends it."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play

from klamm.coordinator.group import Group
from klamm.coordinator.loaded_groups import LoadedGroups
from klamm.coordinator.ownership import FIRST_RETRY_BACKOFF_S
from klamm.model.errors import ErrorCode


def test_a_load_that_an_unexpected_error_ended_begins_again() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, P1: 7})
        other = room.restart()
        failures = [RuntimeError("a bug"), RuntimeError("a bug")]
        take_groups = LoadedGroups.take_groups

        def take_some(loaded: LoadedGroups, now_ms: int) -> Iterator[Group]:
            """Fail twice after the group was added."""
            yield from take_groups(loaded, now_ms)
            if failures:
                other.groups.on_partitions_deleted([P1])
                raise failures.pop()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LoadedGroups, "take_groups", take_some)
            other.groups._ownership.elected(0, 1)
            await asyncio.sleep(FIRST_RETRY_BACKOFF_S)
            assert other.groups.availability(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert not list(other.groups._context.groups), "a part of the partition is not kept"
            await asyncio.sleep(3 * FIRST_RETRY_BACKOFF_S)

        assert not failures
        assert other.fetch() == {P0: 5}, "of a partition that was deleted during a failed load no offset is left"

    play(body)


def test_a_load_that_failed_does_not_begin_again_after_the_leadership_has_moved() -> None:
    async def body(room: Room) -> None:
        other = room.restart()
        other.log.bounds = None  # type: ignore[assignment]  # each read raises TypeError
        other.groups._ownership.elected(0, 1)
        await settle()
        other.groups._ownership.resigned(0, 2)
        await asyncio.sleep(2 * FIRST_RETRY_BACKOFF_S)

        assert other.groups.availability(GROUP) is ErrorCode.NOT_COORDINATOR
        assert not other.groups._context.tasks._tasks

    play(body)
