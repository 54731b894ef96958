"""The state of one streaming query in the driver: its client, and what it knows of logs, limits and losses."""

import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm.client.cluster import TopicGone, topic_ids_of
from klamm.client.leaders import NO_EPOCH, OffsetAndEpoch, offsets_of
from klamm.client.offsets import EARLIEST, LATEST
from klamm.client.truncations import Truncation
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingWorld
from klamm.spark.errors import BadOption, DataLoss, LostRange, pass_over
from klamm.spark.options import ReadOptions
from klamm.spark.partitions import check_complete, find_partitions, find_topics, partitions_of, warn_without_ids
from klamm.spark.plan import average_bytes, checked_starts, resolve_offsets
from klamm.spark.ranges import OffsetRange, TaskLimits, TaskRanges, plan_tasks
from klamm.spark.rate_limits import is_enough, limit_offsets
from klamm.spark.stream_offsets import StreamOffset
from klamm.spark.stream_plan import losses_between, plan_micro_batch
from klamm.spark.transports import new_transport

MAX_BEHIND_S: Final = 10.0
"""A log that ends before what was read counts as truncated after this long: a new leader's high watermark lags."""


class Logs(NamedTuple):
    """The logs of the partitions that a query reads, at one time; ends are last stable offsets for read_committed."""

    topic_ids: Mapping[str, uuid.UUID]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    epochs: dict[TopicPartition, int]
    """The epochs of the leaders whose logs these are, where they tell them."""
    truncations: Mapping[TopicPartition, Truncation]
    """Logs without records that were read before, see `_look`."""
    high_watermarks: Mapping[TopicPartition, int]
    """Of partitions whose last stable offset is before the position of the query; only with read_committed."""


