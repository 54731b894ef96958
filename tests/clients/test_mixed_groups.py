"""A group whose coordinator is klamm's, then Apache Kafka's, then klamm's again; its members notice nothing.

Each coordinator goes on with the records that the other one wrote into `__consumer_offsets`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support import apache_kafka
from tests.support.group_members import Members, group_members
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import KLAMM, MixedCluster

KAFKA = 1
GROUP = TOPIC = "orders"
PARTITIONS = 3
OFFSETS = dict.fromkeys(range(3), (KLAMM, KAFKA))


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[MixedCluster]:
    """klamm leads the groups' topic; Apache Kafka leads the topic that is read."""
    cluster = MixedCluster(tmp_path / "cluster", kafka=(KAFKA,))
    try:
        cluster.start_first(KLAMM)
        cluster.start_others()
        cluster.create("__consumer_offsets", OFFSETS, {"cleanup.policy": "compact"})
        cluster.create(TOPIC, dict.fromkeys(range(PARTITIONS), (KAFKA, KLAMM)))
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def members(mixed: MixedCluster, tmp_path: Path) -> Iterator[Members]:
    with group_members(tmp_path / "members", mixed.bootstrap, GROUP, TOPIC) as running:
        yield running


def consume(mixed: MixedCluster, members: Members, first: int) -> None:
    """Produce records, and wait until the group has committed them."""
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "acks": "all"})
    values = {str(number) for number in range(first, first + 30)}
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=int(value) % PARTITIONS)
    assert producer.flush(30) == 0
    members.wait_until("all records are consumed", lambda: values <= {c.value for c in members.consumed})


def describe(tools: KafkaTools, bootstrap: str, option: str = "--offsets") -> list[list[str]]:
    """The rows of kafka-consumer-groups, as words."""
    text = tools.run(bootstrap, "kafka-consumer-groups", "--describe", "--group", GROUP, option)
    return sorted(line.split() for line in text.splitlines() if re.match(rf"{GROUP}\s", line))


def test_group_coordinators_of_klamm_and_apache_kafka_take_over_groups_from_each_other(
    mixed: MixedCluster, members: Members, tools: KafkaTools
) -> None:
    running = [members.start("confluent"), members.start("kafka-python", "static")]
    members.wait_until_shared(PARTITIONS, running)
    consume(mixed, members, 0)
    rows, state = describe(tools, mixed.bootstrap), describe(tools, mixed.bootstrap, "--state")
    assert [row[2:6] for row in rows] == [[str(p), "10", "10", "0"] for p in range(PARTITIONS)]
    assert state[0][-3:] == ["range", "Stable", "2"]
    assignments = [len(member.events("assigned")) for member in running]

    mixed.stop_node(KLAMM)
    mixed.wait_until_forgotten(KLAMM)

    assert describe(tools, mixed.bootstrap) == rows
    assert describe(tools, mixed.bootstrap, "--state")[0][-3:] == ["range", "Stable", "2"]
    consume(mixed, members, 30)
    rows = describe(tools, mixed.bootstrap)

    mixed.start_node(KLAMM)
    mixed.wait_until_complete()
    mixed.wait_until_in_sync("__consumer_offsets", 3, 2)
    tools.run(mixed.bootstrap, "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    mixed.wait_until_right("__consumer_offsets", OFFSETS)
    mixed.wait_until("klamm coordinates the group", lambda: mixed.leaders("__consumer_offsets")[0] == KLAMM)

    assert describe(tools, mixed.bootstrap) == rows
    consume(mixed, members, 60)
    assert [row[3] for row in describe(tools, mixed.bootstrap)] == ["30"] * PARTITIONS
    assert [len(member.events("assigned")) for member in running] == assignments
    assert not mixed.complaints(KAFKA)
