"""Offsets of a streaming query, committed to a consumer group without joining it. Source: OffsetCommitRequest.java."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.routing import CoordinatorType, coordinator
from klamm.client.steps import Ask, Steps, retried
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingWorld
from klamm.wire.api import ApiKey
from klamm.wire.messages import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

_NO_MEMBER: Final = -1
"""The generation of a commit by a client that is no member of the group."""
_SETTINGS: Final = BlockingSettings("klamm-spark-lag", connect_timeout_s=5.0, answer_timeout_s=10.0)
_COMMIT_TIMEOUT_S: Final = 15.0


class GroupOffsets:
    """Commits offsets for one consumer group, on connections of its own that it keeps."""

    def __init__(self, world: BlockingWorld, bootstrap: Sequence[Address], group: str) -> None:
        self._world = world
        self._client = BlockingClient(world, bootstrap, _SETTINGS)
        self._group = group

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets to read next. Raises Unreachable, RequestRefused."""
        backoff = Backoff(self._world.now_s, _COMMIT_TIMEOUT_S)
        what = f"committing offsets of group {self._group}"
        self._client.run(retried(what, lambda: commit_offsets(self._client.cluster, self._group, offsets), backoff))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def commit_offsets(cluster: ClusterMetadata, group: str, offsets: Mapping[TopicPartition, int]) -> Steps[None]:
    """Commit offsets through the group's coordinator.

    Raises ConnectionLost and RetriableError, and RequestRefused, for instance while the group has members.
    """
    address = yield from coordinator(cluster, CoordinatorType.GROUP, group)
    answer = yield Ask(address, _request(group, offsets))
    _check_answer(group, answer)


def _request(group: str, offsets: Mapping[TopicPartition, int]) -> Request:
    """Build the OffsetCommit request that commits these offsets for the group, without a member id or generation."""
    topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for p, offset in sorted(offsets.items()):
        topics[p.topic].append(OffsetCommitRequestPartition(p.partition, offset, committed_leader_epoch=-1))
    named = [OffsetCommitRequestTopic(name, partitions) for name, partitions in topics.items()]
    return Request(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group, _NO_MEMBER, topics=named), oldest=2)


def _check_answer(group: str, answer: Any) -> None:
    """Raise RetriableError or RequestRefused for the first partition that was not committed."""
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                subject = f"group {group}, {TopicPartition(topic.name, p.partition_index)}"
                raise RetriableError(retriable_or_raise(subject, p.error_code))