class StreamDriver:
    def __init__(self, world: BlockingWorld, options: ReadOptions) -> None:
        self._world = world
        self._options = options
        self._transport = new_transport(world, options)
        self._initial: StreamOffset | None = None
        self._initial_error: BadOption | DataLoss | None = None
        """Why a new query cannot begin as its options say."""
        self._fixed_end: Logs | None = None
        self._checked_cluster = False
        self._last_batch_s: float | None = None
        self._behind_since_s: dict[TopicPartition, float] = {}
        self.latest: StreamOffset | None = None
        """The ends of the logs as they were last seen."""

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def initial(self) -> StreamOffset:
        """Return the offsets at which a new query begins; they are determined once.

        What is wrong with the options is raised by `next_end`: Spark also asks for the initial offsets where it repeats
        batch 0 after a crash. The checkpoint has them then, and the options need not fit any more, because a partition
        was added, for example. Raises Unreachable.
        """
        if self._initial is None:
            try:
                self._initial = self._resolve_initial()
            except (BadOption, DataLoss) as error:
                self._initial_error = error
                return StreamOffset(None, {}, {}, {}, is_initial=True)
        return self._initial

    def _resolve_initial(self) -> StreamOffset:
        """The offsets at which a new query begins, as the options say. Raises BadOption, DataLoss, Unreachable."""
        transport = self._transport
        partitions = find_partitions(transport)
        check_complete(self._options.start, partitions)
        warn_without_ids(transport, partitions)
        starts = resolve_offsets(transport, self._options.start, partitions)
        ends = transport.ends(partitions)  # last: the logs grow meanwhile
        starts = checked_starts(transport, starts, offsets_of(ends), [])
        ids = dict(transport.topic_ids)
        return StreamOffset(transport.cluster_id, ids, starts, {}, is_initial=True, epochs=_epochs_of(ends))

    def fix_end(self) -> None:
        """Make the query end at the current ends of the logs, even while producers add records."""
        self._fixed_end = self._look()

    def next_end(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        """Return where the micro-batch after `start` ends; `start` itself where there is nothing to read.

        Raises DataLoss where records that follow `start` are gone; BadOption, DataLoss where a new query cannot begin.
        """
        if start.is_initial and self._initial_error is not None:
            raise self._initial_error
        self._check_cluster(start)
        logs = self._look(start)
        self.latest = StreamOffset(self._transport.cluster_id, logs.topic_ids, logs.ends, {})
        if self._fixed_end is not None:
            logs = _within(logs, self._fixed_end, start)
        goal = self._goal(start, logs)
        begins = {p: goal.begin(p, start) for p in goal.next}
        waits = unlimited or self._fixed_end is not None
        if not waits and not is_enough(begins, goal.next, self._options.trigger, self._waited_s()):
            return goal._replace(next=begins, first=begins) if start.is_initial else start
        if not unlimited:
            goal = goal._replace(next=self._limited(begins, goal.next))
        if not start.is_initial and goal.next == start.next and goal.topic_ids == start.topic_ids:
            return start
        self._last_batch_s = self._world.now_s()
        return goal

    def tasks(self, start: StreamOffset, end: StreamOffset, parallelism: int) -> list[TaskRanges]:
        """Return the tasks of the micro-batch from `start` to `end`, for so many that run at once. Raises DataLoss."""
        self._check_cluster(end)
        plan = plan_micro_batch(start, end)
        for lost in plan.lost:
            pass_over(lost, self._options.on_data_loss)
        options = self._options
        limits = TaskLimits(parallelism, options.min_partitions, options.max_records_per_partition)
        tasks = plan_tasks(self._transport.locate(plan.ranges), average_bytes(self._transport, plan.ranges), limits)
        if options.reports_losses and plan.lost:
            tasks.append(TaskRanges((), tuple(plan.lost)))
        return tasks

    # ---- what there is

    def _look(self, start: StreamOffset | None = None) -> Logs:
        """The logs as they are now, of all partitions that the options include.

        A topic that `start` has counts as gone only when brokers have said so for some time; a broker that just
        started may not know it yet. Leaders whose epochs are not those of `start` are asked whether they have what was
        read. Raises Unreachable.
        """
        backoff = self._transport.backoff(self._options.api_timeout_s)
        gone: set[str] = set()
        while True:
            topics, _ = find_topics(self._transport)
            ids = topic_ids_of(topics)
            partitions = set(partitions_of(topics, self._transport))
            read: dict[TopicPartition, OffsetAndEpoch] = {}
            if start is not None:
                stays = {p for p in start.next if p.topic not in gone and self._options.subscription.includes(p)}
                partitions |= stays
                ids |= {p.topic: start.topic_ids[p.topic] for p in stays if p.topic in start.topic_ids}
                read = {p: at for p, at in start.positions.items() if p in stays}
            self._transport.topic_ids = ids
            self._transport.see_epochs({p: at.leader_epoch for p, at in read.items()})
            try:
                starts = self._transport.offsets(dict.fromkeys(partitions, EARLIEST))
                ends = self._transport.ends(partitions)
                truncations = self._transport.truncations(read)
                high_watermarks = self._high_watermarks(read, ends)
            except TopicGone as error:
                gone.add(error.topic)
                self._world.sleep(backoff.next_wait_s("asking for offsets", error))
                continue
            return Logs(ids, starts, offsets_of(ends), _epochs_of(ends), truncations, high_watermarks)

    def _high_watermarks(
        self, read: Mapping[TopicPartition, OffsetAndEpoch], ends: Mapping[TopicPartition, OffsetAndEpoch]
    ) -> Mapping[TopicPartition, int]:
        """The high watermarks of partitions whose last stable offset is before what was read or is to be read next.

        That is no truncation: startingOffsets may be inside of an open transaction, and so may be a position that was
        read with read_uncommitted. Raises TopicGone, Unreachable.
        """
        behind = [p for p, at in read.items() if p in ends and ends[p].offset < at.offset]
        if not behind or not self._options.read_committed:
            return {}
        return self._transport.offsets(dict.fromkeys(behind, LATEST), read_committed=False)

    def _goal(self, start: StreamOffset, logs: Logs) -> StreamOffset:
        """The end of a micro-batch without limits. Raises DataLoss."""
        goal = StreamOffset(self._transport.cluster_id, logs.topic_ids, logs.ends, {})
        known = {p for p in logs.ends if p in start.next and goal.same_topic(p.topic, start)}
        ends = {p: self._end_of_known(p, start.next[p], logs) if p in known else e for p, e in logs.ends.items()}
        behind = {p: start.epochs[p] for p in known if logs.ends[p] < ends[p] and p in start.epochs}
        topics = {p.topic for p in known}
        # of a topic that the query reads already, so that what was deleted before it was read is reported
        first = {p: 0 if p.topic in topics else logs.starts[p] for p in logs.ends if p not in known}
        if start.is_initial:
            first |= {p: start.next[p] for p in known}
        epochs = {p: epoch for p, epoch in (logs.epochs | behind).items() if p in ends}
        goal = goal._replace(next=ends, first=first, epochs=epochs)
        losses = (*losses_between(start, goal), *_deleted_before_read(start, logs, known), *_truncated_somewhere(logs))
        for lost in losses:
            pass_over(lost, self._options.on_data_loss)
        return goal

    def _end_of_known(self, partition: TopicPartition, position: int, logs: Logs) -> int:
        """The end up to which a partition that was read before can be read; of a truncated log, where it differs.

        A log end below `position` counts only after some time: until then it is `position`, because a new leader's high
        watermark lags.
        """
        end, truncation = logs.ends[partition], logs.truncations.get(partition)
        if truncation is not None and truncation.offset is not None:
            return truncation.offset
        log_end = logs.high_watermarks.get(partition, end)
        if log_end >= position:
            self._behind_since_s.pop(partition, None)
            return max(end, position)
        since_s = self._behind_since_s.setdefault(partition, self._world.now_s())
        return log_end if self._world.now_s() - since_s >= MAX_BEHIND_S else position

    def _check_cluster(self, offset: StreamOffset) -> None:
        """Raise BadOption where the checkpoint is one of another cluster."""
        if self._checked_cluster:
            return
        self._transport.topics(())
        mine = self._transport.cluster_id
        if None not in (mine, offset.cluster_id) and mine != offset.cluster_id:
            of_brokers = bool(self._options.bootstrap)
            source = "the brokers of kafka.bootstrap.servers are" if of_brokers else "the directories of logDirs are of"
            raise BadOption(
                f"the checkpoint is of the cluster {offset.cluster_id}, but {source} the cluster {mine}. Correct this "
                "option, or give the query another checkpointLocation."
            )
        self._checked_cluster = True

    # ---- limits

    def _waited_s(self) -> float | None:
        """The time since the last micro-batch of this run; None before the first one."""
        return None if self._last_batch_s is None else self._world.now_s() - self._last_batch_s

    def _limited(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return the ends of a micro-batch, reduced to the limits that the options set."""
        trigger = self._options.trigger
        if trigger.max_offsets is None and trigger.max_bytes is None:
            return ends
        ranges = [OffsetRange(p, begins[p], e) for p, e in ends.items() if begins[p] < e]
        sizes = average_bytes(self._transport, ranges, min_offsets=2) if trigger.max_bytes is not None else {}
        return limit_offsets(begins, ends, trigger, sizes)


def _within(logs: Logs, fixed: Logs, start: StreamOffset) -> Logs:
    """Return the logs with their ends limited to what existed when `fix_end` was called, but not before `start`.

    Of a topic that was created again since then there was nothing: it ends where it begins.
    """
    now = StreamOffset(None, logs.topic_ids, logs.ends, {})
    ends = {}
    for p, end in logs.ends.items():
        position = min(start.next[p], end) if p in start.next else None
        if p in fixed.ends and logs.topic_ids.get(p.topic) == fixed.topic_ids.get(p.topic):
            ends[p] = max(min(end, fixed.ends[p]), position or 0)
        elif position is not None and not now.same_topic(p.topic, start):
            ends[p] = logs.starts[p]
        elif position is not None:
            ends[p] = position
    topics = {p.topic for p in ends}
    ids = {t: i for t, i in logs.topic_ids.items() if t in topics}
    return logs._replace(topic_ids=ids, starts={p: logs.starts[p] for p in ends}, ends=ends)


def _epochs_of(ends: Mapping[TopicPartition, OffsetAndEpoch]) -> dict[TopicPartition, int]:
    """The leader epochs of those partitions whose leaders tell them."""
    return {p: end.leader_epoch for p, end in ends.items() if end.leader_epoch != NO_EPOCH}


def _truncated_somewhere(logs: Logs) -> list[LostRange]:
    """What is lost of logs that were truncated at an offset that their leaders do not know."""
    found = logs.truncations.values()
    return [LostRange(t.partition, t.position.offset, None, t.reason) for t in found if t.offset is None]


def _deleted_before_read(start: StreamOffset, logs: Logs, known: set[TopicPartition]) -> list[LostRange]:
    """The ranges that retention or DeleteRecords removed before the query read them.

    A new partition of a known topic is expected from offset 0; a topic that is new to the query begins at its log
    start.
    """
    topics = {p.topic for p in known}
    found = []
    for p, log_start in logs.starts.items():
        position = start.next[p] if p in known else 0
        if p.topic in topics and position < log_start:
            reason = f"retention or a DeleteRecords request deleted them; the log now begins at offset {log_start}"
            found.append(LostRange(p, position, log_start, reason))
    return found
