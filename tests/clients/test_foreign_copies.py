"""Exactly-once copies by Kafka's Java client (3.9, 4) and kafkajs, while the client and a broker are killed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients.test_transactions import PARTITIONS, consumed, coordinator_id
from tests.support.cluster import Cluster
from tests.support.foreign_clients import FOREIGN_CLIENTS, ClientProcess, command

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


class Copiers:
    """The processes that copy, one after another, with the same group and transactional id."""

    def __init__(self, directory: Path, cluster: Cluster, library: str, source: str, target: str) -> None:
        self._directory = directory
        self._words = command(library, "copy", cluster.bootstrap, source, source, target, f"copy-{source}")
        self._cluster = cluster
        self.started: list[ClientProcess] = []

    def start(self) -> ClientProcess:
        copier = ClientProcess(self._directory, f"copier-{len(self.started)}", self._words)
        self.started.append(copier)
        return copier

    def wait_until_it_copies(self, copier: ClientProcess, transactions: int = 1) -> None:
        """Wait until this copier has committed so many transactions."""

        def copies() -> bool:
            assert copier.exit_status is None, f"ended with {copier.exit_status}: {copier.errors}"
            return len(copier.events("copied")) >= transactions

        try:
            self._cluster.wait_until(f"{copier.name} commits {transactions} transactions", copies)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- {copier.name}\n{copier.errors}") from None

    def kill(self) -> None:
        for copier in self.started:
            copier.kill()


@pytest.mark.parametrize("library", FOREIGN_CLIENTS)
def test_each_record_is_copied_once_while_copier_and_coordinator_are_killed(
    cluster: Cluster, library: str, tmp_path: Path, request: pytest.FixtureRequest, client_rounds: int
) -> None:
    source = re.sub(r"[^a-z0-9-]", "-", request.node.name)[-60:].strip("-")
    target = f"{source}-target"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    copiers = Copiers(tmp_path, cluster, library, source, target)
    values: list[str] = []

    def produce(batch: int) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(RECORDS):
            values.append(f"{batch:04}-{number:04}")
            producer.produce(source, values[-1].encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    try:
        for batch in range(client_rounds):
            produce(2 * batch)
            copier = copiers.start()
            copiers.wait_until_it_copies(copier)
            copier.kill()
            copier = copiers.start()
            copiers.wait_until_it_copies(copier)
            node = cluster.node(coordinator_id(cluster, f"copy-{source}"))
            node.kill()
            before = len(copier.events("copied"))
            produce(2 * batch + 1)
            copiers.wait_until_it_copies(copier, before + 1)
            node.restart()
            cluster.wait_until_complete()
            found = consumed(cluster, target, len(values), timeout_s=60)
            assert found == sorted(values)
            copier.kill()
    finally:
        copiers.kill()
        cluster.repair()
