"""Mutants of what waits, of shutdowns in order, of index files and syncs: a cluster at rest shows them."""

import asyncio
from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.log.directory import LogDirectory
from klamm.log.directory_moves import DirectoryMoves
from klamm.log.indexes import TimeIndex, TimestampOffset
from klamm.log.log_storage import LogStorage
from klamm.log.names import DirectoryKind
from klamm.replication.fetch_sessions import FetchSessions
from klamm.replication.fetch_waiter import FetchWaiter
from klamm.replication.partition import Partition
from klamm.replication.record_repair import RecordRepair


def changes_wake_no_fetch(patch: Patch) -> None:
    """A fetch that waits is answered when its time is over."""
    patch.setattr(FetchWaiter, "wake", lambda self: None)


def new_roles_wake_no_consumer(patch: Patch) -> None:
    """Fetches of consumers go on waiting at a leader that became follower."""

    def wake_followers(self: Partition) -> None:
        for watcher in self._followers:
            watcher.mark_changed(wakes=True)
        self._check_waiting_requests()

    patch.setattr(Partition, "_on_role_changed", wake_followers)


def new_roles_answer_no_request(patch: Patch) -> None:
    """Produce and DeleteRecords requests go on waiting at a leader that became follower."""
    patch.setattr(Partition, "_check_waiting_requests", lambda self: None)


def chosen_directories_are_forgotten(patch: Patch) -> None:
    """A new replica is created in another log directory than the one that was chosen for it."""
    patch.setattr(DirectoryMoves, "prefer_directory", lambda self, partition, directory: None)


def full_sessions_fail(patch: Patch) -> None:
    """A session that finds no room takes the place of another one."""

    def evict(self: FetchSessions, privileged: bool, size: int, now_ms: float) -> bool:
        self.remove(next(iter(self._sessions)))
        return True

    patch.setattr(FetchSessions, "_evict_one", evict)


def stops_wait(patch: Patch) -> None:
    """A part of the node waits for something that does not come when it is closed."""

    async def close(self: RecordRepair) -> None:
        await asyncio.sleep(30.0)

    patch.setattr(RecordRepair, "close", close)


def shutdowns_are_not_marked(patch: Patch) -> None:
    """A shutdown in order leaves no marker, so that the next start recovers every log."""
    patch.setattr(LogDirectory, "mark_clean_and_unlock", lambda self, broker_epoch: self.unlock())


def closed_logs_are_not_flushed(patch: Patch) -> None:
    """A shutdown in order syncs nothing."""
    patch.setattr(LogStorage, "flush_now", lambda self: None)
    patch.setattr(LogStorage, "has_unsynced_files", False)


def time_indexes_are_wrong(patch: Patch) -> None:
    """An entry of a time index has a later time than the batch."""
    append = TimeIndex.append

    def append_later(self: TimeIndex, timestamp: int, offset: int) -> None:
        before = self.count
        append(self, timestamp, offset)
        if self.count > before:
            last = self._entries
            assert last is not None
            last[-5:-4] = bytes([last[-5] ^ 1])
            self.last = TimestampOffset(timestamp, offset)

    patch.setattr(TimeIndex, "append", append_later)


def acks_wait_for_no_sync(patch: Patch) -> None:
    """With klamm.sync.before.ack a replica counts as having what it has not synced."""
    patch.setattr(LogStorage, "durable_end", property(lambda self: self.end_offset))


def copies_are_not_flushed(patch: Patch) -> None:
    """A copy in another log directory replaces a log before it is synced."""
    flush, flush_now = LogStorage.flush, LogStorage.flush_now

    async def flush_others(self: LogStorage, *of: Any) -> None:
        if not self.directory.endswith(DirectoryKind.FUTURE):
            await flush(self, *of)

    def flush_others_now(self: LogStorage) -> None:
        if not self.directory.endswith(DirectoryKind.FUTURE):
            flush_now(self)

    patch.setattr(LogStorage, "flush", flush_others)
    patch.setattr(LogStorage, "flush_now", flush_others_now)


MUTANTS: Final = (
    Mutant("x1", "", "changes wake no fetch", changes_wake_no_fetch, (82,)),
    Mutant("x2", "", "new roles wake no consumer", new_roles_wake_no_consumer, (82,)),
    Mutant("x3", "", "new roles answer no request", new_roles_answer_no_request, (82,)),
    Mutant("x4", "KIP-113", "chosen directories are forgotten", chosen_directories_are_forgotten, (82,)),
    Mutant("x5", "KIP-227", "sessions take the place of others", full_sessions_fail, (82,)),
    Mutant("x6", "", "a part of the node closes late", stops_wait, (83,)),
    Mutant("x7", "", "shutdowns are not marked", shutdowns_are_not_marked, (83,)),
    Mutant("x8", "KAFKA-10471", "closed logs are not flushed", closed_logs_are_not_flushed, (83,)),
    Mutant("x9", "KAFKA-16541", "time indexes are wrong", time_indexes_are_wrong, (78,)),
    Mutant("x10", "", "acks wait for no sync", acks_wait_for_no_sync, (74,)),
    Mutant("x11", "KIP-113", "copies are not flushed", copies_are_not_flushed, (76,)),
)
