"""The partitions of a control request, independent of its version."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest


class StopReplicaState(NamedTuple):
    """One partition of a StopReplica; its leader epoch is -1 in old versions."""

    partition: TopicPartition
    leader_epoch: int
    delete: bool


StateInMessage = tuple[TopicPartition, UUID | None, Any]
"""A partition, its topic's id or None, its state."""


def partition_states(message: Any) -> Sequence[StateInMessage]:
    """The partition states of a LeaderAndIsr or UpdateMetadata; empty for other requests."""
    kind = type(message)
    last = _last_read.get(kind)
    if last is None:
        return ()
    if last[0] is not message:
        last = _last_read[kind] = message, tuple(_states(message))
    return last[1]


_last_read: dict[type[Any], tuple[Any, Sequence[StateInMessage]]] = {
    LeaderAndIsrRequest: (None, ()),
    UpdateMetadataRequest: (None, ()),
}
"""The last message of each kind: all invariants ask about one message, and brokers share one UpdateMetadata."""


def _states(message: LeaderAndIsrRequest | UpdateMetadataRequest) -> Iterator[StateInMessage]:
    """Decode the partition states of all versions of the request."""
    for topic in message.topic_states:
        topic_id = None if topic.topic_id == ZERO_ID else topic.topic_id
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic_id, state
    for state in message.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), None, state


def stop_states(message: Any) -> Iterator[StopReplicaState]:
    """The partitions of a StopReplica of any version; empty for other requests."""
    if not isinstance(message, StopReplicaRequest):
        return
    for state in message.topic_states:
        for stop in state.partition_states:
            p = TopicPartition(state.topic_name, stop.partition_index)
            yield StopReplicaState(p, stop.leader_epoch, stop.delete_partition)
    for topic in message.topics:
        for number in topic.partition_indexes:
            yield StopReplicaState(TopicPartition(topic.name, number), -1, message.delete_partitions)
    for old in message.ungrouped_partitions:
        yield StopReplicaState(TopicPartition(old.topic_name, old.partition_index), -1, message.delete_partitions)
