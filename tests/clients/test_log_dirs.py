"""A log directory of a node fails: other nodes lead its partitions; after a repair the node has its replicas again."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
TOPIC = "orders"
PARTITIONS = 6


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    directory = tmp_path / "failing"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "klamm-test", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted here, so no directory fails")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> None:
    """Leave no byte free: every write that needs room fails from here on."""
    with open(directory / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(b"x" * 4096):
            pass


def produce_everywhere(cluster: Cluster) -> list[str]:
    """One record to each partition, for all replicas in sync; errors in words."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(
            TOPIC,
            b"x" * 5_000,
            partition=partition,
            on_delivery=lambda error, _m: errors.append(str(error)) if error else None,
        )
    producer.flush(30)
    return errors


def directories(cluster: Cluster, broker: int) -> dict[str, Any]:
    """What kafka-log-dirs prints of one broker, by directory."""
    said = kafka_tools().run(
        cluster.bootstrap, "kafka-log-dirs", "--describe", "--broker-list", str(broker), "--topic-list", TOPIC
    )
    printed = json.loads(said.splitlines()[-1])
    return {d["logDir"]: d for d in printed["brokers"][0]["logDirs"]}


def partitions(directory: dict[str, Any]) -> set[str]:
    return {p["partition"] for p in directory["partitions"]}


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_partitions_on_a_failed_log_directory_get_other_leaders_and_return_after_its_repair(
    failing_disk: Path, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "cluster", 2, overrides={"log.index.size.max.bytes": "65536"})
    good, bad = str(tmp_path / "good"), str(failing_disk / "logs")
    cluster.node(1).properties["log.dirs"] = f"{good},{bad}"
    try:
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 2)
        assert produce_everywhere(cluster) == []
        before = directories(cluster, 1)
        assert {d: len(found["partitions"]) for d, found in before.items()} == {good: 3, bad: 3}
        assert all(p["size"] > 0 and p["offsetLag"] == 0 for p in before[bad]["partitions"])

        fill(failing_disk)
        lost = {p.rpartition("-")[2] for p in partitions(before[bad])}

        cluster.wait_until("every partition takes records", lambda: produce_everywhere(cluster) == [])

        def led_by_the_other() -> bool:
            found = cluster.metadata(cluster.node(2)).topics[TOPIC].partitions
            return all((found[int(p)].leader, found[int(p)].isrs) == (2, [2]) for p in lost)

        cluster.wait_until("what lay there is led elsewhere, alone", led_by_the_other)
        after = directories(cluster, 1)
        assert after[bad]["error"] == STORAGE_ERROR
        assert {p["partition"] for p in after[good]["partitions"]} == {
            p["partition"] for p in before[good]["partitions"]
        }

        (failing_disk / "ballast").unlink()
        cluster.node(1).stop()
        cluster.node(1).start()
        cluster.wait_until_in_sync(TOPIC, PARTITIONS, 2)
        assert len(directories(cluster, 1)[bad]["partitions"]) == 3
    finally:
        cluster.kill()


def test_the_controller_journal_continues_in_another_log_directory_after_its_own_failed(
    failing_disk: Path, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "cluster", 2, overrides={"log.index.size.max.bytes": "65536"})
    good, bad = tmp_path / "good", failing_disk / "logs"
    cluster.node(1).properties["log.dirs"] = f"{bad},{good}"
    try:
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 2)
        assert produce_everywhere(cluster) == []
        assert list(bad.glob("klamm-journal-1-*"))
        fill(failing_disk)
        cluster.wait_until("every partition takes records", lambda: produce_everywhere(cluster) == [])

        cluster.node(2).kill()

        def has_elected() -> bool:
            told = b"".join(path.read_bytes() for path in good.glob("klamm-journal-1-*"))
            return b'"event":"BrokerChange"' in told or b'"kind":"decision"' in told

        cluster.wait_until("node 1 is controller, and writes what it does", has_elected)
    finally:
        cluster.kill()
