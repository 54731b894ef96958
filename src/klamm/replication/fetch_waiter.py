"""The partitions of a fetch, which of them changed, and the wait for a change.

A fetch session may cover thousands of partitions of which few change between two fetches. A partition therefore marks
itself as changed in the fetches that watch it, and a fetch reads only these: its cost grows with what changed.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchPartition
from klamm.replication.replica import NEVER


class WatchedPartition(Protocol):
    """A hosted partition that marks the entries of fetch sessions as changed."""

    def add_watcher(self, watcher: "CachedPartition") -> None:
        """From now on, mark this entry of a fetch session as changed whenever the partition changes."""

    def remove_watcher(self, watcher: "CachedPartition") -> None:
        """Stop marking this entry of a fetch session as changed when the partition changes."""


class CachedPartition:
    """A partition in one fetch or fetch session: what was requested last, and what was sent last."""

    __slots__ = ("hosted", "request", "sent_high_watermark", "sent_log_start_offset", "subscribed", "waiter")

    def __init__(self, request: FetchPartition, waiter: "FetchWaiter") -> None:
        self.request = request
        self.waiter = waiter
        self.hosted: WatchedPartition | None = None
        self.subscribed = False
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The topic and partition; None where the topic id is not known."""
        topic = self.request.topic
        return None if topic is None else TopicPartition(topic, self.request.partition)

    def mark_unsent(self) -> None:
        """Have the next response of the session include the partition, because the last one was not sent."""
        self.sent_high_watermark = self.sent_log_start_offset = -1

    def subscribe(self) -> None:
        """Have the hosted partition call `mark_changed` of this entry from now on."""
        if self.hosted is not None and not self.subscribed:
            self.hosted.add_watcher(self)
            self.subscribed = True

    def unsubscribe(self) -> None:
        """Stop being called by the hosted partition; the next read looks the hosted partition up again."""
        if self.hosted is not None and self.subscribed:
            self.hosted.remove_watcher(self)
        self.subscribed = False
        self.hosted = None

    def mark_changed(self, *, wakes: bool) -> None:
        """Called by the hosted partition when it changed.

        It is read again, at once (`wakes`) or when the fetch is answered.
        """
        waiter = self.waiter
        waiter.changed[self] = None
        if wakes:
            waiter.wake()


class FetchWaiter:
    """Waits for changes in the partitions of one fetch session, or of one fetch without a session."""

    __slots__ = (
        "_wakeup",
        "answered_at",
        "answers_at_once",
        "changed",
        "fetched_after",
        "fetched_at_ms",
        "is_follower",
        "is_woken",
        "replica_id",
        "stays",
    )

    def __init__(self, replica_id: BrokerId, *, stays: bool) -> None:
        self.replica_id = replica_id
        self.is_follower = replica_id >= 0
        self.stays = stays
        """Whether it outlives the fetch; its partitions mark themselves as changed between two fetches, too."""
        self.changed: dict[CachedPartition, None] = {}
        """To be read, in this order."""
        self.fetched_at_ms = NEVER
        self.answered_at = NEVER
        """The number of the last answer in the session: see `leadership_proof`."""
        self.fetched_after = NEVER
        """The number of the answer after which the follower made its newest fetch."""
        self.answers_at_once = False
        """Whether the follower is to fetch again soon, so that its fetch is answered without waiting for data."""
        self.is_woken = False
        """Whether something changed that ends a wait, since the last wait or since a fetch began to read."""
        self._wakeup: asyncio.Future[bool] | None = None

    def wake(self) -> None:
        """End the wait in progress, or else the next one: the fetch may be reading other partitions just now."""
        self.is_woken = True
        self._end_wait()

    def answer_at_once(self) -> None:
        """Have the current fetch, or else the next one, answered at once."""
        self.answers_at_once = True
        self.wake()

    def _end_wait(self) -> None:
        """End the wait in progress, if there is one."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(True)

    async def wait(self, until: float) -> bool:
        """Wait for a change until `until` on the loop's clock; False where none came in time.

        A second fetch that starts waiting on the same session ends the wait of the first.
        """
        self._end_wait()
        if self.is_woken:
            self.is_woken = False
            return True
        loop = asyncio.get_running_loop()
        wakeup = self._wakeup = loop.create_future()
        timer = loop.call_at(until, _end_wait, wakeup)
        try:
            was_woken: bool = await wakeup
            self.is_woken = False
            return was_woken
        finally:
            timer.cancel()
            if self._wakeup is wakeup:
                self._wakeup = None

    def close(self, partitions: Iterable[CachedPartition]) -> None:
        """Unsubscribe the partitions and end the wait in progress."""
        for cached in partitions:
            if cached.hosted is not None:
                cached.unsubscribe()
        self.changed.clear()
        self.wake()


def _end_wait(wakeup: asyncio.Future[bool]) -> None:
    """Set the result of the wait to False, because its time is over."""
    if not wakeup.done():
        wakeup.set_result(False)
