"""AlterPartitionReassignments and ListPartitionReassignments, on the active controller's broker.

Source: KafkaApis.scala (3.9). A response to the first means that the reassignment is accepted; the request's timeout is
not used, as in Kafka.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from klamm.broker.by_topic import group_by_topic
from klamm.broker.dispatch import Offered, Request
from klamm.broker.error_responses import NOT_CONTROLLER_TEXT
from klamm.controller.events import ReassignmentAnswer, ReassignmentList
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

ALTER_PARTITION_REASSIGNMENTS: Final = Offered(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0)
LIST_PARTITION_REASSIGNMENTS: Final = Offered(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0)


class ControllerReassignments(Protocol):
    """What the handlers need of the controller."""

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> ReassignmentAnswer:
        """Start, replace or (for None) cancel the reassignment of each partition."""

    async def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> ReassignmentList:
        """The ongoing reassignments of these partitions, or all of them for None."""


class Reassignments:
    """Serves AlterPartitionReassignments and ListPartitionReassignments."""

    def __init__(self, controller: ControllerReassignments) -> None:
        self._controller = controller

    async def alter(
        self, request: Request, message: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Answer AlterPartitionReassignments: start, replace or cancel the reassignment of each partition."""
        slices = request.slices
        targets = await slices.dict_of(
            (TopicPartition(topic.name, p.partition_index), _broker_ids(p.replicas))
            for topic in message.topics
            for p in topic.partitions
        )
        answer = await self._controller.alter_reassignments(targets)
        if answer.error is not ErrorCode.NONE:
            return AlterPartitionReassignmentsResponse(error_code=answer.error, error_message=_error_text(answer.error))
        topics = await group_by_topic(((key.topic, _result(key, answer)) for key in targets), slices)
        responses = [ReassignableTopicResponse(name, partitions) for name, partitions in topics.items()]
        return AlterPartitionReassignmentsResponse(responses=responses)

    async def list(
        self, request: Request, message: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Answer ListPartitionReassignments: the ongoing reassignments by topic."""
        requested = None
        if message.topics is not None:
            named = (TopicPartition(topic.name, n) for topic in message.topics for n in topic.partition_indexes)
            requested = await request.slices.list_of(named)
        answer = await self._controller.list_reassignments(requested)
        if answer.error is not ErrorCode.NONE:
            return ListPartitionReassignmentsResponse(error_code=answer.error, error_message=_error_text(answer.error))
        ongoing = (
            (key.topic, OngoingPartitionReassignment(key.partition, *assignment))
            for key, assignment in answer.assignments.items()
        )
        topics = await group_by_topic(ongoing, request.slices)
        return ListPartitionReassignmentsResponse(
            topics=[OngoingTopicReassignment(name, partitions) for name, partitions in topics.items()]
        )


def _result(key: TopicPartition, answer: ReassignmentAnswer) -> ReassignablePartitionResponse:
    """Return the result of one partition: its error and reason, or NONE where it was accepted."""
    refusal = answer.refused.get(key)
    if refusal is None:
        return ReassignablePartitionResponse(key.partition, ErrorCode.NONE, None)
    return ReassignablePartitionResponse(key.partition, refusal.error, refusal.why)


def _broker_ids(numbers: tuple[int, ...] | None) -> tuple[BrokerId, ...] | None:
    """The numbers as broker ids, without a copy: a request may name ten thousand partitions."""
    return cast("tuple[BrokerId, ...] | None", numbers)


def _error_text(error: ErrorCode) -> str | None:
    """The message for an error code, or None for the default."""
    return NOT_CONTROLLER_TEXT if error is ErrorCode.NOT_CONTROLLER else None
