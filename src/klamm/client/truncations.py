"""Whether a log still has the records before a position, after its leader changed: it is asked OffsetForLeaderEpoch.

Source: OffsetsForLeaderEpochClient.java, SubscriptionState.java (`maybeCompleteValidation`, KIP-320).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import RetriableError
from klamm.client.leader_queries import Epochs, LeaderQuery, Result, ask_leaders
from klamm.client.leaders import NO_EPOCH, OffsetAndEpoch
from klamm.client.steps import Steps
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic

_CONSUMER: Final = -1
_FOR_CONSUMERS: Final = 3
"""From this version on a consumer needs no more than the right to read the topic (Kafka 2.3)."""
_UNDEFINED: Final = OffsetAndEpoch(-1)
_UNSUPPORTED: Final = OffsetAndEpoch(2**63 - 1, 0)
"""In place of an answer that the leader cannot give: its log is taken to have the records."""


class Truncation(NamedTuple):
    """The log lost records before a position: it ends, or has others, from `offset` on."""

    partition: TopicPartition
    position: OffsetAndEpoch
    offset: int | None
    """None where the leader does not know from where on."""
    leader_epoch: int
    """The epoch of the leader that said so."""

    @property
    def reason(self) -> str:
        """What happened to the records, as text."""
        had, now = self.position.leader_epoch, self.leader_epoch
        if self.offset is None:
            return f"the log was truncated: its leader of epoch {now} has no records of epoch {had} or before"
        return truncation_reason(self.offset, had, now)


def truncation_reason(offset: int, had_epoch: int, leader_epoch: int) -> str:
    """Why records are lost that a leader of an earlier epoch had from this offset on, as text."""
    leader = "the present one" if leader_epoch == NO_EPOCH else f"that of epoch {leader_epoch}"
    return (
        f"the log was truncated at offset {offset}: the leader of epoch {had_epoch} had them, {leader} was elected "
        "without them (unclean leader election), or its disk lost them"
    )


def end_of_epoch_request(epochs: Mapping[TopicPartition, int], current: Epochs) -> Request:
    """An OffsetForLeaderEpoch request of a consumer, for partitions of one leader."""
    by_topic: defaultdict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for partition, epoch in epochs.items():
        asked = OffsetForLeaderPartition(partition.partition, current[partition], epoch)
        by_topic[partition.topic].append(asked)
    topics = [OffsetForLeaderTopic(name, partitions) for name, partitions in by_topic.items()]
    message = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
    return Request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, oldest=_FOR_CONSUMERS)


def _results(answer: Any) -> Iterator[Result[OffsetAndEpoch]]:
    """Error code, end offset and epoch of each partition in an OffsetForLeaderEpoch response."""
    for topic in answer.topics:
        for p in topic.partitions:
            end = OffsetAndEpoch(p.end_offset, p.leader_epoch)
            yield Result(TopicPartition(topic.topic, p.partition), p.error_code, end)


_QUERY: Final = LeaderQuery[int, OffsetAndEpoch](
    "OffsetForLeaderEpoch", end_of_epoch_request, _results, if_unsupported=_UNSUPPORTED
)


def find_truncations(
    cluster: ClusterMetadata, positions: Mapping[TopicPartition, OffsetAndEpoch], backoff: Backoff
) -> Steps[dict[TopicPartition, Truncation]]:
    """Ask the leaders whether their logs have the records before these positions; return those that do not.

    Not asked are leaders of the position's own epoch, and those that are too old to answer. Raises Unreachable,
    RequestRefused, TopicGone.
    """
    known = {p: position for p, position in positions.items() if position.leader_epoch != NO_EPOCH}
    if not known:
        return {}
    for partition, position in known.items():
        cluster.see_epoch(partition, position.leader_epoch)
    with suppress(RetriableError):  # ask_leaders looks up again those that are missing
        yield from cluster.leaders(known)
    asked = {p: at.leader_epoch for p, at in known.items() if cluster.leader_epoch(p) != at.leader_epoch}
    found = {}
    for partition, end in (yield from ask_leaders(cluster, asked, _QUERY, backoff)).items():
        truncation = truncation_of(partition, known[partition], end, cluster.leader_epoch(partition))
        if truncation is not None:
            found[partition] = truncation
    return found


def truncation_of(
    partition: TopicPartition, position: OffsetAndEpoch, end: OffsetAndEpoch, leader_epoch: int
) -> Truncation | None:
    """The truncation that shows in where the position's epoch ends in a leader's log; None where there is none."""
    if _UNDEFINED.offset in end:
        return Truncation(partition, position, None, leader_epoch)
    if end.offset < position.offset:
        return Truncation(partition, position, end.offset, leader_epoch)
    return None
