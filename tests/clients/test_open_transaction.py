"""A log directory of Apache Kafka with an open transaction is taken over: its own tool finds and aborts it on klamm."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assignment
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

from klamm.audit.snapshot import OpenTransaction, take_snapshot
from klamm.audit.transactions import check_transactions
from klamm.embedded.nodes import klamm_node
from klamm.model.ids import TopicPartition
from klamm.runtime.processes import ticks

TOPIC = "orders"
ONE_COPY = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


def transactions(cluster: Cluster, *arguments: str) -> str:
    return kafka_tools().run(cluster.bootstrap, "kafka-transactions", *arguments)


def open_transactions(cluster: Cluster) -> list[str]:
    """The start offsets that the tool names."""
    table = transactions(cluster, "describe-producers", "--topic", TOPIC, "--partition", "0").splitlines()
    starts = [line.split()[-1] for line in table[1:]]
    return [start for start in starts if start != "None"]


def audited(cluster: Cluster) -> list[OpenTransaction]:
    """What `klamm audit` hears of the leaders."""
    check = check_transactions(take_snapshot(cluster.zookeeper.connect_string, 30), 30)
    assert check.not_checked == {}
    return check.open


def committed(cluster: Cluster, timeout_s: float) -> bytes | None:
    """The first record that a read_committed consumer gets within the time."""
    settings = {"group.id": "g", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([Assignment(TOPIC, 0, 0)])
    try:
        for _ in ticks(timeout_s, 0):
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                return message.value()
        return None
    finally:
        consumer.close()


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_kafkas_tool_aborts_an_open_transaction_in_a_log_that_apache_kafka_wrote(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, command=apache_kafka.broker(), overrides=ONE_COPY)
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, 1)
        client = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        producer = Producer({**client, "transactional.id": "abandoned"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(TOPIC, b"undecided")
        producer.flush(30)
        other = Producer(client)
        other.produce(TOPIC, b"behind")
        other.flush(30)
        (node,) = cluster.nodes
        apache_kafka.wait_until_started(node)
        node.stop()
        node.command = klamm_node
        node.start()
        node.wait_until_listening()
        cluster.wait_until_in_sync(TOPIC, 1, 1)

        assert committed(cluster, 2) is None
        assert open_transactions(cluster) == ["0"]
        assert [(t.partition, t.start_offset) for t in audited(cluster)] == [(TopicPartition(TOPIC, 0), 0)]
        transactions(cluster, "abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "0")

        assert open_transactions(cluster) == []
        assert audited(cluster) == []
        assert committed(cluster, 30) == b"behind"
    finally:
        cluster.kill()
