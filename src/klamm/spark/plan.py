"""Plans a batch read from its options: the offset ranges, the lost records, and the bytes per offset.

Source: KafkaOffsetReaderAdmin.scala (`getOffsetRangesFromUnresolvedOffsets`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.client.cluster import TopicGone
from klamm.client.leaders import offsets_of
from klamm.client.offsets import EARLIEST, LATEST, NO_OFFSET
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, LostRange, pass_over
from klamm.spark.filters import EVERY_ROW, RowFilter
from klamm.spark.offsets import Bound
from klamm.spark.partitions import check_complete, find_partitions, warn_without_ids
from klamm.spark.ranges import MIN_TASK_OFFSETS, OffsetRange, TaskLimits, TaskRanges, plan_tasks
from klamm.spark.sizes import bytes_per_offset
from klamm.spark.transport import Transport

MIN_PLANNED_OFFSETS: Final = 2 * MIN_TASK_OFFSETS
"""With fewer offsets there is one task, whatever their sizes."""


@dataclass(slots=True)
class Plan:
    """What a batch read reads; `lost` is what planning found to be missing."""

    ranges: list[OffsetRange] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)


def plan_batch(transport: Transport, wanted: RowFilter, parallelism: int) -> list[TaskRanges]:
    """The tasks of a batch read, in order of topic and partition. Raises as `plan_ranges` does.

    `parallelism` is how many tasks Spark runs at once.
    """
    plan = plan_ranges(transport, wanted)
    options = transport.options
    limits = TaskLimits(parallelism, options.min_partitions, options.max_records_per_partition)
    tasks = plan_tasks(transport.locate(plan.ranges), average_bytes(transport, plan.ranges), limits)
    if options.reports_losses and plan.lost:
        tasks.append(TaskRanges((), tuple(plan.lost)))
    return tasks


def plan_ranges(transport: Transport, wanted: RowFilter = EVERY_ROW) -> Plan:
    """Resolve the options to offset ranges, in order of topic and partition; empty ranges are left out.

    Raises BadOption for topics and partitions that do not exist, DataLoss for starts and ends beyond the log and for
    topics that are deleted meanwhile.
    """
    partitions = find_partitions(transport)
    for given in (transport.options.start, transport.options.end):
        check_complete(given, partitions)
    warn_without_ids(transport, partitions)
    partitions = [p for p in partitions if wanted.may_have(p)]
    plan = Plan()
    while partitions:
        try:
            plan.ranges = _resolve_ranges(transport, partitions, wanted, plan.lost)
            break
        except TopicGone as gone:
            for p in (p for p in partitions if p.topic == gone.topic):
                _lose(transport, plan.lost, LostRange(p, 0, None, gone.reason))
            partitions = [p for p in partitions if p.topic != gone.topic]
    return plan


def average_bytes(
    transport: Transport, ranges: Sequence[OffsetRange], min_offsets: int = MIN_PLANNED_OFFSETS
) -> Mapping[TopicPartition, float]:
    """The average bytes of one offset in each partition; empty where the ranges have fewer than `min_offsets`.

    It is empty, too, where a topic is gone: the tasks report what is lost of it.
    """
    if sum(r.size for r in ranges) < min_offsets:
        return {}
    partitions = list(dict.fromkeys(r.topic_partition for r in ranges))
    try:
        sizes = transport.sizes(partitions)
        starts = transport.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = transport.offsets(dict.fromkeys(partitions, LATEST))
    except TopicGone:
        return {}
    return {p: bytes_per_offset(sizes.get(p), starts[p], ends[p]) for p in partitions}


def _resolve_ranges(
    transport: Transport, partitions: Sequence[TopicPartition], wanted: RowFilter, lost: list[LostRange]
) -> list[OffsetRange]:
    """The offset range of each partition; what is lost of it is added to `lost`."""
    options = transport.options
    earliest = transport.offsets(dict.fromkeys(partitions, EARLIEST))
    starts = resolve_offsets(transport, options.start, partitions)
    ends = resolve_offsets(transport, options.end, partitions)
    found = transport.ends(partitions)  # last: the logs grow, and no bound may be behind it
    latest = offsets_of(found)
    starts = checked_starts(transport, starts, latest, lost)
    log_ends = _log_ends(transport, latest, ends)
    first = _starts_by_time(transport, partitions, wanted, earliest)
    ranges = []
    for p in partitions:
        end = latest[p] if ends[p] == NO_OFFSET else ends[p]
        if end > latest[p]:
            end = _checked_end(transport, OffsetRange(p, starts[p], end), latest[p], log_ends[p], lost)
        start, end = wanted.clip(starts[p], end)
        start = _after_deleted(transport, p, start, end, earliest[p], lost)
        start = max(start, first.get(p, start))
        if start < end:
            topic_id = transport.topic_ids.get(p.topic)
            ranges.append(OffsetRange(p, start, end, topic_id, leader_epoch=found[p].leader_epoch))
    return ranges


def resolve_offsets(
    transport: Transport, given: Bound, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset for each partition; times, earliest and latest are resolved by the brokers."""
    values = {p: given.of(p) for p in partitions}
    asked = {p: v for p, v in values.items() if given.by_time or v < 0}
    return values | (transport.offsets(asked) if asked else {})


