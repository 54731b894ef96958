"""What a reassignment looks like while brokers still hear of it."""

from typing import Any

from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.reassigning.asking import standings
from klamm.cli.reassigning.status import State
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
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
