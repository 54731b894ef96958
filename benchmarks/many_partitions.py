"""A node with 10,000 partitions: what it costs at rest, and a start after an orderly stop and after a SIGKILL.

    python -m benchmarks.many_partitions [--topics 1000] [--rest 30] [--kafka] [--json FILE]

One node leads every partition, ten to a topic, and each has a record. A start lasts from the new process until the
metadata of the node names a leader for each of them. Beside the seconds stands the processor time of the node: on a
busy machine it is the figure that can be compared. `--kafka` measures Apache Kafka's broker afterwards.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from benchmarks.restarts import cpu_s
from benchmarks.topics import AT_ONCE, PARTITIONS, PATIENCE_S, patient_admin_client
from klamm.embedded.nodes import Command, NodeProcess, klamm_node

SETTLE_S: Final = 10.0
"""After the last record: checkpoints and small files are written meanwhile."""


@dataclass(slots=True)
class ManyPartitions:
    """The figures of one system."""

    resting_cores: float = 0.0
    """Processor time for each second at rest."""
    memory_mib: float = 0.0
    stop_s: float = 0.0
    clean_start_s: float = 0.0
    clean_start_cpu_s: float = 0.0
    unclean_start_s: float = 0.0
    unclean_start_cpu_s: float = 0.0


def fill(cluster: Cluster, names: list[str]) -> None:
    """Create the topics, and write a record to each partition."""
    admin = patient_admin_client(cluster)
    for start in range(0, len(names), AT_ONCE):
        topics = [NewTopic(n, num_partitions=PARTITIONS, replication_factor=1) for n in names[start : start + AT_ONCE]]
        for done in admin.create_topics(topics, request_timeout=PATIENCE_S, operation_timeout=PATIENCE_S).values():
            done.result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "linger.ms": 50, "log_level": 0})
    for name in names:
        for partition in range(PARTITIONS):
            producer.produce(name, b"x" * 100, partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def wait_until_led(cluster: Cluster, names: list[str]) -> None:
    """Wait until the metadata names a leader for each partition."""

    def is_led() -> bool:
        found = cluster.metadata().topics
        return all(n in found and all(p.leader >= 0 for p in found[n].partitions.values()) for n in names)

    cluster.wait_until("every partition has a leader", is_led, PATIENCE_S)


def timed_start(cluster: Cluster, node: NodeProcess, names: list[str]) -> tuple[float, float]:
    """Start the node; the seconds until it leads all partitions, and its processor time."""
    began = time.monotonic()
    node.start()
    node.wait_until_listening(PATIENCE_S)
    wait_until_led(cluster, names)
    return time.monotonic() - began, cpu_s(node)


def measure(command: Command, topics: int, rest_s: float, report: Callable[[str], None]) -> ManyPartitions:
    names = [f"bench-{n:04}" for n in range(topics)]
    figures = ManyPartitions()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        cluster = Cluster(Path(directory), 1, command=command)
        try:
            cluster.start()
            fill(cluster, names)
            wait_until_led(cluster, names)
            (node,) = cluster.nodes
            time.sleep(SETTLE_S)
            before = cpu_s(node)
            time.sleep(rest_s)
            figures.resting_cores = (cpu_s(node) - before) / rest_s
            assert node.child is not None
            figures.memory_mib = psutil.Process(node.child.pid).memory_info().rss / 2**20
            report(json.dumps(asdict(figures)))
            began = time.monotonic()
            node.stop(PATIENCE_S)
            figures.stop_s = time.monotonic() - began
            figures.clean_start_s, figures.clean_start_cpu_s = timed_start(cluster, node, names)
            report(json.dumps(asdict(figures)))
            time.sleep(SETTLE_S)
            node.kill()
            figures.unclean_start_s, figures.unclean_start_cpu_s = timed_start(cluster, node, names)
        finally:
            cluster.kill()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--rest", type=float, default=30.0, help="seconds at rest")
    parser.add_argument("--kafka", action="store_true", help="also measure Apache Kafka 3.9.1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=110)

    def report(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    results = {"klamm": measure(klamm_node, options.topics, options.rest, report)}
    if options.kafka:
        broker = apache_kafka.broker(apache_kafka.BROKER_JAVA)
        results["Apache Kafka"] = measure(broker, options.topics, options.rest, report)
    table = Table("figure", title=f"{options.topics * PARTITIONS:,} partitions on a node")
    for name in results:
        table.add_column(name, justify="right")
    for figure in asdict(ManyPartitions()):
        table.add_row(figure.replace("_", " "), *(f"{asdict(found)[figure]:.2f}" for found in results.values()))
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps({name: asdict(found) for name, found in results.items()}, indent=1))


if __name__ == "__main__":
    main()
