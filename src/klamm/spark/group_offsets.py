"""Offsets of a streaming query, committed to a consumer group without joining it. Source: OffsetCommitRequest.java."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.client.cluster import ClusterMetadata
from klamm.client.committed_offsets import offset_commit_request, partition_errors
from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.routing import CoordinatorType, coordinator
from klamm.client.steps import Ask, Steps, retried
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingWorld

_SETTINGS: Final = BlockingSettings("klamm-spark-lag", connect_timeout_s=5.0, answer_timeout_s=10.0)
_COMMIT_TIMEOUT_S: Final = 15.0


class GroupOffsets:
    """Commits offsets for one consumer group, on connections of its own that it keeps."""

    def __init__(self, world: BlockingWorld, bootstrap: Sequence[Address], group: str) -> None:
        self._world = world
        self._client = BlockingClient(world, bootstrap, _SETTINGS)
        self._group = group

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndEpoch]) -> None:
        """Commit the offsets to read next. Raises Unreachable, RequestRefused."""
        backoff = Backoff(self._world.now_s, _COMMIT_TIMEOUT_S)
        what = f"committing offsets of group {self._group}"
        self._client.run(retried(what, lambda: commit_offsets(self._client.cluster, self._group, offsets), backoff))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def commit_offsets(
    cluster: ClusterMetadata, group: str, offsets: Mapping[TopicPartition, OffsetAndEpoch]
) -> Steps[None]:
    """Commit offsets through the group's coordinator.

    Raises ConnectionLost and RetriableError, and RequestRefused, for instance while the group has members.
    """
    address = yield from coordinator(cluster, CoordinatorType.GROUP, group)
    answer = yield Ask(address, offset_commit_request(group, offsets))
    _check_answer(group, answer)


def _check_answer(group: str, answer: Any) -> None:
    """Raise RetriableError or RequestRefused for the first partition that was not committed."""
    for partition, code in partition_errors(answer):
        raise RetriableError(retriable_or_raise(f"group {group}, {partition}", code))
