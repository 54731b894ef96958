"""An orderly restart of a node: SIGTERM to process gone, listening to back in every ISR, and what a producer notices.

    python -m benchmarks.restarts [--topics 300] [--kafka]

Three real nodes, ten partitions a topic with three replicas: each node leads a third and hosts all. After a first
restart of each that does not count (it creates the index files of empty logs), each node is stopped with SIGTERM and
started again, in turn. Meanwhile librdkafka writes with acks=all to thirty partitions. The gap of a partition is the
longest time between two acknowledgements: at the stop where it began before the node was started again, else at the
start. librdkafka repeats a refused record after its `retry.backoff.ms`, 80 to 120 ms: no gap of a partition that
changes its leader is shorter. Beside the times, the processor time of the node: on a busy machine it is the figure
that can be compared. `--kafka` restarts Apache Kafka's brokers afterwards.
"""

import argparse
import json
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from benchmarks.topics import COPIES, PARTITIONS, create
from klamm.embedded.nodes import Command, NodeProcess, klamm_node
from klamm.model.ids import BrokerId
from klamm.runtime.processes import ticks

WAIT_S: Final = 300.0
BUDGETS: Final = {"stop_s": 0.8, "in_sync_s": 0.7, "stop_gap_s": 0.2, "start_gap_s": 0.2}
WRITTEN_TO: Final = 30
"""Partitions that the producer writes to."""
PAUSE_S: Final = 0.005
QUIET_S: Final = 2.0
"""How long nothing happens before each stop."""
ASKED_AT_ONCE: Final = 5
"""Topics in a question whether the node is back."""
MIN_GAP_S: Final = 0.02
"""Shorter ones are not kept."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of a node."""

    node: int
    usual_gap_s: float
    """The longest one in the seconds before: what the machine makes of it when nothing happens."""
    stop_s: float
    stop_cpu_s: float
    in_sync_s: float
    """From listening again to membership in the last ISR."""
    start_cpu_s: float
    """Of the whole start, up to then."""
    stop_gap_s: float
    stop_gap_median_s: float
    """Of the median partition that the node led."""
    start_gap_s: float


class Gap(NamedTuple):
    """The time between two acknowledgements of a partition's records."""

    seconds: float
    began: float


