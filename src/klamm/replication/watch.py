"""What a fetcher asks for, and what is new in it.

A fetch session may cover thousands of partitions of which few change between two fetches. So a partition tells its
watchers when something moved, and a fetch looks only at those marked since: its cost grows with what changed.
"""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from klamm.log.epochs import EpochEnd
from klamm.log.file_slice import Records
from klamm.log.transactions import AbortedTransaction
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.replica import NEVER

CONSUMER = BrokerId(-1)
"""The replica id of a fetch that comes from no broker."""


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchPartition(NamedTuple):
    """One partition in a Fetch request; −1 stands for "not given" in both epochs."""

    topic: str | None
    """None where the request names an id that the metadata does not know."""
    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchParams(NamedTuple):
    """What holds for a whole Fetch request. Sizes in bytes."""

    replica_id: BrokerId = CONSUMER
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 57_671_680
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    leader_only: bool = True
    """False for consumers of version 11 and newer: these may read from a follower."""
    first_may_exceed: bool = True
    """Whether the first batch is returned however large it is (version 3 and newer)."""

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0


class FetchData(NamedTuple):
    """The answer for one partition."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Records = b""
    diverging: EpochEnd | None = None
    aborted: Sequence[AbortedTransaction] | None = None
    settled: bool = False
    """Nothing is left to tell until the partition marks itself again."""
    held: bool = False
    """There are records, but the throttle of replication holds them back for now."""


class Watched(Protocol):
    """A hosted partition, as far as its watchers are concerned."""

    def add_watcher(self, watcher: "WatchedPartition") -> None: ...
    def remove_watcher(self, watcher: "WatchedPartition") -> None: ...
    def read(
        self, watcher: "WatchedPartition", params: FetchParams, max_bytes: int, *, at_least_one: bool, is_first: bool
    ) -> FetchData: ...


class WatchedPartition:
    """One partition as one fetcher sees it: what it asked for last, and what it was told last."""

    __slots__ = ("hosted", "request", "subscribed", "told_high_watermark", "told_log_start_offset", "watch")

    def __init__(self, request: FetchPartition, watch: "FetchWatch") -> None:
        self.request = request
        self.watch = watch
        self.hosted: Watched | None = None
        self.subscribed = False
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    @property
    def topic_partition(self) -> TopicPartition | None:
        topic = self.request.topic
        return None if topic is None else TopicPartition(topic, self.request.partition)

    def subscribe(self) -> None:
        if self.hosted is not None and not self.subscribed:
            self.hosted.add_watcher(self)
            self.subscribed = True

    def unsubscribe(self) -> None:
        """Stop watching; the hosted partition is looked up again at the next read."""
        if self.hosted is not None and self.subscribed:
            self.hosted.remove_watcher(self)
        self.subscribed = False
        self.hosted = None

    def news(self, *, wakes: bool) -> None:
        """Called by the partition: look at it again, now (`wakes`) or whenever the fetch is answered."""
        watch = self.watch
        watch.marked[self] = None
        if wakes:
            watch.wake()


class FetchWatch:
    """The partitions of one fetch session, or of one fetch without session; who waits for news in them."""

    __slots__ = ("fetched_at_ms", "is_follower", "marked", "replica_id", "stays", "waiter")

    def __init__(self, replica_id: BrokerId, *, stays: bool) -> None:
        self.replica_id = replica_id
        self.is_follower = replica_id >= 0
        self.stays = stays
        """Whether it outlives the fetch, and its partitions tell it of their news in between."""
        self.marked: dict[WatchedPartition, None] = {}
        """To be looked at, in this order."""
        self.fetched_at_ms = NEVER
        self.waiter: asyncio.Future[bool] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(True)

    async def wait(self, until: float) -> bool:
        """Wait for news till `until` on the loop's clock; False where none came in time.

        A second fetch that starts waiting on the same session ends the wait of the first.
        """
        loop = asyncio.get_running_loop()
        self.wake()
        waiter = self.waiter = loop.create_future()
        timer = loop.call_at(until, _give_up, waiter)
        try:
            has_news: bool = await waiter
            return has_news
        finally:
            timer.cancel()
            if self.waiter is waiter:
                self.waiter = None

    def close(self, partitions: Iterable[WatchedPartition]) -> None:
        for watched in partitions:
            watched.unsubscribe()
        self.marked.clear()
        self.wake()


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
