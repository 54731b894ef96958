"""`klamm replicas verify` on running nodes under load: no false alarm, by Fetch and from their log directories."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster
from typer.testing import CliRunner

from klamm.cli.app import app

CONFIGS = {
    "verified": {"segment.bytes": "20000"},
    "verified-keys": {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"},
}


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Records are written to the topics as long as the block runs."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "acks": "all"})
    is_over, errors = threading.Event(), []

    def write() -> None:
        number = 0
        while not is_over.wait(0.01):
            for topic in CONFIGS:
                for _ in range(20):
                    number += 1
                    producer.produce(topic, b"value %d" % number, b"%d" % (number % 50), number % 3)
            producer.poll(0)
        errors.append(producer.flush(60))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert errors == [0]


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> list[str]:
    for topic, config in CONFIGS.items():
        cluster.create_topic(topic, 3, copies=3, config=config)
    return [word for topic in CONFIGS for word in ("--topic", topic)]


@pytest.mark.parametrize("source", ["brokers", "log directories"])
def test_replicas_of_a_cluster_under_load_are_equal(cluster: Cluster, topics: list[str], source: str) -> None:
    dirs = ",".join(node.log_directory for node in cluster.nodes)
    where = ["-b", cluster.bootstrap] if source == "brokers" else ["--log-dirs", dirs]
    with load(cluster):
        cluster.wait_until("high watermarks are checkpointed", lambda: _verify(*where, *topics).exit_code == 0)
        for _ in range(5):
            done = _verify(*where, *topics)
            assert "of them differ" not in done.output, done.output
            assert "6 partitions with" in done.output


def _verify(*arguments: str):  # type: ignore[no-untyped-def]  # typer's result type is click's, which has moved
    return CliRunner().invoke(app, ["replicas", "verify", *arguments])


def test_a_broker_that_stops_just_now_is_reported_once_as_not_compared(cluster: Cluster, topics: list[str]) -> None:
    cluster.nodes[2].stop()
    try:
        done = _verify("-b", cluster.bootstrap, *topics)  # other brokers may not know yet that it stopped
        assert done.output.count("broker 3: it is not running") == 1, done.output
        assert done.output.count("ot compared") == 1, done.output
        assert done.exit_code == 1
    finally:
        cluster.nodes[2].start()
        cluster.nodes[2].wait_until_listening()
        cluster.wait_until("broker 3 is back", lambda: len(cluster.metadata().brokers) == 3)
