"""Follows one leader: fetch, append, fetch again. Source: AbstractFetcherThread.scala, ReplicaFetcherThread.scala.

One task per leader and fetcher id, whatever the number of partitions. Between an answer and the next request there
is no timer: that is what carries an acks=all append through.
"""

import asyncio
import math
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from klamm.client.offsets import EARLIEST, LATEST
from klamm.log.epochs import EpochEnd
from klamm.log.errors import ProducersRestoring, StorageFailed
from klamm.log.log import Log
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_session_client import FetchSessionClient, FetchSettings, Wanted
from klamm.replication.leader_end_point import LeaderEndPoint
from klamm.replication.partition import Partition
from klamm.replication.ports import PartitionRefused
from klamm.replication.quota import ReplicationQuota
from klamm.replication.truncation import truncation_offset
from klamm.wire.messages import FetchResponse, FetchResponsePartitionData
from klamm.wire.records import CorruptRecords

log = structlog.get_logger("replication")

NO_EPOCH: Final = -1
FIRST_BACKOFF_S: Final = 0.05
MAX_DOUBLINGS: Final = 10
SESSION_ERRORS: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


class FetchRefused(KlammError):
    """A whole fetch was refused, not for its session."""


class Followed:
    """One partition being fetched in one leader epoch; a newer epoch makes a new object."""

    __slots__ = (
        "failures",
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "partition",
        "retry_at",
        "topic_id",
    )

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        own_log = partition.hosted_log
        latest = own_log.epochs.latest_epoch
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.topic_id = own_log.topic_id or ZERO_ID
        # without any epoch there is nothing to compare with the leader: all above the high watermark goes
        self.fetch_offset = own_log.high_watermark if latest is None else own_log.end_offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest
        self.failures = 0
        """In a row."""
        self.retry_at = 0.0

    def resume(self, offset: int) -> None:
        """Go on from `offset`, with the epoch that the log now ends in."""
        latest = self.partition.hosted_log.epochs.latest_epoch
        self.fetch_offset = offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    def asked_as(self, told: Wanted) -> bool:
        """Whether that is still where we are; if not, its answer is void."""
        return told.fetch_offset == self.fetch_offset and told.leader_epoch == self.leader_epoch

    def wanted(self) -> Wanted:
        start = self.partition.hosted_log.start_offset
        return Wanted(self.topic_id, self.fetch_offset, self.leader_epoch, self.last_fetched_epoch, start)


