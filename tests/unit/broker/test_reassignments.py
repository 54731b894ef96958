"""AlterPartitionReassignments and ListPartitionReassignments: what is asked of the controller, and how it is told."""

import asyncio
from collections.abc import Mapping, Sequence

from tests.unit.broker.cluster_state import request

from klamm.broker.handlers.reassignments import Reassignments
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import ReassignmentAnswer, ReassignmentList
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

ALTER = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
LIST = request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
ASKED = AlterPartitionReassignmentsRequest(
    topics=[ReassignableTopic("a", [ReassignablePartition(0, (2, 3)), ReassignablePartition(1, None)])]
)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Controller:
    def __init__(self, answer: ReassignmentAnswer, listed: ReassignmentList) -> None:
        self.answer, self.listed = answer, listed
        self.targets: Mapping[TopicPartition, Sequence[BrokerId] | None] = {}
        self.asked: list[Sequence[TopicPartition] | None] = []

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> ReassignmentAnswer:
        self.targets = targets
        return self.answer

    async def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> ReassignmentList:
        self.asked.append(partitions)
        return self.listed


async def test_alter_partition_reassignments_answers_each_partition_with_its_own_error() -> None:
    refused = {A1: Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")}
    controller = Controller(ReassignmentAnswer(ErrorCode.NONE, refused), ReassignmentList(ErrorCode.NONE))

    answer = await Reassignments(controller).alter(ALTER, ASKED)

    assert controller.targets == {A0: (2, 3), A1: None}
    [topic] = answer.responses
    results = [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions]
    assert results == [(0, 0, None), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")]


async def test_list_partition_reassignments_returns_ongoing_reassignments_grouped_by_topic() -> None:
    moving = ReplicaAssignment((BrokerId(2), BrokerId(1)), (BrokerId(2),), (BrokerId(1),))
    controller = Controller(ReassignmentAnswer(ErrorCode.NONE), ReassignmentList(ErrorCode.NONE, {A0: moving}))
    handler = Reassignments(controller)
    named = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics("a", (0, 1))])

    answer = await handler.list(LIST, ListPartitionReassignmentsRequest())
    await handler.list(LIST, named)

    assert controller.asked == [None, [A0, A1]]
    [topic] = answer.topics
    [partition] = topic.partitions
    assert (topic.name, partition.partition_index) == ("a", 0)
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((2, 1), (2,), (1,))


async def test_many_ongoing_reassignments_are_listed_in_time_slices() -> None:
    moving = ReplicaAssignment((BrokerId(2), BrokerId(1)), (BrokerId(2),), (BrokerId(1),))
    ongoing = {TopicPartition("a", number): moving for number in range(1_000)}
    handler = Reassignments(Controller(ReassignmentAnswer(ErrorCode.NONE), ReassignmentList(ErrorCode.NONE, ongoing)))

    listing = asyncio.create_task(handler.list(LIST, ListPartitionReassignmentsRequest()))
    await asyncio.sleep(0)

    assert not listing.done()
    assert [len(topic.partitions) for topic in (await listing).topics] == [1_000]


async def test_reassignment_requests_to_a_broker_that_is_not_controller_get_not_controller() -> None:
    code = ErrorCode.NOT_CONTROLLER
    handler = Reassignments(Controller(ReassignmentAnswer(code), ReassignmentList(code)))

    altered = await handler.alter(ALTER, ASKED)
    listed = await handler.list(LIST, ListPartitionReassignmentsRequest())

    assert (altered.error_code, altered.responses) == (code, [])
    assert (listed.error_code, listed.topics) == (code, [])
