"""Groups as the commands read them: coordinators that move, lag, resets."""

from typing import Any

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin import groups, offset_resets
from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.groups import Lag
from klamm.cli.admin.offset_resets import Reset, ResetKind, parse_topic
from klamm.cli.admin.refusals import Refusal
from klamm.cli.commands.groups import _lag_by_topic
from klamm.client.group_member import assigned_partitions
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import TopicPartition
from klamm.wire import messages as m
from klamm.wire.api import ApiKey

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
STARTS, ENDS = {0: 5, 1: 5}, {0: 10, 1: 20}


def found(host: str, node: int) -> Any:
    def answer(version: int, message: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
        keys = message.coordinator_keys
        return m.FindCoordinatorResponse(coordinators=[m.Coordinator(key, node, host, 9092) for key in keys])

    return answer


def with_topic(brokers: Brokers) -> None:
    """Topic `t` has two partitions, led by broker 1."""
    topic = m.MetadataResponseTopic(
        name="t", partitions=[m.MetadataResponsePartition(partition_index=n, leader_id=1) for n in (0, 1)]
    )
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata([topic])
    offsets = {-2: STARTS, -1: ENDS}
    brokers.answers[ApiKey.LIST_OFFSETS] = lambda _v, message: m.ListOffsetsResponse(
        topics=[
            m.ListOffsetsTopicResponse(
                t.name,
                [
                    m.ListOffsetsPartitionResponse(
                        p.partition_index,
                        0,
                        timestamp=0,
                        offset=offsets.get(p.timestamp, {0: 7, 1: -1})[p.partition_index],
                    )
                    for p in t.partitions
                ],
            )
            for t in message.topics
        ]
    )


def with_offsets(brokers: Brokers, **offsets: int) -> None:
    """The group has committed these offsets, by partition number."""
    brokers.answers[ApiKey.FIND_COORDINATOR] = found("b2", 2)
    partitions = [m.OffsetFetchResponsePartition(int(n[1:]), offset, metadata="") for n, offset in offsets.items()]
    brokers.answers[ApiKey.OFFSET_FETCH] = lambda _v, _m: m.OffsetFetchResponse(
        topics=[m.OffsetFetchResponseTopic("t", partitions)]
    )


def test_group_commands_retry_a_request_at_the_new_coordinator_after_a_move() -> None:
    brokers = Brokers(1, 2)
    places = iter([("b1", 1), ("b2", 2)])
    brokers.answers[ApiKey.FIND_COORDINATOR] = lambda v, message: found(*next(places))(v, message)
    codes = iter([ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
    brokers.answers[ApiKey.DESCRIBE_GROUPS] = lambda _v, _m: m.DescribeGroupsResponse(
        groups=[m.DescribeGroupsResponseDescribedGroup(next(codes), "g", "Empty", "consumer")]
    )

    described = run(brokers, lambda admin: groups.describe_group(admin, "g"))

    assert (described.state, described.members) == ("Empty", ())
    assert [host for host, api, _ in brokers.asked if api == "DESCRIBE_GROUPS"] == ["b1", "b2"]


def test_group_commands_fail_with_a_reason_if_the_coordinator_stays_unavailable() -> None:
    brokers = Brokers(1)
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.answers[ApiKey.FIND_COORDINATOR] = lambda _v, message: m.FindCoordinatorResponse(
        coordinators=[m.Coordinator(key, -1, "", -1, missing) for key in message.coordinator_keys]
    )
    with pytest.raises(CannotAsk, match="COORDINATOR_NOT_AVAILABLE"):
        run(brokers, lambda admin: groups.describe_group(admin, "g"))


def test_groups_list_covers_all_brokers_and_reports_a_broker_that_is_loading_groups() -> None:
    brokers = Brokers(1, 2)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    responses = iter(
        [
            m.ListGroupsResponse(groups=[m.ListedGroup("b", "consumer", "Stable", "classic")]),
            m.ListGroupsResponse(error_code=loading, groups=[m.ListedGroup("a", "", "Empty", "classic")]),
        ]
    )
    brokers.answers[ApiKey.LIST_GROUPS] = lambda _v, _m: next(responses)

    listed, refused = run(brokers, groups.list_groups)

    assert [(g.group, g.state) for g in listed] == [("a", "Empty"), ("b", "Stable")]
    assert [(r.subject, r.code) for r in refused] == [("broker 2", loading)]


def test_group_lag_is_log_end_minus_committed_offset_and_unknown_without_a_commit() -> None:
    brokers = Brokers(1, 2)
    with_topic(brokers)
    with_offsets(brokers, p0=4, p9=1)
    member = groups.Member("m", None, "c", "/1", (P1,))
    group = groups.Group("g", "Stable", "consumer", "range", (member,))

    lags = run(brokers, lambda admin: groups.read_lag(admin, group))

    gone = TopicPartition("t", 9)
    assert lags == [Lag(P0, 4, 10, None), Lag(P1, None, 20, member), Lag(gone, 1, None, None)]
    assert [found.lag for found in lags] == [6, None, None]


def test_an_offset_after_the_end_of_a_truncated_log_does_not_hide_the_lag_of_other_partitions() -> None:
    lags = [Lag(P0, 1000, 10, None), Lag(P1, 60, 100, None), Lag(TopicPartition("u", 0), None, 5, None)]

    assert _lag_by_topic(lags) == [("t", 40, 0), ("u", 0, 1)]


@pytest.mark.parametrize(
    ("reset", "planned"),
    [
        (Reset(ResetKind.EARLIEST), [5, 5]),
        (Reset(ResetKind.LATEST), [10, 20]),
        (Reset(ResetKind.CURRENT), [6, 20]),
        (Reset(ResetKind.OFFSET, 15), [10, 15]),
        (Reset(ResetKind.OFFSET, 1), [5, 5]),
        (Reset(ResetKind.SHIFT, 2), [8]),
        (Reset(ResetKind.TIME, 1_000), [7, 20]),
    ],
)
def test_an_offset_reset_beyond_the_logs_range_is_limited_to_that_range(reset: Reset, planned: list[int]) -> None:
    brokers = Brokers(1, 2)
    with_topic(brokers)
    with_offsets(brokers, p0=6)

    plan = run(brokers, lambda admin: offset_resets.plan_reset(admin, "g", [P0, P1], reset))

    assert [row.planned for row in plan] == planned


def test_an_offset_reset_affects_the_named_partitions_or_all_with_committed_offsets() -> None:
    brokers = Brokers(1, 2)
    with_topic(brokers)
    with_offsets(brokers, p1=6)

    def select(*topics: str, all_topics: bool = False) -> list[TopicPartition]:
        return run(brokers, lambda admin: offset_resets.select_partitions(admin, "g", topics, all_topics=all_topics))

    assert select("t") == [P0, P1]
    assert select("t:1") == [P1]
    assert select(all_topics=True) == [P1]
    with pytest.raises(UsageError, match="no partition 2"):
        select("t:2")
    with pytest.raises(UsageError, match="there is no such topic"):
        select("x")


def test_errors_of_offset_commits_and_group_deletions_name_the_group() -> None:
    brokers = Brokers(1, 2)
    brokers.answers[ApiKey.FIND_COORDINATOR] = found("b2", 2)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    brokers.answers[ApiKey.OFFSET_COMMIT] = lambda _v, _m: m.OffsetCommitResponse(
        topics=[m.OffsetCommitResponseTopic("t", [m.OffsetCommitResponsePartition(0, unknown)])]
    )
    brokers.answers[ApiKey.OFFSET_DELETE] = lambda _v, _m: m.OffsetDeleteResponse(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    brokers.answers[ApiKey.DELETE_GROUPS] = lambda _v, _m: m.DeleteGroupsResponse(
        results=[m.DeletableGroupResult("g", ErrorCode.NON_EMPTY_GROUP)]
    )

    assert run(brokers, lambda a: groups.commit_offsets(a, "g", {P0: 1})) == [Refusal("group g, t-0", unknown, None)]
    [refused] = run(brokers, lambda a: groups.delete_offsets(a, "g", [P0]))
    assert refused == Refusal("group g", ErrorCode.GROUP_ID_NOT_FOUND, None)
    assert "stop its members" in str(run(brokers, lambda a: groups.delete_group(a, "g")))


def test_a_members_assigned_partitions_are_parsed_and_unknown_assignment_formats_ignored() -> None:
    assignment = m.ConsumerProtocolAssignment([m.AssignedPartitions("t", (0, 1))])
    for version in range(4):
        assert assigned_partitions(version.to_bytes(2) + assignment.encode(version)) == (P0, P1)
    assert assigned_partitions(b"") == assigned_partitions(b"\x00\x00garbage") == ()


def test_the_topic_option_of_group_commands_is_parsed_to_topic_and_partitions() -> None:
    assert parse_topic("t") == ("t", None)
    assert parse_topic("t:0,2") == ("t", (0, 2))
    with pytest.raises(UsageError, match="--topic"):
        parse_topic("t:x")
