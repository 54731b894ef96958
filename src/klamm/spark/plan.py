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
from klamm.spark.cluster import ClusterView, Setback, code_name
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.offsets import LATEST, Bound
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import MetadataResponseTopic

NO_RECORD_SO_LATE: Final = -1
TIMES_UNKNOWN: Final = 3  # a topic just made is not known to every broker at once


def plan_ranges(cluster: ClusterView) -> list[OffsetRange]:
    """What is to be read, in order of topic and partition; empty ranges are left out.

    Raises BadOption for topics and partitions that do not exist, DataLoss for ends that lie beyond the log.
    """
    options = cluster.options
    partitions = find_partitions(cluster)
    for given in (options.start, options.end):
        _check_names_all(given, partitions)
    latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
    starts = _resolve(cluster, options.start, partitions)
    ends = _resolve(cluster, options.end, partitions)
    ranges = []
    for p in partitions:
        start = _start(cluster, p, starts[p], latest[p])
        end = _end(cluster, p, start, latest[p] if ends[p] == NO_RECORD_SO_LATE else ends[p], latest[p])
        if start < end:
            ranges.append(OffsetRange(p, start, end))
    return ranges


def _resolve(cluster: ClusterView, given: Bound, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Offsets as they stand, what is a time or a word asked for."""
    values = {p: given.of(p) for p in partitions}
    asked = {p: v for p, v in values.items() if given.by_time or v < 0}
    return values | (cluster.offsets(asked) if asked else {})


def _start(cluster: ClusterView, partition: TopicPartition, start: int, latest: int) -> int:
    if start != NO_RECORD_SO_LATE:
        return start
    if cluster.options.no_offset_for_time_is_latest:
        return latest
    option = cluster.options.start
    raise BadOption(
        f"option {option.option}: {partition} has no record at or after {option.of(partition)}; "
        "set startingOffsetsByTimestampStrategy to latest to read nothing there"
    )


def _end(cluster: ClusterView, partition: TopicPartition, start: int, end: int, latest: int) -> int:
    if end <= latest:
        return end
    loss = DataLoss(
        partition, max(start, latest), end, f"the log ends at offset {latest}, {cluster.options.end.option} says {end}"
    )
    if cluster.options.fail_on_data_loss:
        raise loss
    warnings.warn(f"passed over, as failOnDataLoss is false: {loss}", stacklevel=2)
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
    """Raises BadOption for what does not exist."""
    topics, pattern, assigned = cluster.options.subscription
    if assigned is not None:
        found = set(_all_of(_existing(cluster, sorted({p.topic for p in assigned}))))
        if missing := [str(p) for p in assigned if p not in found]:
            raise BadOption(f"option assign names {', '.join(missing)}, which does not exist")
        return list(assigned)
    if pattern is not None:
        every = cluster.topics(None)
        return _all_of({n: t for n, t in every.items() if re.search(pattern, n) and not t.is_internal})
    assert topics is not None
    return _all_of(_existing(cluster, topics))


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
