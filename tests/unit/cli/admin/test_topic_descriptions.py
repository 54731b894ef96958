"""What is described where brokers cannot tell all of it."""

from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.topic_descriptions import TopicQuery, describe
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic


def test_partitions_are_shown_when_brokers_without_zookeeper_return_no_configs() -> None:
    brokers = Brokers(1, 2)
    at = MetadataResponsePartition(0, 0, 2, 0, [2, 1], [2, 1])
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata([MetadataResponseTopic(0, "t", partitions=[at])])
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _v, _m: None

    described, [refusal] = run(brokers, lambda admin: describe(admin, TopicQuery("t")))

    assert [row.partition.leader for row in described.rows] == [2]
    assert str(refusal).endswith("cannot reach ZooKeeper; see klamm audit --zookeeper (NETWORK_EXCEPTION)")
    assert {api for _, api, _ in brokers.asked} == {"DESCRIBE_CONFIGS"}
