"""Configs changed while nodes run, with Apache Kafka's own tool, and felt by clients at once."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

needs_kafka = pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(Path(tmp_path_factory.mktemp("configs")), 2) as running:
        running.create_topic("orders", 1, 2)
        yield running


def configs(cluster: Cluster, *arguments: str) -> str:
    return kafka_tools().run(cluster.bootstrap, "kafka-configs", *arguments).strip()


def largest_batch_on(cluster: Cluster, broker: int, topic: str) -> str:
    resource = ConfigResource("topic", topic)
    admin = cluster.admin(cluster.node(broker))  # it must outlive the answer
    return str(admin.describe_configs([resource])[resource].result()["max.message.bytes"].value)


def produce(cluster: Cluster, size: int) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 5_000_000, "log_level": 0})
    producer.produce("orders", b"x" * size, b"key", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(20)
    return errors[0]


@needs_kafka
def test_a_topic_config_set_by_kafkas_tool_applies_from_the_next_produced_batch(cluster: Cluster) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    assert produce(cluster, 5_000) is None

    said = configs(cluster, *topic, "--alter", "--add-config", "max.message.bytes=1000,cleanup.policy=[compact,delete]")

    assert said == "Completed updating config for topic orders."
    assert "max.message.bytes=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=1000," in configs(
        cluster, *topic, "--describe"
    )
    cluster.wait_until("a large batch is refused", lambda: produce(cluster, 5_000) is not None)
    error = produce(cluster, 5_000)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    configs(cluster, *topic, "--alter", "--delete-config", "max.message.bytes")

    cluster.wait_until("a large batch is taken", lambda: produce(cluster, 5_000) is None)


@needs_kafka
def test_cluster_defaults_set_by_kafkas_tool_apply_to_topics_and_survive_a_restart(cluster: Cluster) -> None:
    defaults = ("--entity-type", "brokers", "--entity-default")
    configs(cluster, *defaults, "--alter", "--add-config", "message.max.bytes=2000")
    configs(cluster, "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "num.io.threads=12")

    assert configs(cluster, *defaults, "--describe").splitlines()[1:] == [
        "  message.max.bytes=2000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000}"
    ]
    assert configs(cluster, "--entity-type", "brokers", "--entity-name", "1", "--describe").splitlines()[1:] == [
        "  num.io.threads=12 sensitive=false synonyms="
        "{DYNAMIC_BROKER_CONFIG:num.io.threads=12, DEFAULT_CONFIG:num.io.threads=8}"
    ]
    logs = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "  root=INFO sensitive=false synonyms={}" in configs(cluster, *logs, "--describe").splitlines()
    configs(cluster, *logs, "--alter", "--add-config", "config=ERROR")
    assert "  config=ERROR sensitive=false synonyms={}" in configs(cluster, *logs, "--describe").splitlines()
    configs(cluster, *logs, "--alter", "--delete-config", "config")
    assert "  config=INFO sensitive=false synonyms={}" in configs(cluster, *logs, "--describe").splitlines()

    def has_largest_batch(broker: int) -> bool:
        return largest_batch_on(cluster, broker, "orders") == "2000"

    for broker in (1, 2):
        cluster.wait_until(f"node {broker} knows", partial(has_largest_batch, broker))
    cluster.wait_until("a large batch is refused", lambda: produce(cluster, 5_000) is not None)

    cluster.node(2).stop()
    cluster.node(2).start()
    cluster.node(2).wait_until_listening()

    assert largest_batch_on(cluster, 2, "orders") == "2000"


def test_altering_a_config_that_is_not_dynamic_fails_with_an_error_naming_the_config(cluster: Cluster) -> None:
    resource = ConfigResource("broker", "1", set_config={"broker.rack": "a"})
    admin = cluster.admin()
    with pytest.raises(KafkaException) as refused:
        admin.alter_configs([resource])[resource].result()

    error = refused.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST
    assert "Cannot update these configs dynamically: broker.rack" in error.str()
