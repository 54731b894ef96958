"""Clients learn a new leader from the error of Produce or Fetch (KIP-951), without a wait for metadata.

Their logs name the leader that they took from a response. The Java producer waits BACKOFF_MS before it retries, longer
than the test takes, unless a response names the current leader; librdkafka and the Java consumer wait in both cases.
"""

import json
import logging
import queue
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from tests.support import apache_kafka, foreign_clients
from tests.support.cluster import Cluster

from klamm.cli.admin.elections import ElectionType, elect
from klamm.cli.admin.reassignments import reassign
from klamm.model.ids import BrokerId, TopicPartition

BACKOFF_MS = 250_000
ANSWER_S = 60.0
MOST_ROUND_TRIPS = 5
"""librdkafka asks for metadata at other times, too, and may learn of a move by it: then the leader moves again."""
FIRST, SECOND = BrokerId(1), BrokerId(2)


def move_leader(cluster: Cluster, partition: TopicPartition, leader: BrokerId, other: BrokerId) -> None:
    """Make this replica the preferred one and elect it; wait until all nodes name it as the leader."""

    def is_known() -> bool:
        states = [cluster.describe([partition.topic], node) for node in cluster.nodes]
        return all(s.topics[partition.topic].partitions[partition.partition].leader == leader for s in states)

    def is_in_sync() -> bool:
        """Only an in-sync replica can be elected; the assignment may be new."""
        now = cluster.describe([partition.topic], cluster.nodes[0]).topics[partition.topic]
        return leader in now.partitions[partition.partition].isr

    cluster.ask(lambda admin: reassign(admin, {partition: (leader, other)}))
    cluster.wait_until(f"node {leader} is in the ISR of {partition}", is_in_sync)
    cluster.ask(lambda admin: elect(admin, ElectionType.PREFERRED, [partition]))
    cluster.wait_until(f"all nodes name node {leader} as the leader of {partition}", is_known)


@pytest.fixture
def partition(cluster: Cluster, own_name: str) -> TopicPartition:
    """The partition of a topic of the test's own, with replicas on nodes 1 and 2; node 1 leads."""
    cluster.create_topic(own_name, 1, 2)
    created = TopicPartition(own_name, 0)
    cluster.ask(lambda admin: reassign(admin, {created: (FIRST, SECOND)}))
    cluster.wait_until_in_sync(own_name, 1, 2)
    move_leader(cluster, created, FIRST, SECOND)
    return created


class JavaRelay:
    """A Java client that produces each value that it is given, and reads it back."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))

    def send(self, value: str) -> None:
        """Wait until the client has produced and read this value. Raises queue.Empty if it does not in time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{value}\n")
        self._process.stdin.flush()
        for event in ("produced", "read"):
            happened = self._events.get(timeout=ANSWER_S)
            assert (happened["event"], happened["value"]) == (event, value)

    def close(self) -> None:
        self._process.kill()
        self._reader.join()
        self._process.communicate()
        self._log.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the client logs."""
    return tmp_path / "client.log"


@pytest.fixture
def relay(cluster: Cluster, partition: TopicPartition, log: Path, tmp_path: Path) -> Iterator[JavaRelay]:
    """Kafka's Java client 4, which logs each change of its metadata."""
    log4j = tmp_path / "log4j.properties"
    log4j.write_text(f"{apache_kafka.LOGGING}log4j.logger.org.apache.kafka.clients.Metadata=DEBUG\n")
    words = foreign_clients.command("java-4", "relay", cluster.bootstrap, partition.topic, str(BACKOFF_MS))
    option = "-Dlog4j.configuration=file:"
    running = JavaRelay([f"{option}{log4j}" if w.startswith(option) else w for w in words], log)
    yield running
    running.close()


def test_the_java_producer_and_consumer_take_the_new_leader_from_an_error_response(
    cluster: Cluster, partition: TopicPartition, relay: JavaRelay, log: Path
) -> None:
    relay.send("before")

    move_leader(cluster, partition, SECOND, FIRST)
    relay.send("after")

    updates = [line for line in log.read_text().splitlines() if "updating leader information" in line]
    assert {line.split("[")[1].split()[0] for line in updates} == {"Producer", "Consumer"}


def librdkafka_logger(log: Path) -> logging.Logger:
    """A logger for librdkafka that writes to this file."""
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(logging.FileHandler(log))
    return logger


def test_a_librdkafka_producer_and_consumer_take_the_new_leader_from_an_error_response(
    cluster: Cluster, partition: TopicPartition, tmp_path: Path
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap, "debug": "metadata"}
    logs = {name: tmp_path / f"{name}.log" for name in ("producer", "consumer")}
    producer = Producer({**config, "acks": "all"}, logger=librdkafka_logger(logs["producer"]))
    consumer = Consumer({**config, "group.id": partition.topic}, logger=librdkafka_logger(logs["consumer"]))
    consumer.assign([ClientPartition(partition.topic, 0, 0)])

    def relay(value: bytes) -> None:
        producer.produce(partition.topic, value, partition=0)
        assert producer.flush(ANSWER_S) == 0
        message = consumer.poll(ANSWER_S)
        assert message is not None
        assert message.value() == value

    def without_news() -> set[str]:
        """The clients that have not logged yet that they took a leader from an error response."""
        return {name for name, log in logs.items() if ": updated with leader " not in log.read_text()}

    relay(b"before")
    for move, (leader, other) in enumerate([(SECOND, FIRST), (FIRST, SECOND)] * MOST_ROUND_TRIPS):
        move_leader(cluster, partition, leader, other)
        relay(f"after move {move}".encode())
        producer.poll(0)  # logs what is queued
        consumer.poll(0)
        if not without_news():
            break
    consumer.close()

    assert not without_news()