def checked_starts(
    transport: Transport,
    starts: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    lost: list[LostRange],
) -> dict[TopicPartition, int]:
    """Return the offset at which to start each partition, after a check against the log end in `latest`.

    Raises DataLoss for a start after the log end, BadOption where no record has the time.
    """
    option = transport.options.start
    log_ends = _log_ends(transport, latest, starts)
    checked = {}
    for p, start in starts.items():
        if start == NO_OFFSET and not transport.options.no_offset_for_time_is_latest:
            raise BadOption(
                f"option {option.option}: {p} has no record at or after time {option.of(p)}. Give an earlier time, or "
                "set startingOffsetsByTimestampStrategy to latest to begin at the end of this partition."
            )
        if start > log_ends[p]:
            end = log_ends[p]
            reason = f"option {option.option} says {start}, but the log ends at {end}; give an offset up to {end}"
            _lose(transport, lost, LostRange(p, end, start, reason))
        checked[p] = latest[p] if start == NO_OFFSET else min(start, log_ends[p])
    return checked


def _log_ends(
    transport: Transport, latest: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """The high watermarks of the partitions.

    They are requested only where a last stable offset is before a start or an end; elsewhere `latest` is used.
    """
    beyond = [p for p in latest if p in bounds and bounds[p] > latest[p]]
    if not transport.options.read_committed or not beyond:
        return latest
    return {**latest, **transport.offsets(dict.fromkeys(beyond, LATEST), read_committed=False)}


def _checked_end(transport: Transport, asked: OffsetRange, latest: int, log_end: int, lost: list[LostRange]) -> int:
    """Where a range ends of which the option's end is beyond `latest`.

    Raises DataLoss where records before the option's end are missing, BadOption where they are in open transactions.
    """
    p, start, end = asked.topic_partition, asked.start, asked.end
    option = transport.options.end.option
    if max(start, log_end) < end:
        reason = f"option {option} says {end}, but the log ends at {log_end}"
        _lose(transport, lost, LostRange(p, max(start, log_end), end, reason))
    if max(start, latest) < min(end, log_end):
        raise BadOption(
            f"option {option} says {end} for {p}, but a transaction is open there, so that a read with read_committed "
            f"ends at {latest}. Wait until it ends, or give an offset up to {latest}."
        )
    return latest


def _after_deleted(
    transport: Transport, partition: TopicPartition, start: int, end: int, earliest: int, lost: list[LostRange]
) -> int:
    """The first offset of the range that is not deleted. Raises DataLoss where the option asked for deleted ones."""
    if start >= min(earliest, end):
        return start
    reason = f"retention or a DeleteRecords request deleted them; the log now begins at offset {earliest}"
    _lose(transport, lost, LostRange(partition, start, min(earliest, end), reason))
    return min(earliest, end)


def _starts_by_time(
    transport: Transport,
    partitions: Sequence[TopicPartition],
    wanted: RowFilter,
    earliest: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """The first offset that may have the filter's least timestamp; all before it are older.

    Nothing for times before 1970: in ListOffsets negative numbers are not times, though -1 is the timestamp of records
    without one.
    """
    if wanted.min_time_ms is None or wanted.min_time_ms < 0:
        return {}
    found = transport.offsets(dict.fromkeys(partitions, wanted.min_time_ms))
    ends = transport.offsets(dict.fromkeys(partitions, LATEST))
    return {p: ends[p] if offset == NO_OFFSET else max(offset, earliest[p]) for p, offset in found.items()}


def _lose(transport: Transport, lost: list[LostRange], found: LostRange) -> None:
    """Record a lost range. Raises DataLoss where the option onDataLoss is `fail`."""
    pass_over(found, transport.options.on_data_loss)
    lost.append(found)
