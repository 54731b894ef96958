"""Transactions whose coordinator is klamm's, then Apache Kafka's, then klamm's again.

Each coordinator goes on with the records that the other one wrote into `__transaction_state`, writes markers to the
other's partitions, and verifies transactions for the other's leaders.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support import apache_kafka
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import KLAMM, MixedCluster

from klamm.runtime.processes import ticks

KAFKA = 1
TOPIC, ID = "orders", "copy"
STATE = "__transaction_state"
STATES = dict.fromkeys(range(1), (KLAMM, KAFKA))
ORDERS = {0: (KAFKA, KLAMM), 1: (KLAMM, KAFKA)}
TIMEOUT_S = 60


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[MixedCluster]:
    """klamm leads the state of transactions; each broker leads one partition that is written."""
    overrides = {"transaction.state.log.num.partitions": "1"}
    cluster = MixedCluster(tmp_path / "cluster", kafka=(KAFKA,), overrides=overrides)
    try:
        cluster.start_first(KLAMM)
        cluster.start_others()
        cluster.create(STATE, STATES, {"cleanup.policy": "compact", "min.insync.replicas": "1"})
        cluster.create(TOPIC, ORDERS)
        yield cluster
    finally:
        cluster.kill()


def run_transaction(producer: Producer, value: str, *, commits: bool = True) -> list[str]:
    """Write the value to both partitions; what committed consumers shall see of it."""
    producer.begin_transaction()
    write(producer, value)
    if commits:
        producer.commit_transaction(TIMEOUT_S)
        return [value, value]
    producer.abort_transaction(TIMEOUT_S)
    return []


def write(producer: Producer, value: str) -> None:
    for partition in ORDERS:
        producer.produce(TOPIC, value.encode(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def committed(mixed: MixedCluster, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": mixed.bootstrap, "group.id": "none", "isolation.level": "read_committed", "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ORDERS])
    values: list[str] = []
    try:
        for _ in ticks(TIMEOUT_S, 0):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(bytes(message.value() or b"").decode())
            if len(values) >= count:
                break
    finally:
        consumer.close()
    return sorted(values)


def test_transaction_coordinators_of_klamm_and_apache_kafka_take_over_transactions_from_each_other(
    mixed: MixedCluster, tools: KafkaTools
) -> None:
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": ID, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    expected = run_transaction(producer, "a") + run_transaction(producer, "b", commits=False)
    producer.begin_transaction()
    write(producer, "c")

    mixed.stop_node(KLAMM)
    mixed.wait_until_forgotten(KLAMM)
    assert mixed.leaders(STATE)[0] == KAFKA
    producer.commit_transaction(TIMEOUT_S)
    expected += ["c", "c", *run_transaction(producer, "d")]
    producer.begin_transaction()
    write(producer, "e")

    mixed.start_node(KLAMM)
    mixed.wait_until_complete()
    mixed.wait_until_in_sync(STATE, 1, 2)
    mixed.wait_until_in_sync(TOPIC, 2, 2)
    tools.run(mixed.bootstrap, "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    mixed.wait_until_right(STATE, STATES)
    mixed.wait_until("klamm coordinates", lambda: mixed.leaders(STATE)[0] == KLAMM)
    producer.commit_transaction(TIMEOUT_S)
    expected += ["e", "e", *run_transaction(producer, "f", commits=False), *run_transaction(producer, "g")]

    assert committed(mixed, len(expected)) == expected
    assert not mixed.complaints(KAFKA)
