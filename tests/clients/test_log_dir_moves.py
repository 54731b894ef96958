"""Replicas move between the log directories of real nodes with Apache Kafka's tools, while records are produced."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.forked_klamm import run_klamm
from tests.support.kafka_tools import KafkaTools, kafka_tools

TOPIC = "orders"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS = 400
BATCH = 10
"""Records in a batch, at most: a move copies whole batches, and one batch of all records would never be throttled."""
RATE = 2_000
"""At this rate the move takes minutes."""


def produce(cluster: Cluster, first: int) -> None:
    """Produce numbered records, all in sync."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "batch.num.messages": BATCH}
    )
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, b"%d" % number + b"x" * 1_000, partition=0)
    assert producer.flush(30) == 0


def consume(cluster: Cluster, count: int) -> list[int]:
    """The numbers of the first records."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[int] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=20)
            assert messages, f"{len(found)} of {count} records"
            found += [int(bytes(m.value() or b"").rstrip(b"x")) for m in messages]
        return found
    finally:
        consumer.close()


def replicas_by_directory(cluster: Cluster, tools: KafkaTools) -> dict[str, list[tuple[str, bool]]]:
    """What kafka-log-dirs prints of broker 1: partitions and whether they are future replicas, by directory."""
    said = tools.run(cluster.bootstrap, "kafka-log-dirs", "--describe", "--broker-list", "1", "--topic-list", TOPIC)
    printed: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {
        d["logDir"]: [(p["partition"], p["isFuture"]) for p in d["partitions"]]
        for d in printed["brokers"][0]["logDirs"]
    }


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_kafka_reassign_partitions_moves_a_replica_to_another_log_directory_permanently(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "cluster", 2, overrides={"replica.fetch.max.bytes": "20000"})
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    cluster.node(1).properties["log.dirs"] = f"{one},{two}"
    plan = tmp_path / "plan.json"
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, 2)
        produce(cluster, 0)
        tools = kafka_tools()
        (before,) = [d for d, found in replicas_by_directory(cluster, tools).items() if found]
        after = two if before == one else one
        entry = {"topic": TOPIC, "partition": 0, "replicas": [1, 2], "log_dirs": [after, "any"]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        files = ("--reassignment-json-file", str(plan))
        broker = ("--entity-type", "brokers", "--entity-name", "1")
        tools.run(cluster.bootstrap, "kafka-configs", *broker, "--alter", "--add-config", f"{THROTTLE}={RATE}")

        def is_throttled() -> bool:
            return f"{THROTTLE}={RATE}" in tools.run(cluster.bootstrap, "kafka-configs", *broker, "--describe")

        cluster.wait_until("broker 1 knows the throttle", is_throttled)

        tools.run(cluster.bootstrap, "kafka-reassign-partitions", *files, "--execute")
        produce(cluster, RECORDS)
        future = {before: [(f"{TOPIC}-0", False)], after: [(f"{TOPIC}-0", True)]}
        assert replicas_by_directory(cluster, tools) == future
        raised = ("--add-config", f"{THROTTLE}=100000000")
        tools.run(cluster.bootstrap, "kafka-configs", *broker, "--alter", *raised)

        def moved() -> bool:
            return replicas_by_directory(cluster, tools) == {before: [], after: [(f"{TOPIC}-0", False)]}

        cluster.wait_until("the replica has moved", moved)
        said = tools.run(cluster.bootstrap, "kafka-reassign-partitions", *files, "--verify")
        assert f"Reassignment of replica {TOPIC}-0-1 completed successfully" in said

        cluster.node(1).stop()
        cluster.node(1).start()
        cluster.wait_until_in_sync(TOPIC, 1, 2)
        assert moved()
        assert consume(cluster, 2 * RECORDS) == list(range(2 * RECORDS))
    finally:
        cluster.kill()


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_klamm_reassign_moves_replicas_between_log_directories_and_kafkas_tool_agrees(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", 2, overrides={"replica.fetch.max.bytes": "20000"})
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    cluster.node(1).properties["log.dirs"] = f"{one},{two}"
    path = tmp_path / "plan.json"
    files = ("--reassignment-json-file", str(path))

    def klamm(*words: str, status: int = 0) -> str:
        done = run_klamm("reassign", *words, "--bootstrap-server", cluster.bootstrap)
        assert done.returncode == status, done
        return (done.stdout + done.stderr).decode()

    def write(replicas: list[int], log_dirs: list[str]) -> None:
        entry = {"topic": TOPIC, "partition": 0, "replicas": replicas, "log_dirs": log_dirs}
        path.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    def verify() -> str:
        return kafka_tools().run(cluster.bootstrap, "kafka-reassign-partitions", *files, "--verify")

    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, 2)
        produce(cluster, 0)
        (before,) = [d for d, found in replicas_by_directory(cluster, kafka_tools()).items() if found]
        after = two if before == one else one
        write([1, 2], ["/nowhere", "any"])
        assert "no log directory of broker 1 (LOG_DIR_NOT_FOUND)" in klamm("apply", *files, status=2)

        write([1, 2], [after, "any"])
        assert f"{TOPIC}-0\t1\tnot moving\t{after}\t{before}" in klamm("status", *files, status=1)
        klamm("apply", *files, "--replica-alter-log-dirs-throttle", str(RATE))
        produce(cluster, RECORDS)
        assert f"{TOPIC}-0\t1\tin progress\t{after}\t{before}" in klamm("status", *files, status=1)
        assert "is still in progress" in verify()
        assert f"Cancelled: {TOPIC}-0 on broker 1 stays in {before}" in klamm("cancel", *files)
        assert replicas_by_directory(cluster, kafka_tools()) == {before: [(f"{TOPIC}-0", False)], after: []}

        throttled = ("--replica-alter-log-dirs-throttle", "100000000")
        applied = json.loads(klamm("apply", *files, *throttled, "--wait", "--json"))
        assert [(p["state"], p["current"]) for p in applied["log_dirs"]] == [("complete", after)]
        assert applied["throttles_removed"] == [{"entity": "broker 1", "keys": [THROTTLE]}]
        assert f"Reassignment of replica {TOPIC}-0-1 completed successfully" in verify()

        write([2], ["any"])
        klamm("apply", *files, "--wait")
        write([2, 1], ["any", after])
        klamm("apply", *files, "--wait")
        assert replicas_by_directory(cluster, kafka_tools()) == {before: [], after: [(f"{TOPIC}-0", False)]}
        moves = Path(cluster.node(1).output_path).read_text().count("replica begins to move to another log directory")
        assert moves == 2  # the new replica was created there
        assert consume(cluster, 2 * RECORDS) == list(range(2 * RECORDS))
    finally:
        cluster.kill()
