"""Progress, loads and throttles of reassignments, with brokers whose metadata is stale."""

from typing import Any

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.cluster_load import read_load
from klamm.cli.admin.reassignments import cancel, current_assignment, read_progress, start
from klamm.model.errors import ErrorCode, KlammError, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.progress import MoveState
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsResponse,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

AT = TopicPartition("t", 0)
WANTED = {AT: (BrokerId(2), BrokerId(1))}


def brokers_with_assignments(*known: tuple[int, ...]) -> Brokers:
    """Brokers without running reassignments; each Metadata request gets the next of these replica lists."""
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


def test_reassignment_progress_reads_metadata_again_that_is_older_than_the_end() -> None:
    [progress], moving = run(
        brokers_with_assignments((1, 2), (1, 2), (2, 1)), lambda admin: read_progress(admin, WANTED)
    )

    assert (progress.state, moving) == (MoveState.COMPLETE, False)


def test_reassignment_progress_reports_a_partition_that_differs_from_the_plan_as_not_moving() -> None:
    [progress], _ = run(brokers_with_assignments((1, 2)), lambda admin: read_progress(admin, WANTED))

    assert progress.state is MoveState.ELSEWHERE


def test_a_reassignment_may_keep_a_replica_on_a_dead_broker_and_may_add_none_there() -> None:
    brokers = brokers_with_assignments((1, 9))
    kept = {AT: (BrokerId(2), BrokerId(9))}

    assert run(brokers, lambda admin: current_assignment(admin, kept)) == {AT: (1, 9)}
    with pytest.raises(UsageError, match=r"broker 8 is not alive\. Live brokers: 1, 2"):
        run(brokers, lambda admin: current_assignment(admin, {AT: (BrokerId(8), BrokerId(9))}))


def test_a_plan_knows_the_controller_only_brokers_and_the_size_of_the_largest_replica() -> None:
    def config(_version: int, asked: Any) -> DescribeConfigsResponse:
        [resource] = asked.resources
        value = "2" if resource.resource_name == "1" else None
        found = [DescribeConfigsResourceResult(name="klamm.controller.only.brokers", value=value)] if value else []
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=found
        )
        return DescribeConfigsResponse(results=[result])

    sizes = iter((10, 30, 20))

    def log_dirs(_version: int, _asked: Any) -> DescribeLogDirsResponse:
        described = DescribeLogDirsPartition(partition_index=0, partition_size=next(sizes))
        topic = DescribeLogDirsTopic("t", [described])
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=[topic])])

    brokers = brokers_with_assignments((1, 3))
    brokers.ids = (1, 2, 3)
    at = MetadataResponsePartition(0, 0, 1, 0, (1, 3), (1, 3))
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata([MetadataResponseTopic(0, "t", partitions=[at])])
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = config
    brokers.answers[ApiKey.DESCRIBE_LOG_DIRS] = log_dirs

    load, controller_only = run(brokers, lambda admin: read_load(admin, 0))

    assert controller_only == {2}
    assert (load.replicas, load.bytes, load.bytes_per_s) == ({AT: (1, 3)}, {AT: 30.0}, {})
    assert set(load.racks) == {1, 2, 3}


def test_no_plan_is_made_while_partitions_are_being_reassigned() -> None:
    brokers = brokers_with_assignments((1, 2))
    ongoing = OngoingTopicReassignment("t", [OngoingPartitionReassignment(0, (1, 2), (2,), ())])
    brokers.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _v, _m: ListPartitionReassignmentsResponse(
        topics=[ongoing]
    )

    with pytest.raises(KlammError, match=r"1 partitions are being reassigned \(REASSIGNMENT_IN_PROGRESS\)"):
        run(brokers, lambda admin: read_load(admin, 0))


