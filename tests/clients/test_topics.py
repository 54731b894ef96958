"""Topics through clients and Kafka's own tool: created, described, grown, deleted; and what is left on the disks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from kazoo.client import KazooClient
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools
from tests.support.kazoo_clients import kazoo_client

from klamm.embedded.nodes import Command, klamm_node


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes whose topics' deletion does not wait long for a node that is gone."""
    overrides = {"klamm.delete.topic.dead.broker.wait.ms": "500", "auto.create.topics.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("topics"), overrides=overrides) as running:
        yield running


def directories(cluster: Cluster, node: int, topic: str) -> list[str]:
    """Of this topic's partitions, also those that wait for their removal."""
    logs = Path(cluster.node(node).log_directory)
    return sorted(p.name for p in logs.iterdir() if p.is_dir() and p.name.rpartition("-")[0].split(".")[0] == topic)


def live_directories(cluster: Cluster, node: int, topic: str) -> list[str]:
    return [name for name in directories(cluster, node, topic) if not name.endswith("-delete")]


def topic_id(cluster: Cluster, node: int, partition: str) -> str:
    return (
        (Path(cluster.node(node).log_directory) / partition / "partition.metadata").read_text().split("topic_id: ")[1]
    )


def delete(cluster: Cluster, *topics: str) -> None:
    admin = cluster.admin()
    for answer in admin.delete_topics(list(topics), operation_timeout=30).values():
        answer.result()


@pytest.fixture
def znodes(own_cluster: Cluster) -> Iterator[KazooClient]:
    with kazoo_client(own_cluster.zookeeper.connect_string) as client:
        yield client


def wait_until_no_trace(cluster: Cluster, znodes: KazooClient, topic: str) -> None:
    paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
    cluster.wait_until(f"no znode of {topic} is left", lambda: not any(znodes.exists(p) for p in paths), 15)


def test_librdkafka_creates_topics_adds_partitions_and_deletes_topics(
    own_cluster: Cluster, znodes: KazooClient
) -> None:
    cluster = own_cluster
    cluster.create_topic("orders", 2, 3)
    admin = cluster.admin()
    with pytest.raises(KafkaException) as again:
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

    admin.create_partitions([NewPartitions("orders", 4, [[1, 2, 3], [2, 3, 1]])], request_timeout=30)["orders"].result()
    cluster.wait_until_in_sync("orders", 4, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    failures: list[object] = []
    for partition in range(4):
        producer.produce(
            "orders", b"x", partition=partition, on_delivery=lambda e, _: failures.append(e) if e else None
        )
    assert producer.flush(30) == 0
    assert not failures

    delete(cluster, "orders")
    assert "orders" not in cluster.metadata().topics
    wait_until_no_trace(cluster, znodes, "orders")
    for node in (1, 2, 3):
        assert not live_directories(cluster, node, "orders")
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics(["orders"])["orders"].result()
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_recreated_right_after_deletion_has_a_new_topic_id_and_no_old_records(
    own_cluster: Cluster, znodes: KazooClient
) -> None:
    cluster = own_cluster
    cluster.create_topic("phoenix", 3, 3)
    before = {node: topic_id(cluster, node, "phoenix-0") for node in (1, 2, 3)}

    delete(cluster, "phoenix")
    wait_until_no_trace(cluster, znodes, "phoenix")
    cluster.create_topic("phoenix", 3, 3)

    after = {node: topic_id(cluster, node, "phoenix-0") for node in (1, 2, 3)}
    assert len(set(after.values())) == 1
    assert not set(after.values()) & set(before.values())


def test_kafka_topics_tool_creates_describes_alters_and_deletes_topics(
    own_cluster: Cluster, znodes: KazooClient
) -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)

    def run(*words: str) -> str:
        return kafka_tools().run(own_cluster.bootstrap, "kafka-topics", *words)

    created = run("--create", "--topic", "tool", "--partitions", "2", "--replication-factor", "3",
                  "--config", "retention.ms=60000")  # fmt: skip
    assert created.strip() == "Created topic tool."
    run("--alter", "--topic", "tool", "--partitions", "3")
    own_cluster.wait_until_in_sync("tool", 3, 3)
    described = run("--describe", "--topic", "tool")
    assert "PartitionCount: 3\tReplicationFactor: 3\tConfigs: retention.ms=60000" in described
    assert described.count("Isr: ") == 3
    assert "tool" in run("--list").split()

    run("--delete", "--topic", "tool")
    wait_until_no_trace(own_cluster, znodes, "tool")
    assert "tool" not in run("--list").split()


@pytest.fixture(params=["klamm", "apache"])
def returning(request: pytest.FixtureRequest) -> Command:
    """Whose broker comes back after its topics were deleted."""
    if request.param == "apache":
        if why := apache_kafka.why_missing():
            pytest.skip(why)
        return apache_kafka.broker()
    return klamm_node


def test_a_topic_deletion_completes_without_a_dead_broker_that_deletes_its_replicas_on_return(
    own_cluster: Cluster, znodes: KazooClient, returning: Command
) -> None:
    """One of its two topics was made again meanwhile: its replica there begins anew, with the new topic's records."""
    cluster, node = own_cluster, own_cluster.node(3)
    cluster.create_topic("gone", 2, 3)
    cluster.create_topic("again", 1, 3)
    old_id = topic_id(cluster, 3, "again-0")
    node.kill()
    cluster.wait_until_forgotten(3)

    delete(cluster, "gone", "again")
    wait_until_no_trace(cluster, znodes, "gone")
    wait_until_no_trace(cluster, znodes, "again")
    assert len(live_directories(cluster, 3, "gone")) == 2
    admin = cluster.admin()
    admin.create_topics([NewTopic("again", 1, replica_assignment=[[1, 2, 3]])], request_timeout=30)["again"].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    producer.produce("again", b"kept", partition=0)
    assert producer.flush(30) == 0

    node.command = returning
    node.start()
    try:
        cluster.wait_until_in_sync("again", 1, 3)
        cluster.wait_until("node 3 holds nothing of the deleted topics",
                           lambda: not live_directories(cluster, 3, "gone"), 30)  # fmt: skip
        assert topic_id(cluster, 3, "again-0") == topic_id(cluster, 1, "again-0") != old_id
        cluster.wait_until(
            "nothing is pending deletion", lambda: not znodes.get_children("/klamm/pending_deletions/3"), 30
        )
    finally:
        if returning is not klamm_node:
            node.stop()
            node.command = klamm_node
            node.start()
    cluster.wait_until_in_sync("again", 1, 3)
    delete(cluster, "again")
