"""Writing topics from Spark: rows a second, beside Spark's own connector (4.0.0) on the same node.

    python -m benchmarks.spark_write    # 3 million rows of 100 B, klamm and the official connector in turn
    python -m benchmarks.spark_write --only discard klamm
    python -m benchmarks.spark_write --records 500000 --bytes 1000 --codec zstd --exactly-once

Each format has a Spark of its own, with two cores; rounds alternate, after one that warms up. Beside wall time stands
the processor time that a million rows cost: of Spark's JVM, of its Python workers and of the node. On a busy machine it
is the steadier figure. `discard` is a Python sink that drops the Arrow batches that Spark passes to it: the limit that
Spark sets. Rows are made by Spark as they are written. Bytes are those of keys and values.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.support import official_connector
from tests.support.cluster import Cluster

from klamm.runtime.java import java_home

JOB = Path(__file__).parent / "spark_write_job.py"
PARTITIONS = 8
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
KLAMM = {"spark.python.unix.domain.socket.enabled": "true"}
WAYS = ("discard", "klamm", "klamm exactly-once", "kafka")


class Spent(NamedTuple):
    """Processor seconds by part."""

    jvm_s: float
    python_s: float
    node_s: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Round(NamedTuple):
    wall_s: float
    spent: Spent

    @property
    def spark_s(self) -> float:
        return self.spent.jvm_s + self.spent.python_s


class Writer:
    """A Spark that writes a round when it is asked to."""

    def __init__(self, way: str, cluster: Cluster, given: argparse.Namespace, directory: Path) -> None:
        self.way = way
        self._nodes = [psutil.Process(node.child.pid) for node in cluster.nodes if node.child is not None]
        name, _, mode = way.partition(" ")
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "topic": "bench",
            "kafka.compression.type": given.codec,
        }
        if mode:
            options |= {"delivery": mode, "writeId": "bench"}
        official = name == "kafka"
        job = {
            "format": name,
            "settings": SETTINGS | ({"spark.jars": official_connector.jars()} if official else KLAMM),
            "options": options,
            "rows": given.records,
            "bytes": given.bytes,
            "tasks": given.tasks,
            "rounds": given.rounds,
        }
        python = str(official_connector.PYTHON) if official else sys.executable
        keep = {n: v for n, v in os.environ.items() if not (official and n == "PYTHONPATH")}
        self._process = subprocess.Popen(
            [python, str(JOB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(directory / f"{way.replace(' ', '-')}.log", "w"),  # noqa: SIM115  the process has it
            text=True,
            env=keep | {"PYSPARK_PYTHON": python, "JAVA_HOME": str(java_home())},
        )
        self._say(json.dumps(job))

    def round(self) -> Round:
        """Let it write once."""
        before = self._spent()
        self._say("")
        line = self._line()
        assert line, f"{self.way} ended: see its log"
        return Round(float(line), self._spent().since(before))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _spent(self) -> Spent:
        """Processor seconds until now."""
        children = psutil.Process(self._process.pid).children()
        java = next((p for p in children if any("org.apache.spark" in word for word in p.cmdline())), None)
        if java is None:  # Spark is still starting
            return Spent(0, 0, 0)
        workers = sum(_cpu_s(p) for p in java.children(recursive=True)) + java.cpu_times().children_user
        nodes = sum(_cpu_s(p) for node in self._nodes for p in (node, *node.children(recursive=True)))
        return Spent(_own_cpu_s(java), workers, nodes)


def _own_cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_s(process: psutil.Process) -> float:
    """Of the process, and of its children that ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def print_round(way: str, given: argparse.Namespace, best: Round) -> None:
    rows, size = given.records, given.bytes
    jvm, python, node = (seconds * 1e6 / rows for seconds in best.spent)
    print(
        f"{way:<20} {rows / best.wall_s / 1e6:6.2f} M rows/s {rows * size / best.wall_s / 1e6:6.0f} MB/s"
        f" {rows / best.spark_s / 1e6:6.2f} M rows per CPU s of Spark;"
        f" CPU s per M rows: JVM {jvm:.2f}, Python {python:.2f}, node {node:.2f}",
        flush=True,
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=3_000_000)
    words.add_argument("--bytes", type=int, default=100)
    words.add_argument("--tasks", type=int, default=4)
    words.add_argument("--codec", default="none")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--only", nargs="*", default=(), choices=WAYS)
    words.add_argument("--exactly-once", action="store_true", help="measure this, too")
    given = words.parse_args()
    ways = [w for w in WAYS if (given.exactly_once or "exactly" not in w) and (w in given.only or not given.only)]
    if "kafka" not in ways:
        pass
    elif official_connector.can_fetch():
        official_connector.fetch()
    else:
        ways.remove("kafka")
    one_node = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory, "c"), 1, overrides=one_node) as cluster:
        cluster.create_topic("bench", PARTITIONS, 1)
        writers = [Writer(way, cluster, given, Path(directory)) for way in ways]
        for writer in writers:
            writer.round()
        found: dict[str, list[Round]] = {writer.way: [] for writer in writers}
        for _ in range(given.rounds):
            for writer in writers:
                found[writer.way].append(writer.round())
        for way, rounds in found.items():
            print_round(way, given, min(rounds, key=lambda r: r.spark_s))
        for writer in writers:
            writer.close()


if __name__ == "__main__":
    main()
