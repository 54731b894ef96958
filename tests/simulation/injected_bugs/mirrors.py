"""Injected bugs of the mirror that a standby keeps for its election."""

from collections.abc import Sequence

import pytest
from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller.context import ControllerContext
from klamm.controller.handlers import mirrored
from klamm.controller.mirror import Mirror, changed_by
from klamm.controller.topic import Partition, Topic
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.jute import Stat
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import TopicZnode


def notices_lost(patch: Patch) -> None:
    """The mirror does not note every third change."""
    note, heard = Mirror._on_watch, 0

    def note_some(self: Mirror, event: WatchEvent) -> None:
        """The patched function, with the injected bug."""
        nonlocal heard
        heard += 1
        if heard % 3:
            note(self, event)

    patch.setattr(Mirror, "_on_watch", note_some)


def changes_not_read_again(patch: Patch) -> None:
    """The mirror forgets what it noted without reading it."""

    async def forget(self: Mirror, paths: Sequence[str]) -> None:
        """The patched function, with the injected bug."""
        for path in paths:
            self._changed.pop(path, None)

    patch.setattr(Mirror, "_read_changed", forget)


def changes_during_a_read_forgotten(patch: Patch) -> None:
    """The mirror removes the paths of changes after it read them, with what was noted again during the read."""

    async def read_and_forget(self: Mirror, paths: Sequence[str]) -> None:
        """The patched function, with the injected bug."""
        try:
            await self._read_again(*changed_by(paths))
        except BaseException as error:
            self.lose(repr(error))
            raise
        for path in paths:
            self._changed.pop(path, None)

    patch.setattr(Mirror, "_read_changed", read_and_forget)


def noted_changes_forgotten_at_the_election(patch: Patch) -> None:
    """The election does not read what the mirror noted and did not read yet."""

    async def without_state(self: Mirror) -> list[Partition]:
        """The patched function, with the injected bug."""
        return list(self._without_state)

    patch.setattr(Mirror, "unread_partitions", without_state)


def mirror_taken_without_sync(patch: Patch) -> None:
    """An election takes the mirror without `sync`: notices of the newest changes may still be under way."""
    finish = Mirror.finish

    async def finish_unsynced(self: Mirror, zxid: int) -> None:
        """The patched function, with the injected bug."""
        with pytest.MonkeyPatch.context() as of_session:
            of_session.setattr(self._session, "sync", nothing)
            await finish(self, zxid)

    patch.setattr(Mirror, "finish", finish_unsynced)


def mirror_behind_the_election_taken(patch: Patch) -> None:
    """An election takes a mirror whose server has not shown the changes up to the election."""
    finish = Mirror.finish

    async def finish_at_any_zxid(self: Mirror, zxid: int) -> None:
        """The patched function, with the injected bug."""
        await finish(self, 0)

    patch.setattr(Mirror, "finish", finish_at_any_zxid)


def recreated_topic_taken_for_the_old_one(patch: Patch) -> None:
    """A topic that was deleted and created again keeps the id and the partitions of the earlier one."""

    def exists(mzxid: int, stat: Stat | None) -> bool:
        """The patched function, with the injected bug."""
        return stat is not None

    def is_same(known: Topic, found: TopicZnode) -> bool:
        """The patched function, with the injected bug."""
        return False

    patch.setattr(mirrored, "_is_unchanged", exists)
    patch.setattr("klamm.controller.mirror.is_another_topic", is_same)
    patch.setattr(Mirror, "_is_gone", lambda self, name, found: name in self.context.topics and name not in found)


def encoded_states_outlive_changes(patch: Patch) -> None:
    """A partition keeps the bytes that a mirror encoded when it gets another state."""
    put = ControllerContext.put_leadership

    def put_and_keep(self: ControllerContext, partition: Partition, leadership: LeaderAndIsr) -> None:
        """The patched function, with the injected bug."""
        encoded = partition.encoded
        put(self, partition, leadership)
        partition.encoded = encoded

    patch.setattr(ControllerContext, "put_leadership", put_and_keep)
