"""From options to offset ranges: the partitions there are, and the bounds as plain offsets.

Source: KafkaOffsetReaderAdmin.scala (`getOffsetRangesFromUnresolvedOffsets`), ConsumerStrategy.scala.
"""

import difflib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.client.cluster import TopicGone, topic_ids_of
from klamm.client.errors import RetriableError, code_name, recovery
from klamm.client.offsets import LATEST, NO_OFFSET
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss, RangeLost
from klamm.spark.offsets import Bound
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import ReadClient
from klamm.wire.messages import MetadataResponseTopic

MAX_TIMES_UNKNOWN: Final = 3  # a topic just created is not known to every broker at once


def plan_ranges(brokers: ReadClient) -> list[OffsetRange]:
    """Resolve the options to offset ranges, in order of topic and partition; empty ranges are left out.

    Raises BadOption for topics and partitions that do not exist, DataLoss for starts and ends beyond the log and for
    topics that are deleted meanwhile.
    """
    partitions = find_partitions(brokers)
    for given in (brokers.options.start, brokers.options.end):
        _check_complete(given, partitions)
    _warn_without_ids(brokers, partitions)
    while partitions:
        try:
            return _resolve_ranges(brokers, partitions)
        except TopicGone as gone:
            _warn_or_raise(brokers, DataLoss(gone.reason))
            partitions = [p for p in partitions if p.topic != gone.topic]
    return []


def _resolve_ranges(brokers: ReadClient, partitions: Sequence[TopicPartition]) -> list[OffsetRange]:
    """The offset range of each partition."""
    options = brokers.options
    latest = brokers.offsets(dict.fromkeys(partitions, LATEST))
    starts = _resolve_offsets(brokers, options.start, partitions)
    ends = _resolve_offsets(brokers, options.end, partitions)
    log_ends = _log_ends(brokers, latest, starts)
    ranges = []
    for p in partitions:
        start = _checked_start(brokers, p, starts[p], latest[p], log_ends[p])
        end = _checked_end(brokers, p, start, latest[p] if ends[p] == NO_OFFSET else ends[p], latest[p])
        if start < end:
            ranges.append(OffsetRange(p, start, end, brokers.cluster.topic_ids.get(p.topic)))
    return ranges