class Fetcher:
    """FetchService its partitions from one leader until it is closed."""

    def __init__(
        self,
        leader: LeaderEndPoint,
        settings: FetchSettings,
        broker_epoch: Callable[[], int],
        backoff_s: float,
        quota: ReplicationQuota,
    ) -> None:
        """`quota` is the follower's: while it is used up, its partitions that are behind are not fetched."""
        self._leader = leader
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._backoff_s = backoff_s
        self._quota = quota
        self._followed: dict[TopicPartition, Followed] = {}
        self._resting: dict[TopicPartition, Followed] = {}
        self._behind: dict[TopicPartition, Followed] = {}
        """Below the leader's high watermark as its last answer told it, or not told yet."""
        self._session = FetchSessionClient()
        self._news = asyncio.Event()
        self.failed: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._followed

    # ---- partitions come and go

    def add(self, topic_partition: TopicPartition, partition: Partition, leader_epoch: int) -> None:
        """Fetch a partition; nothing happens where it is being fetched in that epoch already."""
        self.failed.discard(topic_partition)
        known = self._followed.get(topic_partition)
        if known is not None and known.leader_epoch == leader_epoch:
            return
        try:
            followed = Followed(partition, leader_epoch)
            if followed.last_fetched_epoch == NO_EPOCH and followed.fetch_offset < partition.hosted_log.end_offset:
                partition.truncate_to(followed.fetch_offset)
        except StorageFailed as error:
            self._fail(topic_partition, error)
            return
        self._resting.pop(topic_partition, None)
        self._followed[topic_partition] = self._behind[topic_partition] = followed
        self._session.want(topic_partition, followed.wanted())
        self._news.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        self.failed.discard(topic_partition)
        if self._followed.pop(topic_partition, None) is not None:
            self._resting.pop(topic_partition, None)
            self._behind.pop(topic_partition, None)
            self._session.forget(topic_partition)

    def set_topic_id(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """The topic got its id, or lost it: fetch by it from now on."""
        followed = self._followed.get(topic_partition)
        if followed is not None and followed.topic_id != topic_id:
            followed.topic_id = topic_id
            if topic_partition not in self._resting:
                self._session.want(topic_partition, followed.wanted())

    # ---- the loop

    async def run(self) -> None:
        try:
            while True:
                self._hold_throttled()
                self._wake_rested()
                if len(self._session):
                    await self._fetch_once()
                else:
                    await self._wait_for_news()
        finally:
            self._leader.close()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        until = min(
            (f.retry_at for f in self._resting.values()), default=asyncio.get_running_loop().time() + self._backoff_s
        )
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    async def _fetch_once(self) -> None:
        """One request and its answer. Whatever goes wrong on the way, all partitions are tried again later."""
        try:
            request, version = self._session.build(self._settings, self._broker_epoch(), self._max_wait_ms())
            response = await self._leader.fetch(request, version)
            if self._session.take(response):
                await self._take(response)
            elif response.error_code not in SESSION_ERRORS:
                raise FetchRefused(f"the leader refuses to be fetched from: {ErrorCode(response.error_code).name}")
        except (KlammError, OSError, TimeoutError) as error:
            log.info("leader does not answer", why=str(error) or type(error).__name__, partitions=len(self))
            self._lose_connection()
        except Exception:
            log.exception("fetching failed")
            self._lose_connection()

    def _max_wait_ms(self) -> int:
        """No longer than till a resting partition is to be tried again: it must not wait for the others' news."""
        most = self._settings.max_wait_ms
        if not self._resting:
            return most
        left_s = min(f.retry_at for f in self._resting.values()) - asyncio.get_running_loop().time()
        return max(0, min(most, math.ceil(left_s * 1000)))

    def _lose_connection(self) -> None:
        self._session.lost()
        self._leader.close()
        for topic_partition in list(self._followed):
            self._rest(topic_partition)

    # ---- resting partitions

    def _rest(self, topic_partition: TopicPartition) -> None:
        """Leave a partition out for a while, at most the back-off time.

        The first rests are short: most often we only heard of a new leader before it did itself.
        """
        followed = self._followed.get(topic_partition)
        if followed is None or topic_partition in self._resting:
            return
        pause = min(self._backoff_s, FIRST_BACKOFF_S * 2 ** min(followed.failures, MAX_DOUBLINGS))
        followed.failures += 1
        followed.retry_at = asyncio.get_running_loop().time() + pause
        self._resting[topic_partition] = followed
        self._session.forget(topic_partition)

    def _hold_throttled(self) -> None:
        """Leave out what is throttled and behind till the quota may allow it, or for the back-off time at most."""
        quota = self._quota
        if not quota.is_on or not quota.is_exceeded():
            return
        retry_at = min(quota.ask_again_ms / 1000, asyncio.get_running_loop().time() + self._backoff_s)
        for topic_partition, followed in self._behind.items():
            if not quota.covers(topic_partition):
                continue
            followed.retry_at = max(followed.retry_at, retry_at)
            if topic_partition not in self._resting:
                self._resting[topic_partition] = followed
                self._session.forget(topic_partition)

    def _wake_rested(self) -> None:
        if not self._resting:
            return
        now = asyncio.get_running_loop().time()
        for topic_partition, followed in list(self._resting.items()):
            if followed.retry_at <= now:
                del self._resting[topic_partition]
                self._session.want(topic_partition, followed.wanted())

    def _set_aside(self, topic_partition: TopicPartition) -> None:
        """Stop fetching until the next LeaderAndIsr; the others go on."""
        self.remove(topic_partition)
        self.failed.add(topic_partition)

    def _fail(self, topic_partition: TopicPartition, error: Exception) -> None:
        self._set_aside(topic_partition)
        log.error("replica failed", partition=str(topic_partition), why=str(error) or type(error).__name__)

    # ---- answers

    async def _take(self, response: FetchResponse) -> None:
        """Apply the answer, partition by partition; what the requests of a moment ago no longer fit is left alone."""
        diverging: list[tuple[TopicPartition, Followed, EpochEnd]] = []
        out_of_range: list[tuple[TopicPartition, Followed]] = []
        refusals: Counter[str] = Counter()
        unflushed: list[tuple[TopicPartition, Log]] = []
        for topic in response.responses:
            name = topic.topic or self._session.name_of(topic.topic_id)
            if name is None:
                continue
            for answer in topic.partitions:
                topic_partition = TopicPartition(name, answer.partition_index)
                followed = self._followed.get(topic_partition)
                told = self._session.wanted(topic_partition)
                if followed is None or told is None or not followed.asked_as(told):
                    continue
                if not answer.error_code:
                    followed.failures = 0
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append((topic_partition, followed))
                elif answer.error_code:
                    refusals[ErrorCode(answer.error_code).name] += 1
                    self._refused(topic_partition, followed, ErrorCode(answer.error_code), told.leader_epoch)
                elif answer.diverging_epoch.end_offset >= 0:
                    end = EpochEnd(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
                    diverging.append((topic_partition, followed, end))
                else:
                    self._append(topic_partition, followed, answer)
                    own_log = followed.partition.log
                    if own_log is not None and own_log.owes_flush:
                        unflushed.append((topic_partition, own_log))
        await self._flush_owed(unflushed)
        if refusals:
            log.info("partitions refused by their leader", **refusals)
        for topic_partition, followed, end in diverging:
            self._truncate(topic_partition, followed, end)
        for topic_partition, followed in out_of_range:
            await self._reset_offset(topic_partition, followed)

    async def _flush_owed(self, unflushed: list[tuple[TopicPartition, Log]]) -> None:
        """By `flush.messages`: the next fetch tells the leader what is on the device here."""
        for topic_partition, own_log in unflushed:
            try:
                await own_log.flush_owed()
            except StorageFailed as error:
                self._fail(topic_partition, error)

    def _append(self, topic_partition: TopicPartition, followed: Followed, answer: FetchResponsePartitionData) -> None:
        partition = followed.partition
        try:
            own_log = partition.hosted_log
            if followed.fetch_offset != own_log.end_offset:
                raise PartitionRefused(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"fetched from {followed.fetch_offset}, but the log ends at {own_log.end_offset}",
                )
            start = own_log.start_offset
            if answer.records:
                partition.append_as_follower(answer.records)
                if self._quota.is_on and self._quota.covers(topic_partition):
                    self._quota.record(len(answer.records))
            if own_log.end_offset < answer.high_watermark:
                self._behind[topic_partition] = followed
            else:
                self._behind.pop(topic_partition, None)
            partition.follow_offsets(answer.high_watermark, answer.log_start_offset)
            if own_log.end_offset != followed.fetch_offset:
                followed.resume(own_log.end_offset)
            elif own_log.start_offset == start:
                return
            self._session.want(topic_partition, followed.wanted())
        except ProducersRestoring:
            followed.resume(partition.hosted_log.end_offset)
            self._rest(topic_partition)
        except CorruptRecords as error:
            log.error("corrupt records from the leader", partition=str(topic_partition), why=str(error))
            followed.resume(partition.hosted_log.end_offset)  # what lay before them was written
            self._rest(topic_partition)
        except Exception as error:
            self._fail(topic_partition, error)

    def _refused(self, topic_partition: TopicPartition, followed: Followed, error: ErrorCode, asked_epoch: int) -> None:
        """Our epoch ended: wait for the LeaderAndIsr that says so. Anything else passes by itself."""
        if error is ErrorCode.FENCED_LEADER_EPOCH and asked_epoch == followed.leader_epoch:
            self._set_aside(topic_partition)
            log.info("leader epoch ended", partition=str(topic_partition), epoch=asked_epoch)
            return
        log.debug("partition not fetched", partition=str(topic_partition), error=error.name)
        self._rest(topic_partition)

    def _truncate(self, topic_partition: TopicPartition, followed: Followed, leader: EpochEnd) -> None:
        """Our log left the leader's: cut it where they parted, as far as this answer tells."""
        partition = followed.partition
        try:
            own_log = partition.hosted_log
            own = own_log.epochs.end_offset_for(leader.epoch, own_log.end_offset)
            offset = truncation_offset(leader, own, own_log.end_offset, followed.fetch_offset)
            log.info("log diverged", partition=str(topic_partition), leader=leader, own=own, truncated_to=offset)
            partition.truncate_to(offset)
            followed.resume(own_log.end_offset)  # below `offset` where that lay inside a batch
            self._session.want(topic_partition, followed.wanted())
        except Exception as error:
            self._fail(topic_partition, error)

    async def _reset_offset(self, topic_partition: TopicPartition, followed: Followed) -> None:
        """Our offset lies outside the leader's log: after an unclean election, or after we were away for long."""
        partition, epoch = followed.partition, followed.leader_epoch
        try:
            leader_end = await self._leader.list_offset(topic_partition, epoch, LATEST)
            if not self._is_current(topic_partition, followed):
                return
            own_end = partition.hosted_log.end_offset
            if leader_end < own_end:
                partition.truncate_to(leader_end)
                offset = partition.hosted_log.end_offset
            else:
                leader_start = await self._leader.list_offset(topic_partition, epoch, EARLIEST)
                if not self._is_current(topic_partition, followed):
                    return
                offset = max(leader_start, own_end)
                if leader_start > own_end:
                    partition.restart_at(leader_start)
            log.warning("fetch offset reset", partition=str(topic_partition), was=followed.fetch_offset, now=offset)
            followed.resume(offset)
            self._session.want(topic_partition, followed.wanted())
        except PartitionRefused as refusal:
            self._refused(topic_partition, followed, refusal.code, epoch)
        except StorageFailed as error:
            self._fail(topic_partition, error)

    def _is_current(self, topic_partition: TopicPartition, followed: Followed) -> bool:
        return self._followed.get(topic_partition) is followed and topic_partition not in self._resting