LIST, RATE = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
LEFT = {
    "another topic moves on": (("t", "other"), {"topic t": [LIST]}),
    "nothing else moves": (("t",), {"topic t": [LIST], "broker 1": [RATE], "broker 2": [RATE]}),
    "it moved no more, another does": (("other",), {"topic t": [LIST]}),
}


def describe_throttles(_version: int, asked: Any) -> DescribeConfigsResponse:
    """Each topic has throttled replicas, each broker a throttle rate."""
    results = []
    for r in asked.resources:
        name, source = (LIST, 1) if r.resource_type == 2 else (RATE, 2)
        config = DescribeConfigsResourceResult(name=name, value="1", config_source=source)
        results.append(
            DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, configs=[config])
        )
    return DescribeConfigsResponse(results=results)


def changed_configs(request: Any) -> dict[tuple[int, str], list[str | None]]:
    """The values that a request sets for each resource; None where it removes a config."""
    return {(r.resource_type, r.resource_name): [c.value for c in r.configs] for r in request.resources}


@pytest.mark.parametrize("is_moving", [False, True])
def test_a_reassignment_that_is_refused_leaves_no_throttle_unless_another_one_runs(is_moving: bool) -> None:
    brokers = brokers_with_assignments((1, 2))
    changes: list[dict[tuple[int, str], list[str | None]]] = []

    def change_configs(_version: int, asked: Any) -> IncrementalAlterConfigsResponse:
        changes.append(changed_configs(asked))
        return IncrementalAlterConfigsResponse()

    def refuse(_version: int, _asked: Any) -> AlterPartitionReassignmentsResponse:
        refused = ReassignablePartitionResponse(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
        return AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse("t", [refused])])

    ongoing = [OngoingTopicReassignment("u", [OngoingPartitionReassignment(0, (1, 2), (2,), ())])] if is_moving else []
    brokers.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _v, _m: ListPartitionReassignmentsResponse(
        topics=ongoing
    )
    brokers.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = refuse
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = describe_throttles
    brokers.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = change_configs

    started = run(brokers, lambda admin: start(admin, WANTED, {AT: (BrokerId(1),)}, 1_000, additional=True))

    assert (started.begun, [r.subject for r in started.refused]) == ([], ["t-0"])
    removed = {resource for request in changes for resource, values in request.items() if values == [None]}
    assert removed == (set() if is_moving else {(2, "t"), (4, "1"), (4, "2")})


@pytest.mark.parametrize(("moving", "unset"), LEFT.values(), ids=LEFT)
def test_cancelling_reassignments_removes_only_the_throttles_of_the_cancelled_partitions(
    moving: tuple[str, ...], unset: dict[str, list[str]]
) -> None:
    brokers = Brokers(1, 2)
    ongoing = OngoingPartitionReassignment(0, (1, 2), (2,), ())
    answer = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(t, [ongoing]) for t in moving])

    brokers.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _v, _m: answer
    brokers.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda _v, _m: AlterPartitionReassignmentsResponse()
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = describe_throttles
    brokers.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _v, _m: IncrementalAlterConfigsResponse()

    cancelled, changes, refused = run(brokers, lambda admin: cancel(admin, None, ["t"], preserve_throttles=False))

    assert [at.topic for at in cancelled] == [t for t in moving if t == "t"]
    assert {str(entity): list(names) for entity, names in changes.items()} == unset
    assert refused == []


def test_a_topic_keeps_its_throttle_while_another_of_its_partitions_is_reassigned() -> None:
    brokers = Brokers(1, 2)
    ongoing = [OngoingPartitionReassignment(n, (1, 2), (2,), ()) for n in (0, 1)]
    answer = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment("t", ongoing)])
    brokers.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _v, _m: answer
    brokers.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda _v, _m: AlterPartitionReassignmentsResponse()
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = describe_throttles

    cancelled, changes, refused = run(brokers, lambda admin: cancel(admin, [AT], (), preserve_throttles=False))

    assert (cancelled, changes, refused) == ([AT], {}, [])
