"""klamm beside Apache Kafka 3.9.1, in one run on one machine: start-up, memory, produce and consume.

    python -m benchmarks.side_by_side [--seconds 10] [--sizes 100,1000,10000] [--copies 1,3] [--json FILE]

Both run the same harness: the same ZooKeeper, the same ports' kind, the same loader process (`load.py`, librdkafka),
the same topic (6 partitions). One copy: one node, acks=1. Three copies: three nodes, acks=all and
min.insync.replicas=2. Each measurement stands alone; the other system is not running meanwhile.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.embedded.nodes import Command, klamm_node

PARTITIONS = 6
MOST_RECORDS_READ = 3_000_000
MOST_BYTES_READ = 1_500_000_000
LOADER = Path(__file__).with_name("load.py")


class Measurement(NamedTuple):
    """`unit` tells which way is better: seconds and MB of memory down, rates up."""

    name: str
    unit: str
    klamm: float
    kafka: float

    @property
    def ratio(self) -> float:
        """The figure of klamm compared with Kafka's; above 1 klamm is better."""
        if self.unit in {"s", "ms", "MiB"}:
            return self.kafka / self.klamm if self.klamm else 0.0
        return self.klamm / self.kafka if self.kafka else 0.0


def load(*words: str) -> dict[str, Any]:
    """Run one loader process and return its JSON line. Raises RuntimeError if it fails."""
    done = subprocess.run([sys.executable, str(LOADER), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def memory_mib(cluster: Cluster) -> float:
    """Resident memory of all nodes, without ZooKeeper."""
    processes = [psutil.Process(n.child.pid) for n in cluster.nodes if n.child and n.is_running]
    return float(sum(p.memory_info().rss for p in processes) / 2**20)


def measure(command: Command, copies: int, sizes: Sequence[int], seconds: float) -> dict[tuple[str, str], float]:
    """(name, unit) -> figure of one system."""
    figures: dict[tuple[str, str], float] = {}
    acks = "1" if copies == 1 else "all"
    say = f"RF {copies}"
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        cluster = Cluster(Path(directory), copies, command=command)
        try:
            started = time.monotonic()
            cluster.start()
            figures[(f"ZooKeeper + {copies} node(s) ready", "s")] = round(time.monotonic() - started, 2)
            figures[(f"memory of {copies} node(s) after start", "MiB")] = round(memory_mib(cluster))
            for size in sizes:
                topic = f"bench-{size}"
                insync = {"min.insync.replicas": "2"} if copies > 1 else {}
                cluster.create_topic(topic, PARTITIONS, copies, insync)
                common = ["--bootstrap", cluster.bootstrap, "--topic", topic]
                wrote = load("produce", *common, "--size", str(size), "--seconds", str(seconds), "--acks", acks)
                name, unit = (f"{say}, {size} B, produce acks={acks}", "records/s" if size < 1000 else "MB/s")
                figures[(name, unit)] = wrote["records_per_s" if size < 1000 else "mb_per_s"]
                figures[(f"{say}, {size} B, records not acknowledged", "lost")] = wrote["lost"]
                count = int(min(wrote["records"], MOST_RECORDS_READ, MOST_BYTES_READ // size))
                read = load("consume", *common, "--records", str(count), "--seconds", "120")
                figures[(f"{say}, {size} B, consume", unit)] = read["records_per_s" if size < 1000 else "mb_per_s"]
                figures[(f"{say}, {size} B, records not found", "lost")] = read["missing"]
            figures[(f"memory of {copies} node(s) after load", "MiB")] = round(memory_mib(cluster))
        finally:
            cluster.kill()
    return figures


def side_by_side(copies: Sequence[int], sizes: Sequence[int], seconds: float, console: Console) -> list[Measurement]:
    rows: list[Measurement] = []
    for count in copies:
        console.print(f"RF {count}: Apache Kafka {apache_kafka.VERSION} ...")
        kafka = measure(apache_kafka.broker(apache_kafka.BROKER_JAVA), count, sizes, seconds)
        console.print(f"RF {count}: klamm ...")
        klamm = measure(klamm_node, count, sizes, seconds)
        for (name, unit), figure in kafka.items():
            if unit == "lost":
                assert not figure, f"Apache Kafka: {name}: {figure}"
                assert not klamm[(name, unit)], f"klamm: {name}: {klamm[(name, unit)]}"
            else:
                rows.append(Measurement(name, unit, klamm[(name, unit)], figure))
    return rows


def print_table(rows: Sequence[Measurement], console: Console) -> None:
    table = Table("what", "unit", title="klamm beside Apache Kafka (ratio above 1: klamm is better)")
    for heading in ("klamm", "Apache Kafka", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.name, row.unit, f"{row.klamm:,}", f"{row.kafka:,}", f"{row.ratio:.2f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="how long each produce run sends")
    parser.add_argument("--sizes", default="100,1000,10000", help="record sizes in bytes")
    parser.add_argument("--copies", default="1,3", help="replication factors; as many nodes run")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    console = Console(width=120)
    if why := apache_kafka.why_missing():
        console.print(f"left out: {why}")
        return
    sizes = [int(s) for s in options.sizes.split(",")]
    copies = [int(c) for c in options.copies.split(",")]
    rows = side_by_side(copies, sizes, options.seconds, console)
    print_table(rows, console)
    if options.json:
        Path(options.json).write_text(json.dumps([{**r._asdict(), "ratio": round(r.ratio, 3)} for r in rows], indent=1))


if __name__ == "__main__":
    main()