class Writer:
    """Writes a record to each of some partitions again and again, and notes when they are acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        names = [topic.format(n) for n in range(WRITTEN_TO // PARTITIONS)]
        self.partitions = [(name, n) for name in names for n in range(PARTITIONS)]
        self._under_way: set[tuple[str, int]] = set()
        self._acknowledged: dict[tuple[str, int], float] = {}
        self._gaps: dict[tuple[str, int], list[Gap]] = defaultdict(list)
        self._is_running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def longest_gap_s(self, key: tuple[str, int], since: float, until: float) -> float:
        """The longest gap of the partition that began between these moments, or was in progress at the first."""
        found = [gap.seconds for gap in self._gaps[key] if gap.began < until and gap.began + gap.seconds > since]
        return max(found, default=0.0)

    def longest_later_gap_s(self, key: tuple[str, int], since: float) -> float:
        """The longest gap of the partition that began after this moment."""
        return max((gap.seconds for gap in self._gaps[key] if gap.began >= since), default=0.0)

    def wait_for_acknowledgements(self, since: float) -> None:
        """Wait until a record of every partition was acknowledged after this moment."""
        for _ in ticks(WAIT_S, 0.01):
            if all(self._acknowledged.get(key, 0.0) > since for key in self.partitions):
                return
        raise AssertionError(f"not every partition was acknowledged within {WAIT_S:g} s")

    def close(self) -> None:
        """End the thread."""
        self._is_running = False
        self._thread.join()

    def _run(self) -> None:
        """Keep one record under way to each partition."""
        while self._is_running:
            for key in [key for key in self.partitions if key not in self._under_way]:
                self._under_way.add(key)
                topic, partition = key
                self._producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._delivered)
            self._producer.poll(PAUSE_S)
        self._producer.flush(WAIT_S)

    def _delivered(self, error: Any, record: Any) -> None:
        """Note the time since the last acknowledgement of this partition."""
        assert error is None, error
        now, key = time.monotonic(), (record.topic(), record.partition())
        before = self._acknowledged.get(key, now)
        if now - before > MIN_GAP_S:
            self._gaps[key].append(Gap(now - before, before))
        self._acknowledged[key] = now
        self._under_way.discard(key)


def cpu_s(node: NodeProcess) -> float:
    """Processor seconds of the node so far."""
    assert node.child is not None
    times = psutil.Process(node.child.pid).cpu_times()
    return float(times.user + times.system)


def wait_until_in_every_isr(cluster: Cluster, node: BrokerId) -> None:
    """Wait until the node is in the ISR of all partitions, by the metadata of another one.

    It is asked about few topics of those that lack the node: to answer for all of them takes a node 50 ms each time, in
    which it has better things to do.
    """
    other = next(n for n in cluster.nodes if n.broker_id != node)

    def lacking(topics: Sequence[str] | None) -> list[str]:
        """Those of the topics that lack the node in an ISR."""
        found = cluster.describe(topics, other).topics
        return [name for name, t in found.items() if any(node not in p.isr for p in t.partitions.values())]

    left = lacking(None)
    for _ in ticks(WAIT_S, 0.02):
        if not left:
            return
        if not lacking(left[-ASKED_AT_ONCE:]):
            left = lacking(None)
    raise AssertionError(f"node {node} was not in every ISR within {WAIT_S:g} s")


def led_by(cluster: Cluster, node: int, writer: Writer) -> list[tuple[str, int]]:
    """Those of the partitions written to that the node leads."""
    topics = cluster.metadata().topics
    return [(topic, n) for topic, n in writer.partitions if topics[topic].partitions[n].leader == node]


def restart(cluster: Cluster, node: NodeProcess, writer: Writer) -> Restart:
    """Stop and start a node, and wait until it is back in every ISR."""
    led = led_by(cluster, node.broker_id, writer)
    quiet = time.monotonic()
    time.sleep(QUIET_S)
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
    started = time.monotonic()
    node.start()
    node.wait_until_listening()
    listening = time.monotonic()
    wait_until_in_every_isr(cluster, BrokerId(node.broker_id))
    in_sync = time.monotonic()
    writer.wait_for_acknowledgements(in_sync)
    return Restart(
        node.broker_id,
        max(writer.longest_gap_s(key, quiet, began - QUIET_S / 2) for key in writer.partitions),
        stop_s,
        used - before,
        in_sync - listening,
        cpu_s(node),
        max(writer.longest_gap_s(key, began, started) for key in writer.partitions),
        median([writer.longest_gap_s(key, began, started) for key in led] or [0.0]),
        max(writer.longest_later_gap_s(key, started) for key in writer.partitions),
    )


def measure(command: Command, topics: int, console: Console) -> list[Restart]:
    """Restart each node in turn, after a restart of each that does not count."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        cluster = Cluster(Path(directory), COPIES, command=command)
        try:
            cluster.start()
            create(cluster, [f"bench-{n:04}" for n in range(topics)])
            writer = Writer(cluster, "bench-{:04}")
            writer.wait_for_acknowledgements(0.0)
            found = []
            for node in (*cluster.nodes, *cluster.nodes):
                found.append(restart(cluster, node, writer))
                console.print(json.dumps(asdict(found[-1])), highlight=False, soft_wrap=True)
            writer.close()
        finally:
            cluster.kill()
    return found[COPIES:]


def table_of(name: str, topics: int, found: Sequence[Restart]) -> Table:
    """The figures of each restart beside their budgets."""
    table = Table("figure", title=f"{name}: an orderly restart, {topics * PARTITIONS:,} partitions, seconds")
    for heading in (*(f"node {r.node}" for r in found), "budget"):
        table.add_column(heading, justify="right")
    for figure, heading in (
        ("usual_gap_s", "longest gap of a producer, acks=all, before it"),
        ("stop_s", "SIGTERM to process gone"),
        ("stop_cpu_s", "processor time of that"),
        ("in_sync_s", "listening to back in every ISR"),
        ("start_cpu_s", "processor time since its start"),
        ("stop_gap_s", "longest gap at the stop"),
        ("stop_gap_median_s", "median of the partitions that the node led"),
        ("start_gap_s", "longest gap at the start"),
    ):
        budget = f"{BUDGETS[figure]:g}" if figure in BUDGETS else ""
        table.add_row(heading, *(f"{getattr(r, figure):.2f}" for r in found), budget)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka's brokers afterwards")
    asked = parser.parse_args()
    console = Console(width=120)
    tables = [table_of("klamm", asked.topics, measure(klamm_node, asked.topics, console))]
    if asked.kafka and (why := apache_kafka.why_missing()):
        console.print(f"Apache Kafka is left out: {why}")
    elif asked.kafka:
        broker = apache_kafka.broker(apache_kafka.BROKER_JAVA)
        tables.append(table_of("Apache Kafka", asked.topics, measure(broker, asked.topics, console)))
    for table in tables:
        console.print(table)


if __name__ == "__main__":
    main()
