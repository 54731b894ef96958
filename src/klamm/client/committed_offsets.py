"""Commit and fetch of a consumer group's offsets. Source: OffsetCommitRequest.java, OffsetFetchRequest.java."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klamm.client.leaders import OffsetAndEpoch
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

_HAS_NO_TIMESTAMP: Final = 2
_FETCHES_ALL: Final = 2
_ONE_GROUP: Final = 7
_STABLE_ONLY: Final = 7
_NO_GENERATION: Final = -1


class Membership(NamedTuple):
    """Who commits: a member in its generation."""

    generation: int = _NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBERSHIP: Final = Membership()
"""A consumer that does not subscribe."""


def offset_commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndEpoch], member: Membership = NO_MEMBERSHIP
) -> Request:
    """An OffsetCommit request, for the group's coordinator; versions before 6 leave the leader epochs out."""
    topics = [
        OffsetCommitRequestTopic(
            topic, [OffsetCommitRequestPartition(n, *offsets[TopicPartition(topic, n)]) for n in numbers]
        )
        for topic, numbers in numbers_by_topic(offsets)
    ]
    message = OffsetCommitRequest(group_id, member.generation, member.member_id, member.instance_id, topics=topics)
    return Request(ApiKey.OFFSET_COMMIT, message, oldest=_HAS_NO_TIMESTAMP)


def offset_fetch_request(
    group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool = False
) -> Request:
    """An OffsetFetch request for these partitions, or (None) all of the group.

    `require_stable`: offsets of open transactions are an error (KIP-447); brokers before 2.5 ignore it.
    """
    topics = None if partitions is None else [OffsetFetchRequestTopic(t, n) for t, n in numbers_by_topic(partitions)]

    def build(version: int) -> OffsetFetchRequest:
        """Build the OffsetFetch request for this version."""
        return OffsetFetchRequest(group_id, topics, require_stable=require_stable and version >= _STABLE_ONLY)

    return Request(ApiKey.OFFSET_FETCH, build, oldest=_FETCHES_ALL, newest=_ONE_GROUP)


def committed_of(answer: Any) -> dict[TopicPartition, OffsetAndEpoch]:
    """The committed offsets in an OffsetFetch response; partitions without one are omitted."""
    return {
        TopicPartition(topic.name, p.partition_index): OffsetAndEpoch(p.committed_offset, p.committed_leader_epoch)
        for topic in answer.topics
        for p in topic.partitions
        if p.committed_offset >= 0
    }


def partition_errors(answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    """The partitions of an OffsetCommit, OffsetFetch or OffsetDelete response that have an error code."""
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                yield TopicPartition(topic.name, p.partition_index), p.error_code


def first_partition_error(answer: Any) -> int:
    """The first error code of a partition in the response; 0 where there is none."""
    return next((code for _, code in partition_errors(answer)), 0)


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """Each topic with its partition numbers, sorted."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [(topic, tuple(numbers)) for topic, numbers in topics.items()]