def _log_ends(
    brokers: ReadClient, latest: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """The high watermarks of the partitions.

    They are requested only where a last stable offset is before a start; elsewhere `latest` is used.
    """
    beyond = [p for p in latest if starts[p] > latest[p]]
    if not brokers.options.read_committed or not beyond:
        return latest
    return {**latest, **brokers.offsets(dict.fromkeys(beyond, LATEST), read_committed=False)}


def _warn_without_ids(brokers: ReadClient, partitions: Sequence[TopicPartition]) -> None:
    """Warn if a topic has no id, because a recreated topic then cannot be detected."""
    for topic in dict.fromkeys(p.topic for p in partitions if p.topic not in brokers.cluster.topic_ids):
        warnings.warn(
            f"topic {topic} has no topic id, because the brokers or their inter.broker.protocol.version are older "
            "than 2.8: this read cannot notice that the topic is deleted and created again. Do not recreate it during "
            "the read.",
            stacklevel=2,
        )


def _warn_or_raise(brokers: ReadClient, loss: DataLoss) -> None:
    """Log a warning about lost data, or raise the error if failOnDataLoss is set."""
    if brokers.options.fail_on_data_loss:
        raise loss
    warnings.warn(f"records are skipped, as the option failOnDataLoss is false: {loss.lost}", stacklevel=2)


def _resolve_offsets(
    brokers: ReadClient, given: Bound, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset for each partition; times, earliest and latest are resolved by the brokers."""
    values = {p: given.of(p) for p in partitions}
    asked = {p: v for p, v in values.items() if given.by_time or v < 0}
    return values | (brokers.offsets(asked) if asked else {})


def _checked_start(brokers: ReadClient, partition: TopicPartition, start: int, latest: int, log_end: int) -> int:
    """Check the first offset to read. Raises DataLoss beyond the log end, BadOption where no record has the time."""
    option = brokers.options.start
    if start > log_end:
        reason = f"option {option.option} says {start}, but the log ends at {log_end}; give an offset up to {log_end}"
        _warn_or_raise(brokers, RangeLost(partition, log_end, start, reason))
    if start != NO_OFFSET:
        return start
    if brokers.options.no_offset_for_time_is_latest:
        return latest
    raise BadOption(
        f"option {option.option}: {partition} has no record at or after time {option.of(partition)}. Give an earlier "
        "time, or set startingOffsetsByTimestampStrategy to latest to read nothing from this partition."
    )


def _checked_end(brokers: ReadClient, partition: TopicPartition, start: int, end: int, latest: int) -> int:
    """Check the end offset, at most the log end. Raises DataLoss where records before the option's end are missing."""
    if end <= latest:
        return end
    if start < end:
        reason = f"option {brokers.options.end.option} says {end}, but the log ends at {latest}"
        _warn_or_raise(brokers, RangeLost(partition, max(start, latest), end, reason))
    return latest


def _check_complete(given: Bound, partitions: Sequence[TopicPartition]) -> None:
    """Raise BadOption unless the option names exactly the partitions to read."""
    if given.each is None:
        return
    if missing := [str(p) for p in partitions if p not in given.each]:
        raise BadOption(f"option {given.option} must have every partition of the read. Add {', '.join(missing)}.")
    if unexpected := [str(p) for p in given.each if p not in partitions]:
        raise BadOption(
            f"option {given.option} has {', '.join(unexpected)}, which subscribe, subscribePattern or assign does not "
            "include. Remove it."
        )


# ---- which partitions


def find_partitions(brokers: ReadClient) -> list[TopicPartition]:
    """Return the partitions to read, and store topic ids in `brokers.cluster`.

    Raises BadOption for what does not exist.
    """
    topics, pattern, assigned = brokers.options.subscription
    if pattern is not None:
        every = brokers.topics(None)
        found = {n: t for n, t in every.items() if re.search(pattern, n) and not t.is_internal}
    else:
        found = _existing_topics(brokers, topics or sorted({p.topic for p in assigned or ()}))
    brokers.cluster.topic_ids = topic_ids_of(found)
    partitions = _partitions_of(found)
    if assigned is None:
        return partitions
    if missing := [str(p) for p in assigned if p not in set(partitions)]:
        raise BadOption(f"option assign has {', '.join(missing)}, which does not exist in the cluster. Remove it.")
    return list(assigned)


def _partitions_of(topics: Mapping[str, MetadataResponseTopic]) -> list[TopicPartition]:
    """Return all partitions of the topics, sorted."""
    return sorted(TopicPartition(name, p.partition_index) for name, topic in topics.items() for p in topic.partitions)


def _existing_topics(brokers: ReadClient, names: Sequence[str]) -> dict[str, MetadataResponseTopic]:
    """The metadata of the named topics. Raises BadOption for unknown ones, RetriableError while leaders are missing."""
    backoff = brokers.backoff(brokers.options.api_timeout_s)
    times_unknown = 0
    while True:
        found = brokers.topics(names)
        codes = {n: t.error_code for n, t in found.items() if t.error_code}
        if not codes:
            return found
        unknown = [n for n, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        refused = {n: c for n, c in codes.items() if not recovery(c).retriable}
        times_unknown += bool(unknown)
        if refused or times_unknown >= MAX_TIMES_UNKNOWN:
            raise _unknown_topic_error(brokers, refused, unknown)
        cause = RetriableError(f"no leader yet for {', '.join(sorted(codes))}")
        brokers.client.world.sleep(backoff.next_wait_s("asking for metadata", cause))


def _unknown_topic_error(brokers: ReadClient, refused: Mapping[str, int], unknown: Sequence[str]) -> BadOption:
    """Return the error for topics that do not exist or that the brokers refuse to describe, with a hint."""
    if refused:
        name, code = next(iter(refused.items()))
        return BadOption(f"the brokers refuse to describe topic {name!r}: {code_name(code)}. Check the topic's name.")
    near = difflib.get_close_matches(unknown[0], brokers.topics(None), n=1)
    hint = f"Did you mean {near[0]}?" if near else "Correct the option subscribe or assign."
    return BadOption(f"topic {', '.join(unknown)} does not exist. {hint}")
