"""Selecting and describing topics."""

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin import topic_descriptions
from klamm.cli.admin.topic_descriptions import Described, TopicQuery, describe
from klamm.cli.admin.topic_selection import Filters, Row, filter_rows, literal_names, parse_assignment, select_topics
from klamm.config.entities import Config
from klamm.config.topic_config import ConfigSource
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Address, Broker, Cluster, Partition, Topic
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> Partition:
    return Partition(BrokerId(leader), ids(*replicas), ids(*isr))


def row(number: int, p: Partition, min_isr: int = 1, move: ReplicaAssignment | None = None) -> Row:
    return Row(TopicPartition("t", number), p, min_isr, move)


def cluster(*names: str) -> Cluster:
    topics = {n: Topic(n, None, n.startswith("__"), {}) for n in names}
    return Cluster(BrokerId(1), {BrokerId(1): Broker(Address("b1", 1), None)}, topics)


def test_topic_patterns_of_the_command_line_match_as_in_kafkas_tools() -> None:
    there = cluster("__own", "a", "a.b", "aXb", "b")

    assert select_topics(there, None) == ["__own", "a", "a.b", "aXb", "b"]
    assert select_topics(there, None, exclude_internal=True) == ["a", "a.b", "aXb", "b"]
    assert select_topics(there, "a.b") == ["a.b", "aXb"]
    assert select_topics(there, "a,b") == ["a", "b"]
    assert select_topics(there, "a.*") == ["a", "a.b", "aXb"]
    with pytest.raises(UsageError, match="not a regular expression"):
        select_topics(there, "(")


def test_only_topic_options_without_wildcards_are_requested_by_name() -> None:
    assert literal_names("a, b-c_1") == ["a", "b-c_1"]
    assert literal_names("a.b") is None
    assert literal_names("a|b") is None


FINE = row(0, partition(1, (1, 2), (1, 2)))
OTHER_LEADS = row(1, partition(2, (1, 2), (2, 1)))
BEHIND = row(2, partition(1, (1, 2), (1,)))
TOO_FEW = row(3, partition(1, (1, 2), (1,)), min_isr=2)
UNOWNED = row(4, partition(-1, (1, 2), (1,)))
LEADER_AWAY = row(5, partition(3, (3, 1), (3, 1)))
GROWING = row(6, partition(1, (1, 3), (1,)), move=ReplicaAssignment(ids(1, 3), ids(3), ()))
ALL = (FINE, OTHER_LEADS, BEHIND, TOO_FEW, UNOWNED, LEADER_AWAY, GROWING)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), ALL),
        (Filters(under_replicated=True), (BEHIND, TOO_FEW, UNOWNED)),
        (Filters(unavailable=True), (UNOWNED, LEADER_AWAY)),
        (Filters(under_min_isr=True), (TOO_FEW, UNOWNED)),
        (Filters(at_min_isr=True), (BEHIND, UNOWNED, GROWING)),
        (Filters(non_preferred=True), (OTHER_LEADS, UNOWNED)),
        (Filters(unavailable=True, non_preferred=True), (OTHER_LEADS, UNOWNED, LEADER_AWAY)),
    ],
)
def test_each_filter_of_topics_describe_selects_only_partitions_with_that_problem(
    filters: Filters, expected: tuple[Row, ...]
) -> None:
    assert filter_rows(ALL, filters, ids(1, 2)) == list(expected)


def test_a_replica_assignment_option_with_unequal_counts_or_repeated_replicas_is_rejected() -> None:
    assert parse_assignment("1:2,2:3") == [(1, 2), (2, 3)]
    for wrong, why in {"1:x": "BROKER:BROKER", "1:1": "twice", "1:2,3": "the same number", "": "BROKER:BROKER"}.items():
        with pytest.raises(UsageError, match=why):
            parse_assignment(wrong)


def test_topics_describe_prints_leader_preferred_leader_and_isr_in_separate_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partitions = {r.at.partition: r.partition for r in (OTHER_LEADS, TOO_FEW, UNOWNED, GROWING)}
    own = {"t": {"a": Config("a", "b", ConfigSource.TOPIC, False, False, (), None)}}
    described = Described([Topic("t", None, False, partitions)], own, [OTHER_LEADS, TOO_FEW, UNOWNED, GROWING])

    topic_descriptions.print_description(described, Filters(), as_json=False)

    topic, _, _, *rows = capsys.readouterr().out.splitlines()[1:]
    assert topic == "t\t\t4\t0\ta=b"
    assert rows == [
        "t\t1\t2\t1\t1,2\t2,1\t\tnot preferred",
        "t\t3\t1\t1\t1,2\t1\t\tbelow min ISR",
        "t\t4\tnone\t1\t1,2\t1\t\tno leader, under-replicated",
        "t\t6\t1\t1\t1,3\t1\t\tadding 3, removing none",
    ]


def test_topics_describe_shows_partitions_when_brokers_cannot_read_configs_from_zookeeper() -> None:
    brokers = Brokers(1, 2)
    at = MetadataResponsePartition(0, 0, 2, 0, (2, 1), (2, 1))
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata([MetadataResponseTopic(0, "t", partitions=[at])])
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _v, _m: None

    described, [refusal] = run(brokers, lambda admin: describe(admin, TopicQuery("t")))

    assert [row.partition.leader for row in described.rows] == [2]
    assert str(refusal).endswith("cannot reach ZooKeeper; see klamm audit --zookeeper (NETWORK_EXCEPTION)")
    assert {api for _, api, _ in brokers.asked} == {"DESCRIBE_CONFIGS"}
