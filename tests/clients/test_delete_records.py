"""DeleteRecords on real nodes: confluent-kafka's AdminClient, Apache Kafka's tool, consumers, and a restart."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

TOPIC = "orders"
RECORDS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(Path(tmp_path_factory.mktemp("deletion")), 2) as running:
        running.create_topic(TOPIC, 2, 2)
        running.create_topic("compacted", 1, 2, {"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", "log_level": 0})
        for number in range(RECORDS):
            for topic, partition_count in ((TOPIC, 2), ("compacted", 1)):
                for number_of in range(partition_count):
                    producer.produce(topic, b"%d" % number, b"key", partition=number_of)
        assert producer.flush(30) == 0
        yield running


def delete(cluster: Cluster, partition_number: int, offset: int, topic: str = TOPIC) -> int:
    """Delete records through the AdminClient; the low watermark."""
    admin = cluster.admin()  # it must outlive the answer
    request = TopicPartition(topic, partition_number, offset)
    return int(admin.delete_records([request])[request].result().low_watermark)


def first_offset(cluster: Cluster, partition_number: int, broker: int | None = None) -> int:
    """The log start offset that consumers see, from any broker or from the leader if it is this one."""
    bootstrap = cluster.bootstrap if broker is None else cluster.node(broker).address
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, partition_number), timeout=10)[0])
    finally:
        consumer.close()


def test_the_log_start_offset_set_by_delete_records_survives_leader_changes_and_restarts(cluster: Cluster) -> None:
    assert delete(cluster, 0, 4) == 4
    assert first_offset(cluster, 0) == 4

    for broker in (1, 2):
        cluster.node(broker).stop()
        other = 3 - broker
        cluster.wait_until("the other broker has the same log start", lambda b=other: first_offset(cluster, 0, b) == 4)  # type: ignore[misc]
        cluster.node(broker).start()
        cluster.wait_until_in_sync(TOPIC, 2, 2)
    assert first_offset(cluster, 0) == 4


def test_delete_records_is_refused_beyond_the_log_end_and_for_a_compacted_topic(cluster: Cluster) -> None:
    for call, error in (
        (partial(delete, cluster, 0, RECORDS + 1), KafkaError.OFFSET_OUT_OF_RANGE),
        (partial(delete, cluster, 0, 1, "compacted"), KafkaError.POLICY_VIOLATION),
    ):
        with pytest.raises(KafkaException) as refused:
            call()
        assert refused.value.args[0].code() == error


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_kafka_delete_records_tool_deletes_up_to_the_high_watermark(cluster: Cluster, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 1, "offset": -1}], "version": 1}))

    said = kafka_tools().run(cluster.bootstrap, "kafka-delete-records", "--offset-json-file", str(offsets))

    assert f"partition: {TOPIC}-1\tlow_watermark: {RECORDS}" in said
    assert first_offset(cluster, 1) == RECORDS
