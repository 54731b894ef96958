"""An orderly restart of a node: SIGTERM to process gone, listening to back in every ISR, and what a producer notices.

    python -m benchmarks.restarts [--topics 300]

Three real nodes, ten partitions a topic with three replicas: each node leads a third and hosts all. After a first
restart that does not count, each node is stopped with SIGTERM and started again, in turn. Meanwhile librdkafka writes
with acks=all to thirty partitions; the gap is the longest time between two acknowledgements of one of them. Beside the
times, the processor time of the node: on a busy machine it is the figure that can be compared.
"""

import argparse
import json
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table
from tests.support.cluster import Cluster

from benchmarks.topics import COPIES, PARTITIONS, create
from klamm.embedded.nodes import NodeProcess, klamm_node
from klamm.runtime.processes import ticks

WAIT_S: Final = 300.0
BUDGETS: Final = {"stop_s": 0.8, "in_sync_s": 0.7, "gap_s": 0.2}
WRITTEN_TO: Final = 30
"""Partitions that the producer writes to."""
PAUSE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of a node."""

    node: int
    stop_s: float
    stop_cpu_s: float
    in_sync_s: float
    """From listening again to membership in the last ISR."""
    start_cpu_s: float
    """Of the whole start, up to then."""
    gap_s: float


class Writer:
    """Writes a record to each of some partitions again and again, and notes when they are acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        names = [topic.format(n) for n in range(WRITTEN_TO // PARTITIONS)]
        self._partitions = [(name, n) for name in names for n in range(PARTITIONS)]
        self._under_way: set[tuple[str, int]] = set()
        self._acknowledged: dict[tuple[str, int], float] = {}
        self.longest_gap_s = 0.0
        self._is_running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Begin to look for the longest gap anew."""
        self.longest_gap_s = 0.0

    def close(self) -> None:
        """End the thread."""
        self._is_running = False
        self._thread.join()

    def _run(self) -> None:
        """Keep one record under way to each partition."""
        while self._is_running:
            for key in [key for key in self._partitions if key not in self._under_way]:
                self._under_way.add(key)
                topic, partition = key
                self._producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._delivered)
            self._producer.poll(PAUSE_S)
        self._producer.flush(WAIT_S)

    def _delivered(self, error: Any, record: Any) -> None:
        """Note the time since the last acknowledgement of this partition."""
        assert error is None, error
        now, key = time.monotonic(), (record.topic(), record.partition())
        self.longest_gap_s = max(self.longest_gap_s, now - self._acknowledged.get(key, now))
        self._acknowledged[key] = now
        self._under_way.discard(key)


def cpu_s(node: NodeProcess) -> float:
    """Processor seconds of the node so far."""
    assert node.child is not None
    times = psutil.Process(node.child.pid).cpu_times()
    return float(times.user + times.system)


def in_every_isr(cluster: Cluster, node: int) -> bool:
    """Whether the node is in the ISR of all partitions."""
    topics = cluster.metadata(cluster.nodes[0 if node != cluster.nodes[0].broker_id else 1]).topics
    return all(node in p.isrs for topic in topics.values() for p in topic.partitions.values())


def restart(cluster: Cluster, node: NodeProcess, writer: Writer) -> Restart:
    """Stop and start a node, and wait until it is back in every ISR."""
    writer.forget()
    before, began = cpu_s(node), time.monotonic()
    used = before
    node.terminate()
    for _ in ticks(WAIT_S, 0.005):
        if not node.is_running:
            break
        try:
            used = cpu_s(node)
        except psutil.NoSuchProcess:
            break
    stop_s = time.monotonic() - began
    node.start()
    node.wait_until_listening()
    listening = time.monotonic()
    for _ in ticks(WAIT_S, 0.05):
        if in_every_isr(cluster, node.broker_id):
            break
    return Restart(
        node.broker_id, stop_s, used - before, time.monotonic() - listening, cpu_s(node), writer.longest_gap_s
    )


def measure(topics: int, console: Console) -> list[Restart]:
    """Restart each node in turn, after one restart that does not count."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        cluster = Cluster(Path(directory), COPIES, command=klamm_node)
        try:
            cluster.start()
            create(cluster, [f"bench-{n:04}" for n in range(topics)])
            writer = Writer(cluster, "bench-{:04}")
            found = []
            for node in (cluster.nodes[0], *cluster.nodes):
                found.append(restart(cluster, node, writer))
                console.print(json.dumps(asdict(found[-1])), highlight=False)
            writer.close()
        finally:
            cluster.kill()
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=300)
    asked = parser.parse_args()
    console = Console(width=120)
    found = measure(asked.topics, console)
    table = Table("figure", title=f"an orderly restart, {asked.topics * PARTITIONS:,} partitions, seconds")
    for heading in (*(f"node {r.node}" for r in found), "budget"):
        table.add_column(heading, justify="right")
    for name, heading in (
        ("stop_s", "SIGTERM to process gone"),
        ("stop_cpu_s", "processor time of that"),
        ("in_sync_s", "listening to back in every ISR"),
        ("start_cpu_s", "processor time since its start"),
        ("gap_s", "longest gap of a producer, acks=all"),
    ):
        budget = f"{BUDGETS[name]:g}" if name in BUDGETS else ""
        table.add_row(heading, *(f"{getattr(r, name):.2f}" for r in found), budget)
    console.print(table)


if __name__ == "__main__":
    main()
