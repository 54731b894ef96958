"""What a reassignment looks like while brokers still hear of it."""

from typing import Any

from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.reassigning.asking import Wanted, make_plan, standings
from klamm.cli.reassigning.status import State
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ListPartitionReassignmentsResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

AT = TopicPartition("t", 0)
WANTED = {AT: (BrokerId(2), BrokerId(1))}


def cluster(*known: tuple[int, ...]) -> Brokers:
    """Where nothing moves any more; the broker asked knows these replicas, one after the other."""
    brokers, left = Brokers(1, 2), list(known)

    def metadata(_version: int, asked: Any) -> MetadataResponse:
        if not asked.topics:
            return brokers.metadata()
        replicas = left.pop(0) if len(left) > 1 else left[0]
        partition = MetadataResponsePartition(0, 0, replicas[0], 0, replicas, replicas)
        return brokers.metadata([MetadataResponseTopic(0, "t", partitions=[partition])])

    brokers.answers[ApiKey.METADATA] = metadata
    brokers.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _v, _m: ListPartitionReassignmentsResponse()
    return brokers


def test_a_broker_that_has_not_heard_of_the_end_is_asked_again() -> None:
    [standing], moving = run(cluster((1, 2), (1, 2), (2, 1)), lambda admin: standings(admin, WANTED))

    assert (standing.state, moving) == (State.COMPLETE, False)


def test_what_stays_elsewhere_is_said_to_be() -> None:
    [standing], _ = run(cluster((1, 2)), lambda admin: standings(admin, WANTED))

    assert standing.state is State.ELSEWHERE


def test_a_plan_gives_nothing_to_who_is_only_there_to_be_controller() -> None:
    def config(_version: int, asked: Any) -> DescribeConfigsResponse:
        [resource] = asked.resources
        value = "2" if resource.resource_name == "1" else None
        found = [DescribeConfigsResourceResult(name="klamm.controller.only.brokers", value=value)] if value else []
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=found
        )
        return DescribeConfigsResponse(results=[result])

    brokers = Brokers(1, 2, 3, 4)
    at = MetadataResponsePartition(0, 0, 1, 0, [1, 3], [1, 3])
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata([MetadataResponseTopic(0, "t", partitions=[at])])
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = config
    wanted = Wanted(None, None, (BrokerId(1),), None, True)

    planned = run(brokers, lambda admin: make_plan(admin, wanted))

    assert {b for replicas in planned.plan.moves.values() for b in replicas} == {3, 4}
