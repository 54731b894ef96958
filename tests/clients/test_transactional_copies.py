"""Exactly-once copies by Java (3.9, 4), kafkajs and three Python clients, while the client and a broker are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients.test_transactions import PARTITIONS, consumed, coordinator_id
from tests.support.cluster import Cluster
from tests.support.foreign_clients import FOREIGN_CLIENTS, PYTHON_CLIENTS, ClientProcess, command
from tests.support.transactional_copier import UNCERTAIN

from klamm.embedded.nodes import Command

RECORDS = 240


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that tests may kill; a dead one is noticed after two seconds."""
    overrides = {
        "zookeeper.session.timeout.ms": "2000",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": str(PARTITIONS),
        "group.min.session.timeout.ms": "1000",
    }
    with Cluster(tmp_path_factory.mktemp("copies"), command=node_command, overrides=overrides) as running:
        yield running


class Copier:
    """The process that copies; each has the group and the transactional id of the one before."""

    def __init__(self, directory: Path, cluster: Cluster, library: str, source: str, target: str) -> None:
        self._directory = directory
        self._words = command(library, "copy", cluster.bootstrap, source, source, target, f"copy-{source}")
        self._cluster = cluster
        self._started: list[ClientProcess] = []

    def start(self) -> None:
        self._started.append(ClientProcess(self._directory, f"copier-{len(self._started)}", self._words))

    @property
    def transactions(self) -> int:
        """How many transactions all processes together have committed."""
        return sum(len(process.events("copied")) for process in self._started)

    def wait_for_transactions(self, count: int) -> None:
        """Wait until so many transactions are committed; a client that cannot go on is started again."""

        def copies() -> bool:
            if self._started[-1].exit_status == UNCERTAIN:
                self.start()
            assert self._started[-1].exit_status is None, self._started[-1].errors
            return self.transactions >= count

        try:
            self._cluster.wait_until(f"{self._started[-1].name} commits: {count} transactions", copies)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- {self._started[-1].name}\n{self._started[-1].errors}") from None

    def kill(self) -> None:
        self._started[-1].kill()


@pytest.mark.parametrize("library", [*FOREIGN_CLIENTS, *PYTHON_CLIENTS])
def test_a_transactional_copy_stays_exactly_once_while_copier_and_coordinator_are_killed(
    cluster: Cluster, library: str, tmp_path: Path, own_name: str, client_rounds: int
) -> None:
    if library != "java-4" and client_rounds == 1:
        pytest.skip("`make prove` runs it; Kafka Streams uses the transactions of Java 3.9 in each run")
    source = own_name[-60:].strip("-")
    target = f"{source}-target"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    copier = Copier(tmp_path, cluster, library, source, target)
    values: list[str] = []

    def produce_and_wait() -> None:
        """Produce a batch, and wait until some of it is copied."""
        before, first = copier.transactions, len(values)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(first, first + RECORDS):
            values.append(f"{number:06}")
            producer.produce(source, values[-1].encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        copier.wait_for_transactions(before + 1)

    copier.start()
    try:
        for _ in range(client_rounds):
            produce_and_wait()
            copier.kill()
            copier.start()
            produce_and_wait()
            node = cluster.node(coordinator_id(cluster, f"copy-{source}"))
            node.kill()
            produce_and_wait()
            node.restart()
            cluster.wait_until_complete()
            assert consumed(cluster, target, len(values), timeout_s=60) == sorted(values)
    finally:
        copier.kill()
        cluster.repair()
