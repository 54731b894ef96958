"""Compacted topics on real nodes: a reader from the beginning ends with the last value of each key."""

import itertools

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.support.cluster import Cluster
from tests.support.stored_batches import cleaned_up_to

KEYS = 50
ROUNDS = 40
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}


def set_backoff(cluster: Cluster, backoff_ms: int | None) -> None:
    """Change the cleaner's pause on all brokers, while they run; None removes the change."""
    for node in cluster.nodes:
        operation = AlterConfigOpType.DELETE if backoff_ms is None else AlterConfigOpType.SET
        entry = ConfigEntry("log.cleaner.backoff.ms", str(backoff_ms or ""), incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node.broker_id), incremental_configs=[entry])
        admin = cluster.admin()  # it must outlive the answer
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()


def read_all(cluster: Cluster, topic: str, end: int) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of every record."""
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while not found or found[-1][0] < end - 1:
        message = consumer.poll(30)
        assert message is not None, f"nothing after offset {found[-1][0] if found else 0} of {end}"
        assert message.error() is None, message.error()
        offset, key = message.offset(), message.key()
        assert offset is not None
        assert key is not None
        found.append((offset, key, message.value()))
    consumer.close()
    return found


def test_a_compacted_topic_keeps_the_last_value_of_each_key_on_every_replica(cluster: Cluster) -> None:
    topic = "compaction"
    cluster.create_topic(topic, 1, copies=3, config=CONFIG)
    set_backoff(cluster, 50)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for number, key in itertools.product(range(ROUNDS), range(KEYS)):
        producer.produce(topic, key=f"key-{key}", value=f"{number}-{key}-".ljust(100, "x"), partition=0)
        if key == KEYS - 1:
            assert producer.flush(30) == 0
    end = ROUNDS * KEYS

    for node in cluster.nodes:
        cluster.wait_until(
            f"{node.name} has compacted most of {topic}",
            lambda directory=node.log_directory: cleaned_up_to(directory, topic) > end * 0.8,  # type: ignore[misc]
        )

    found = read_all(cluster, topic, end)
    last = {key: value for _, key, value in found}
    assert last == {f"key-{key}".encode(): f"{ROUNDS - 1}-{key}-".ljust(100, "x").encode() for key in range(KEYS)}
    assert len(found) < end / 2
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    set_backoff(cluster, None)
