"""Offsets by timestamp, and earliest and latest offsets, from partition leaders. Source: OffsetFetcher.java."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.leader_queries import LeaderQuery, Result, ask_leaders
from klamm.client.leaders import OffsetAndEpoch, offsets_of
from klamm.client.steps import Steps
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
"""No record is so late."""
_BY_TIME, _NEWEST = 1, 7


def list_offsets_request(
    times: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int], read_committed: bool = False
) -> Request:
    """A ListOffsets request for partitions of one leader, in these leader epochs."""
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, time in times.items():
        asked = ListOffsetsPartition(partition.partition, epochs[partition], time)
        by_topic[partition.topic].append(asked)
    topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
    message = ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)
    return Request(ApiKey.LIST_OFFSETS, message, oldest=_BY_TIME, newest=_NEWEST)


def offset_results(answer: Any) -> Iterator[Result[OffsetAndEpoch]]:
    """Error code and offset of each partition in a ListOffsets response."""
    for topic in answer.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            yield Result(partition, p.error_code, OffsetAndEpoch(p.offset, p.leader_epoch))


def find_offsets(
    cluster: ClusterMetadata, times: Mapping[TopicPartition, int], backoff: Backoff, read_committed: bool = False
) -> Steps[dict[TopicPartition, OffsetAndEpoch]]:
    """Ask for an offset of each partition, see `list_offsets`; with LATEST, also for the epoch of the leader.

    Raises Unreachable, RequestRefused, TopicGone.
    """
    query = LeaderQuery[int, OffsetAndEpoch](
        "ListOffsets", lambda group, epochs: list_offsets_request(group, epochs, read_committed), offset_results
    )
    return (yield from ask_leaders(cluster, times, query, backoff))


def list_offsets(
    cluster: ClusterMetadata, times: Mapping[TopicPartition, int], backoff: Backoff, read_committed: bool = False
) -> Steps[dict[TopicPartition, int]]:
    """Ask for an offset of each partition: the first at or after a timestamp, or EARLIEST or LATEST.

    NO_OFFSET where no record is so late. LATEST is the high watermark, with `read_committed` the last stable offset.
    Raises Unreachable, RequestRefused, TopicGone.
    """
    return offsets_of((yield from find_offsets(cluster, times, backoff, read_committed)))
