"""A Kafka Streams application (exactly_once_v2) that counts with a state store, while it and a broker are killed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.foreign_clients import ClientProcess

from klamm.embedded.nodes import Command

PARTITIONS = 2
KEYS = 7
BATCH = 200
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that the test may kill; a dead one is noticed after two seconds."""
    if why := apache_kafka.why_missing(apache_kafka.STREAMS):
        pytest.skip(why)
    overrides = {
        "zookeeper.session.timeout.ms": "2000",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
    }
    with Cluster(tmp_path_factory.mktemp("streams"), command=node_command, overrides=overrides) as running:
        yield running


class Application:
    """One instance of the application at a time, with its state on disk."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self._directory = directory
        self._cluster = cluster
        self.instances: list[ClientProcess] = []

    def start(self) -> ClientProcess:
        state = self._directory / f"state-{len(self.instances)}"  # another machine: the store comes from the changelog
        words = apache_kafka.program(
            "CountingStreams", apache_kafka.STREAMS, self._cluster.bootstrap, "counter", "words", "counts", str(state)
        )
        instance = ClientProcess(self._directory, f"instance-{len(self.instances)}", words)
        self.instances.append(instance)
        return instance

    def kill(self) -> None:
        for instance in self.instances:
            instance.kill()


def produce(cluster: Cluster, expected: Counter[str], first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + BATCH):
        key = f"key-{number % KEYS}"
        expected[key] += 1
        producer.produce("words", str(number).encode(), key=key.encode())
    assert producer.flush(60) == 0


class Counts:
    """The newest committed count of each key; a count that does not grow is an error."""

    def __init__(self, cluster: Cluster) -> None:
        config = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition("counts", p, 0) for p in range(PARTITIONS)])
        self.newest: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        for message in self._consumer.consume(1_000, 0.3):
            if message.error() is None:
                key, count = (message.key() or b"").decode(), int(message.value() or b"0")
                assert count > self.newest[key], f"{key}: {count} after {self.newest[key]}"
                self.newest[key] = count
        return self.newest

    def close(self) -> None:
        self._consumer.close()


def test_kafka_streams_counts_stay_exact_while_the_application_and_a_broker_are_killed(
    cluster: Cluster, tmp_path: Path, client_rounds: int
) -> None:
    for topic in ("words", "counts"):
        cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    application, counts, expected = Application(tmp_path, cluster), Counts(cluster), Counter[str]()
    produced = 0

    def wait_until_counted() -> None:
        def all_are_counted() -> bool:
            assert application.instances[-1].exit_status is None, application.instances[-1].errors
            return counts.read() == expected

        what = f"{sum(expected.values())} records are counted, now {sum(counts.newest.values())}"
        try:
            cluster.wait_until(what, all_are_counted, TIMEOUT_S)
        except AssertionError as error:
            output = application.instances[-1].output_path.read_text()[-2000:]
            raise AssertionError(f"{error}\n{counts.newest}\n{output}\n{application.instances[-1].errors}") from None

    try:
        application.start()
        for _ in range(client_rounds):
            produce(cluster, expected, produced)
            wait_until_counted()
            application.instances[-1].kill()
            produce(cluster, expected, produced + BATCH)
            application.start()
            node = cluster.node(cluster.partition_state("counter-counts-changelog").leader)
            node.kill()
            produced += 2 * BATCH
            wait_until_counted()
            cluster.repair()
    finally:
        application.kill()
        counts.close()
        cluster.repair()
