"""LeaderAndIsr and StopReplica requests of every version as instructions per partition, and their responses."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition, shared_ids
from klamm.model.leader_and_isr import NO_EPOCH, LeaderAndIsr
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaRequest,
)

FIRST_LEADER_AND_ISR_BY_TOPIC: Final = 2
FIRST_LEADER_AND_ISR_BY_ID: Final = 5
FIRST_STOP_REPLICA_BY_TOPIC: Final = 1
FIRST_STOP_REPLICA_BY_STATE: Final = 3

Errors = dict[TopicPartition, ErrorCode]


class PartitionInstruction(NamedTuple):
    """The state that LeaderAndIsr gives one partition."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool


class StopInstruction(NamedTuple):
    """What StopReplica requests for one partition."""

    topic_partition: TopicPartition
    leader_epoch: int
    deletes: bool


def instructions_of(request: LeaderAndIsrRequest, version: int) -> Iterator[PartitionInstruction]:
    """The instruction for each partition of a LeaderAndIsr request, in either layout of the message."""
    if version < FIRST_LEADER_AND_ISR_BY_TOPIC:
        for state in request.ungrouped_partition_states:
            yield _instruction(state.topic_name, ZERO_ID, state, request.controller_epoch)
        return
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield _instruction(topic.topic_name, topic.topic_id, state, request.controller_epoch)


def _instruction(
    topic: str, topic_id: uuid.UUID, fields: LeaderAndIsrPartitionState, controller_epoch: int
) -> PartitionInstruction:
    """The instruction of one partition entry in a LeaderAndIsr."""
    state = LeaderAndIsr(
        BrokerId(fields.leader),
        fields.leader_epoch,
        _broker_ids(fields.isr),
        fields.controller_epoch,
        fields.partition_epoch,
    )
    assignment = ReplicaAssignment(
        _broker_ids(fields.replicas), _broker_ids(fields.adding_replicas), _broker_ids(fields.removing_replicas)
    )
    return PartitionInstruction(
        TopicPartition(topic, fields.partition_index), topic_id, state, assignment, fields.is_new
    )


def _broker_ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    """Return the numbers as broker ids, in the same order."""
    return shared_ids(tuple(cast("Iterable[BrokerId]", numbers)))


def stop_instructions_of(request: StopReplicaRequest, version: int) -> Iterator[StopInstruction]:
    """The instruction for each partition of a StopReplica request, in any layout of the message."""
    deletes = request.delete_partitions
    if version < FIRST_STOP_REPLICA_BY_TOPIC:
        for old in request.ungrouped_partitions:
            yield StopInstruction(TopicPartition(old.topic_name, old.partition_index), NO_EPOCH, deletes)
    elif version < FIRST_STOP_REPLICA_BY_STATE:
        for topic in request.topics:
            for number in topic.partition_indexes:
                yield StopInstruction(TopicPartition(topic.name, number), NO_EPOCH, deletes)
    else:
        for states in request.topic_states:
            for state in states.partition_states:
                topic_partition = TopicPartition(states.topic_name, state.partition_index)
                yield StopInstruction(topic_partition, state.leader_epoch, state.delete_partition)


def answer_instructions(
    instructions: list[PartitionInstruction], errors: Errors, version: int, error: ErrorCode
) -> LeaderAndIsrResponse:
    """The LeaderAndIsr response, by topic id from version 5 on; the zero id stands for a topic without one."""
    if version < FIRST_LEADER_AND_ISR_BY_ID:
        answers = [LeaderAndIsrPartitionError(tp.topic, tp.partition, e) for tp, e in errors.items()]
        return LeaderAndIsrResponse(error_code=error, partition_errors=answers)
    ids = {o.topic_partition.topic: o.topic_id for o in instructions}
    topics = {topic: LeaderAndIsrTopicError(topic_id, []) for topic, topic_id in ids.items()}
    for topic_partition, found in errors.items():
        answer = LeaderAndIsrPartitionError(partition_index=topic_partition.partition, error_code=found)
        topics[topic_partition.topic].partition_errors.append(answer)
    return LeaderAndIsrResponse(error_code=error, topics=list(topics.values()))
