"""Fetches partitions from one leader: fetch, append, fetch again. Source: AbstractFetcherThread, ReplicaFetcherThread.

There is one task per leader and fetcher id, for any number of partitions. The next request follows a response without
a timer, so an acks=all append is replicated at once.
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
from klamm.model.errors import ErrorCode, KlammError, error_text
from klamm.model.ids import TopicPartition
from klamm.replication.fetch_session_client import FetchSessionClient, FetchSettings
from klamm.replication.leader_end_point import LeaderEndPoint
from klamm.replication.partition import Partition
from klamm.replication.partition_fetch_state import NO_EPOCH, PartitionFetchState
from klamm.replication.ports import PartitionRefused
from klamm.replication.quota import ReplicationQuota
from klamm.replication.truncation import truncation_offset
from klamm.wire.messages import FetchResponse, FetchResponsePartitionData
from klamm.wire.records import CorruptRecords

log = structlog.get_logger("replication")
_REPORT: Final = "Nothing to do; if it happens again, report it with this stack trace as a bug in klamm."

FIRST_BACKOFF_S: Final = 0.01
"""Acks=all waits for this follower meanwhile: mostly the leader learns of its leader epoch some ms later."""
MAX_DOUBLINGS: Final = 10
SESSION_ERRORS: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


class FetchRefused(KlammError):
    """The leader refused a whole Fetch request, for a reason other than its fetch session."""


class Fetcher:
    """Fetches its partitions from one leader until it is closed."""

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
        self._followed: dict[TopicPartition, PartitionFetchState] = {}
        self._delayed: dict[TopicPartition, PartitionFetchState] = {}
        self._behind: dict[TopicPartition, PartitionFetchState] = {}
        """Partitions whose log ends below the leader's high watermark, or whose first response is still to come."""
        self._unsynced: dict[TopicPartition, Log] = {}
        """Logs to sync before the next fetch tells the leader their end."""
        self._session = FetchSessionClient()
        self._partition_added = asyncio.Event()
        self.failed: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._followed

    # ---- partitions come and go

    def add(self, topic_partition: TopicPartition, partition: Partition, leader_epoch: int) -> None:
        """Start fetching a partition; does nothing where it is already fetched in that leader epoch."""
        self.failed.discard(topic_partition)
        known = self._followed.get(topic_partition)
        if known is not None and known.leader_epoch == leader_epoch:
            return
        try:
            followed = PartitionFetchState(partition, leader_epoch)
            own_log, has_no_epoch = partition.hosted_log, followed.last_fetched_epoch == NO_EPOCH
            if has_no_epoch and own_log.possible_loss != followed.fetch_offset < own_log.end_offset:
                partition.truncate_to(followed.fetch_offset)
                followed.continue_from(own_log.end_offset)  # below it where that lay inside a batch
        except (StorageFailed, PartitionRefused, CorruptRecords) as error:  # its log directory failed, or it is damaged
            self._mark_failed(topic_partition, error)
            return
        self._delayed.pop(topic_partition, None)
        self._followed[topic_partition] = self._behind[topic_partition] = followed
        self._sync_if_needed(topic_partition, own_log)  # this process may have found it in the page cache
        self._session.set_position(topic_partition, followed.position())
        self._partition_added.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition."""
        self.failed.discard(topic_partition)
        if self._followed.pop(topic_partition, None) is not None:
            self._delayed.pop(topic_partition, None)
            self._behind.pop(topic_partition, None)
            self._session.forget(topic_partition)

    def set_topic_id(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Fetch the partition by this topic id from now on; the zero id means by name."""
        followed = self._followed.get(topic_partition)
        if followed is not None and followed.topic_id != topic_id:
            followed.topic_id = topic_id
            if topic_partition not in self._delayed:
                self._session.set_position(topic_partition, followed.position())

    # ---- the loop

    async def run(self) -> None:
        """Fetch, or wait where no partition can be fetched now, until the task is cancelled."""
        try:
            while True:
                try:
                    await self._advance()
                except Exception:
                    self._on_unexpected_error()
                    await asyncio.sleep(self._backoff_s)
        finally:
            self._leader.close()

    async def _advance(self) -> None:
        """Fetch once, or do what has to come before; wait where no partition can be fetched now."""
        self._delay_throttled()
        self._resume_delayed()
        if self._unsynced:
            await self._sync_before_next_fetch()
        elif len(self._session):
            await self._fetch_once()
        else:
            await self._wait_for_partitions()

    async def _wait_for_partitions(self) -> None:
        """Wait until a partition is added or the earliest delayed one may be fetched again."""
        self._partition_added.clear()
        until = min(
            (f.retry_at for f in self._delayed.values()), default=asyncio.get_running_loop().time() + self._backoff_s
        )
        try:
            async with asyncio.timeout_at(until):
                await self._partition_added.wait()
        except TimeoutError:
            return

    async def _fetch_once(self) -> None:
        """Send one Fetch and apply its response; after any failure all partitions are fetched again later."""
        try:
            request, version = self._session.build(self._settings, self._broker_epoch(), self._max_wait_ms())
            response = await self._leader.fetch(request, version)
            if self._session.on_response(response):
                await self._apply_response(response)
            elif response.error_code not in SESSION_ERRORS:
                raise FetchRefused(f"the leader refused the whole Fetch request: {ErrorCode(response.error_code).name}")
        except (KlammError, OSError, TimeoutError) as error:
            log.info(
                "the leader does not answer a fetch: fetching again after the backoff",
                why=error_text(error),
                partitions=len(self),
            )
            self._reset_connection()
        except Exception:
            self._on_unexpected_error()

    def _on_unexpected_error(self) -> None:
        """Log the error that is being handled, and fetch all partitions again later."""
        log.exception(
            "unexpected error in a fetcher: fetching again after the backoff", partitions=len(self), action=_REPORT
        )
        self._reset_connection()

    def _max_wait_ms(self) -> int:
        """How long the leader may hold the fetch, in ms.

        That is `replica.fetch.wait.max.ms`, or less where a delayed partition is due earlier.
        """
        most = self._settings.max_wait_ms
        if not self._delayed:
            return most
        left_s = min(f.retry_at for f in self._delayed.values()) - asyncio.get_running_loop().time()
        return max(0, min(most, math.ceil(left_s * 1000)))

    def _reset_connection(self) -> None:
        """Close the connection, restart the session and delay all partitions."""
        self._session.on_request_lost()
        self._leader.close()
        for topic_partition in list(self._followed):
            self._delay(topic_partition)

    # ---- resting partitions

    def _delay(self, topic_partition: TopicPartition) -> None:
        """Do not fetch the partition for a while, at most the backoff time.

        The first delays are short: mostly this broker has learnt of a new leader before that leader has.
        """
        followed = self._followed.get(topic_partition)
        if followed is None or topic_partition in self._delayed:
            return
        pause = min(self._backoff_s, FIRST_BACKOFF_S * 2 ** min(followed.failures, MAX_DOUBLINGS))
        followed.failures += 1
        followed.retry_at = asyncio.get_running_loop().time() + pause
        self._delayed[topic_partition] = followed
        self._session.forget(topic_partition)

    def _delay_throttled(self) -> None:
        """Do not fetch throttled partitions that are behind until the quota allows it, or for the backoff time."""
        quota = self._quota
        if not quota.is_on or not quota.is_exceeded():
            return
        retry_at = min(quota.exceeded_until_ms / 1000, asyncio.get_running_loop().time() + self._backoff_s)
        for topic_partition, followed in self._behind.items():
            if not quota.covers(topic_partition):
                continue
            followed.retry_at = max(followed.retry_at, retry_at)
            if topic_partition not in self._delayed:
                self._delayed[topic_partition] = followed
                self._session.forget(topic_partition)

    def _resume_delayed(self) -> None:
        """Fetch the partitions again whose delay is over."""
        if not self._delayed:
            return
        now = asyncio.get_running_loop().time()
        for topic_partition, followed in list(self._delayed.items()):
            if followed.retry_at <= now:
                del self._delayed[topic_partition]
                self._session.set_position(topic_partition, followed.position())

    def _stop_fetching(self, topic_partition: TopicPartition) -> None:
        """Do not fetch a partition until the next LeaderAndIsr; the other partitions are not affected."""
        self.remove(topic_partition)
        self.failed.add(topic_partition)

    def _mark_failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Stop fetching a partition after an error on this broker, and log the error."""
        self._stop_fetching(topic_partition)
        log.error(
            "replica failed: it is not fetched until the next LeaderAndIsr",
            partition=str(topic_partition),
            why=error_text(error),
            action="Repair the cause and restart this broker.",
        )

    # ---- answers

    async def _apply_response(self, response: FetchResponse) -> None:
        """Append, truncate or delay each partition of a response; skip those whose position changed meanwhile."""
        diverging: list[tuple[TopicPartition, PartitionFetchState, EpochEnd]] = []
        out_of_range: list[tuple[TopicPartition, PartitionFetchState]] = []
        refusals: Counter[str] = Counter()
        for topic in response.responses:
            name = topic.topic or self._session.topic_name(topic.topic_id)
            if name is None:
                continue
            for answer in topic.partitions:
                topic_partition = TopicPartition(name, answer.partition_index)
                followed = self._followed.get(topic_partition)
                sent = self._session.last_sent(topic_partition)
                if followed is None or sent is None or not followed.was_sent_as(sent):
                    continue
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append((topic_partition, followed))
                elif answer.error_code:
                    error = ErrorCode(answer.error_code)
                    refusals[error.name] += 1
                    self._on_partition_error(topic_partition, followed, error, sent.leader_epoch)
                elif answer.diverging_epoch.end_offset >= 0:
                    end = EpochEnd(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
                    diverging.append((topic_partition, followed, end))
                else:
                    self._append_records(topic_partition, followed, answer)
                    own_log = followed.partition.log
                    if own_log is not None and _must_be_synced(own_log):
                        self._unsynced[topic_partition] = own_log
        await self._sync_before_next_fetch()
        _log_refusals(refusals)
        for topic_partition, followed, end in diverging:
            if self._is_current(topic_partition, followed):  # a flush may have taken time (KAFKA-7786)
                await self._truncate_diverged(topic_partition, followed, end)
        for topic_partition, followed in out_of_range:
            if self._is_current(topic_partition, followed):
                await self._reset_offset(topic_partition, followed)

    def _sync_if_needed(self, topic_partition: TopicPartition, own_log: Log) -> None:
        """Sync the log before the next fetch, if a part of it is not on the device and has to be."""
        if not own_log.is_durable:
            self._unsynced[topic_partition] = own_log

    async def _sync_before_next_fetch(self) -> None:
        """Sync the logs that were truncated, or whose config requires it, several at a time.

        The next fetch offset then covers only records that are on the device, and what is appended there cannot end
        up behind records that were removed.
        """
        unsynced, self._unsynced = self._unsynced, {}
        for own_log in unsynced.values():
            own_log.sync_soon()
        for topic_partition, own_log in unsynced.items():
            try:
                await own_log.wait_until_durable()
                await own_log.flush_before_ack()
            except Exception as error:
                followed = self._followed.get(topic_partition)
                if followed is not None and followed.partition.log in (own_log, None):
                    self._mark_failed(topic_partition, error)  # else it moved to another log directory, flushed

    def _append_records(
        self, topic_partition: TopicPartition, followed: PartitionFetchState, answer: FetchResponsePartitionData
    ) -> None:
        """Append the fetched records, and apply the leader's high watermark and log start."""
        partition = followed.partition
        try:
            own_log = partition.hosted_log
            if own_log.possible_loss is not None:
                partition.truncate_possible_loss(own_log.possible_loss)
            if followed.fetch_offset != own_log.end_offset:
                raise PartitionRefused(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{topic_partition}: records were fetched from offset {followed.fetch_offset}, but the log end "
                    f"offset is {own_log.end_offset}",
                )
            if answer.records:
                partition.append_as_follower(answer.records)
                followed.contradictions = followed.contradictions or 0
                if self._quota.is_on and self._quota.covers(topic_partition):
                    self._quota.record(len(answer.records))
            if own_log.end_offset < answer.high_watermark:
                self._behind[topic_partition] = followed
            else:
                self._behind.pop(topic_partition, None)
            partition.update_from_leader(answer.high_watermark, answer.log_start_offset)
            followed.failures = 0
            if own_log.end_offset != followed.fetch_offset:
                followed.continue_from(own_log.end_offset)
            elif (sent := self._session.last_sent(topic_partition)) and sent.log_start_offset == own_log.start_offset:
                return  # else the leader does not know it: its response, or retention before it, moved it
            self._session.set_position(topic_partition, followed.position())
        except ProducersRestoring:
            followed.continue_from(partition.hosted_log.end_offset)
            self._delay(topic_partition)
        except CorruptRecords as error:
            log.error(
                "the leader's fetch response has corrupt records: fetching them again",
                partition=str(topic_partition),
                why=str(error),
            )
            followed.continue_from(partition.hosted_log.end_offset)  # what lay before them was written
            self._delay(topic_partition)
        except Exception as error:
            self._mark_failed(topic_partition, error)

    def _on_partition_error(
        self, topic_partition: TopicPartition, followed: PartitionFetchState, error: ErrorCode, sent_epoch: int
    ) -> None:
        """Stop fetching where the leader epoch is fenced, until the next LeaderAndIsr; delay after other errors."""
        is_fenced = error is ErrorCode.FENCED_LEADER_EPOCH and sent_epoch == followed.leader_epoch
        if is_fenced:
            self._stop_fetching(topic_partition)
        else:
            self._delay(topic_partition)
        log.debug(
            "the leader answered a partition of a fetch with an error",
            partition=str(topic_partition),
            error=error.name,
            epoch=sent_epoch,
            fetched_again="after the next LeaderAndIsr" if is_fenced else "later",
        )

    async def _truncate_most(self, topic_partition: TopicPartition, followed: PartitionFetchState, offset: int) -> bool:
        """Truncate the log in steps until few segments are above `offset`; returns whether it is still fetched then."""
        for step in followed.partition.hosted_log.truncation_steps(offset):
            followed.partition.truncate_to(step)
            await asyncio.sleep(0)
            if not self._is_current(topic_partition, followed):
                return False
        return True

    async def _truncate_diverged(
        self, topic_partition: TopicPartition, followed: PartitionFetchState, leader: EpochEnd
    ) -> None:
        """Truncate the log to the offset where it diverged from the leader's, as far as this response shows it."""
        partition = followed.partition
        try:
            own_log = partition.hosted_log
            own = own_log.epochs.end_offset_for(leader.epoch, own_log.end_offset)
            offset = truncation_offset(leader, own, own_log.end_offset, followed.fetch_offset)
            log.info(
                "the follower's log diverged from the leader's and was truncated",
                partition=str(topic_partition),
                leader_epoch_end=leader,
                own_epoch_end=own,
                truncated_to=offset,
            )
            if not await self._truncate_most(topic_partition, followed, offset):
                return
            partition.truncate_to(offset)
            own_log = partition.hosted_log  # it may have moved to another log directory between the steps
            self._sync_if_needed(topic_partition, own_log)
            followed.failures = 0
            followed.continue_from(own_log.end_offset)  # below `offset` where that lay inside a batch
            self._session.set_position(topic_partition, followed.position())
            if followed.contradictions is not None:
                followed.contradictions = followed.failures = followed.contradictions + 1
                self._delay_contradicted(topic_partition, is_first=followed.contradictions == 1)
        except Exception as error:
            self._mark_failed(topic_partition, error)

    def _delay_contradicted(self, topic_partition: TopicPartition, *, is_first: bool) -> None:
        """Delay a partition whose leader's log diverged from what was copied from it, each time for longer.

        Only a damaged log does that. Apache Kafka copies, removes and syncs the same records without an end.
        """
        if is_first:
            log.error(
                "the leader's log contradicts itself: records copied from it diverge from it",
                partition=str(topic_partition),
                action="Check the disk of the leader, and replace its replica.",
            )
        self._delay(topic_partition)

    async def _reset_offset(self, topic_partition: TopicPartition, followed: PartitionFetchState) -> None:
        """Handle OFFSET_OUT_OF_RANGE: continue from the leader's log end or log start."""
        partition, epoch = followed.partition, followed.leader_epoch
        try:
            leader_end = await self._leader.list_offset(topic_partition, epoch, LATEST)
            if not self._is_current(topic_partition, followed):
                return
            own_log = partition.hosted_log
            if own_log.possible_loss is not None:
                partition.truncate_possible_loss(own_log.possible_loss)
            own_end = own_log.end_offset
            if leader_end < own_end:
                if not await self._truncate_most(topic_partition, followed, leader_end):
                    return
                partition.truncate_to(leader_end)
                offset = partition.hosted_log.end_offset
            else:
                leader_start = await self._leader.list_offset(topic_partition, epoch, EARLIEST)
                if not self._is_current(topic_partition, followed):
                    return
                offset = max(leader_start, own_end)
                if leader_start > own_end:
                    if not await self._truncate_most(topic_partition, followed, -1):
                        return
                    partition.restart_at(leader_start)
            was_refused_inside = offset == followed.fetch_offset
            log.warning(
                "the follower's fetch offset was out of range on the leader: it fetches from the new offset",
                partition=str(topic_partition),
                was=followed.fetch_offset,
                now=offset,
            )
            self._sync_if_needed(topic_partition, partition.hosted_log)
            followed.continue_from(offset)
            self._session.set_position(topic_partition, followed.position())
            if was_refused_inside:
                self._delay(topic_partition)  # the leader refuses an offset of its own log, and may do so again
        except PartitionRefused as refusal:
            if self._is_current(topic_partition, followed):  # else it refuses an earlier leader epoch
                self._on_partition_error(topic_partition, followed, refusal.code, epoch)
                _log_refusals(Counter([refusal.code.name]))
        except (StorageFailed, CorruptRecords) as error:
            self._mark_failed(topic_partition, error)

    def _is_current(self, topic_partition: TopicPartition, followed: PartitionFetchState) -> bool:
        """Whether the partition is still fetched in the same leader epoch and is not delayed."""
        return self._followed.get(topic_partition) is followed and topic_partition not in self._delayed


def _log_refusals(refusals: Counter[str]) -> None:
    """Log how many partitions the leader refused with each error, in one line: a leader that moves refuses hundreds."""
    if refusals:
        log.info("the leader answered some partitions of a fetch with errors", **refusals)


def _must_be_synced(own_log: Log) -> bool:
    """Whether records must be synced before the leader may count them as replicated here."""
    return not own_log.is_durable or own_log.needs_flush_before_ack
