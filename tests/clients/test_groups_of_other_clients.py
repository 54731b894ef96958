"""Kafka's Java client (3.9, 4) and kafkajs: produce, commit, seek, and share a topic while a member is killed."""

import pytest
from confluent_kafka import Producer
from tests.clients.test_groups import committed, end_offsets
from tests.support import foreign_clients
from tests.support.cluster import Cluster
from tests.support.foreign_clients import FOREIGN_CLIENTS
from tests.support.group_members import Members

PARTITIONS = 6
BATCH = 60


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic and a group of the test's own; both have this name."""
    # some timestamps are of 1970: without a limit, retention would delete the records while the test runs
    cluster.create_topic(own_name, PARTITIONS, 3, {"min.insync.replicas": "2", "retention.ms": "-1"})
    return own_name


def produce(cluster: Cluster, library: str, topic: str, first: int) -> set[str]:
    """Let the client produce numbered records; their values."""
    events = foreign_clients.run(library, "produce", cluster.bootstrap, topic, str(first), str(BATCH))
    values = {event["value"] for event in events}
    assert values == {str(number) for number in range(first, first + BATCH)}
    return values


@pytest.mark.parametrize("library", FOREIGN_CLIENTS)
def test_two_remaining_group_members_take_over_the_partitions_of_a_killed_third_member(
    cluster: Cluster, members: Members, name: str, library: str, client_rounds: int
) -> None:
    if library != "java-4" and client_rounds == 1:
        pytest.skip("`make prove` runs it; the tools, Streams and Connect use the groups of Java 3.9 in each run")
    values = produce(cluster, library, name, 0)
    running = [members.start(library) for _ in range(3)]

    def all_are_consumed() -> bool:
        return values <= {c.value for c in members.consumed}

    members.wait_until_shared(PARTITIONS, running)
    for number in range(1, client_rounds + 1):
        if len(running) < 3:
            running.append(members.start(library))
            members.wait_until_shared(PARTITIONS, running)
        members.wait_until("all records are consumed", all_are_consumed)

        running.pop(0).kill()
        values |= produce(cluster, library, name, number * BATCH)

        members.wait_until_shared(PARTITIONS, running)
        members.wait_until("all records are consumed", all_are_consumed)

    assert committed(cluster, name) == end_offsets(cluster, name)
    consumed = [(c.partition, c.offset) for c in members.consumed]
    assert len(consumed) == len(set(consumed)), "a committed record was read again"


@pytest.mark.parametrize("library", FOREIGN_CLIENTS)
def test_a_consumer_that_is_not_python_seeks_to_offsets_to_the_log_end_and_to_timestamps(
    cluster: Cluster, name: str, library: str, client_rounds: int
) -> None:
    if library != "java-4" and client_rounds == 1:
        pytest.skip("`make prove` runs it")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(1, 6):
        producer.produce(name, str(number).encode(), partition=0, timestamp=number * 1_000)
    assert producer.flush(30) == 0

    found = foreign_clients.run(library, "seek", cluster.bootstrap, name)

    assert [(e["event"], e["offset"], e["value"]) for e in found] == [
        ("offset", 1, "2"),
        ("end", 4, "5"),
        ("beginning", 0, "1"),
        ("time", 2, "3"),
    ]
