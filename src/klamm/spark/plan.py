"""From options to offset ranges: the partitions there are, and the bounds as plain offsets.

Source: KafkaOffsetReaderAdmin.scala (`getOffsetRangesFromUnresolvedOffsets`), ConsumerStrategy.scala.
"""

import difflib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.spark.cluster import ClusterView, Setback, code_name
from klamm.spark.errors import BadOption, DataLoss, RangeLost, TopicGone
from klamm.spark.offsets import LATEST, Bound
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import MetadataResponseTopic

NO_RECORD_SO_LATE: Final = -1
TIMES_UNKNOWN: Final = 3  # a topic just made is not known to every broker at once


def plan_ranges(cluster: ClusterView) -> list[OffsetRange]:
    """What is to be read, in order of topic and partition; empty ranges are left out.

    Raises BadOption for topics and partitions that do not exist, DataLoss for starts and ends that lie beyond the log
    and for topics that are deleted meanwhile.
    """
    partitions = find_partitions(cluster)
    for given in (cluster.options.start, cluster.options.end):
        _check_names_all(given, partitions)
    _warn_without_ids(cluster, partitions)
    while partitions:
        try:
            return _ranges(cluster, partitions)
        except TopicGone as gone:
            _lose(cluster, gone)
            partitions = [p for p in partitions if p.topic != gone.topic]
    return []


def _ranges(cluster: ClusterView, partitions: Sequence[TopicPartition]) -> list[OffsetRange]:
    options = cluster.options
    latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
    starts = _resolve(cluster, options.start, partitions)
    ends = _resolve(cluster, options.end, partitions)
    log_ends = _log_ends(cluster, latest, starts)
    ranges = []
    for p in partitions:
        start = _start(cluster, p, starts[p], latest[p], log_ends[p])
        end = _end(cluster, p, start, latest[p] if ends[p] == NO_RECORD_SO_LATE else ends[p], latest[p])
        if start < end:
            ranges.append(OffsetRange(p, start, end, cluster.topic_ids.get(p.topic)))
    return ranges


def _log_ends(
    cluster: ClusterView, latest: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """The high watermarks, asked for only where a last stable offset lies before a start."""
    beyond = [p for p in latest if starts[p] > latest[p]]
    if not cluster.options.read_committed or not beyond:
        return latest
    return {**latest, **cluster.offsets(dict.fromkeys(beyond, LATEST), read_committed=False)}


def _warn_without_ids(cluster: ClusterView, partitions: Sequence[TopicPartition]) -> None:
    for topic in dict.fromkeys(p.topic for p in partitions if p.topic not in cluster.topic_ids):
        warnings.warn(
            f"topic {topic} has no id, as its brokers are older than 2.8 or their inter.broker.protocol.version is; "
            "if it is deleted and created again during this read, that is not noticed",
            stacklevel=2,
        )


def _lose(cluster: ClusterView, loss: DataLoss) -> None:
    if cluster.options.fail_on_data_loss:
        raise loss
    warnings.warn(f"passed over, as failOnDataLoss is false: {loss}", stacklevel=2)


def _resolve(cluster: ClusterView, given: Bound, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Offsets as they stand, what is a time or a word asked for."""
    values = {p: given.of(p) for p in partitions}
    asked = {p: v for p, v in values.items() if given.by_time or v < 0}
    return values | (cluster.offsets(asked) if asked else {})


def _start(cluster: ClusterView, partition: TopicPartition, start: int, latest: int, log_end: int) -> int:
    option = cluster.options.start
    if start > log_end:
        reason = f"{option.option} says {start}, but the log ends at offset {log_end}; give an offset up to {log_end}"
        _lose(cluster, RangeLost(partition, log_end, start, reason))
    if start != NO_RECORD_SO_LATE:
        return start
    if cluster.options.no_offset_for_time_is_latest:
        return latest
    raise BadOption(
        f"option {option.option}: {partition} has no record at or after {option.of(partition)}; "
        "set startingOffsetsByTimestampStrategy to latest to read nothing there"
    )


def _end(cluster: ClusterView, partition: TopicPartition, start: int, end: int, latest: int) -> int:
    if end <= latest:
        return end
    if start < end:
        reason = f"the log ends at offset {latest}, {cluster.options.end.option} says {end}"
        _lose(cluster, RangeLost(partition, max(start, latest), end, reason))
    return latest


def _check_names_all(given: Bound, partitions: Sequence[TopicPartition]) -> None:
    if given.each is None:
        return
    if missing := [str(p) for p in partitions if p not in given.each]:
        raise BadOption(f"option {given.option} must name every partition; {', '.join(missing)} is missing")
    if strange := [str(p) for p in given.each if p not in partitions]:
        raise BadOption(f"option {given.option} names {', '.join(strange)}, which is not among what is read")


# ---- which partitions


def find_partitions(cluster: ClusterView) -> list[TopicPartition]:
    """Raises BadOption for what does not exist. Puts the ids of the topics into `cluster`."""
    topics, pattern, assigned = cluster.options.subscription
    if pattern is not None:
        every = cluster.topics(None)
        found = {n: t for n, t in every.items() if re.search(pattern, n) and not t.is_internal}
    else:
        found = _existing(cluster, topics or sorted({p.topic for p in assigned or ()}))
    cluster.topic_ids = {name: t.topic_id for name, t in found.items() if t.topic_id != ZERO_ID}
    partitions = _all_of(found)
    if assigned is None:
        return partitions
    if missing := [str(p) for p in assigned if p not in set(partitions)]:
        raise BadOption(f"option assign names {', '.join(missing)}, which does not exist")
    return list(assigned)


def _all_of(topics: Mapping[str, MetadataResponseTopic]) -> list[TopicPartition]:
    return sorted(TopicPartition(name, p.partition_index) for name, topic in topics.items() for p in topic.partitions)


def _existing(cluster: ClusterView, names: Sequence[str]) -> dict[str, MetadataResponseTopic]:
    patience = cluster.patience()
    times = 0
    while True:
        found = cluster.topics(names)
        codes = {n: t.error_code for n, t in found.items() if t.error_code}
        if not codes:
            return found
        unknown = [n for n, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        refused = {n: c for n, c in codes.items() if c not in (*_PASSING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        times += 1
        if refused or (unknown and times >= TIMES_UNKNOWN):
            raise _no_such_topic(cluster, refused, unknown)
        patience.wait("asking for metadata", Setback(f"no leader yet for {', '.join(sorted(codes))}"))


_PASSING: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND)


def _no_such_topic(cluster: ClusterView, refused: Mapping[str, int], unknown: Sequence[str]) -> BadOption:
    if refused:
        name, code = next(iter(refused.items()))
        return BadOption(f"topic {name!r} is refused by the broker with {code_name(code)}")
    near = difflib.get_close_matches(unknown[0], cluster.topics(None), n=1)
    hint = f"; the nearest one there is {near[0]}" if near else ""
    return BadOption(f"topic {', '.join(unknown)} does not exist{hint}")
