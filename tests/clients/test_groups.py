"""Groups of real consumers: they share a topic, one is killed, the coordinator is killed, and nothing is skipped."""

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from tests.support.cluster import Cluster
from tests.support.group_members import COOPERATIVE_JAVA, COOPERATIVE_LIBRARIES, LIBRARIES, Members

from klamm.cli.admin.client import with_admin
from klamm.client.routing import CoordinatorType
from klamm.embedded.nodes import Command
from klamm.wire.api import ApiKey
from klamm.wire.messages import FindCoordinatorRequest

PARTITIONS = 6
BATCH = 60


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that tests may stop and start again, with few partitions for groups."""
    overrides = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "1000"}
    directory = tmp_path_factory.mktemp("groups")
    with Cluster(directory, command=node_command, overrides=overrides) as running:
        yield running


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic and a group of the test's own; both have this name."""
    cluster.create_topic(own_name, PARTITIONS, 3, {"min.insync.replicas": "2"})
    return own_name


def produce(cluster: Cluster, topic: str, first: int, count: int = BATCH) -> set[str]:
    """Produce numbered records to all partitions; their values."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    values = [str(number) for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return set(values)


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    """The committed offsets by partition, as an admin client sees them."""
    admin = cluster.admin()
    [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {p.partition: p.offset for p in asked.result().topic_partitions}


def end_offsets(cluster: Cluster, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(PARTITIONS)}
    finally:
        consumer.close()


def coordinator(address: str, group: str) -> int:
    """The broker id of the group's coordinator; -1 while there is none.

    Not through librdkafka, whose admin client aborts the process where the coordinator goes during a request.
    """
    request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=(group,))
    found = with_admin(address, 10.0, lambda admin: admin.ask(ApiKey.FIND_COORDINATOR, request))
    return int(found.coordinators[0].node_id)


def test_members_of_three_client_libraries_share_a_group_and_take_over_from_a_killed_member(
    cluster: Cluster, members: Members, name: str
) -> None:
    values = produce(cluster, name, 0)
    running = [members.start(library) for library in LIBRARIES]
    members.wait_until_shared(PARTITIONS, running)
    values |= produce(cluster, name, BATCH)
    members.wait_until("all records are consumed", lambda: values <= {c.value for c in members.consumed})

    running[0].kill()
    values |= produce(cluster, name, 2 * BATCH)

    members.wait_until_shared(PARTITIONS, running[1:])
    members.wait_until("all records are consumed", lambda: values <= {c.value for c in members.consumed})
    assert committed(cluster, name) == end_offsets(cluster, name)


def test_a_cooperative_group_keeps_reading_its_partitions_while_a_killed_members_ones_move(
    cluster: Cluster, members: Members, name: str, client_rounds: int
) -> None:
    """Three members of two clients in each run; in `make prove` a member of each client that can."""
    values = produce(cluster, name, 0)
    libraries = [*COOPERATIVE_LIBRARIES, "confluent-cooperative"]
    if client_rounds > 1:
        libraries = [*COOPERATIVE_LIBRARIES, *COOPERATIVE_JAVA]

    def all_are_consumed() -> bool:
        return values <= {c.value for c in members.consumed}

    running = [members.start(library) for library in libraries]
    members.wait_until_shared(PARTITIONS, running)
    for number in range(1, client_rounds + 1):
        values |= produce(cluster, name, 2 * number * BATCH)
        members.wait_until("all records are consumed", all_are_consumed)
        victim = running.pop(0)
        revoked = [member.revoked for member in running]

        victim.kill()
        values |= produce(cluster, name, (2 * number + 1) * BATCH)
        members.wait_until_shared(PARTITIONS, running)
        members.wait_until("all records are consumed", all_are_consumed)
        assert [member.revoked for member in running] == revoked, "a member gave up partitions though none had to move"

        running.append(members.start(victim.library))
        members.wait_until_shared(PARTITIONS, running)
    consumed = [(c.partition, c.offset) for c in members.consumed]
    assert len(consumed) == len(set(consumed)), "a committed record was read again"
    assert committed(cluster, name) == end_offsets(cluster, name)


@pytest.mark.parametrize("library", LIBRARIES)
def test_new_group_members_resume_at_the_committed_offsets(
    cluster: Cluster, members: Members, library: str, name: str
) -> None:
    produce(cluster, name, 0)
    first = members.start("confluent")
    members.wait_until(
        "the first member reached the end", lambda: committed(cluster, name) == end_offsets(cluster, name)
    )
    first.kill()
    values = produce(cluster, name, 1_000)
    second = members.start(library)
    members.wait_until("the new records are consumed", lambda: values <= {c.value for c in second.consumed})
    assert {c.value for c in second.consumed} == values


def test_a_group_continues_after_its_coordinators_node_is_killed(cluster: Cluster, members: Members, name: str) -> None:
    values = produce(cluster, name, 0)
    running = [members.start(library) for library in LIBRARIES]
    members.wait_until_shared(PARTITIONS, running)
    members.wait_until("all records are consumed", lambda: values <= {c.value for c in members.consumed})
    node = cluster.node(coordinator(cluster.bootstrap, name))

    node.kill()
    survivors = [n for n in cluster.nodes if n is not node]
    try:
        cluster.wait_until(
            "another node coordinates the group",
            lambda: coordinator(survivors[0].address, name) not in (-1, node.broker_id),
        )
        values |= produce(cluster, name, 5_000)
        members.wait_until("all records are consumed", lambda: values <= {c.value for c in members.consumed})
    finally:
        cluster.wait_until_forgotten(node.broker_id)
        node.start()
        node.wait_until_listening()
        cluster.wait_until_complete()
        cluster.wait_until_in_sync(name, PARTITIONS, 3)

    counts = Counter((c.partition, c.offset) for c in members.consumed)
    assert sorted(counts) == [(p, o) for p, end in sorted(end_offsets(cluster, name).items()) for o in range(end)]


def test_a_static_member_that_restarts_within_its_session_timeout_causes_no_rebalance(
    cluster: Cluster, members: Members, name: str
) -> None:
    produce(cluster, name, 0)
    others = [members.start("confluent", f"i{number}") for number in range(2)]
    members.wait_until_shared(PARTITIONS, others)
    restarted = others.pop()
    before = restarted.assigned
    assignments = len(others[0].events("assigned"))

    restarted.kill()
    again = members.start("kafka-python", "i1")

    members.wait_until("the static member has its partitions again", lambda: again.assigned == before)
    assert len(others[0].events("assigned")) == assignments
